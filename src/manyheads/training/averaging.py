"""The mean of the weights along the end of the way, which is better than where a step happens to land."""

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from manyheads.training.strategies import parted

EVERY = 10  # steps between two looks, unless the mean is asked for: neighbouring weights are nearly the same


class Average(Callback):
    """Validates and keeps an exponential mean of the weights over about the last `steps` optimiser steps.

    Polyak and Juditsky (1992), "Acceleration of Stochastic Approximation by Averaging"; Izmailov et al. (2018),
    "Averaging Weights Leads to Wider Optima". Over a fifth of the way so far at the most, so that a short run
    forgets how it began; training itself goes on from its own weights. Stands behind `KeepBest`, which writes
    what was validated.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._mean: list[Tensor] = []
        self._own: list[Tensor] = []
        self._seen = 0

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self._mean, "seen": self._seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._mean, self._seen = state_dict["mean"], state_dict["seen"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._mean:
            weights = zip(self._mean, _weights(pl_module), strict=True)
            self._mean = [parted(mean.to(pl_module.device), weight) for mean, weight in weights]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % EVERY == 0:
            self._look(trainer, pl_module)

    @torch.no_grad()
    def _look(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Bring the mean up to the last step."""
        step, missed = trainer.global_step, trainer.global_step - self._seen
        if not missed:
            return
        self._seen = step
        weights = _weights(pl_module)
        if not self._mean:
            self._mean = [weight.clone() for weight in weights]
        share = min(1.0, missed / min(self.steps, step / 5))
        for mean, weight in zip(self._mean, weights, strict=True):
            mean.lerp_(weight, share)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._look(trainer, pl_module)
        if self._mean:
            self._own = [weight.clone() for weight in _weights(pl_module)]
            _put(self._mean, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._own:
            _put(self._own, pl_module)
            self._own = []

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._look(trainer, pl_module)
        if self._mean:
            _put(self._mean, pl_module)


def _weights(module: pl.LightningModule) -> list[Tensor]:
    return [parameter.detach() for parameter in module.parameters()]


def _put(weights: list[Tensor], module: pl.LightningModule) -> None:
    for own, weight in zip(_weights(module), weights, strict=True):
        own.copy_(weight)
