"""The processes of a run in Lightning's words: it starts none, and guesses nothing from the environment."""

from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import ClusterEnvironment  # pyright: ignore[reportPrivateImportUsage]
from lightning.pytorch.strategies import DDPStrategy

from manyheads.fit.alive import mark
from manyheads.ranks import meeting_place, this_process


class Started(ClusterEnvironment):
    """The processes that `launch.py`, torchrun or srun has started, or one alone."""

    def __init__(self) -> None:
        self.ranks = this_process()

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return meeting_place()[0]

    @property
    def main_port(self) -> int:
        return meeting_place()[1]

    @staticmethod
    def detect() -> bool:
        return True

    def world_size(self) -> int:
        return self.ranks.n_ranks

    def set_world_size(self, size: int) -> None:
        """It is what was started."""

    def global_rank(self) -> int:
        return self.ranks.rank

    def set_global_rank(self, rank: int) -> None:
        """It is what was started."""

    def local_rank(self) -> int:
        return self.ranks.local_rank

    def node_rank(self) -> int:
        return self.ranks.node


class Marks(Callback):
    """Says what the process is at: every optimiser step's beginning and end, and every batch of a validation."""

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        mark(trainer.global_step, "training")

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Any) -> None:
        mark()

    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        mark(trainer.global_step, "validation")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        mark(trainer.global_step, "training")


def ddp(timeout: float, *, on_gpu: bool) -> DDPStrategy:
    """Each process has the whole model, and gradients are averaged; `timeout` seconds is what one waits for others.

    Buffers are not sent around in each step: ours are tables that no step changes.
    """
    backend = "nccl" if on_gpu else "gloo"
    return DDPStrategy(process_group_backend=backend, timeout=timedelta(seconds=timeout), broadcast_buffers=False)
