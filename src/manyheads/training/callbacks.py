"""Callbacks of a training: the best weights are kept, training ends when the validation figure stops improving, and
users' callbacks may not turn the network into another one."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.fsdp import FSDPModule

from manyheads.config.figures import lower_is_better
from manyheads.errors import UserError
from manyheads.runs.checkpoints import refuse_unfit
from manyheads.runs.files import replace_file
from manyheads.training import state
from manyheads.training.strategies import whole


class KeepBest(Callback):
    """Writes `best.safetensors` after each validation that is better than all before.

    With equal figures the lower validation loss is better: on a small validation split the same accuracy often occurs
    twice. A validation with a non-finite figure or loss is never kept.

    Attributes:
        best: metric and value of the best validation, its epoch (from 1), and the optimiser steps done.
    """

    def __init__(self, metric: str, network: nn.Module, folder: Path) -> None:
        self.metric = metric
        self.network = network
        self.path = folder / "best.safetensors"
        self.best: dict[str, Any] = {}
        self._rank: tuple[float, float] | None = None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        value = float(trainer.callback_metrics[f"validation_{self.metric}"])
        loss = float(trainer.callback_metrics["validation_loss"])
        if not (math.isfinite(value) and math.isfinite(loss)):
            return
        rank = (-value if lower_is_better(self.metric) else value, -loss)
        if self._rank is not None and rank <= self._rank:
            return
        self._rank = rank
        self.best = {
            "metric": self.metric,
            "value": value,
            "epoch": trainer.current_epoch + 1,
            "step": trainer.global_step,
        }
        weights = whole(pl_module.network.state_dict())  # type: ignore[union-attr] # all ranks gather, the first writes
        if trainer.is_global_zero:
            self.path.parent.mkdir(exist_ok=True)
            with replace_file(self.path) as part:
                save_file(weights, part)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "rank": self._rank} if self.best else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best = {name: state_dict["best"][name] for name in ("metric", "value", "epoch", "step")}
        self._rank = state_dict["rank"]

    def restore(self) -> dict[str, Any]:
        """Load the best weights into the network, if there was a validation; returns `best`.

        Raises:
            UserError: the file does not fit the network, or the weights are not finite.
        """
        if self.best:
            with refuse_unfit(self.path):
                self.network.load_state_dict(load_file(self.path))
        if not all(bool(one.isfinite().all()) for one in self.network.state_dict().values()):
            raise UserError(
                f"the run in {self.path.parent.parent} ends with weights that are not finite numbers, so that no model "
                "is written: start a new run in another folder"
            )
        return self.best


class Patience(Callback):
    """Early stopping: ends training after `epochs` epochs without a better validation figure, however many validations
    each had. An epoch without a validation counts when the next one is made.
    """

    def __init__(self, metric: str, epochs: int) -> None:
        self.metric, self.epochs = metric, epochs
        self._best = -math.inf  # the figure; higher is better
        self._best_epoch = self._last_epoch = 0  # of the best and of the last validation, from 1

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        value = float(trainer.callback_metrics[f"validation_{self.metric}"])
        if lower_is_better(self.metric):
            value = -value
        self._last_epoch = trainer.current_epoch + 1
        if value > self._best:
            self._best, self._best_epoch = value, self._last_epoch

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._last_epoch - self._best_epoch >= self.epochs:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        return {"best": self._best, "epoch": self._best_epoch, "judged": self._last_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._best = state_dict["best"]
        self._best_epoch, self._last_epoch = state_dict["epoch"], state_dict["judged"]


class NetworkGuard(Callback):
    """Refuses users' callbacks that change what a run could not save.

    They may freeze weights, change their values and watch. Refused are another architecture than the settings describe
    (before the first step, and at each epoch and validation), and a state that no checkpoint can hold. It comes after
    these callbacks.

    Args:
        module: as it is before the callbacks see it.
        callbacks: users' callbacks.
    """

    def __init__(self, module: pl.LightningModule, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks
        self._before, self._has_begun = _architecture(module), False

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._refuse_another(pl_module)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self._has_begun:  # the first step: users' callbacks have been called for the first time
            self._has_begun = True
            for callback in self.callbacks:
                state.check_pytree(callback.state_dict())
            self._refuse_another(pl_module)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._refuse_another(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._refuse_another(pl_module)

    def _refuse_another(self, module: pl.LightningModule) -> None:
        found = _architecture(module)
        for name in [*self._before, *found]:
            before, now = self._before.get(name, "nothing"), found.get(name, "nothing")
            if before != now:
                names = ", ".join(type(callback).__name__ for callback in self.callbacks)
                raise UserError(
                    f"a callback ({names}) has changed the network, which could not be saved: {name} is {now} where "
                    f"the settings make {before}; remove it, or train such a network by a Trainer of your own"
                )


def _architecture(module: pl.LightningModule) -> dict[str, str]:
    """The class of each module of the network, and dtype and shape of each tensor of its state, by name."""
    found: dict[str, str] = {}
    for name, one in module.named_modules():
        # FSDP makes a class of its own from that of a module: the first that is not one of these is the module's.
        kind = next(kind for kind in type(one).__mro__ if not issubclass(kind, FSDPModule))
        found[name] = f"{kind.__qualname__} of {kind.__module__}"
        if "forward" in vars(one):
            found[name] += " with a forward of its own"
    for name, tensor in module.state_dict().items():
        found[name] = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    return found
