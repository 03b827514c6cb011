"""The best epoch's weights, kept on disk while training goes on."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file, save_file
from torch import nn

from manyheads.config import Metric
from manyheads.fit.fits import fitting
from manyheads.fit.shards import whole
from manyheads.whole import replace_file


@dataclass(frozen=True, slots=True)
class Best:
    """The validation figure the weights were kept for, and when: epoch from 1, optimiser steps done."""

    metric: str
    value: float
    epoch: int
    step: int


class KeepBest(Callback):
    """Writes `best.safetensors` after each validation that is better than all before.

    Of two epochs with the same figure the one with the lower validation loss is better: on a small validation
    split the same accuracy often comes twice. An epoch whose figure or loss is not a finite number is never kept.
    """

    def __init__(self, metric: Metric, network: nn.Module, folder: Path) -> None:
        self.metric = metric
        self.network = network
        self.path = folder / "best.safetensors"
        self.best: Best | None = None
        self._rank: tuple[float, float] | None = None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        figures = trainer.callback_metrics
        value, loss = (float(figures[f"validation_{name}"]) for name in (self.metric.name, "loss"))
        rank = (-value if self.metric is Metric.loss else value, -loss)
        if not all(map(math.isfinite, rank)):
            return
        if self._rank is not None and not rank > self._rank:
            return
        self._rank = rank
        self.best = Best(self.metric.name, value, trainer.current_epoch + 1, trainer.global_step)
        weights = whole(pl_module.network.state_dict())  # type: ignore[union-attr]
        if trainer.is_global_zero:
            self.path.parent.mkdir(exist_ok=True)
            with replace_file(self.path) as part:
                save_file(weights, part)

    def state_dict(self) -> dict[str, Any]:
        return {"best": asdict(self.best), "rank": self._rank} if self.best else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self._rank = Best(**state_dict["best"]), state_dict["rank"]

    def restore(self) -> dict[str, Any]:
        """Load the kept weights; returns what `Best` holds, or nothing where no validation was ever made.

        Raises:
            ValueError: the file, which may be anybody's, does not fit, or the weights are of no use to anybody.
        """
        if self.best is not None:
            with fitting(self.path):
                self.network.load_state_dict(load_file(self.path))
        if not all(bool(one.isfinite().all()) for one in self.network.state_dict().values()):
            raise ValueError(
                f"the run in {self.path.parent.parent} ends with weights that are not finite numbers, so that no model "
                "is written: start a new run in another folder"
            )
        return asdict(self.best) if self.best else {}
