"""The processes in which `tune` and `curve` train: started, watched and ended until no trial is left.

Each run has a process, in a session of its own, so that Ctrl-C reaches the search alone. (`ablate` trains in its own
process: importing torch and Lightning takes 6 s of a core, as much as many of its runs.)

Where the search itself is killed, each run is told to stop as by SIGTERM, so that it saves its state (cli/main.py).
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from manyheads.config import Accelerator
from manyheads.config.fields import to_plain
from manyheads.distributed.ranks import n_cores
from manyheads.distributed.signals import Stop, ending
from manyheads.plugins.sweep.config import CurveConfig, TuneConfig
from manyheads.plugins.sweep.journal import Journal, Outcome, State, Trial, folder_of, read_outcome, validations
from manyheads.runs.config_file import save_run
from manyheads.runs.folder import HANDED_ON

if TYPE_CHECKING:
    from manyheads.plugins.sweep.optuna import Study
    from manyheads.plugins.sweep.shared import SharedStudy

COMMAND = (sys.executable, "-m", "manyheads.cli.main")
PAUSE = 0.2  # seconds between two looks at the runs
GRACE = 60.0  # seconds in which the runs that are told to end save their state
GRACE_ALONE = 120.0  # seconds of one that the search has left
SAME = 3  # first runs that end alike: so would all others

log = logging.getLogger("manyheads.tune")


class Search:
    """The trials of a queue, each trained in a process, its outcome written down in the queue."""

    def __init__(self, config: TuneConfig | CurveConfig, queue: "Journal | Study") -> None:
        self.config, self.queue = config, queue
        self.shared = cast("SharedStudy", queue) if config.storage else None
        alone, hardware = config.jobs == 1 or config.hardware.devices != 1, config.hardware
        on_gpu = hardware.accelerator is not Accelerator.cpu
        self.gpus = visible_gpus() if on_gpu and not alone else []  # each run at once has one of its own
        self.threads = hardware.threads or (0 if alone else max(1, n_cores() // config.jobs))

    def run(self, stop: Stop) -> None:
        """Keep `jobs` trials going until none is left; whatever ends this ends them too, and each may save.

        Raises:
            Stopped: a signal came.
            ValueError: the first runs all ended with the same mistake.
        """
        running: list[Running] = []
        try:
            while True:
                if (stopped := ending(stop.votes())) is not None:
                    log.info("%s: the runs under way save; the same words go on with them", stopped.why)
                    raise stopped
                gone = self.shared.tend() if self.shared else ()
                for one in [one for one in running if one.trial.number in gone]:
                    one.kill()  # another may be writing into its folder
                    running.remove(one)
                while len(running) < self.config.jobs and (trial := self.queue.take()) is not None:
                    place = min(set(range(self.config.jobs)) - {one.place for one in running})
                    if (one := self._start(trial, place)) is not None:
                        running.append(one)
                if not running and not (self.shared and self.shared.waits()):
                    return
                time.sleep(PAUSE)
                for one in list(running):
                    if (outcome := one.look()) is not None:
                        running.remove(one)
                        self._ended(outcome)
        finally:
            _end_all(running)

    def _start(self, trial: Trial, place: int) -> "Running | None":
        """Start the run in its own folder, or go on with it there; a setting that nothing can train fails at once."""
        folder = folder_of(self.queue.folder, trial.number, trial.seed)
        try:
            run = self.config.run(trial.setting, trial.seed, str(folder))
        except ValueError as refusal:
            return self._ended(Outcome(*trial, State.failed, why=str(refusal)))
        if self.config.minutes:  # a process that goes on gets as much again
            run.trainer["max_time"] = f"00:00:00:{60 * self.config.minutes:g}"
        run = replace(run, hardware=replace(run.hardware, threads=self.threads))
        folder.parent.mkdir(parents=True, exist_ok=True)
        save_run(run, config_of(folder))
        env = {name: value for name, value in os.environ.items() if name != HANDED_ON}  # it makes its own folder
        env |= {"CUDA_VISIBLE_DEVICES": self.gpus[place % len(self.gpus)]} if self.gpus else {}
        command = [*COMMAND, "train", "0", "2", str(GRACE_ALONE)]  # settings by standard input, a mistake to its log
        with log_of(folder).open("ab") as said:
            process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=subprocess.PIPE, stdout=said, stderr=said, env=env, start_new_session=True
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps(to_plain(run)).encode() + b"\n")
        process.stdin.flush()
        gives_up = self.queue.gives_up if trial.seed == self.config.seed else None
        return Running(trial, place, folder, process, self.config.checkpoint.metric, gives_up)

    def _ended(self, outcome: Outcome) -> None:
        """Write it down; what the run would go on from is no longer needed."""
        if not self.queue.add(outcome):
            return
        if outcome.is_final:
            folder = folder_of(self.queue.folder, outcome.trial, outcome.seed)
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        value = "" if outcome.value is None else f" network {self.config.checkpoint.metric} {outcome.value:.4f}"
        state = "" if outcome.state is State.done else f" {outcome.state.name}"
        log.info(
            "trial %d of %d, seed %d:%s%s after %d steps, %.0f s%s",
            *(outcome.trial, self.config.n_trials, outcome.seed, state, value, outcome.steps, outcome.seconds),
            f": {outcome.why}" if outcome.why else "",
        )
        ended = self.queue.outcomes
        alike = len({one.why for one in ended}) == 1 and outcome.why  # those given up have none
        if len(ended) == SAME and alike and not any(one.counts for one in ended):
            raise ValueError(f"the first {SAME} runs all ended alike: {outcome.why}")


@dataclass(slots=True)
class Running:
    """A run under way, in one of the places of those at once. `gives_up` is asked after each of its validations."""

    trial: Trial
    place: int
    folder: Path
    process: subprocess.Popen[bytes]
    metric: str
    gives_up: Callable[[int, int, float], bool] | None
    started: float = field(default_factory=time.monotonic)
    pruned: bool = False
    n_reported: int = 0

    def look(self) -> Outcome | None:
        """Its outcome once it has ended; it is told to end where its figures say so. Later runs are measured by those
        of a run that has ended, too, also where it did between two looks."""
        code = self.process.poll()
        if self.gives_up is not None and not self.pruned:
            for figure in validations(self.folder, self.metric)[self.n_reported :]:
                self.n_reported += 1
                if self.gives_up(self.trial.number, self.n_reported, figure) and code is None:
                    self.pruned = True
                    self.process.terminate()
                    return None
        if code is None:
            return None
        self.kill()
        state = State.pruned if self.pruned else State.done
        known = Outcome(*self.trial, state, seconds=time.monotonic() - self.started)
        return read_outcome(known, code, self.folder, log_of(self.folder), self.metric)

    def kill(self) -> None:
        """Kill what is left, such as a worker that outlives it; the process itself has ended, or had its time."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


def log_of(folder: Path) -> Path:
    """What the process said, beside its folder: a run takes no folder that is not empty."""
    return folder.with_name(f"{folder.name}.log")


def config_of(folder: Path) -> Path:
    """Every setting of the run, which its process reads."""
    return folder.with_name(f"{folder.name}.yaml")


def _end_all(running: list[Running]) -> None:
    """Each may save, within `GRACE` seconds together, then it is killed with all it has started."""
    for one in running:
        one.process.terminate()
    until = time.monotonic() + GRACE
    for one in running:
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, until - time.monotonic()))
        one.kill()


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
