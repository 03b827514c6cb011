"""One folder a run, whoever starts it and however many processes take part."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyheads.runfolder import HANDED_ON, refuse_taken, start_folder

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(HANDED_ON, "")
    monkeypatch.delenv(HANDED_ON)
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)


def test_a_folder_under_outputs_is_made_and_handed_on(tmp_path):
    folder = start_folder()
    assert folder.parent == tmp_path / "outputs"
    assert folder.is_dir()
    assert os.environ[HANDED_ON] == str(folder)


def test_a_second_run_of_the_same_process_gets_its_own():
    assert start_folder() != start_folder()


def test_a_named_folder(tmp_path):
    assert start_folder("a/b") == tmp_path / "a" / "b"
    assert start_folder("a/b") == tmp_path / "a" / "b"  # still empty
    (tmp_path / "a" / "b" / "x").touch()
    with pytest.raises(ValueError, match="output=a/b exists and is not empty: name a new folder"):
        start_folder("a/b")
    with pytest.raises(ValueError, match="is a file"):
        start_folder("a/b/x")


def test_a_taken_folder_is_refused_before_any_work_but_not_to_children(tmp_path, monkeypatch):
    (tmp_path / "x").touch()
    with pytest.raises(ValueError, match="exists and is not empty"):
        refuse_taken(str(tmp_path))
    refuse_taken("")
    refuse_taken("new")
    monkeypatch.setenv("LOCAL_RANK", "1")
    refuse_taken(str(tmp_path))


def test_children_of_lightning_reuse_the_folder(monkeypatch):
    folder = start_folder("mine")
    (folder / "config.yaml").touch()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert start_folder("mine") == folder
    monkeypatch.setenv("LOCAL_RANK", "0")  # what Lightning leaves behind in the first process
    assert start_folder() != folder


@pytest.mark.parametrize(
    ("job", "rank"),
    [
        ({"TORCHELASTIC_RUN_ID": "abc"}, "RANK"),
        ({"SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}, "SLURM_PROCID"),
    ],
)
def test_processes_started_side_by_side_agree(job, rank, monkeypatch):
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(rank, "1")
    late = start_folder()
    monkeypatch.setenv(rank, "0")
    assert start_folder() == late
    assert late.is_dir()


def test_processes_that_cannot_agree_are_told(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="output is empty, but several processes"):
        start_folder()
    assert start_folder("mine") == tmp_path / "mine"


def test_twenty_at_once_are_all_distinct(tmp_path):
    line = "from manyheads.runfolder import start_folder; print(start_folder())"
    words = [sys.executable, "-S", "-c", line]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(20)]
    folders = {one.communicate()[0].strip() for one in started}
    assert len(folders) == 20
    assert {str(path) for path in (tmp_path / "outputs").iterdir()} == folders
