"""One folder a run, whoever starts it and however many processes take part; its metrics.csv."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from threading import Timer

import pytest

from manyheads.cli.main import main
from manyheads.runs.folder import (
    OUTPUT_VARIABLE,
    ranks_folder,
    refuse_taken,
    refuse_unwritable_output,
    reserved_folder,
    start_folder,
)
from manyheads.runs.metrics_csv import read_metrics_csv

RANKS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "SLURM_NTASKS", "SLURM_PROCID",
    "SLURM_STEP_ID", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", OUTPUT_VARIABLE,
)  # fmt: skip
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "20", "LOCAL_WORLD_SIZE": "20"}
SRUN = {"SLURM_NTASKS": "20", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
STARTED = {  # by whom: what all are told, and what tells them apart
    "torchrun": (TORCHRUN, "RANK"),
    "torchrun with an id": (TORCHRUN | {"TORCHELASTIC_RUN_ID": "abc"}, "RANK"),
    "srun": (SRUN, "SLURM_PROCID"),
    "launch": ({"WORLD_SIZE": "20", OUTPUT_VARIABLE: "{here}/outputs/one"}, "RANK"),
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)


def test_a_folder_under_outputs_is_made(tmp_path):
    folder = start_folder()
    assert folder.parent == tmp_path / "outputs"
    assert folder.is_dir()


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


def test_a_taken_folder_is_refused_to_the_first_alone(tmp_path, monkeypatch):
    (tmp_path / "x").touch()
    with pytest.raises(ValueError, match="exists and is not empty"):
        refuse_taken(str(tmp_path))
    refuse_taken("")
    refuse_taken("new")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    refuse_taken(str(tmp_path))


def test_a_folder_that_no_record_could_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not UTF-8: name another folder"):
        refuse_taken(os.fsdecode(b"r\xfcn"))


def test_a_reserved_folder_is_nobody_elses_and_goes_if_nothing_was_written(tmp_path):
    with reserved_folder() as one, reserved_folder() as other:
        assert one != other
        assert one.is_dir()
        assert other.is_dir()
    assert not (tmp_path / "outputs").exists()
    with reserved_folder() as one:
        (one / "config.yaml").touch()
    assert one.is_dir()
    with reserved_folder("mine") as mine:
        assert mine == tmp_path / "mine"
        assert not mine.exists(), "the first process makes it, once the data has no mistake"


def test_a_folder_that_was_handed_on_is_for_those_who_were_started(monkeypatch, tmp_path):
    monkeypatch.setenv(OUTPUT_VARIABLE, str(tmp_path / "theirs"))
    assert start_folder("mine") == tmp_path / "mine"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert start_folder("mine") == tmp_path / "theirs"
    assert (tmp_path / "theirs").is_dir()


def test_the_others_wait_until_the_first_has_made_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(
        ValueError, match=r"^rank 0 has not made .*/ranks within hardware\.timeout=0\.2 seconds: name a"
    ):
        ranks_folder(tmp_path, 0.2)
    assert not list(tmp_path.iterdir()), "it must stay empty for the first"
    Timer(0.3, (tmp_path / "ranks").mkdir).start()
    assert ranks_folder(tmp_path, 60.0) == tmp_path / "ranks"


def test_processes_of_several_machines_that_cannot_agree_are_told(monkeypatch, tmp_path):
    for name, value in (TORCHRUN | {"RANK": "1", "LOCAL_WORLD_SIZE": "10"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="output is empty, but several processes"):
        start_folder()
    assert start_folder("mine") == tmp_path / "mine"


def folders_of(n_processes: int, tmp_path: Path, shared: dict[str, str], apart: str) -> list[str]:
    """What folders as many processes make that start at once, without anything heavy."""
    line = (
        "import sys; from manyheads.runs.folder import start_folder; print(start_folder()); "
        "assert not {'torch', 'lightning', 'hydra'} & set(sys.modules)"
    )
    given = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    given |= {name: value.format(here=tmp_path) for name, value in shared.items()}
    started = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", line], stdout=subprocess.PIPE, text=True, env=given | {apart: str(rank)}
        )
        for rank in range(n_processes)
    ]
    said = [one.communicate()[0].strip() for one in started]
    assert [one.returncode for one in started] == [0] * n_processes
    return said


def test_twenty_runs_at_once_are_all_distinct(tmp_path):
    folders = set(folders_of(20, tmp_path, {}, "NOTHING"))
    assert len(folders) == 20
    assert {str(path) for path in (tmp_path / "outputs").iterdir()} == folders


@pytest.mark.parametrize("by", STARTED)
def test_processes_of_one_run_have_one(by, tmp_path):
    shared, apart = STARTED[by]
    (folder,) = set(folders_of(8, tmp_path, shared, apart))
    assert [str(path) for path in (tmp_path / "outputs").iterdir()] == [folder]


def test_two_runs_of_torchrun_have_their_own(tmp_path):
    shared, apart = STARTED["torchrun"]
    one = set(folders_of(2, tmp_path, shared, apart))
    line = "from manyheads.runs.folder import start_folder; print(start_folder())"
    wrapped = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {line!r}], check=True)"
    given = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src"), **shared, apart: "0"}
    other = subprocess.run([sys.executable, "-c", wrapped], env=given, capture_output=True, text=True, check=True)
    assert {other.stdout.strip()} != one


def test_rows_hold_what_was_logged(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,epoch,loss,validation_loss\n10,0,1.5,\n20,,oops,0.5,more\n,1,2,3\n")
    assert read_metrics_csv(path) == [
        {"step": 10.0, "epoch": 0.0, "loss": 1.5},
        {"step": 20.0, "validation_loss": 0.5},
    ]


def test_no_file_is_no_curve(tmp_path: Path) -> None:
    assert read_metrics_csv(tmp_path / "metrics.csv") == []


@pytest.mark.parametrize("resume", ["never", "auto"])
def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(resume, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write anywhere
    assert main(["train", "data=demo", "output=a/run", f"resume={resume}"]) == 2
    said = f"output=a/run: {tmp_path} may not be written to: name another place by output=\n"
    assert capsys.readouterr().err == said
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("more", ["", "resume=auto", "data.folds=2", "hardware.devices=2"])
@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("link", "link is a link to nowhere, which does not exist"),
        ("link/run", "link is a link to nowhere, which does not exist"),
        ("file/run", "file is a file"),
        ("outputs", "outputs is a file"),
        ("", "outputs is a file"),
    ],
)
def test_what_stands_where_the_folder_would_be_is_named(output, said, more, tmp_path, capsys):
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").touch()
    (tmp_path / "outputs").touch()
    if output or more != "resume=auto":
        assert main(["train", "data=demo", f"output={output}", *more.split()]) == 2
        assert re.fullmatch(f"output=.*{said}: name .*\n", capsys.readouterr().err)
    assert {one.name for one in tmp_path.iterdir()} == {"link", "file", "outputs"}


def test_the_system_says_whether_a_folder_can_be_written_to():
    with tempfile.TemporaryDirectory() as name:  # which others may read, unlike pytest's
        for mode, code in ((0o555, 2), (0o777, 0)):
            Path(name).chmod(mode)
            process = os.fork()
            if not process:
                if os.geteuid() == 0:
                    os.setuid(65534)
                try:
                    refuse_unwritable_output(f"{name}/a/run")
                except ValueError:
                    os._exit(2)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == code
