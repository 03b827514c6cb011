"""Steps whose loss or gradient is not finite, against runs in which their update never happened."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from manyheads.config import (
    Accelerator,
    BatchConfig,
    GuardConfig,
    HardwareConfig,
    LoggerConfig,
    ModelConfig,
    Nonfinite,
    OptimConfig,
    Precision,
    RunConfig,
)
from manyheads.config.facts import replace_settings
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.distributed import faults
from manyheads.nn import assemble
from manyheads.runs.restart import RestartRequested, RestartState, read_restart_state, write_restart_state
from manyheads.training import optim
from manyheads.training.guard import FILE, SCALINGS, DivergedError, Guard
from manyheads.training.module import LitModule
from manyheads.training.objectives import Classify
from manyheads.training.trainer import run_trainer

SHAPE = ModelConfig(n_layers=1, n_heads=2, d_model=8, d_k=4, d_v=4, d_ff=8, dropout=0.1)
STEPS, RARE = 12, 29  # optimiser steps of a run; an id that one row alone has


def tokens() -> Tokens:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 9, (24,), generator=generator)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    ids_N = torch.randint(5, RARE, (int(offsets[-1]),), dtype=torch.int32, generator=generator)
    ids_N[offsets[7]] = RARE
    return Tokens(ids_N, offsets, None, torch.arange(24) % 3)


def run_of(mode: str = "skip", **more) -> RunConfig:
    return RunConfig(
        model=SHAPE,
        batch=BatchConfig(rows=more.pop("rows", 4), accumulate=more.pop("accumulate", 1)),
        optim=OptimConfig(average=0),
        guard=GuardConfig(nonfinite=Nonfinite[mode], **more),
        hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32),
        logger=LoggerConfig(every=4),
        trainer={"max_epochs": -1, "max_steps": STEPS, "limit_val_batches": 0, "gradient_clip_val": 1.0},
    )


def train(run: RunConfig, guard: Guard | None = None, *, spoil: int | None = None) -> LitModule:
    """A run from the same weights and random numbers each time; with `spoil` the row of that id is read as infinite."""
    torch.manual_seed(1)
    network = assemble(SHAPE, vocab_size=30, n_classes=3, max_length=16)
    if spoil:
        with torch.no_grad():
            next(one for one in network.modules() if isinstance(one, torch.nn.Embedding)).weight[spoil] = math.inf
    rows = {"train": tokens(), "validation": tokens()}
    return run_trainer(run, network, rows, ["a", "b", "c"], [guard or Guard(run)])


def state_of(module: LitModule) -> dict:
    optimizer, (schedule,) = module.trainer.optimizers[0], module.trainer.lr_scheduler_configs
    state = optimizer.state_dict()
    return {
        "weights": {name: one.clone() for name, one in module.network.state_dict().items()},
        "optimizer": {at: {name: one.clone() for name, one in its.items()} for at, its in state["state"].items()},
        "rates": [group["lr"] for group in state["param_groups"]],
        "schedule": schedule.scheduler.last_epoch,
        "steps": module.trainer.global_step,
    }


def assert_same(one: dict, other: dict) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.fixture
def nan(monkeypatch):
    """`nan(3)`: the loss of step 3 is not finite."""
    faults.reset_counts()
    return lambda step: monkeypatch.setenv(faults.VARIABLE, f"loss:{step}:nan")


@pytest.fixture
def without(monkeypatch):
    """`without(3, 4)`: the reference, in which the optimiser is not called in these steps."""

    def leave_out(*steps: int) -> None:
        def optimizer_step(self, epoch, batch_idx, optimizer, closure):
            if self.global_step + 1 not in steps:
                optimizer.step(closure=closure)
                return
            closure()
            self.configure_gradient_clipping(optimizer.optimizer)  # on a norm the guard may look at

        monkeypatch.setattr(LitModule, "optimizer_step", optimizer_step)

    return leave_out


@pytest.mark.parametrize("kind", ["plain", "accumulated"])
def test_a_skipped_step_is_as_if_its_update_had_never_happened(kind, nan, without, monkeypatch):
    run = run_of(accumulate=2 if kind == "accumulated" else 1)
    nan(3)
    guard = Guard(run)
    skipped = train(run, guard)
    assert guard.left_out == [3]
    monkeypatch.delenv(faults.VARIABLE)
    without(3)
    never = train(run, Guard(run))
    assert_same(state_of(skipped), state_of(never))
    assert state_of(skipped)["steps"] == state_of(skipped)["schedule"] == STEPS


def test_without_a_bad_step_nothing_is_another_number(monkeypatch):
    guarded = train(run_of("raise"))
    clip = LitModule.configure_gradient_clipping

    def plain(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        clip(self, SimpleNamespace(defaults={"fused": False}), gradient_clip_val, gradient_clip_algorithm)

    monkeypatch.setattr(LitModule, "configure_gradient_clipping", plain)
    monkeypatch.setattr(
        LitModule,
        "training_step",
        lambda self, batch, _: self.objective.training_loss(self.network, batch).sum() * batch.scale,
    )
    assert_same(state_of(guarded), state_of(train(run_of("raise"))))


def test_what_is_read_late_comes_to_the_same(nan, monkeypatch):
    """As on a GPU: loss and norm wait for the fourth step, and for a checkpoint between."""
    run = run_of()
    nan(3)
    at_once = state_of(train(run))
    monkeypatch.setattr(Guard, "on_fit_start", lambda *_: None)
    guard, looks, look = Guard(run), [], Guard._check_steps
    monkeypatch.setattr(
        Guard,
        "_check_steps",
        lambda self, trainer, module: (looks.append(trainer.global_step), look(self, trainer, module)),
    )
    assert_same(state_of(train(run, guard)), at_once)
    assert looks == [4, 8, 12, 12]
    assert guard.left_out == [3]


def test_what_waits_to_be_read_travels_with_a_checkpoint(tmp_path):
    guard, other = Guard(run_of("raise"), tmp_path), Guard(run_of("raise"), tmp_path)
    guard._kept, guard._figures = [(5, 0, 4), (6, 1, 0)], [torch.tensor([0.5, math.nan]), torch.tensor([0.5, 1.0])]
    guard.skipped = [2]
    state = guard.state_dict()
    assert not guard._kept
    other.load_state_dict(json.loads(json.dumps(state)))
    assert [(step.number, step.epoch, step.slot, step.loss) for step in other._read] == [(5, 0, 4, 0.5), (6, 1, 0, 0.5)]
    assert [math.isfinite(step.norm) for step in other._read] == [False, True]
    assert other.left_out == [2]
    assert len(guard._read) == 2, "and is answered here as well"


def test_raise_leaves_weights_and_optimiser_as_they_were(nan, tmp_path, monkeypatch):
    monkeypatch.delenv(faults.VARIABLE, raising=False)
    run, seen, step = run_of("raise", accumulate=2), [], LitModule.training_step
    monkeypatch.setattr(
        LitModule,
        "training_step",
        lambda self, batch, at: (seen.append((self.global_step + 1, batch.rows_B.tolist())), step(self, batch, at))[1],
    )
    short = run_of("raise", accumulate=2)
    short.trainer["max_steps"] = 4
    monkeypatch.setattr(TextData, "n_steps", lambda *_: STEPS)  # the same rates
    before = state_of(train(short))
    seen.clear()
    nan(5)
    with pytest.raises(DivergedError) as ended:
        train(run, Guard(run, tmp_path))
    ended_at = state_of(ended.value.module)
    for kept in ("weights", "optimizer"):
        assert_same(ended_at[kept], before[kept])
    rate = 1e-3 * optim.rate_factor(4, STEPS, run.optim)
    assert str(ended.value) == (
        "training diverged at step 5: the loss is nan and the norm of the gradient nan, at a learning rate of "
        f"{rate:.3g}; use a smaller rate, such as optim.lr=0.0001, in a new folder, or leave such steps out by "
        f"guard.nonfinite=skip: {tmp_path} keeps the figures so far and holds no model"
    )
    (told,) = json.loads((tmp_path / FILE).read_text())
    assert (told["step"], told["losses"], told["norm"]) == (5, ["nan"], "nan")
    assert told["rate"] == pytest.approx(rate)
    assert told["rows"] == [[row for number, rows in seen if number == 5 for row in rows]]


def test_a_row_that_has_no_finite_loss_is_written_down_each_time(tmp_path):
    run = run_of("skip")
    guard = Guard(run, tmp_path)
    module = train(run, guard, spoil=RARE)
    told = json.loads((tmp_path / FILE).read_text())
    assert [one["step"] for one in told] == guard.left_out
    assert [one["epoch"] for one in told] == [1, 2]
    assert all(7 in one["rows"][0] and len(one["rows"][0]) <= 4 for one in told)
    weights = module.network.state_dict().values()
    assert sum(int((~one.isfinite()).sum()) for one in weights) == SHAPE.d_model, "the spoilt row alone"
    assert module.trainer.callback_metrics["train_loss"].isfinite()


@pytest.mark.parametrize("mode", ["skip", "rollback"])
def test_no_more_steps_are_left_out_than_allowed(mode, tmp_path, monkeypatch):
    run = run_of(mode, at_most=2)
    learn = Classify.training_loss
    monkeypatch.setattr(Classify, "training_loss", lambda *given: learn(*given) * math.inf)
    again = RestartState()
    if mode == "rollback":
        for step in (1, 2):
            with pytest.raises(RestartRequested) as ended:
                train(run, Guard(run, tmp_path, again))
            again = ended.value.state
            assert read_restart_state(tmp_path) == again
            assert again.left_out == tuple(range(1, step + 1))
    with pytest.raises(DivergedError, match=r"diverged at step 3: .*, after 2 steps that were left out \(") as last:
        train(run, Guard(run, tmp_path, again))
    assert "guard.nonfinite=skip" not in str(last.value)
    assert [one["step"] for one in json.loads((tmp_path / FILE).read_text())] == [1, 2, 3]


def test_a_step_left_out_after_a_rollback_is_the_step_that_was_skipped(nan, tmp_path):
    nan(3)
    skipped = state_of(train(run_of("skip")))
    run = run_of("rollback")
    with pytest.raises(RestartRequested) as ended:
        train(run, Guard(run, tmp_path))
    guard = Guard(run, tmp_path, ended.value.state)
    assert_same(state_of(train(run, guard)), skipped)
    assert (guard.left_out, ended.value.exit_code) == ([3], 75)


def test_an_infinite_loss_with_a_finite_gradient_is_caught(monkeypatch):
    learn = Classify.training_loss

    def lifted(self, classifier, batch):
        return learn(self, classifier, batch) + (math.inf if 7 in batch.rows_B.tolist() else 0.0)

    monkeypatch.setattr(Classify, "training_loss", lifted)
    run = run_of("raise")
    with pytest.raises(DivergedError, match="at step 5: the loss is nan and the norm of the gradient nan"):
        train(run)


def test_weights_that_the_last_step_spoilt_are_seen_when_they_are_validated():
    run = run_of("skip")
    trainer = run.trainer | {"max_steps": 1, "limit_val_batches": 1.0}
    run = replace_settings(run, {"optim.lr": 1e38, "trainer": trainer})
    with pytest.raises(DivergedError, match=r"training diverged after step 1: the validation loss is (nan|inf); "):
        train(run)


def test_overflows_of_fp16_are_left_to_its_scaler_until_it_cannot_be_them(tmp_path):
    guard, answered = Guard(run_of("raise"), tmp_path), []
    trainer: Any = SimpleNamespace(scaler=object())
    guard._handle = lambda trainer, module, bad: answered.extend(step.number for step in bad)
    for number in range(1, 3 * SCALINGS):
        guard._kept.append((number, 0, number))
        guard._figures.append(torch.tensor([0.5, 1.0 if number == SCALINGS else math.inf]))
        if number % 7 == 0:
            guard._check_steps(trainer, LitModule.__new__(LitModule))
    assert answered[0] == 2 * SCALINGS


def test_what_is_refused():
    sentence = r"^guard\.at_most=0 is out of range: it must be at least 1 and at most 10000; the default is 5$"
    with pytest.raises(ValueError, match=sentence):
        GuardConfig(at_most=0)


class Out(Guard):
    """As if memory had run out in step 3, in a batch of `rows` rows."""

    def ran_out(self, rows: int, error: Exception | None = None) -> "Out":
        trainer: Any = SimpleNamespace(global_step=2, world_size=2, global_rank=1)
        module = LitModule.__new__(LitModule)
        object.__setattr__(module, "n_rows", rows)
        self.on_exception(trainer, module, error or torch.OutOfMemoryError("CUDA out of memory"))
        return self


def test_halves_are_written_down_and_what_cannot_be_halved_is_one_sentence(tmp_path: Path):
    ended = Out(run_of(), tmp_path, RestartState(2, (7,), "as before")).ran_out(5).recovery()
    assert ended
    assert read_restart_state(tmp_path) == ended.state == RestartState(4, (7,), "step 3 ran out of memory in process 1")
    remedy = "use a smaller data.max_length or model, or set hardware.recompute=true"
    with pytest.raises(ValueError, match=f"^step 3 ran out of memory in process 1 with one row at a time: {remedy}$"):
        Out(run_of(), tmp_path).ran_out(1).recovery()
    off = run_of("raise", halve=False)
    with pytest.raises(ValueError, match=r"^step 3 .*: set guard\.halve=true, use a smaller batch\.tokens, or use a"):
        Out(off, tmp_path).ran_out(5).recovery()


CUDNN = "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"  # its name since cuDNN 9
CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


def test_memory_is_out_in_whatever_words_torch_says_so(tmp_path: Path):
    with pytest.raises(RuntimeError) as of_cpu:
        torch.empty(2**50)
    of_libraries = map(RuntimeError, (CUBLAS, CUDNN, "could not create a primitive"))
    for error in (torch.AcceleratorError("CUDA error: out of memory"), *of_libraries, of_cpu.value):
        ended = Out(run_of(), tmp_path).ran_out(5, error).recovery()
        assert ended
        assert ended.state.split == 2
        (tmp_path / "again.json").unlink()
    for error in (RuntimeError("CUDA error: an illegal memory access was encountered"), OSError("out of memory")):
        assert Out(run_of(), tmp_path).ran_out(5, error).recovery() is None


def test_a_rank_that_lost_one_whose_memory_ran_out_starts_again_as_well(tmp_path):
    guard = Guard(run_of(), tmp_path, RestartState(left_out=(7,)))
    write_restart_state(tmp_path, RestartState(left_out=(7,)))
    assert guard.recovery() is None
    write_restart_state(tmp_path, RestartState(2, (7,)))
    found = guard.recovery()
    assert found
    assert found.state == RestartState(2, (7,))


@pytest.mark.parametrize("content", ["", "[]", '{"split": 3}', '{"split": "2", "left_out": 7, "why": []}'])
def test_what_is_not_understood_changes_nothing(content, tmp_path):
    (tmp_path / "again.json").write_text(content)
    assert read_restart_state(tmp_path) == RestartState()
    assert read_restart_state(tmp_path).notes() == []
