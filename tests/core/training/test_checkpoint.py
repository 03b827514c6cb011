"""When a checkpoint falls due, and that saving is no time of training; which weights are kept; the mean of weights."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from manyheads.config import (
    Accelerator,
    BatchConfig,
    CheckpointConfig,
    HardwareConfig,
    ModelConfig,
    OptimConfig,
    Precision,
    RunConfig,
)
from manyheads.config.training import Background
from manyheads.data.tokens import Tokens
from manyheads.distributed.collectives import Votes
from manyheads.distributed.signals import Stop
from manyheads.nn import assemble
from manyheads.runs.checkpoints import read_progress, refuse_unfit
from manyheads.runs.resume import Start
from manyheads.training import checkpoint as saving
from manyheads.training.callbacks import KeepBest, Patience
from manyheads.training.checkpoint import Checkpoint
from manyheads.training.logs import Meter
from manyheads.training.module import LitModule
from manyheads.training.objectives import Classify
from manyheads.training.optim import EMACallback
from manyheads.training.state import save_pytree
from manyheads.training.trainer import run_trainer


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(saving, "perf_counter", lambda: now[0])
    return now


def made(every: int = 0) -> Any:
    best: Any = SimpleNamespace(path=Path("checkpoints", "best.safetensors"), best=None)
    return Checkpoint(CheckpointConfig(every=every), Stop(), Votes(9.0), best, Start(), data="", started=0.0, files={})


def due(checkpoint: Any, step: int, epoch: int) -> bool:
    return checkpoint._is_due({"step": step, "epoch": epoch})


def test_every_so_many_steps(clock):
    checkpoint = made(every=5)
    assert [step for step in range(12) if due(checkpoint, step, 0)] == [5, 6, 7, 8, 9, 10, 11]
    checkpoint._saved = {"step": 5, "epoch": 0}
    clock[0] += 1000
    assert [step for step in range(5, 12) if due(checkpoint, step, step // 3)] == [10, 11]


def test_each_epoch_and_each_minute(clock):
    checkpoint = made()
    assert not due(checkpoint, 0, 0)
    assert not due(checkpoint, 7, 0)
    assert due(checkpoint, 8, 1)
    clock[0] += 60
    assert due(checkpoint, 7, 0)
    assert not due(checkpoint, 0, 0)


def test_short_epochs_are_passed_over(clock):
    checkpoint = made()
    checkpoint._saved, checkpoint.writer.seconds = {"step": 8, "epoch": 1}, 0.25
    clock[0] += 12.4
    assert not due(checkpoint, 16, 2)
    clock[0] += 0.1
    assert due(checkpoint, 16, 2)
    assert not due(checkpoint, 15, 1)


@pytest.mark.parametrize(
    ("background", "took", "waited", "room", "aside"),
    [
        ("auto", 0.0, 60.0, 9e9, False),  # the first
        ("auto", 1.1, 60.0, 9e9, False),
        ("auto", 1.3, 60.0, 9e9, True),
        ("auto", 1.3, 60.0, 1.9e9, False),  # a copy of a gigabyte has no room beside what else comes
        ("always", 0.0, 60.0, 0, True),
        ("never", 9.0, 9.0, 9e9, False),
    ],
)
def test_a_save_of_more_than_2_percent_of_the_time_is_written_aside(
    background, took, waited, room, aside, clock, monkeypatch
):
    monkeypatch.setattr(saving, "spare_memory", lambda: room)
    checkpoint = made()
    checkpoint.config = CheckpointConfig(background=Background[background])
    checkpoint.writer.seconds, checkpoint.writer.n_bytes = took, 10**9
    assert checkpoint._writes_in_background(clock[0] + waited) is aside


def test_a_save_is_no_time_of_training(monkeypatch):
    meter = Meter()
    meter._since = 100.0
    meter.leave_out(3.0)
    assert meter._since == 103.0
    meter._since = None
    meter.leave_out(3.0)
    assert meter._since is None


@pytest.mark.parametrize(
    ("progress", "why"),
    [
        ({"step": 1}, "something in it has another name, type or shape than here"),
        ([], "something in it has another name, type or shape than here"),
        (
            {"step": "x", "epoch": 0, "batch": 0, "batches": 1, "seconds": 0, "data": ""},
            "progress.json holds a count that",
        ),
        (
            {"step": 1, "epoch": 0, "batch": 0, "batches": 1, "seconds": "x", "data": ""},
            "something in it has another name",
        ),
    ],
)
def test_python_has_no_word_in_what_is_said_of_a_strangers_state(tmp_path, progress, why):
    (tmp_path / "progress.json").write_text(json.dumps(progress))
    with pytest.raises(ValueError, match="does not fit this run") as caught:
        read_progress(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path} does not fit this run, as {why}")
    assert not re.search(r"\w+Error|KeyError|must be real|indices|'\w+'", str(caught.value))


def test_weights_of_another_shape_are_said_in_our_words(tmp_path):
    with pytest.raises(ValueError, match="does not fit this run") as caught, refuse_unfit(tmp_path):
        nn.Linear(2, 3).load_state_dict(nn.Linear(3, 3).state_dict())
    assert str(caught.value) == (
        f"{tmp_path} does not fit this run, as something in it has another name, type or shape than here: delete it to "
        "resume from another checkpoint, or start a new run in another folder"
    )


def test_a_lack_of_memory_does_not_say_that_a_checkpoint_is_to_be_deleted(tmp_path):
    with pytest.raises(MemoryError), refuse_unfit(tmp_path):
        bytes(2**62)


NAN, INF = float("nan"), float("inf")
SHAPE = ModelConfig(n_layers=1, d_model=8, d_k=4, d_v=4, d_ff=8)


@pytest.fixture
def module():
    classifier = assemble(SHAPE, vocab_size=9, n_classes=2, max_length=4)
    return LitModule(classifier, Classify(torch.ones(2), label_smoothing=0.0), optim=OptimConfig(), n_steps=1)


@pytest.mark.parametrize(
    ("metric", "epochs", "kept"),
    [
        ("accuracy", [(0.5, 0.9), (0.7, 0.8), (0.6, 0.1)], 2),
        ("accuracy", [(0.5, 0.9), (0.5, 0.8), (0.5, 0.85)], 2),
        ("loss", [(0.5, 0.9), (0.7, 0.8), (0.6, 0.1)], 3),
        ("accuracy", [(0.5, 0.9), (0.9, NAN), (0.9, INF), (0.4, 0.1)], 1),
        ("accuracy", [(0.9, NAN), (0.5, 0.9)], 2),
        ("loss", [(0.9, NAN), (0.9, -INF), (0.5, 0.9)], 3),
        ("accuracy", [(0.9, NAN)], None),
    ],
)
def test_the_best_finite_epoch_is_kept(metric, epochs, kept, module, tmp_path):
    keep = KeepBest(metric, module.network, tmp_path)
    for epoch, (accuracy, loss) in enumerate(epochs):
        figures = {"validation_accuracy": torch.tensor(accuracy), "validation_loss": torch.tensor(loss)}
        trainer = SimpleNamespace(callback_metrics=figures, current_epoch=epoch, global_step=epoch, is_global_zero=True)
        keep.on_validation_end(trainer, module)
    assert keep.best.get("epoch") == kept
    assert (tmp_path / "best.safetensors").exists() is (kept is not None)


@pytest.mark.parametrize(
    ("interval", "patience", "epochs"),
    [
        ({}, 2, 3),
        pytest.param({"val_check_interval": 0.25}, 2, 3, marks=pytest.mark.slow),
        ({"val_check_interval": 0.75}, 1, 2),  # after 3 of 4 batches: the end of an epoch is not validated
        ({"val_check_interval": 6}, 2, 5),  # in the middle of epoch 2, at the end of 3, in the middle of 5
        ({"check_val_every_n_epoch": 2}, 1, 4),
        pytest.param({"check_val_every_n_epoch": 2}, 3, 6, marks=pytest.mark.slow),
        ({"min_epochs": 4}, 1, 4),
    ],
)
def test_patience_is_in_epochs_however_often_they_are_validated(interval, patience, epochs):
    run = RunConfig(
        model=SHAPE,
        batch=BatchConfig(rows=6),
        optim=OptimConfig(lr=1e-30, average=0),  # which changes no weight, so that no figure is better than the first
        checkpoint=CheckpointConfig(metric=["accuracy", "loss"][patience % 2], patience=patience),
        hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32),
        trainer={"max_epochs": 9, **interval},
    )
    rows = Tokens(torch.arange(96).int() % 9, torch.arange(25) * 4, None, torch.arange(24) % 2)
    few = Tokens(rows.ids_N[:24], rows.offsets[:7], None, rows.labels[:6])
    network = assemble(SHAPE, vocab_size=9, n_classes=2, max_length=4)
    module = run_trainer(run, network, {"train": rows, "validation": few}, ["a", "b"], [])
    assert module.trainer.current_epoch == epochs


@pytest.mark.parametrize("halt", range(1, 9))
def test_patience_goes_on_where_it_was_saved(halt):
    figures = [0.1, 0.3, 0.2, 0.3, 0.4, 0.1, 0.4, 0.2]  # better than all before: epochs 1, 2 and 5
    one = Patience("accuracy", 3)
    trainer = SimpleNamespace(should_stop=False)
    for epoch, figure in enumerate(figures):
        if epoch == halt:
            state, one = one.state_dict(), Patience("accuracy", 3)
            one.load_state_dict(state)
        trainer.callback_metrics, trainer.current_epoch = {"validation_accuracy": torch.tensor(figure)}, epoch
        one.on_validation_end(trainer, None)
        one.on_train_epoch_end(trainer, None)
        assert trainer.should_stop is (epoch + 1 >= 8)


def test_patience_needs_a_validation():
    with pytest.raises(ValueError, match=r"^checkpoint.patience=3 waits for a better .* trainer.limit_val_batches=0"):
        RunConfig(checkpoint=CheckpointConfig(patience=3), trainer={"max_epochs": 2, "limit_val_batches": 0})


TAMPERED = {
    "no file": lambda path, weights: path.unlink(),
    "no safetensors": lambda path, weights: path.write_bytes(b"none at all"),
    "a shape of its own": lambda path, weights: save_file(weights | {"head.bias": torch.zeros(7)}, path),
    "a name of its own": lambda path, weights: save_file(weights | {"more": torch.zeros(2)}, path),
    "NaN": lambda path, weights: save_file(weights | {"head.bias": torch.full((2,), NAN)}, path),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_weights_of_a_stranger_that_do_not_fit_are_refused_in_a_sentence(how, module, tmp_path):
    keep = KeepBest("accuracy", module.network, tmp_path / "checkpoints")
    keep.best = {"metric": "accuracy", "value": 0.5, "epoch": 1, "step": 1}
    keep.path.parent.mkdir()
    save_file(module.network.state_dict(), keep.path)
    assert keep.restore()["epoch"] == 1
    TAMPERED[how](keep.path, module.network.state_dict())
    with pytest.raises(
        ValueError, match="not finite numbers, so that no model" if how == "NaN" else "does not fit this"
    ):
        keep.restore()


def test_weights_that_nothing_has_judged_are_finite_too(module, tmp_path):
    keep = KeepBest("accuracy", module.network, tmp_path / "checkpoints")
    assert keep.restore() == {}
    torch.nn.init.constant_(module.network.head.weight, INF)
    with pytest.raises(ValueError, match="ends with weights that are not finite numbers"):
        keep.restore()


def walk(average: EMACallback, module: LitModule, n_steps: int, judged: int = 1) -> list[float]:
    """Every weight is the number of the step: what is where, and what the mean is where it is judged."""
    means = []
    for step in range(1, n_steps + 1):
        fill(module, step)
        trainer = SimpleNamespace(global_step=step, optimizers=[])
        average.on_train_batch_end(trainer, module, None, None, 0)
        if step % judged:
            continue
        average.on_validation_start(trainer, module)
        means.append(weight_of(module))
        average.on_validation_end(None, module)
        assert weight_of(module) == step, "training goes on from its own weights"
    return means


def fill(module: LitModule, value: float) -> None:
    for parameter in module.parameters():
        parameter.data.fill_(value)


def weight_of(module: LitModule) -> float:
    values = torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).unique()
    assert len(values) == 1
    return values.item()


def test_the_mean_forgets_exponentially_over_the_steps_asked_for_but_a_fifth_of_the_way_at_most(module):
    means = walk(EMACallback(100), module, 1000, judged=10)
    mean, by_hand = 10.0, []
    for step in range(10, 1001, 10):
        share = min(1.0, 10 / min(100, step / 5))
        mean = (1 - share) * mean + share * step
        by_hand.append(mean)
    np.testing.assert_allclose(means, by_hand, rtol=1e-5)
    assert means[-1] == pytest.approx(1000 - 90, abs=5), "a mean that lags by about the steps asked for"


@pytest.mark.parametrize("judged", [1, 3, 7])
def test_the_mean_that_is_judged_is_of_the_last_step(module, judged):
    means = walk(EMACallback(100), module, 60, judged=judged)
    mean, seen, by_hand = 0.0, 0, []
    for step in range(1, 61):
        if step % judged == 0 or step % 10 == 0:
            share = min(1.0, (step - seen) / min(100, step / 5))
            mean, seen = (1 - share) * mean + share * step, step
        if step % judged == 0:
            by_hand.append(mean)
    np.testing.assert_allclose(means, by_hand, rtol=1e-5)
    assert len(set(means)) == len(means), "never the same weights twice"
    assert all(step - mean <= step / 5 for step, mean in zip(range(judged, 61, judged), means, strict=True))


def test_steps_that_only_gather_gradients_do_not_count(module):
    once, often = EMACallback(50), EMACallback(50)
    for step in range(1, 101):
        fill(module, step)
        once.on_train_batch_end(SimpleNamespace(global_step=step, optimizers=[]), module, None, None, 0)
        for _ in range(3):
            often.on_train_batch_end(SimpleNamespace(global_step=step, optimizers=[]), module, None, None, 0)
    assert torch.equal(once._mean[0], often._mean[0])


def test_the_mean_is_what_is_kept_and_what_training_ends_with(module, tmp_path):
    average, keep = EMACallback(100), KeepBest("accuracy", module.network, tmp_path)
    walk(average, module, 200)
    figures = {"validation_accuracy": torch.tensor(0.5), "validation_loss": torch.tensor(0.1)}
    trainer = SimpleNamespace(
        callback_metrics=figures, current_epoch=0, global_step=200, is_global_zero=True, optimizers=[]
    )
    average.on_validation_start(trainer, module)
    for callback in (keep, average):
        callback.on_validation_end(trainer, module)
    (kept,) = torch.cat([weight.flatten() for weight in load_file(keep.path).values()]).unique()
    assert 100 < kept < 199
    assert weight_of(module) == 200
    average.on_train_end(trainer, module)
    assert weight_of(module) == kept


def test_a_run_too_short_for_a_mean_keeps_its_last_weights(module):
    average = EMACallback(100)
    walk(average, module, 4)
    average.on_train_end(SimpleNamespace(global_step=4, optimizers=[]), module)
    assert weight_of(module) == 4


class Broken:
    """A Trainer whose training ends by an error of its own."""

    max_steps = max_epochs = -1
    is_global_zero = True

    def fit(self, module, data):
        raise KeyError("mine")


@pytest.mark.parametrize("held", [object(), {(1, 2): 3}, torch.zeros(2, dtype=torch.complex64)])
def test_what_a_callback_holds_hides_no_other_error(held, warned, tmp_path):
    checkpoint: Any = made()
    writer = checkpoint.writer
    writer._writing = writer._thread.submit(save_pytree, {"callbacks": held}, (tmp_path / "x").open("wb"))
    with pytest.raises(KeyError, match="mine"):
        checkpoint.fit(Broken(), None, None)
    assert any("a checkpoint cannot hold the " in one for one in warned)
    assert writer._thread._shutdown
