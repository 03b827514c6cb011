"""Which run is next: of settings that are known beforehand, or that Optuna draws and gives up."""

from collections import deque
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from manyheads.tune.journal import Journal
from manyheads.tune.outcome import Outcome, State

if TYPE_CHECKING:
    from manyheads.tune.study import Study


class Task(NamedTuple):
    """A run to make: setting `trial`, counted from 1, with one seed."""

    trial: int
    seed: int
    setting: dict[str, Any]


class Listed:
    """Settings known beforehand, all with the first seed before any with the next: a stop leaves whole tables."""

    def __init__(self, settings: list[dict[str, Any]], seeds: range, journal: Journal) -> None:
        tasks = (Task(number, seed, setting) for seed in seeds for number, setting in enumerate(settings, start=1))
        self._left = deque(task for task in tasks if journal.find(task.trial, task.seed) is None)

    def take(self) -> Task | None:
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
        self._ready: deque[Task] = deque()
        known = {one.trial: one.setting for one in journal.outcomes if one.state is not State.again}
        for number, setting in (known | dict(study.unfinished())).items():
            self._advance(number, setting)

    def take(self) -> Task | None:
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
            self._ready.append(Task(number, self._seeds[0], setting))
            return
        missing = [seed for seed in self._seeds if self._journal.find(number, seed) is None]
        if not first.counts:
            self._study.tell(number, first.value, pruned=first.state is State.pruned)
        elif missing:
            self._ready += [Task(number, seed, setting) for seed in missing]
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
