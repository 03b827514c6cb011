"""Many trainings: the runs of folds, of a comparison, a search or a learning curve.

`train_many` takes one job after another, starts it, and hands back what has ended, until no job is left. Jobs run in
this process, one after another (`train_in_turn`), or several at once, each in a process of its own (`TrainingProcess`);
another kind of worker needs the three methods of `Training`. A job is what its caller wants: a `RunConfig` with a
folder of its own as `output` and `resume=auto` resumes what was stopped, and leaves a finished run as it is.

Standard library only: a search imports no torch.
"""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from manyheads.config import RunConfig
from manyheads.config.conversion import to_plain
from manyheads.runs.config_file import save_run
from manyheads.runs.folder import OUTPUT_VARIABLE
from manyheads.runs.warm import ServerLostError, Warm, WarmProcess

Job = TypeVar("Job")
COMMAND = (sys.executable, "-P", "-m", "manyheads.cli.main")
PAUSE = 0.2  # seconds between two looks at trainings under way
GRACE = 60.0  # seconds in which those that are asked to end save their state
GRACE_ALONE = 120.0  # seconds of one whose supervisor was killed


class Training(Protocol):
    """A training that was started."""

    def has_ended(self) -> bool: ...

    def stop(self) -> None:
        """Ask it to save its state and end, without waiting for it."""

    def kill(self, patience: float = 0.0) -> None:
        """Wait `patience` seconds for its end, then kill what is left of it, such as processes that it has started."""


class Ended:
    """A training that ended when it was started."""

    def has_ended(self) -> bool:
        return True

    def stop(self) -> None:
        pass

    def kill(self, patience: float = 0.0) -> None:
        pass


AnyTraining = TypeVar("AnyTraining", bound=Training)


def train_in_turn(jobs: Iterable[Job], train: Callable[[Job], Any]) -> None:
    """Train one job after another in this process; what `train` raises ends all."""
    left = iter(jobs)

    def start(job: Job, slot: int) -> Ended:
        train(job)
        gc.collect()  # a Trainer and its module hold each other: a series of runs would pile them up
        return Ended()

    train_many(lambda: next(left, None), start)


def train_many(
    next_job: Callable[[], Job | None],
    start: Callable[[Job, int], AnyTraining],
    on_end: Callable[[Job, AnyTraining], None] = lambda job, training: None,
    *,
    at_once: int = 1,
    watch: Callable[[dict[int, tuple[Job, AnyTraining]]], None] = lambda running: None,
    more_later: Callable[[], bool] = lambda: False,
) -> None:
    """Train until no job is left. Whatever ends this early ends the trainings under way, which may save.

    Args:
        next_job: the next job, or None where there is none now.
        start: starts it in a slot, one of 0 to `at_once` - 1, which no other training has at the time.
        on_end: called with each training that has ended, before another takes its slot.
        watch: called in each turn with the trainings under way, by slot. It may remove some, or raise.
        more_later: asked where nothing is under way and no job is there: whether one may come.
    """
    running: dict[int, tuple[Job, AnyTraining]] = {}
    try:
        while True:
            watch(running)
            while len(running) < at_once and (job := next_job()) is not None:
                slot = min(set(range(at_once)) - running.keys())
                running[slot] = job, start(job, slot)
            if not running and not more_later():
                return
            ended = [slot for slot, (_, training) in running.items() if training.has_ended()]
            for slot in ended:
                job, training = running.pop(slot)
                training.kill()
                on_end(job, training)
            if not ended:
                time.sleep(PAUSE)
    finally:
        for _, training in running.values():
            training.stop()
        until = time.monotonic() + GRACE
        for _, training in running.values():
            training.kill(until - time.monotonic())


class TrainingProcess:
    """`manyheads train` in a process of its own, in a session of its own, so that Ctrl-C reaches its supervisor alone.
    Where that is killed, the process ends as after SIGTERM, so that it saves its state (cli/main.py).

    Args:
        run: its `output` is a folder of its own, next to which are a file of its settings and its log.
        gpu: the only one that it sees, as CUDA_VISIBLE_DEVICES names it; empty: those that this process sees.
        warm: forks the process, seconds quicker than it would start by itself; None or lost: started by itself.
    """

    def __init__(self, run: RunConfig, gpu: str = "", warm: Warm | None = None) -> None:
        folder = Path(run.output)
        folder.parent.mkdir(parents=True, exist_ok=True)
        save_run(run, settings_file(folder))
        env = {name: value for name, value in os.environ.items() if name != OUTPUT_VARIABLE}  # it makes its own folder
        if gpu:
            env["CUDA_VISIBLE_DEVICES"] = gpu
        words = ["train", "0", "2", str(GRACE_ALONE)]  # settings by standard input, a mistake to its log
        with log_file(folder).open("ab") as said:
            self.process, self.settings = _start(words, env, said, warm)
        if isinstance(self.process, WarmProcess):
            self.process.has_finished = (folder / "summary.json").is_file
        with suppress(BrokenPipeError):  # it has ended already, as its exit code says
            self.settings.write(json.dumps(to_plain(run)).encode() + b"\n")
            self.settings.flush()

    @property
    def code(self) -> int | None:
        """Its exit code, below 0 where a signal ended it; None while it runs."""
        return self.process.poll()

    def has_ended(self) -> bool:
        return self.code is not None

    def stop(self) -> None:
        self.process.terminate()

    def kill(self, patience: float = 0.0) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, patience))
        with suppress(ProcessLookupError, PermissionError):  # its loader's workers may outlive it
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with suppress(BrokenPipeError):
            self.settings.close()


def _start(
    words: list[str], env: dict[str, str], said: IO[bytes], warm: Warm | None
) -> tuple["subprocess.Popen[bytes] | WarmProcess", IO[bytes]]:
    """The process, and the pipe of its settings, which is held open: its end is that of this process."""
    read_settings, write_settings = os.pipe()
    settings = os.fdopen(write_settings, "wb")
    with os.fdopen(read_settings, "rb") as source:
        if warm is None:
            command = [*COMMAND, *words]
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=source, stdout=said, stderr=said, env=env, start_new_session=True
            )
            return process, settings
        with suppress(ServerLostError):
            return warm.start(words, source.fileno(), said.fileno(), env), settings
    settings.close()  # a server may have forked it before it was lost: without settings it ends
    return _start(words, env, said, None)


def log_file(folder: Path) -> Path:
    """What the process of a run said, next to its folder: a run takes no folder that is not empty."""
    return folder.with_name(f"{folder.name}.log")


def settings_file(folder: Path) -> Path:
    """Every setting of a run, as its process was given them."""
    return folder.with_name(f"{folder.name}.yaml")


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
