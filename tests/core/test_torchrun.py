"""Processes that torchrun starts: one run, begun again from its files, the same on one machine and on two. Machines
that are cut off are network namespaces of this one, which root can make."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from manyheads.distributed.heartbeat import LOST
from manyheads.runs.checkpoints import newest_checkpoint
from tests.conftest import free_port

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
SCRIPT = str(Path(__file__).parents[2] / "scripts" / "train.py")
SMALL = ["data.path=rows.csv", "debug=fast", "hardware.accelerator=cpu", "batch.rows=4", "model.dropout=0.1"]
LONG = [*SMALL, "optim.average=20", "trainer.max_epochs=28", "checkpoint.patience=0", "checkpoint.every=10"]
TIMES = ("seconds", "wall_seconds", "real_tokens_per_s", "output")
WAIT = 300  # seconds, on a machine that is busy


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    with (home / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]} {'so ' * (n % 5)}", ("cat", "dog")[n % 2]) for n in range(64)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return home


@pytest.fixture
def start(home):
    """`start(*words)`: a command in a session of its own, whose processes are killed in the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MANYHEADS_"))}
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    environment |= {"MANYHEADS_CACHE": str(home / "cache"), "OMP_NUM_THREADS": "1"}
    started: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            words,
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        for one in [*family(process.pid), process]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                one.kill()
        process.wait()


def family(process: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process).children(recursive=True)
    return []


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    """What it said."""
    said, _ = process.communicate(timeout=WAIT)
    assert process.returncode == code, said
    return said


def result(folder: Path) -> dict:
    """What a run comes to, but for the time it took and where it was."""
    summary = json.loads((folder / "summary.json").read_text())
    return {
        "model": (folder / "model" / "model.safetensors").read_bytes(),
        "rows": (folder / "metrics.csv").read_text(),
        "summary": {name: value for name, value in summary.items() if name not in TIMES},
    }


@pytest.mark.slow
def test_two_processes_are_one_run(start, home):
    said = finished(start(*TORCHRUN, "--standalone", "--nproc-per-node=2", SCRIPT, *SMALL))
    (folder,) = (home / "outputs").iterdir()
    assert {path.name for path in folder.iterdir()} >= {"config.yaml", "summary.json", "model", "run.log"}
    assert [path.name for path in folder.glob("ranks/*.log")] == ["rank-1.log"]
    assert said.count("95 % intervals") == 1
    assert said.count("epoch 1, step") == 1


@pytest.mark.slow  # test_launch.py has the sentence
def test_another_number_of_devices_is_refused(start, home):
    words = [*TORCHRUN, "--standalone", "--nproc-per-node=2", SCRIPT, *SMALL, "hardware.devices=3", "output=refused"]
    said = finished(start(*words), code=1)  # the exit code of torchrun itself
    why = "hardware.devices=3, but torchrun started processes for 2: give the same number to both, or remove hardware."
    assert said.count(f"{why}devices\n") == 1, "each process finds it, and one says it"
    assert not re.search(r'File "[^"]*/manyheads/\w', said), "no traceback of ours; the clone may have our name"
    assert not (home / "refused").exists()


@pytest.fixture(scope="module")
def launched(home) -> Path:
    """The folder of the same run in two processes of our own launcher."""
    words = [sys.executable, SCRIPT, *LONG, "hardware.devices=2", "output=launched"]
    environment = os.environ | {"MANYHEADS_CACHE": str(home / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=home, env=environment, capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr
    return home / "launched"


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_the_end_is_the_same(start, home, launched):
    again = ["--max-restarts=2", "--nproc-per-node=2", "--standalone"]
    run = start(*TORCHRUN, *again, SCRIPT, *LONG, "output=killed", "resume=auto")
    until = time.monotonic() + WAIT
    while newest_checkpoint(home / "killed" / "checkpoints") is None:
        assert time.monotonic() < until
        assert run.poll() is None, finished(run)
        time.sleep(0.1)
    (second,) = [one for one in family(run.pid) if one.environ().get("RANK") == "1"]
    second.send_signal(signal.SIGKILL)
    assert finished(run).count("resumed at step") == 1
    assert result(home / "killed") == result(launched)


def two_agents(start, *words: str) -> list[subprocess.Popen[str]]:
    """Two torchrun of this machine, as of two."""
    place = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    words = (SCRIPT, *LONG, "hardware.nodes=2", *words)
    return [start(*TORCHRUN, *place, f"--node-rank={node}", *words) for node in (0, 1)]


@pytest.mark.slow
def test_two_machines_are_one_run(start, home, launched):
    for one in two_agents(start, "output=machines"):
        finished(one)
    assert result(home / "machines") == result(launched)
    assert [path.name for path in (home / "machines").glob("ranks/*.log")] == ["rank-1.log"]


@pytest.mark.slow
def test_one_of_two_torchrun_is_killed_and_both_go_on(start, home, launched):
    """With all it has started, in the midst of the run."""
    folder = home / "agents"
    both = two_agents(start, "output=agents", "resume=auto")
    until = time.monotonic() + WAIT
    while newest_checkpoint(folder / "checkpoints") is None:
        assert time.monotonic() < until
        assert both[0].poll() is None, finished(both[0])
        time.sleep(0.1)
    for one in [*family(both[1].pid), both[1]]:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    since = time.monotonic()
    said = finished(both[0], code=1)  # that of torchrun itself, of a process that left with 69
    assert time.monotonic() - since < 30, "seen at once, not after hardware.timeout"
    assert said.count("rank 1 died at step") == 1, said
    assert "the run ends, and resume=auto resumes it from its newest checkpoint" in said
    assert not re.search(r'File "[^"]*/manyheads/\w', said), "no traceback of ours; the clone may have our name"
    again = two_agents(start, "output=agents", "resume=auto")
    assert [finished(one).count("resumed at step") for one in again] == [1, 0]
    assert result(folder) == result(launched)


TIMEOUT = 20  # seconds: hardware.timeout
CUT = 3 * TIMEOUT  # seconds in which a machine ends that has lost the other; it also looks and says why


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@pytest.fixture
def machines():
    """Two namespaces with a wire between them and addresses of their own; what to type before a command there."""
    names = [f"mh{os.getpid() % 10000}{end}" for end in "ab"]
    if not shutil.which("ip") or not shutil.which("unshare") or os.geteuid():
        pytest.skip("network namespaces need root, ip and unshare")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name", names[1], "netns", names[1])
        for at, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.77.0.{at + 1}/24", "dev", name)
            for device in ("lo", name):
                ip("-n", name, "link", "set", device, "up")
        yield names
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode()}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)


def on_machines(start, machines, folder: str, *program: str) -> list[subprocess.Popen[str]]:
    """The same command on both, each with a name of its own."""
    both = []
    for node, name in enumerate(machines):
        place = [f"NODE_RANK={node}", "MASTER_ADDR=10.77.0.1", "MASTER_PORT=29511", f"GLOO_SOCKET_IFNAME={name}"]
        inside = ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh"]
        words = [*program, SCRIPT, *LONG, "hardware.nodes=2", f"hardware.timeout={TIMEOUT}", f"output={folder}"]
        both.append(start(*inside, "env", *place, *words, "resume=auto"))
    return both


@pytest.mark.slow
@pytest.mark.parametrize("way", ["killed", "unplugged"])
def test_a_machine_that_is_cut_off_ends_the_run_and_both_go_on(way, start, home, launched, machines):
    """Either its processes are killed at once and its wire is cut, so that no word of it comes; or the wire alone."""
    folder = home / f"cut-{way}"
    both = on_machines(start, machines, folder.name, sys.executable)
    until = time.monotonic() + WAIT
    while newest_checkpoint(folder / "checkpoints") is None:
        assert time.monotonic() < until
        assert both[0].poll() is None, finished(both[0])
        time.sleep(0.1)
    ip("-n", machines[1], "link", "set", machines[1], "down")
    if way == "killed":
        for one in [*family(both[1].pid), both[1]]:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                one.kill()
    for one in both if way == "unplugged" else both[:1]:
        since = time.monotonic()
        said = one.communicate(timeout=WAIT)[0]
        assert time.monotonic() - since < CUT, said
        assert one.returncode == LOST, said
        assert "Traceback" not in said
        why = "rank 1 stopped answering at step" if way == "killed" else "another process broke the connection at step"
        assert said.count(why) == 1, said
        assert "failed with exit code" not in said, "said once"
    ip("-n", machines[1], "link", "set", machines[1], "up")
    again = on_machines(start, machines, folder.name, sys.executable)
    assert [finished(one).count("resumed at step") for one in again] == [1, 0]
    assert result(folder) == result(launched)
