"""The processes of a run in Lightning's words: it starts none, and guesses nothing from the environment."""

import os
import secrets
import time
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.environments import ClusterEnvironment  # pyright: ignore[reportPrivateImportUsage]
from lightning.pytorch.strategies import DDPStrategy
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from manyheads.fit.alive import mark
from manyheads.ranks import Ranks, meeting_place, this_process

LOOK = 0.05  # seconds between two looks into the store


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


class Joined(DDPStrategy):
    """DDP, whose processes find each other also where torchrun has started them again.

    torchrun keeps one store for all its starts, in which the addresses of processes that are gone still stand; torch
    reads them as those of today. So the first process calls the others to a part of the store that is theirs alone.
    """

    def setup_distributed(self) -> None:
        ranks = this_process()
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not dist.is_initialized():
            address, port = meeting_place()
            timeout = self._timeout
            assert timeout is not None, "ddp and fsdp give one"
            store = gathered(TCPStore(address, port, is_master=False, timeout=timeout), ranks, timeout)
            backend, n_ranks = self.process_group_backend, ranks.n_ranks
            dist.init_process_group(backend, timeout=timeout, store=store, rank=ranks.rank, world_size=n_ranks)
        super().setup_distributed()


def gathered(store: Store, ranks: Ranks, timeout: timedelta) -> Store:
    """A part of `store` for those processes that are there now: each has answered the call of the first by a number of
    its own, and sees that number among those that the first goes on with.

    Raises:
        RuntimeError: the first has not called in time.
    """
    own, until = secrets.token_hex(8), time.monotonic() + timeout.total_seconds()
    if ranks.is_first:
        keys = [f"manyheads/{own}/{rank}" for rank in range(1, ranks.n_ranks)]
        store.set("manyheads/call", own)
        store.wait(keys, timeout)
        store.set(f"manyheads/{own}/go", ",".join(store.get(key).decode() for key in keys))
        return PrefixStore(f"manyheads/{own}", store)
    while time.monotonic() < until:
        call = store.get("manyheads/call").decode()  # perhaps of one that is gone: then it is looked at again
        store.set(f"manyheads/{call}/{ranks.rank}", own)
        go = f"manyheads/{call}/go"
        if store.check([go]) and own in store.get(go).decode().split(","):
            return PrefixStore(f"manyheads/{call}", store)
        time.sleep(LOOK)
    raise RuntimeError(f"TCPStore: rank 0 has not called within {timeout.total_seconds():g} s")


def ddp(timeout: float, *, on_gpu: bool) -> Joined:
    """Each process has the whole model, and gradients are averaged; `timeout` seconds is what one waits for others.

    Buffers are not sent around in each step: ours are tables that no step changes.
    """
    backend = "nccl" if on_gpu else "gloo"
    return Joined(process_group_backend=backend, timeout=timedelta(seconds=timeout), broadcast_buffers=False)
