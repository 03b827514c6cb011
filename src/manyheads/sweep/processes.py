"""The processes of a search, one a run, each in a session of its own; and the life of one.

The processes of a search, one a run, each in a session of its own: Ctrl-C reaches the search alone.

The process of one run, `python -m manyheads.sweep.processes CONFIG`: it ends when the search that started it is gone.

CONFIG holds every setting of the run, written by the search: no word is read twice, so none is read differently.

Its standard input is a pipe whose other end the search holds open and never writes to. Where the search is killed,
even by `kill -9`, the pipe comes to its end, and the run is told to stop as by SIGTERM: it saves its state.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from manyheads.config import Accelerator, RunConfig
from manyheads.runs.config_file import save_run
from manyheads.runs.folder import HANDED_ON
from manyheads.sweep.journal import Outcome, State

COMMAND = (sys.executable, "-m", "manyheads.sweep.processes")
GRACE = 60.0  # seconds in which a run that is told to end saves its state


@dataclass(slots=True)
class Running:
    """A run under way: setting `trial` with one seed, in place `slot` of those at once."""

    trial: int
    seed: int
    setting: dict[str, Any]
    slot: int
    folder: Path
    process: subprocess.Popen[bytes]
    started: float
    pruned: bool = False
    n_reported: int = 0

    @property
    def log(self) -> Path:
        return log_of(self.folder)

    def so_far(self) -> Outcome:
        """What is known of it without its files."""
        state = State.pruned if self.pruned else State.done
        return Outcome(self.trial, self.seed, self.setting, state, seconds=time.monotonic() - self.started)

    def end(self) -> None:
        """Tell it to save and end; it is not waited for."""
        self.process.terminate()


def folder_of(output: Path, trial: int, seed: int) -> Path:
    return output / "trials" / f"{trial:03d}-seed-{seed}"


def log_of(folder: Path) -> Path:
    """What the process said, beside its folder: a run takes no folder that is not empty."""
    return folder.with_name(f"{folder.name}.log")


def config_of(folder: Path) -> Path:
    """Every setting of the run, which its process reads."""
    return folder.with_name(f"{folder.name}.yaml")


def start_run(run: RunConfig, trial: int, setting: dict[str, Any], slot: int, env: dict[str, str]) -> Running:
    """Start the run in its own folder, or go on with it there."""
    folder = Path(run.output)
    folder.parent.mkdir(parents=True, exist_ok=True)
    save_run(run, config_of(folder))
    with log_of(folder).open("ab") as log:
        process = _start([*COMMAND, str(config_of(folder))], env, log)
    return Running(trial, run.seed, setting, slot, folder, process, time.monotonic())


def _start(command: list[str], env: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name != HANDED_ON}  # it makes its own folder
    return subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=inherited | env, start_new_session=True
    )


def end_all(running: list[Running], grace: float = GRACE) -> None:
    """End every run: each may save, within `grace` seconds together, then it is killed with all it has started."""
    for one in running:
        one.end()
    until = time.monotonic() + grace
    for one in running:
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, until - time.monotonic()))
        sweep(one)


def sweep(one: Running) -> None:
    """Kill what is left of a run, such as a worker that outlives it; the process itself has ended, or had its time."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(one.process.pid, signal.SIGKILL)
    one.process.wait()
    if one.process.stdin:
        one.process.stdin.close()


class CoreShares:
    """What each of `jobs` runs at once gets of the machine: threads of the processor, or a GPU of its own."""

    def __init__(self, jobs: int, run: RunConfig) -> None:
        self.jobs = jobs
        alone = jobs == 1 or run.hardware.devices != 1
        on_gpu = run.hardware.accelerator is not Accelerator.cpu
        self.gpus = visible_gpus() if on_gpu and not alone else []
        self.threads = run.hardware.threads or (0 if alone else max(1, n_cores() // jobs))

    def settle(self, run: RunConfig) -> RunConfig:
        """The run with its share of the threads."""
        return replace(run, hardware=replace(run.hardware, threads=self.threads))

    def environment(self, slot: int) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": self.gpus[slot % len(self.gpus)]} if self.gpus else {}


def n_cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that a run would see, by the names that CUDA_VISIBLE_DEVICES takes; torch is not asked."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [one.strip() for one in named.split(",") if one.strip()]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(at) for at, _ in enumerate(line for line in listed.stdout.splitlines() if line.startswith("GPU "))]


GRACE_TO_SAVE = 120.0  # seconds to save in


def leave_with(descriptor: int, grace: float = GRACE_TO_SAVE) -> None:
    """End this process once nobody holds the other end of the pipe, at the latest `grace` seconds later."""

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def train_alone(config: str) -> int:
    """Train the run of a config.yaml; returns the exit code."""
    from manyheads.cli.main import answer, call
    from manyheads.runs.config_file import read_run

    def work() -> int:
        call("train", read_run(config))
        return 0

    def say(sentence: str, code: int) -> int:
        print(sentence, file=sys.stderr)
        return code

    return answer(work, say)


if __name__ == "__main__":
    leave_with(sys.stdin.fileno())
    sys.exit(train_alone(sys.argv[1]))
