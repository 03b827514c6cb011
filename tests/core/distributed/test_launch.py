"""Processes that are started for a verb: what they are given, how they end, and that none is left behind."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from manyheads.config import Accelerator, HardwareConfig, Resume, RunConfig
from manyheads.distributed import launch
from manyheads.distributed.launch import n_to_start, validate_world_size
from manyheads.errors import RunEnded
from manyheads.runs.checkpoints import newest_checkpoint
from manyheads.runs.folder import OUTPUT_VARIABLE

TWO = ["hardware.devices=2", "hardware=cpu"]
STAND_IN = """
import json, os, signal, sys, time
from pathlib import Path
from manyheads.cli import main as cli
from manyheads.config.conversion import to_plain
from manyheads.errors import UserError

def work(verb, config):
    rank = os.environ["RANK"]
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MANYHEADS_OUTPUT")
    told = {name: os.environ.get(name) for name in names} | {"MASTER_PORT": os.environ["MASTER_PORT"]}
    told |= {"verb": verb, "config": to_plain(config), "session": os.getsid(0) == os.getpid()}
    told |= {"heavy": [name for name in ("torch", "lightning") if name in sys.modules]}
    start = len(list(Path().glob(f"told-{rank}-*.json")))
    Path(f"told-{rank}-{start}.json").write_text(json.dumps(told))
    print("rank", rank, "says this")
    do = os.environ.get("DO_" + rank, "").split()
    if "listen" in do:
        for one in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(one, lambda number, _: (time.sleep(0.3), sys.exit(128 + number)))
    if "deaf" in do:
        for one in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
    if "offspring" in do:
        import subprocess
        subprocess.Popen(["sleep", "600"])
    Path(f"begun-{rank}").touch()
    for word in do:
        if word == "once-again" and start == 0:
            sys.exit(75)
        elif word == "again":
            sys.exit(75)
        elif word == "sleep" or word == "listen" or word == "deaf":
            time.sleep(600)
        elif word == "mistake":
            raise UserError("n=1 is wrong: use n=2")
        elif word == "bug":
            {}["a key"]
        elif word == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif word.isdigit():
            sys.exit(int(word))

cli.call = work
cli.worker_main()
"""
SUPERVISOR = """
import sys
from pathlib import Path
from manyheads.distributed import launch
from manyheads.cli.main import run_with_exit_code, say_sentence
from manyheads.config import RunConfig
launch.PROGRAM, launch.GRACE = ("stand_in.py",), 1.5
def work():
    launch.run_on_all_ranks("train", RunConfig(seed=7), n_local=2, timeout=3.0, folder=Path("given").absolute())
    return 0
sys.exit(run_with_exit_code(work, say_sentence))
"""


@pytest.fixture
def crew(ranks_run):
    """`crew(one, other)`: two processes that do as they are told, under our supervisor."""

    def start(*do: str):
        (ranks_run.folder / "stand_in.py").write_text(STAND_IN)
        (ranks_run.folder / "supervisor.py").write_text(SUPERVISOR)
        told = {f"DO_{rank}": what for rank, what in enumerate(do)}
        return ranks_run.start([sys.executable, "supervisor.py"], **told)

    return start


def begun(job, folder: Path) -> None:
    job.until(lambda: all((folder / f"begun-{rank}").exists() for rank in (0, 1)))


def told(folder: Path, rank: int, start: int = 0) -> dict:
    return json.loads((folder / f"told-{rank}-{start}.json").read_text())


def test_what_each_process_is_given(crew, ranks_run):
    job = crew("", "")
    assert job.code() == 0, job.err
    assert job.out == "rank 0 says this\n", "the others are kept quiet"
    assert job.err == ""
    one, other = (told(ranks_run.folder, rank) for rank in (0, 1))
    for rank, words in enumerate((one, other)):
        assert (words["RANK"], words["LOCAL_RANK"], words["NODE_RANK"]) == (str(rank), str(rank), "0")
        assert (words["WORLD_SIZE"], words["LOCAL_WORLD_SIZE"]) == ("2", "2")
        assert words["MANYHEADS_OUTPUT"] == str(ranks_run.folder / "given")
        assert (words["verb"], words["config"]["seed"]) == ("train", 7)
        assert words["session"], "signals of the terminal reach the supervisor alone"
        assert words["heavy"] == []
    assert one["config"] == other["config"]
    assert one["MASTER_PORT"] == other["MASTER_PORT"]


ENDS = {  # what the two do: the exit code, and what is said
    ("mistake", "mistake"): (2, "n=1 is wrong: use n=2\n"),
    ("sleep", "mistake"): (2, "n=1 is wrong: use n=2\n"),
    ("sleep", "3"): (3, "rank 1 failed with exit code 3: its last lines\nrank 1 says this\n"),
    ("3", "sleep"): (3, "rank 0 failed with exit code 3\n"),
    ("sleep", "kill"): (137, "rank 1 was killed by SIGKILL: its last lines\nrank 1 says this\n"),
    ("deaf", "143"): (143, ""),
    ("69", "sleep"): (69, ""),
}
FAST = (("sleep", "mistake"),)  # other ends are those of the tests below, too


@pytest.mark.parametrize(
    "do", [pytest.param(do, marks=[pytest.mark.slow] * (do not in FAST), id=" and ".join(do)) for do in ENDS]
)
def test_how_it_ends(do, crew):
    job = crew(*do)
    code, said = ENDS[do]
    assert job.code() == code, job.err
    assert job.err == said
    assert not job.left(within=0), "who supervised has waited for all"


def test_a_bug_of_another_rank_shows_its_traceback(crew):
    job = crew("sleep", "bug offspring")
    assert job.code() == 1
    assert "rank 1 failed with exit code 1: its last lines" in job.err
    assert job.err.rstrip().endswith("KeyError: 'a key'")
    assert not job.left(within=1)


def test_a_second_start_goes_on(crew, ranks_run):
    job = crew("once-again", "once-again")
    assert (job.code(), job.err) == (0, "")
    assert not job.left(within=0)
    for rank in (0, 1):
        assert told(ranks_run.folder, rank, 0)["config"]["resume"] == "never"
        assert told(ranks_run.folder, rank, 1)["config"]["resume"] == "auto"


def test_it_is_not_started_for_ever(monkeypatch):
    starts = []

    class Fake:
        def __init__(self, verb, config, environments, folder) -> None:
            starts.append(config.resume)

        def __enter__(self):
            return self

        def __exit__(self, *_) -> None:
            pass

        def wait(self, timeout) -> int:
            return launch.AGAIN

    monkeypatch.setattr(launch, "Processes", Fake)
    with pytest.raises(RunEnded) as stopped:
        launch.run_on_all_ranks("train", RunConfig(), n_local=2, timeout=1.0)
    assert stopped.value.exit_code == 75
    assert starts == [Resume.never] + [Resume.auto] * (launch.MOST_STARTS - 1)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGUSR1, signal.SIGINT))]
)
def test_a_signal_is_handed_on_once(number, crew, ranks_run):
    job = crew("listen", "listen")
    begun(job, ranks_run.folder)
    job.process.send_signal(number)
    assert job.code(timeout=20) == 128 + number
    assert job.err == ""
    assert not job.left(within=0)


def test_a_second_signal_ends_all_at_once(crew, ranks_run):
    job = crew("deaf offspring", "deaf")
    begun(job, ranks_run.folder)
    job.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert job.process.poll() is None
    job.process.send_signal(signal.SIGINT)
    assert job.code(timeout=20) == 128 + signal.SIGINT
    assert not job.left(within=1)


def test_nobody_outlives_a_supervisor_that_was_killed(crew, ranks_run):
    job = crew("deaf offspring", "deaf")
    begun(job, ranks_run.folder)
    assert len(job.processes()) == 4
    job.process.kill()
    job.code(timeout=20)
    assert not job.left(within=10)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    for name in ("RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", OUTPUT_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


def test_how_many_are_started(alone):
    cpu = Accelerator.cpu
    assert n_to_start(HardwareConfig(accelerator=cpu)) == 0
    assert n_to_start(HardwareConfig(accelerator=cpu, devices=0)) == 0
    alone.setattr("os.cpu_count", lambda: 3)
    alone.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    assert n_to_start(HardwareConfig(accelerator=cpu, devices=3)) == 3
    alone.setattr(launch, "_n_gpus", lambda: 4)
    assert n_to_start(HardwareConfig(devices=0)) == 4
    with pytest.raises(ValueError, match=r"^hardware.nodes=2 needs NODE_RANK, MASTER_ADDR, MASTER_PORT in the environ"):
        n_to_start(HardwareConfig(nodes=2))
    for name, value in {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"}.items():
        alone.setenv(name, value)
    assert n_to_start(HardwareConfig(nodes=2)) == 1
    environments = list(launch._environments(2, 2, None))
    assert [one["RANK"] for one in environments] == ["2", "3"]
    assert {(one["WORLD_SIZE"], one["MASTER_ADDR"], one["MASTER_PORT"]) for one in environments} == {
        ("4", "10.0.0.1", "4000")
    }
    alone.setenv("RANK", "0")
    alone.setenv("WORLD_SIZE", "2")
    assert n_to_start(HardwareConfig(devices=2)) == 0, "somebody has started them"


@pytest.mark.parametrize("accelerator", [Accelerator.cpu, Accelerator.auto])
def test_a_cpu_is_not_crowded_with_more_processes_than_cores(accelerator, alone, capsys):
    alone.setattr("os.cpu_count", lambda: 4)
    alone.setattr("os.sched_getaffinity", lambda _: {0, 1})
    alone.setattr(launch, "_n_gpus", lambda: 0)
    assert n_to_start(HardwareConfig(accelerator=accelerator, devices=2)) == 2
    assert capsys.readouterr().err == ""
    assert n_to_start(HardwareConfig(accelerator=accelerator, devices=4)) == 4
    assert capsys.readouterr().err == (
        "hardware.devices=4 is 4 processes on a CPU, which take turns on 2 cores: 2 would be as fast\n"
    )
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - compared whole
        n_to_start(HardwareConfig(accelerator=accelerator, devices=99))
    assert str(refused.value) == (
        "hardware.devices=99 is 99 processes on a CPU of 4 cores, where more than 4 only take turns: use "
        "hardware.devices=4 at the most, or add hardware.threads=1 if that is intended"
    )
    assert n_to_start(HardwareConfig(accelerator=accelerator, devices=99, threads=1)) == 99
    assert "take turns on 2 cores" in capsys.readouterr().err
    alone.setattr(launch, "_n_gpus", lambda: 8)
    assert n_to_start(HardwareConfig(devices=8)) == 8, "its processes know how many GPUs there are"


def test_what_was_started_is_what_the_config_says(alone):
    one = HardwareConfig(accelerator=Accelerator.cpu)
    assert validate_world_size(one) == one
    for name, value in {"RANK": "0", "WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "x"}.items():
        alone.setenv(name, value)
    assert (validate_world_size(one).devices, validate_world_size(one).nodes) == (3, 2)
    assert validate_world_size(HardwareConfig(devices=3, nodes=2)).devices == 3
    with pytest.raises(ValueError, match=r"^hardware.devices=4, but torchrun started processes for 3: give the same"):
        validate_world_size(HardwareConfig(devices=4))


def test_a_mistake_in_the_data_is_said_once_and_leaves_nothing(ranks_run):
    job = ranks_run.manyheads("train", "data.path=nowhere.csv", *TWO)
    assert job.code() == 2
    assert job.err.count("nowhere.csv") == 1
    assert len(job.err.splitlines()) == 1
    assert {one.name for one in ranks_run.folder.iterdir()} == {"said-0.out", "said-0.err"}


def test_a_folder_that_is_taken_is_refused_before_anything_is_started(ranks_run):
    (ranks_run.folder / "full").mkdir()
    (ranks_run.folder / "full" / "x").touch()
    job = ranks_run.manyheads("train", "output=full", *TWO)
    assert job.code() == 2
    assert len(job.err.splitlines()) == 1
    assert job.err.endswith("full exists and is not empty: name a new folder\n")  # it may be anybody's


@pytest.mark.slow
def test_train_in_a_script_returns_the_figures(ranks_run):
    (ranks_run.folder / "script.py").write_text(
        "from manyheads.cli.compose import compose\nfrom manyheads.training_run import train\n"
        f"summary = train(compose('train', ['debug=fast', 'output=run', *{TWO!r}]))\n"
        "print(summary.rows, summary.validation['accuracy'].low)\n"
    )
    job = ranks_run.start([sys.executable, "script.py"])
    assert job.code() == 0, job.err
    summary = json.loads((ranks_run.folder / "run" / "summary.json").read_text())
    assert job.out.splitlines()[-1] == f"{summary['rows']} {summary['validation']['accuracy']['low']}"


def test_who_is_not_the_first_says_who_it_is_and_comes_later(alone, capsys):
    from manyheads.cli import main as cli

    alone.setenv("RANK", "1")
    alone.setenv("WORLD_SIZE", "2")
    waits = []
    alone.setattr(cli.time, "sleep", waits.append)
    assert cli.main(["train", "seed=-1"]) == 2
    assert capsys.readouterr().err.startswith("rank 1: seed=-1 is out of range")
    assert waits == [cli.RANK_DELAY]


@pytest.mark.slow
def test_the_supervisor_of_a_run_is_told_to_stop_then_killed_and_the_run_goes_on(ranks_run):
    words = ["train", "debug=fast", "batch.rows=4", "trainer.max_epochs=400", "output=run", "resume=auto", *TWO]
    folder = ranks_run.folder / "run"

    def steps() -> int:
        record = folder / "ranks" / "rank-1.json"
        return json.loads(record.read_text())["step"] if record.exists() else 0

    stopped = ranks_run.manyheads(*words)
    stopped.until(lambda: steps() > 3)
    stopped.process.send_signal(signal.SIGTERM)
    assert stopped.code() == 143, stopped.err
    assert not stopped.left(within=0)
    assert "stopped by SIGTERM at step" in stopped.err
    assert "stopped by SIGTERM at step" in (folder / "ranks" / "rank-1.log").read_text()
    saved = newest_checkpoint(folder / "checkpoints")
    assert saved is not None

    killed = ranks_run.manyheads(*words)
    killed.until(lambda: steps() > int(saved.name.partition("-")[2]) + 3)
    killed.process.kill()
    killed.code()
    assert not killed.left(within=20)

    last = ranks_run.manyheads(*words, "trainer.max_steps=40")
    assert last.code() == 0, last.err
    assert "resumed at step" in last.err
