"""The runs of `tune` and `curve`: a process for each trial of a queue, watched, and what it came to written down.

(`ablate` trains in its own process: importing torch and Lightning takes 6 s of a core, as much as many of its runs.)
"""

import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.config import Accelerator
from manyheads.data.rows import Splits
from manyheads.distributed.machine import n_cores
from manyheads.distributed.signals import Stop, ending
from manyheads.errors import UserError
from manyheads.inference.origin import with_rows
from manyheads.plugins.sweep.config import CurveConfig, TuneConfig
from manyheads.plugins.sweep.journal import Journal
from manyheads.plugins.sweep.outcomes import Outcome, RunState, Trial, read_outcome, trial_folder, validations
from manyheads.runs.many import TrainingProcess, log_file
from manyheads.runs.warm import Warm

if TYPE_CHECKING:
    from manyheads.plugins.sweep.optuna import StudyQueue

PAUSE = 0.2  # seconds between two looks at trials under way
GRACE = 60.0  # seconds in which those that are asked to end save their state
SAME = 3  # first runs that end alike: so would all others
log = logging.getLogger("manyheads.tune")


class Search:
    """The trials of a queue, each trained in a process, its outcome written down in the queue."""

    def __init__(self, config: TuneConfig | CurveConfig, queue: "Journal | StudyQueue", splits: Splits) -> None:
        self.config, self.queue, self.splits = config, queue, splits
        hardware = config.hardware
        several = config.jobs > 1 and hardware.devices == 1
        self.warm: Warm | None = None
        self.gpus: list[str] = []  # of several runs at once each has one of its own
        if several and hardware.accelerator is not Accelerator.cpu:
            self.gpus = visible_gpus()
        self.threads = hardware.threads
        if several and not self.threads:
            self.threads = max(1, n_cores() // config.jobs)

    def run(self) -> None:
        """Keep `jobs` trials under way until none is left; whatever ends this ends them too, and each may save.

        Raises:
            Stopped: a signal came.
            UserError: the first runs all ended with the same mistake.
        """
        stop = Stop()
        running: dict[int, TrialRun] = {}  # by slot, one of 0 to `jobs` - 1
        with stop.listening(), Warm() as self.warm:
            try:
                while True:
                    stopped = ending(stop.votes())
                    if stopped is not None:
                        log.info("%s: the runs under way save; the same command resumes them", stopped.why)
                        raise stopped
                    given_back = self.queue.tend()
                    for slot, run in list(running.items()):
                        if run.trial.number in given_back:
                            run.process.kill()  # another machine may be writing into its folder
                            del running[slot]
                    while len(running) < self.config.jobs and (trial := self.queue.take()) is not None:
                        slot = min(set(range(self.config.jobs)) - running.keys())
                        if started := self._start(trial, slot):
                            running[slot] = started
                    if not running and not self.queue.waits():
                        return
                    ended = [slot for slot, run in running.items() if run.has_ended()]
                    for slot in ended:
                        run = running.pop(slot)
                        run.process.kill()
                        self.record(run.outcome())
                    if not ended:
                        time.sleep(PAUSE)
            finally:
                for run in running.values():
                    run.process.stop()
                until = time.monotonic() + GRACE
                for run in running.values():
                    run.process.kill(until - time.monotonic())

    def _start(self, trial: Trial, slot: int) -> "TrialRun | None":
        """Start a trial in its own folder, or resume it there; settings that no run can have fail at once."""
        folder = trial_folder(self.queue.folder, trial.number, trial.seed)
        try:
            # resolved by all rows, also where it learns from a share of them: all trials are of one kind
            run = with_rows(self.config.run(trial.setting, trial.seed, str(folder)), self.splits)
        except ValueError as refusal:
            self.record(Outcome(*trial, RunState.failed, why=str(refusal)))
            return None
        if self.config.minutes:  # a process that resumes it gets as much again
            run.trainer["max_time"] = f"00:00:00:{60 * self.config.minutes:g}"
        run = replace(run, hardware=replace(run.hardware, threads=self.threads))
        gpu = self.gpus[slot % len(self.gpus)] if self.gpus else ""
        gives_up = self.queue.gives_up if trial.seed == self.config.seed else None
        return TrialRun(trial, folder, TrainingProcess(run, gpu, self.warm), self.config.checkpoint.metric, gives_up)

    def record(self, outcome: Outcome) -> None:
        """Write down what a run came to; its checkpoints, which it would resume from, are no longer needed."""
        if not self.queue.add(outcome):
            return
        if outcome.is_final:
            folder = trial_folder(self.queue.folder, outcome.trial, outcome.seed)
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        words = f"trial {outcome.trial} of {self.config.n_trials}, seed {outcome.seed}:"
        if outcome.state is not RunState.done:
            words += f" {outcome.state.name}"
        if outcome.value is not None:
            words += f" network {self.config.checkpoint.metric} {outcome.value:.4f}"
        words += f" after {outcome.steps} steps, {outcome.seconds:.0f} s"
        if outcome.why:
            words += f": {outcome.why}"
        log.info("%s", words)
        ended = self.queue.outcomes
        alike = len({one.why for one in ended}) == 1 and outcome.why  # those given up have none
        if len(ended) == SAME and alike and not any(one.counts for one in ended):
            raise UserError(f"the first {SAME} runs all ended alike: {outcome.why}")


@dataclass(slots=True)
class TrialRun:
    """The training of a trial, which is ended early where `gives_up` says so of one of its validation figures."""

    trial: Trial
    folder: Path
    process: TrainingProcess
    metric: str
    gives_up: Callable[[int, int, float], bool] | None
    started: float = field(default_factory=time.monotonic)
    pruned: bool = False
    n_reported: int = 0

    def has_ended(self) -> bool:
        """All figures are reported, also those of a run that has just ended: later runs are compared with them."""
        ended = self.process.has_ended()
        if self.gives_up is not None and not self.pruned:
            for figure in validations(self.folder, self.metric)[self.n_reported :]:
                self.n_reported += 1
                if self.gives_up(self.trial.number, self.n_reported, figure) and not ended:
                    self.pruned = True
                    self.process.stop()
                    break
        return ended

    def outcome(self) -> Outcome:
        """What it came to, once it has ended."""
        assert self.process.code is not None
        state = RunState.pruned if self.pruned else RunState.done
        known = Outcome(*self.trial, state, seconds=time.monotonic() - self.started)
        return read_outcome(known, self.process.code, self.folder, log_file(self.folder), self.metric)


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
