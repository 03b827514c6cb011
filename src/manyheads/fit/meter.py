"""Speed of the training loop: real tokens, padding, seconds. Counted on the host, so no GPU is waited for in a step."""

import time
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback

from manyheads.data.batches import Batch


class Meter(Callback):
    """Counts what this process trains on; when training has ended, what all processes did.

    `seconds` runs from the first step to the end of the last, loader, loss, clip, optimiser and logging included,
    validation and checkpoints excluded. In the end tokens, cells and rows are added up over the
    processes, and `seconds` is that of the slowest.
    """

    def __init__(self) -> None:
        self.tokens = self.cells = self.rows = self.steps = 0
        self.seconds = 0.0
        self._since: float | None = None

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._since = time.perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        for part in batch.parts:
            self.tokens += part.layout.n_tokens
            self.cells += part.layout.n_documents * part.layout.longest
        self.rows += len(batch.rows_B)
        self.steps += 1
        self._stop()
        self._since = time.perf_counter()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._since = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """All processes come here, each once."""
        if trainer.world_size == 1:
            return
        counts = torch.tensor([self.tokens, self.cells, self.rows], device=pl_module.device)
        seconds = torch.tensor(self.seconds, dtype=torch.float64, device=pl_module.device)
        summed: Any = trainer.strategy.reduce(counts, reduce_op="sum")
        self.tokens, self.cells, self.rows = summed.tolist()
        self.seconds = float(trainer.strategy.reduce(seconds, reduce_op="max"))

    def leave_out(self, seconds: float) -> None:
        """What has just passed was not training."""
        if self._since is not None:
            self._since += seconds

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("tokens", "cells", "rows", "steps", "seconds")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, value in state_dict.items():
            setattr(self, name, value)

    @staticmethod
    def summed(states: list[dict[str, Any]]) -> dict[str, Any]:
        """The state of one process that has done what several did; its seconds are those of the slowest."""
        slowest = {name: max(one[name] for one in states) for name in ("steps", "seconds")}
        return {name: sum(one[name] for one in states) for name in states[0]} | slowest

    def _stop(self) -> None:
        if self._since is not None:
            self.seconds += time.perf_counter() - self._since
            self._since = None

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def padding_share(self) -> float:
        """Share of the cells of the attention grids that hold no token."""
        return 1 - self.tokens / self.cells if self.cells else 0.0
