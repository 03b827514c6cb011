"""When a checkpoint falls due, and that saving is no time of training."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from manyheads.config import CheckpointConfig
from manyheads.distributed.collectives import Votes
from manyheads.distributed.signals import Stop
from manyheads.runs.checkpoints import fitting, read_progress
from manyheads.runs.resume import Start
from manyheads.training import checkpoint as saving
from manyheads.training.checkpoint import Checkpoint
from manyheads.training.logs import Meter


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(saving, "perf_counter", lambda: now[0])
    return now


def made(every: int = 0) -> Any:
    best: Any = SimpleNamespace(path=Path("checkpoints", "best.safetensors"), best=None)
    return Checkpoint(CheckpointConfig(every=every), Stop(), Votes(9.0), best, Start(), data="", started=0.0)


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
    checkpoint._saved, checkpoint._took = {"step": 8, "epoch": 1}, 0.25
    clock[0] += 12.4
    assert not due(checkpoint, 16, 2)
    clock[0] += 0.1
    assert due(checkpoint, 16, 2)
    assert not due(checkpoint, 15, 1)


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
    with pytest.raises(ValueError, match="does not fit this run") as caught, fitting(tmp_path):
        nn.Linear(2, 3).load_state_dict(nn.Linear(3, 3).state_dict())
    assert str(caught.value) == (
        f"{tmp_path} does not fit this run, as something in it has another name, type or shape than here: delete it to "
        "go on from another checkpoint, or start a new run in another folder"
    )
