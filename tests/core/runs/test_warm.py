"""Processes that a warm server forks are as those that are started anew."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from manyheads import compose
from manyheads.distributed.machine import is_alive
from manyheads.plugin import resolve
from manyheads.runs import warm as warm_module
from manyheads.runs.many import TrainingProcess, log_file
from manyheads.runs.warm import IMPORTED, ServerLostError, Warm

SMALL = ["model.n_layers=1", "model.n_heads=1", "model.d_model=16", "model.d_ff=16", "tokenizer.vocab_size=64"]


@pytest.fixture
def run_of(tmp_path, monkeypatch):
    """`run_of(name, *words)`: the settings of a tiny run into a folder of this name."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # as the tests' server: two threads add in another order
        monkeypatch.setenv(name, "1")
    rows = "".join(f"it {('purrs', 'barks')[at % 2]} {at},{'ab'[at % 2]}\n" for at in range(60))
    (tmp_path / "rows.csv").write_text(f"text,label\n{rows}")
    fixed = [f"data.path={tmp_path}/rows.csv", "hardware=cpu", "trainer.max_epochs=2", *SMALL]
    return lambda name, *words: compose("train", [*fixed, f"output={tmp_path}/{name}", *words])


def test_what_a_server_imports_exists():
    assert resolve(IMPORTED).__name__ == "manyheads.training.pipeline"


class Bare:
    """As the server of a search, but what it forks imports the training anew."""

    def __init__(self, python):
        self.server = python.server

    def start(self, words, stdin, output, env):
        command = ["python", os.getcwd(), "/dev/null", "-m", "manyheads.cli.main", *words]
        return self.server.start(command, stdin, output, env)


@pytest.mark.parametrize("anew", ["bare", pytest.param("interpreter", marks=pytest.mark.slow)])
def test_a_forked_training_has_the_bits_of_one_that_is_started_anew(anew, trainings, bare, run_of, tmp_path):
    runs = {
        "forked": TrainingProcess(run_of("forked"), warm=trainings),
        "again": TrainingProcess(run_of("again"), warm=trainings),
        "anew": TrainingProcess(run_of("anew"), warm=Bare(bare) if anew == "bare" else None),
    }
    for name, process in runs.items():
        assert process.process.wait(240) == 0, log_file(tmp_path / name).read_text()
        process.kill()
    weights = {name: (tmp_path / name / "model/model.safetensors").read_bytes() for name in runs}
    assert weights["forked"] == weights["again"] == weights["anew"]
    metrics = {name: json.loads((tmp_path / name / "summary.json").read_text())["validation"] for name in runs}
    assert metrics["forked"] == metrics["anew"]


def test_a_mistake_is_one_line_in_the_log_with_its_exit_code(trainings, run_of, tmp_path):
    process = TrainingProcess(run_of("mistake", f"data.path={tmp_path}/none.csv"), warm=trainings)
    assert process.process.wait(120) == 2
    (line,) = log_file(tmp_path / "mistake").read_text().splitlines()
    assert "none.csv" in line


@pytest.mark.parametrize("way", ["asked", "supervisor killed"])
def test_it_saves_before_it_ends(way, trainings, run_of, tmp_path):
    process = TrainingProcess(run_of("stopped", "trainer.max_epochs=100000"), warm=trainings)
    wait_until((tmp_path / "stopped/checkpoints").is_dir, process, tmp_path / "stopped")
    if way == "asked":
        process.stop()
    else:
        process.settings.close()  # as `kill -9` closes the supervisor's end of the pipe
    assert process.process.wait(120) == 143
    process.kill()
    assert list((tmp_path / "stopped/checkpoints").iterdir())


def test_killing_leaves_no_process(trainings, run_of, tmp_path):
    process = TrainingProcess(run_of("killed", "trainer.max_epochs=100000"), warm=trainings)
    wait_until((tmp_path / "killed/config.yaml").is_file, process, tmp_path / "killed")
    process.kill()
    assert process.code == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.process.pid, 0)


@pytest.fixture
def light(monkeypatch):
    """A server that has not imported torch, which no mistake needs."""
    code = "from manyheads.runs import warm; warm.IMPORTED = 'json:'; warm.main()"
    monkeypatch.setattr(warm_module, "SERVER", (sys.executable, "-P", "-c", code))
    with Warm() as server:
        yield server


def lose(server):
    server._process.kill()
    server._process.wait()


def test_where_the_server_is_killed_its_processes_go_on_and_others_start_anew(light, run_of, tmp_path):
    read, write = os.pipe()
    with open(read, "rb") as settings, open(write, "wb"), (tmp_path / "log").open("wb") as log:
        first = light.start(["train", "0", "2", "1"], settings.fileno(), log.fileno(), {})  # waits for its settings
        lose(light)
        assert first.poll() is None
        with pytest.raises(ServerLostError):
            light.start(["train"], 0, 1, {})
        second = TrainingProcess(run_of("second", f"data.path={tmp_path}/none.csv"), warm=light)
        assert isinstance(second.process, subprocess.Popen)
        assert second.process.wait(120) == 2
        assert first.poll() is None
        os.kill(first.pid, signal.SIGKILL)
        assert first.wait(60) == -signal.SIGKILL


def test_without_the_server_a_training_that_has_finished_counts_as_such(light, run_of, tmp_path):
    """Its exit code is known to nobody, and its new parent may never wait for it."""
    names = ("finished", "failed")
    finished, failed = [TrainingProcess(run_of(name, f"data.path={tmp_path}/none.csv"), warm=light) for name in names]
    lose(light)
    (tmp_path / "finished").mkdir()
    (tmp_path / "finished/summary.json").touch()
    assert finished.process.wait(60) == 0
    assert failed.process.wait(60) == -signal.SIGKILL


def test_a_process_that_nobody_waits_for_does_not_run():
    with subprocess.Popen(["true"], stdin=subprocess.DEVNULL) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(process.pid)
    assert is_alive(os.getpid())


def test_what_a_lost_server_has_forked_takes_no_settings(light, run_of, tmp_path, monkeypatch):
    """It was killed between its fork and its answer: one process gets the settings, and the other ends."""
    forked, start = [], light.start

    def forgetful(*request):
        forked.append(start(*request))
        raise ServerLostError

    monkeypatch.setattr(light, "start", forgetful)
    process = TrainingProcess(run_of("once", f"data.path={tmp_path}/none.csv"), warm=light)
    assert forked[0].wait(60) == 1
    assert process.process.wait(120) == 2


def wait_until(condition, process, folder, seconds=240.0):
    until = time.monotonic() + seconds
    while not condition():
        assert process.code is None, log_file(folder).read_text()
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)
