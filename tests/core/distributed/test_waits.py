"""A training step never waits for a GPU: nothing is read back, and nothing is copied from the host piece by piece.

On the CPU every call of a step is looked at; on a GPU torch itself raises where the host would wait.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from manyheads.config import (
    BatchConfig,
    HardwareConfig,
    LoggerConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
)
from manyheads.config.training import Compile
from manyheads.data.batches import gather, plan_epoch
from manyheads.data.tokens import Tokens
from manyheads.nn import assemble
from manyheads.training.guard import Guard
from manyheads.training.module import LitModule
from manyheads.training.objectives import Classify
from manyheads.training.optim import make_optimizer, make_schedule
from manyheads.training.trainer import run_trainer

READS = ("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "bincount", "unique")
FROM_HOST = (torch.tensor, torch.as_tensor, torch.from_numpy)
SHAPE = ModelConfig(n_layers=2, n_heads=2, d_model=16, d_k=8, d_v=8, d_ff=24, dropout_attention=0.1)


class Dispatch(TorchDispatchMode):
    """Raises on whatever needs a value of a tensor on the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").split(".")[0]
        waits = any(name == read or name.startswith(f"_{read}") or name.startswith(f"{read}_") for read in READS)
        if name in ("index", "index_put", "index_put_"):
            waits = any(index is not None and index.dtype is torch.bool for index in args[1])
        if name == "repeat_interleave":
            waits = not (kwargs or {}).get("output_size")
        if waits:
            raise AssertionError(f"{func.name()} waits")
        return func(*args, **(kwargs or {}))


class Function(TorchFunctionMode):
    """Raises on tensors made of numbers of the host, each of which is a copy that waits."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in FROM_HOST or func in (torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.numpy):
            raise AssertionError(f"{func.__name__} waits")
        return func(*args, **(kwargs or {}))


def tokens() -> Tokens:
    lengths = [5, 3, 9, 4, 7, 6]
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    ids_N = torch.randint(5, 30, (int(offsets[-1]),), dtype=torch.int32)
    return Tokens(ids_N, offsets, None, torch.randint(3, (len(lengths),)))


def assert_nothing_is_read_back(network: Any, objective: Any, rows: Tokens) -> None:
    """By a step of training on all rows."""
    module = LitModule(network, objective, optim=OptimConfig(), n_steps=10)
    module.log = lambda *args, **kwargs: None  # Lightning's, which keeps the tensor as it is
    module._trainer = SimpleNamespace(scaler=None, global_step=0)
    (planned,) = plan_epoch(rows.lengths, tokens=999, rows=99, seed=0, epoch=0)
    batch = gather(rows, planned)
    optimizer = make_optimizer(module.network, module.optim)
    schedule = make_schedule(optimizer, module.optim, 10)
    step(module, batch, optimizer, schedule)  # the optimiser's state is made
    with Dispatch(), Function():
        step(module, batch, optimizer, schedule)


def step(module: LitModule, batch: Any, optimizer: Any, schedule: Any) -> None:
    """What Lightning does in a step."""
    loss = module.training_step(batch, 0)
    optimizer.zero_grad()
    loss.backward()
    module.configure_gradient_clipping(optimizer, 1.0)
    optimizer.step()
    schedule.step()


MODELS = {
    "mean": SHAPE,
    "rotary, max": ModelConfig(
        n_layers=2, n_heads=2, d_model=16, d_k=8, d_v=8, d_ff=24, positions="rotary", pooling="max"
    ),
    "learned, first": ModelConfig(
        n_layers=2, n_heads=2, d_model=16, d_k=8, d_v=8, positions="learned", pooling="first", window=2
    ),
    "alibi, attention": ModelConfig(
        n_layers=2, n_heads=2, d_model=16, d_k=8, d_v=8, positions="alibi", pooling="attention"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_step_reads_nothing_back(name):
    torch.manual_seed(0)
    network = assemble(MODELS[name], vocab_size=30, n_classes=3, max_length=16)
    assert_nothing_is_read_back(network, Classify(torch.ones(3), label_smoothing=0.1), tokens())


@pytest.mark.parametrize(
    "waits",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: torch.bincount(x),
        lambda x: x.repeat_interleave(x),
        lambda x: x.tolist(),
        lambda x: x + torch.tensor(1),
    ],
)
def test_the_watch_sees_what_waits(waits):
    with pytest.raises(AssertionError, match="waits"), Dispatch(), Function():
        waits(torch.ones(3, dtype=torch.int64))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compile", ["never", "always"])
def test_on_a_gpu_a_whole_run_never_waits_between_two_logged_steps(compile):
    """Lightning's own loop, loader, clip and optimiser included: torch raises where the host waits."""
    run = RunConfig(
        model=replace(SHAPE, dropout_attention=0.0),
        batch=BatchConfig(tokens=16, rows=4),
        hardware=HardwareConfig(compile=Compile[compile]),
        logger=LoggerConfig(every=10**6),
        trainer={"max_epochs": 1, "max_steps": 64, "limit_val_batches": 0, "gradient_clip_val": 1.0},
    )
    rows = many(tokens(), 40)
    network = assemble(run.model, vocab_size=30, n_classes=3, max_length=16)
    watch = Watch(10, 50)
    run_trainer(run, network, {"train": rows, "validation": rows}, ["a", "b", "c"], [Guard(run), watch])
    assert watch.watched == 40


class Watch(Callback):
    """From step `first` to step `last` whatever waits raises."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.watched = first, last, 0

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        torch.cuda.set_sync_debug_mode("error" if self.first <= step < self.last else "default")
        self.watched += self.first <= step < self.last

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")


def many(rows: Tokens, times: int) -> Tokens:
    lengths = rows.offsets.diff().repeat(times)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return Tokens(rows.ids_N.repeat(times), offsets, None, rows.labels.repeat(times))
