"""Which run is next, and the work until none is left.

Which run is next: of settings that are known beforehand, or that Optuna draws and gives up.

The work of a search: runs are started, looked at and taken in until none is left.
"""

import logging
import shutil
import time
from collections import deque
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from manyheads.config import RunConfig, TuneConfig
from manyheads.distributed.signals import Stop, ending
from manyheads.sweep.journal import Journal, Outcome, State, read_outcome, validations
from manyheads.sweep.processes import CoreShares, Running, end_all, folder_of, start_run, sweep

if TYPE_CHECKING:
    from manyheads.sweep.optuna import Study


class NextRun(NamedTuple):
    """A run to make: setting `trial`, counted from 1, with one seed."""

    trial: int
    seed: int
    setting: dict[str, Any]


class Listed:
    """Settings known beforehand, all with the first seed before any with the next: a stop leaves whole tables."""

    def __init__(self, settings: list[dict[str, Any]], seeds: range, journal: Journal) -> None:
        tasks = (NextRun(number, seed, setting) for seed in seeds for number, setting in enumerate(settings, start=1))
        self._left = deque(task for task in tasks if journal.find(task.trial, task.seed) is None)

    def take(self) -> NextRun | None:
        """The next run, or None where there is none now."""
        return self._left.popleft() if self._left else None

    def gives_up(self, trial: int, step: int, value: float) -> bool:
        return False

    def ended(self, outcome: Outcome) -> None:
        """Nothing follows from it."""


class Asked:
    """Settings of an Optuna study. The first seed of a setting decides whether the others follow; their mean counts."""

    def __init__(self, study: "Study", n_trials: int, seeds: range, journal: Journal) -> None:
        self._study, self._n_trials, self._seeds, self._journal = study, n_trials, seeds, journal
        self._ready: deque[NextRun] = deque()
        known = {one.trial: one.setting for one in journal.outcomes if one.state is not State.again}
        for number, setting in (known | dict(study.unfinished())).items():
            self._advance(number, setting)

    def take(self) -> NextRun | None:
        """The next run, or None where there is none now."""
        while not self._ready and self._study.n_begun < self._n_trials:
            number, setting = self._study.ask()
            earlier = self._finished_before(setting)
            if earlier is None:
                self._advance(number, setting)
                continue
            value = self._mean(earlier)
            why = f"drawn again: trial {earlier}"
            self._journal.add(Outcome(number, self._seeds[0], setting, State.again, value, why=why))
            self._study.tell(number, value)
        return self._ready.popleft() if self._ready else None

    def gives_up(self, trial: int, step: int, value: float) -> bool:
        """Whether the setting is given up at its validation figure number `step`."""
        return self._study.gives_up(trial, step, value)

    def ended(self, outcome: Outcome) -> None:
        """Take in a run that has ended and is in the journal."""
        if outcome.is_final and (outcome.seed == self._seeds[0] or self._is_whole(outcome.trial)):
            self._advance(outcome.trial, outcome.setting)

    def _advance(self, number: int, setting: dict[str, Any]) -> None:
        """Make ready what a setting still lacks, or tell the study what it came to."""
        first = self._journal.find(number, self._seeds[0])
        if first is None:
            self._ready.append(NextRun(number, self._seeds[0], setting))
            return
        missing = [seed for seed in self._seeds if self._journal.find(number, seed) is None]
        if not first.counts:
            self._study.tell(number, first.value, pruned=first.state is State.pruned)
        elif missing:
            self._ready += [NextRun(number, seed, setting) for seed in missing]
        else:
            self._study.tell(number, self._mean(number))

    def _is_whole(self, number: int) -> bool:
        return all(self._journal.find(number, seed) for seed in self._seeds)

    def _mean(self, number: int) -> float | None:
        found = [self._journal.find(number, seed) for seed in self._seeds]
        values = [one.value for one in found if one is not None and one.counts and one.value is not None]
        return fmean(values) if values else None

    def _finished_before(self, setting: dict[str, Any]) -> int | None:
        """The number of a trial of the same setting whose runs are all there."""
        same = [one.trial for one in self._journal.outcomes if one.setting == setting and one.state is not State.again]
        return next((number for number in same if self._is_whole(number)), None)


log = logging.getLogger("manyheads.tune")
PAUSE = 0.2  # seconds between two looks at the runs
SAME = 3  # first runs that end alike: so would all others


def run_missing(config: TuneConfig, queue: Listed | Asked, journal: Journal) -> None:
    """Keep `jobs` runs going until none is left; whatever ends this ends them too, and each may save.

    Raises:
        Stopped: a signal came.
        ValueError: the first runs all ended with the same mistake.
    """
    if journal.outcomes:
        log.info("%d runs are in the journal already", len(journal.outcomes))
    shares, stop, running = CoreShares(config.jobs, config.run({})), Stop(), list[Running]()
    with stop.listening():
        try:
            while True:
                if (stopped := ending(stop.votes())) is not None:
                    log.info("%s: the runs under way save; the same words go on with them", stopped.why)
                    raise stopped
                fill(config, queue, journal, shares, running)
                if not running:
                    return
                time.sleep(PAUSE)
                for one in list(running):
                    look_at(config, queue, journal, one, running)
        finally:
            end_all(running)


def fill(
    config: TuneConfig, queue: Listed | Asked, journal: Journal, shares: CoreShares, running: list[Running]
) -> None:
    """Start runs until there are `jobs`, or none is ready."""
    while len(running) < config.jobs and (task := queue.take()) is not None:
        try:
            run = config.run(task.setting, task.seed, str(folder_of(journal.folder, task.trial, task.seed)))
        except ValueError as refusal:
            close(config, queue, journal, Outcome(*task, State.failed, why=str(refusal)))
            continue
        slot = min(set(range(config.jobs)) - {one.slot for one in running})
        run = shares.settle(limit_time(run, config.minutes))
        running.append(start_run(run, task.trial, task.setting, slot, shares.environment(slot)))


def limit_time(run: RunConfig, minutes: float) -> RunConfig:
    """The run with its time limit: a process that goes on gets as much again."""
    if minutes:
        run.trainer["max_time"] = f"00:00:00:{60 * minutes:g}"
    return run


def look_at(config: TuneConfig, queue: Listed | Asked, journal: Journal, one: Running, running: list[Running]) -> None:
    """Take in what a run has come to, and give it up where its figures so far say so. Later runs are measured by those
    of a run that has ended, too, also where it did between two looks."""
    metric, code = config.checkpoint.metric, one.process.poll()
    if not one.pruned and one.seed == config.seed:
        for figure in validations(one.folder, metric)[one.n_reported :]:
            one.n_reported += 1
            if queue.gives_up(one.trial, one.n_reported, figure) and code is None:
                one.pruned = True
                one.end()
                return
    if code is not None:
        running.remove(one)
        sweep(one)
        close(config, queue, journal, read_outcome(one.so_far(), code, one.folder, one.log, metric))


def close(config: TuneConfig, queue: Listed | Asked, journal: Journal, outcome: Outcome) -> None:
    """Write a run that has ended into the journal; what it would go on from is no longer needed.

    Raises:
        ValueError: the first runs all ended with the same mistake.
    """
    journal.add(outcome)
    queue.ended(outcome)
    if outcome.is_final:
        shutil.rmtree(folder_of(journal.folder, outcome.trial, outcome.seed) / "checkpoints", ignore_errors=True)
    value = "" if outcome.value is None else f" {config.checkpoint.metric.name} {outcome.value:.4f}"
    state = "" if outcome.state is State.done else f" {outcome.state.name}"
    log.info(
        "trial %d of %d, seed %d:%s%s after %d steps, %.0f s%s",
        *(outcome.trial, config.n_trials, outcome.seed, state, value, outcome.steps, outcome.seconds),
        f": {outcome.why}" if outcome.why else "",
    )
    ended = journal.outcomes
    if len(ended) == SAME and not any(one.counts for one in ended) and len({one.why for one in ended}) == 1:
        raise ValueError(f"the first {SAME} runs all ended alike: {outcome.why}")
