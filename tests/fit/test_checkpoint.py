"""When a checkpoint falls due, and that saving is no time of training."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from manyheads.config import CheckpointConfig
from manyheads.fit import checkpoint as saving
from manyheads.fit.checkpoint import Checkpoint
from manyheads.fit.meter import Meter
from manyheads.fit.resume import Start
from manyheads.fit.stop import Stop
from manyheads.fit.votes import Votes


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
