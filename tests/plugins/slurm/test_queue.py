"""Runs in a real queue: two tasks are one run, a job that is put back ends as if nothing had been."""

import csv
import json
import shlex
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from manyheads.distributed.ranks import first_host
from manyheads.runs.checkpoints import newest_checkpoint
from tests.core.test_torchrun import result
from tests.registry import SWEEPS

pytestmark = pytest.mark.slurm
PROGRAM = (sys.executable, "-m", "manyheads")
WORDS = [
    "data.path=rows.csv", "debug=fast", "hardware.accelerator=cpu", "hardware.devices=2", "batch.rows=4",
    "model.dropout=0.1", "optim.average=20", "trainer.max_epochs=28", "checkpoint.patience=0", "checkpoint.every=10",
]  # fmt: skip
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "PREEMPTED")
SHOW = """
import json, os, sys
from manyheads.distributed.ranks import this_process
one = this_process()
said = [sys.argv[1], one.rank, one.n_ranks, one.local_rank, one.n_local, one.node, one.started_by]
open(f"seen-{os.getpid()}.json", "w").write(json.dumps(said))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory, cluster) -> Path:
    """A folder with data, where commands are typed."""
    home = tmp_path_factory.mktemp("home")
    with (home / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]} {'so ' * (n % 5)}", ("cat", "dog")[n % 2]) for n in range(64)]
        csv.writer(file).writerows([("text", "label"), *rows])
    cluster.environment["MANYHEADS_CACHE"] = str(home / "cache")
    return home


def queued(cluster, home: Path, *words: str) -> tuple[str, Path]:
    """The number of a job that was submitted by the line that was printed, and its folder."""
    line = shlex.split(cluster.run(*PROGRAM, "train", "hardware=slurm", *words, cwd=home))
    return cluster.submit(line, home), Path(line[1]).parent


def said(folder: Path) -> str:
    return "\n".join(file.read_text() for file in folder.glob("slurm-*.out"))


@pytest.fixture(scope="module")
def undisturbed(cluster, home) -> Path:
    """The folder of the same run in two processes of our own launcher, which nobody stopped."""
    cluster.run(*PROGRAM, "train", *WORDS, "output=undisturbed", cwd=home)
    return home / "undisturbed"


def a_newer_checkpoint(cluster, number: str, folder: Path, than: Path | None) -> Path:
    until = time.monotonic() + 600
    while (found := newest_checkpoint(folder / "checkpoints")) == than or found is None:
        assert time.monotonic() < until, f"{cluster.job(number)}\n{said(folder)}"
        time.sleep(0.2)
    return found


def test_a_job_that_is_preempted_twice_ends_as_if_nothing_had_been(undisturbed, cluster, home):
    """Two tasks are one run. First SIGUSR1 comes, as at the end of its time: the script puts it back. Then SLURM does,
    for an urgent job."""
    number, folder = queued(cluster, home, *WORDS, "output=preempted")
    a_newer_checkpoint(cluster, number, folder, None)
    cluster.run("scancel", "--signal=USR1", number)
    cluster.wait(number, "PENDING", *ENDED)
    saved = newest_checkpoint(folder / "checkpoints")
    job = cluster.wait(number, "RUNNING", *ENDED)
    assert (job["JobState"], job["Restarts"]) == ("RUNNING", "1"), said(folder)
    a_newer_checkpoint(cluster, number, folder, saved)
    place = ["--partition=urgent", "--ntasks=2", f"--nodelist={job['BatchHost']}", "--output=/dev/null"]
    urgent = cluster.submit(["sbatch", *place, "--wrap=true"], home)
    assert cluster.wait(urgent, *ENDED)["JobState"] == "COMPLETED"
    job = cluster.wait(number, *ENDED)
    assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("COMPLETED", "0:0", "2"), said(folder)
    assert said(folder).count("resumed at step") == 2
    assert said(folder).count("95 % intervals") == 1
    assert [path.name for path in folder.glob("ranks/*.log")] == ["rank-1.log"]
    assert {path.name for path in folder.iterdir()} - {"job.sbatch", f"slurm-{number}.out"} == {
        path.name for path in undisturbed.iterdir()
    }
    assert result(folder) == result(undisturbed)


def test_a_mistake_is_not_put_back(cluster, home):
    number, folder = queued(cluster, home, "data.path=nowhere.csv", "output=mistaken")
    job = cluster.wait(number, *ENDED)
    assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("FAILED", "2:0", "0")
    assert "nowhere.csv does not exist" in said(folder)


def test_srun_without_a_script_is_one_run_on_two_nodes(cluster, home):
    few = [word for word in WORDS if not word.startswith(("trainer.", "hardware.devices"))]
    cluster.run("srun", "--nodes=2", "--ntasks-per-node=1", *PROGRAM, "train", *few, cwd=home)
    (folder,) = (home / "outputs").iterdir()
    assert folder.name.startswith("slurm-")
    assert json.loads((folder / "summary.json").read_text())["epochs"] == 1
    assert [path.name for path in folder.glob("ranks/*.log")] == ["rank-1.log"]


LISTS = ["node7", "gpu-[07-09,12],login", "a,b[1-2]", "rack[2-3]gpu[04,08]", "n[9-11]"]


def test_the_first_of_a_list_of_machines_is_the_one_slurm_names(cluster):
    for names in LISTS:
        assert first_host(names) == cluster.run("scontrol", "show", "hostnames", names).split()[0]


def test_ranks_are_those_of_a_step_alone(cluster, home):
    (home / "show.py").write_text(SHOW)
    show = shlex.join([sys.executable, "show.py"])
    lines = [
        f"{show} batch",
        f"srun -N 1 -n 1 {show} one",
        f"srun {show} step",
        f"srun -N 1 -n 1 bash -c '{show} shell'",
    ]
    (home / "ranks.sbatch").write_text("\n".join(["#!/bin/bash", *lines]))
    number = cluster.submit(["sbatch", "--nodes=2", "--ntasks=3", "--output=ranks.out", "ranks.sbatch"], home)
    assert cluster.wait(number, *ENDED)["JobState"] == "COMPLETED"
    seen = sorted(json.loads(file.read_text()) for file in home.glob("seen-*.json"))
    alone = [0, 1, 0, 1, 0, ""]
    assert seen == [
        ["batch", *alone], ["one", *alone], ["shell", *alone],
        ["step", 0, 3, 0, 2, 0, "srun"], ["step", 1, 3, 1, 2, 0, "srun"], ["step", 2, 3, 0, 1, 1, "srun"],
    ]  # fmt: skip


@SWEEPS
@pytest.mark.skipif(find_spec("submitit") is None, reason="manyheads[launch] is not installed")
def test_the_jobs_of_a_sweep_are_jobs_of_the_queue(cluster, home):
    words = [word for word in WORDS if not word.startswith(("trainer.", "hardware.devices"))]
    jobs = ["seed=1,2", "hydra/launcher=submitit_slurm", "hydra.launcher.tasks_per_node=1", "hydra.sweep.dir=sweep"]
    said = cluster.run(*PROGRAM, "train", "-m", *words, *jobs, cwd=home)
    assert "2 runs in" in said
    for seed in (1, 2):
        assert json.loads((home / "sweep" / f"seed={seed}" / "summary.json").read_text())["epochs"] == 1


def test_an_array_is_one_search_also_where_a_task_of_it_is_put_back(cluster, home):
    """The signal, as at the end of its time, puts one task back, not the array; no run is made by both."""
    words = [word for word in WORDS if not word.startswith(("hardware.devices", "debug="))]
    words += ["model.n_layers=1", "model.d_model=16", "model.n_heads=2", "model.d_k=8", "model.d_v=8"]
    words += ["model.d_ff=8,16,24,32", "hardware.threads=1"]
    line = shlex.split(
        cluster.run(*PROGRAM, "tune", "hardware=slurm", "slurm.tasks=2", *words, "output=search", cwd=home)
    )
    number, folder = cluster.submit(line, home), Path(line[1]).parent
    second = f"{number}_2"
    until = time.monotonic() + 600
    while not list(folder.glob("trials/*/checkpoints/step-*")):
        assert time.monotonic() < until, said(folder)
        time.sleep(0.2)
    cluster.wait(second, "RUNNING", *ENDED)
    cluster.run("scancel", "--signal=USR1", second)
    cluster.wait(second, "PENDING", *ENDED)
    jobs = [cluster.wait(f"{number}_{task}", *ENDED) for task in (1, 2)]
    assert [(job["JobState"], job["ExitCode"], job["Restarts"]) for job in jobs] == [
        ("COMPLETED", "0:0", "0"), ("COMPLETED", "0:0", "1"),
    ], said(folder)  # fmt: skip
    with (folder / "trials.csv").open() as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["done"] * 4
    assert all(f"trial {n} of 4" in said(folder) for n in range(1, 5))
