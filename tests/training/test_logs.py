"""metrics.csv as other programs read it."""

import csv

import pytest

from manyheads.config import LoggerConfig, LoggerKind
from manyheads.training.logs import MetricsFile, make_loggers


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


def test_metrics_csv_is_always_written(tmp_path):
    (log,) = make_loggers(LoggerConfig(), tmp_path)
    assert isinstance(log, MetricsFile)


def test_a_logger_that_is_not_installed_is_one_sentence(tmp_path, monkeypatch):
    import lightning.pytorch.loggers as loggers

    def missing(*args, **kwargs):
        raise ModuleNotFoundError("tensorboard")

    monkeypatch.setattr(loggers, "TensorBoardLogger", missing)
    with pytest.raises(
        ValueError, match=r"^logger\.kind=tensorboard needs a package that is not installed: pip install"
    ):
        make_loggers(LoggerConfig(kind=LoggerKind.tensorboard), tmp_path)


def test_a_run_that_goes_on_goes_on_in_wandb(tmp_path, monkeypatch):
    import lightning.pytorch.loggers as loggers

    given = []
    monkeypatch.setattr(loggers, "WandbLogger", lambda **words: given.append(words["version"]))
    settings = LoggerConfig(kind=LoggerKind.wandb)
    make_loggers(settings, tmp_path)
    for name in ("run-20261122_101500-zz12ab34", "offline-run-20261122_101600-ab12cd34"):
        (tmp_path / "wandb" / name).mkdir(parents=True)
    (tmp_path / "wandb" / "latest-run").symlink_to("run-20261122_101500-zz12ab34")
    make_loggers(settings, tmp_path)
    assert given == [None, "ab12cd34"]
