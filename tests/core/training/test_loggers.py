"""A logger of a user's own: a section of a plugin adds a setting to `logger`, and a Lightning logger to a run."""

from contextlib import contextmanager

import pytest
from lightning.pytorch.loggers import CSVLogger

from manyheads import compose, plugin, train
from manyheads.config.facts import section, setting
from manyheads.distributed.ranks import Ranks
from manyheads.plugin import Plugin, Section
from manyheads.training import pipeline


@section("logger.")
class DiaryConfig:
    diary: str = setting("", "folder, within that of the run, of a further CSV")


@contextmanager
def diary(run, folder):
    loggers = [CSVLogger(folder, name=run.logger.diary, version="")] if run.logger.diary else []
    yield loggers
    for one in loggers:
        one.save()


@pytest.fixture
def registered():
    mine = Section("", DiaryConfig, "a diary", into=("logger",), logger=diary)
    plugin.register(Plugin("diary", sections=[mine]))
    yield
    plugin.unregister("diary")


def test_a_plugin_adds_a_logger_and_its_setting(registered, tmp_path):
    words = ["debug=fast", "hardware=cpu", "linear=false", "logger.diary=notes", f"output={tmp_path / 'run'}"]
    run = compose("train", words)
    assert (run.logger.diary, run.logger.every) == ("notes", 1)
    summary = train(run)
    (file,) = (tmp_path / "run").glob("notes/**/metrics.csv")
    header, *lines = file.read_text().splitlines()
    assert {"loss", "test/accuracy", "test/accuracy_low"} <= {*header.split(",")}
    assert f"{summary.test['accuracy'].value}" in "".join(lines)


def test_other_processes_have_none(registered, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "this_process", lambda: Ranks(rank=1, n_ranks=2))
    with pipeline.loggers_of(compose("train", ["logger.diary=notes"]), tmp_path) as none:
        assert none == []


def test_without_the_plugin_there_is_no_such_setting():
    with pytest.raises(ValueError, match=r"^logger.diary=notes is not a setting"):
        compose("train", ["logger.diary=notes"])
