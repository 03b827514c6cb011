"""Many trainings: those of folds, a comparison, a search or a learning curve.

They run in this process, one after another (`train_in_turn`), or each in a process of its own (`TrainingProcess`). A
`RunConfig` with a folder of its own as `output` and `resume=auto` resumes what was stopped, and leaves a finished run
as it is.

Standard library only: a search imports no torch.
"""

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from manyheads.config import RunConfig
from manyheads.config.conversion import to_plain
from manyheads.runs.config_file import save_run
from manyheads.runs.folder import OUTPUT_VARIABLE
from manyheads.runs.warm import ServerLostError, Warm, WarmProcess

Job = TypeVar("Job")
COMMAND = (sys.executable, "-P", "-m", "manyheads.cli.main")
GRACE_ALONE = 120.0  # seconds of one whose supervisor was killed


def train_in_turn(jobs: Iterable[Job], train: Callable[[Job], Any]) -> None:
    """Train one job after another in this process."""
    for job in jobs:
        train(job)
        gc.collect()  # a Trainer and its module hold each other: a series of runs would pile them up


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
