"""The meter counts what the batches hold."""

from types import SimpleNamespace

import pytest
import torch

from manyheads.data.batches import Batch
from manyheads.layout import Packed
from manyheads.training import logs as meter_module
from manyheads.training.logs import Meter


def batch_of(lengths):
    n_rows = len(lengths)
    ids_N = torch.zeros(sum(lengths), dtype=torch.int64)
    return Batch(ids_N, None, Packed.of_lengths(lengths), torch.zeros(n_rows), torch.arange(n_rows), 1.0)


@pytest.fixture
def clock(monkeypatch):
    time = SimpleNamespace(now=0.0)
    monkeypatch.setattr(meter_module.time, "perf_counter", lambda: time.now)
    return time


def test_tokens_padding_and_seconds_are_those_of_the_training_steps(clock):
    meter = Meter()
    meter.on_train_epoch_start(None, None)
    for lengths in ([4, 2], [3, 3, 3]):
        clock.now += 2.0
        meter.on_train_batch_end(None, None, None, batch_of(lengths), 0)
    clock.now += 1.0
    meter.on_validation_start(None, None)
    clock.now += 100.0
    meter.on_validation_end(None, None)
    clock.now += 0.5
    meter.on_train_epoch_end(None, None)
    clock.now += 100.0
    assert (meter.tokens, meter.cells, meter.rows, meter.steps) == (15, 17, 5, 2)
    assert meter.padding_share == pytest.approx(2 / 17)
    assert meter.seconds == pytest.approx(5.5)
    assert meter.tokens_per_s == pytest.approx(15 / 5.5)


def test_in_the_end_the_counts_of_all_processes_are_added_up():
    asked = []

    def reduce(tensor, reduce_op):
        asked.append(reduce_op)
        return tensor * 2 if reduce_op == "sum" else tensor + 1

    meter = Meter()
    meter.tokens, meter.cells, meter.rows, meter.seconds = 30, 40, 5, 2.0
    module = SimpleNamespace(device=torch.device("cpu"))
    meter.on_train_end(SimpleNamespace(world_size=1), module)
    assert (meter.tokens, meter.seconds) == (30, 2.0)
    meter.on_train_end(SimpleNamespace(world_size=2, strategy=SimpleNamespace(reduce=reduce)), module)
    assert (meter.tokens, meter.cells, meter.rows, meter.seconds) == (60, 80, 10, 3.0)
    assert meter.tokens_per_s == pytest.approx(20)
    assert sorted(asked) == ["max", "sum"]


def test_a_run_without_steps_has_no_speed():
    assert Meter().tokens_per_s == 0
    assert Meter().padding_share == 0
