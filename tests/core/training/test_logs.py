"""metrics.csv as other programs read it; the meter counts what the batches hold."""

import csv
import io
import logging
import re
import sys
from types import SimpleNamespace

import pytest
import torch

from manyheads.data.batches import Batch
from manyheads.layout import Packed
from manyheads.training import logs as meter_module
from manyheads.training.logs import Bar, Meter, MetricsFile


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_figures_of_one_step_share_a_row_and_rows_are_in_order(tmp_path):
    log = MetricsFile(tmp_path / "metrics.csv")
    log.log_metrics({"epoch": 0, "loss": 0.5}, 9)
    log.log_metrics({"epoch": 0, "train_loss": 0.7}, 19)
    log.log_metrics({"epoch": 0, "validation_loss": 0.6}, 19)
    log.log_metrics({"epoch": 0, "loss": 0.9}, 4)
    log.save()
    rows = read(tmp_path / "metrics.csv")
    assert [row["step"] for row in rows] == ["4", "9", "19"]
    assert rows[2] == {"step": "19", "epoch": "0", "loss": "", "train_loss": "0.7", "validation_loss": "0.6"}


def test_saving_again_replaces_the_file_and_leaves_nothing_else(tmp_path):
    log = MetricsFile(tmp_path / "metrics.csv")
    for step in range(3):
        log.log_metrics({"train_loss": 1.0 / (step + 1)}, step)
        log.save()
    assert len(read(tmp_path / "metrics.csv")) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_steps_are_written_with_their_epoch_or_at_the_end(tmp_path):
    path = tmp_path / "metrics.csv"
    log = MetricsFile(path)
    for step in range(3):
        log.log_metrics({"epoch": 0, "loss": 0.5}, step)
        log.save()
    assert not path.exists()
    log.log_metrics({"epoch": 0, "validation_loss": 0.6}, 2)
    log.save()
    assert len(read(path)) == 3
    log.log_metrics({"epoch": 1, "loss": 0.4}, 3)
    log.save()
    assert len(read(path)) == 3
    log.finalize("failed")
    assert len(read(path)) == 4


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_has_rate_time_left_and_the_validation_figure_and_lines_stand_above_it(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    bar, handler = Bar("accuracy"), logging.StreamHandler()
    meter_module.log.addHandler(handler)
    trainer = SimpleNamespace(global_step=100, callback_metrics={"loss": 0.51239, "validation_accuracy": 0.875})
    try:
        bar.on_train_start(trainer, SimpleNamespace(n_steps=400))
        bar.began -= 10.0
        trainer.global_step = 150
        bar.on_train_batch_end(trainer, None, None, None, 20)
        bar.progress.refresh()
        meter_module.log.warning("a line of the log")
        bar.on_validation_end(trainer, None)
        bar.on_exception(trainer, None, KeyboardInterrupt())
    finally:
        meter_module.log.removeHandler(handler)
    assert handler.stream is screen
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "150 of 400 steps" in shown
    assert "0:00:50 left, loss 0.5124, validation accuracy 0.8750" in shown
    assert re.search(r"\ra line of the log *\n", shown)


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
    module, strategy = SimpleNamespace(), SimpleNamespace(reduce=reduce, root_device=torch.device("cpu"))
    meter.on_fit_end(SimpleNamespace(world_size=1), module)
    assert (meter.tokens, meter.seconds) == (30, 2.0)
    meter.on_fit_end(SimpleNamespace(world_size=2, strategy=strategy), module)
    assert (meter.tokens, meter.cells, meter.rows, meter.seconds) == (60, 80, 10, 3.0)
    assert meter.tokens_per_s == pytest.approx(20)
    assert sorted(asked) == ["max", "sum"]


def test_a_run_without_steps_has_no_speed():
    assert Meter().tokens_per_s == 0
    assert Meter().padding_share == 0
