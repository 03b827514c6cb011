"""Optuna's side of a search: which setting is tried next, and which is given up. Imported where it is asked for.

The study lives in memory. A later start makes it again from the journal and from what the runs wrote, so that a search
has one record, and nothing of it is unpickled.
"""

import json
import warnings
from collections import deque
from collections.abc import Container
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from manyheads.config import Method, Metric, Prune, TuneConfig
from manyheads.config.axis import Axis
from manyheads.config.fields import plain_settings
from manyheads.runs.config_file import read_run
from manyheads.sweep.journal import Journal, Outcome, State, mean_value, validations
from manyheads.sweep.scheduler import Trial, folder_of

REDUCTION = 3  # of `halving`: one in three goes on at each rung


class Study:
    """The queue of a search. The first seed of a setting decides whether the others follow; their mean counts.

    Args:
        planned: the settings that are tried, where Optuna only prunes; None: its sampler draws them.
    """

    def __init__(
        self, config: TuneConfig, planned: list[dict[str, Any]] | None, seeds: range, journal: Journal
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", module="optuna")
        self._axes, self._metric, self._n_trials = config.axes(), config.checkpoint.metric, config.n_trials
        self._planned, self._seeds, self._journal = planned or [], seeds, journal
        self._trials: list[optuna.Trial] = []
        self._ready: deque[Trial] = deque()
        known = {one.trial: one.setting for one in journal.outcomes}
        known |= self._interrupted(known)
        sampler = make_sampler(config, len(known))
        learns = config.chosen is Method.cmaes  # while it draws; the others look at what has ended
        self._study = optuna.create_study(
            direction="minimize" if self._metric is Metric.loss else "maximize",
            sampler=sampler if learns else optuna.samplers.RandomSampler(),
            pruner=make_pruner(config.prune),
        )
        for number in range(1, 1 + max(known, default=0)):
            self._begin(known.get(number))
        self._study.sampler = sampler

    def take(self) -> Trial | None:
        while not self._ready and len(self._trials) < self._n_trials:
            self._begin(None)
        return self._ready.popleft() if self._ready else None

    def gives_up(self, number: int, step: int, value: float) -> bool:
        """Whether the setting is given up at its validation figure number `step`, counted from 1."""
        trial = self._trials[number - 1]
        trial.report(value, step)
        return trial.should_prune()

    def ended(self, outcome: Outcome) -> None:
        """Take in a run that has ended and is in the journal."""
        if outcome.is_final and (outcome.seed == self._seeds[0] or self._is_whole(outcome.trial)):
            self._advance(outcome.trial, outcome.setting)

    def _begin(self, setting: dict[str, Any] | None) -> None:
        """The next trial: one that is known, or planned, or drawn. What is drawn again counts as it did before."""
        number = len(self._trials) + 1
        setting = setting or next(iter(self._planned[number - 1 : number]), None)
        if setting is not None:
            self._study.enqueue_trial({axis.name: parameter(axis, setting[axis.name]) for axis in self._axes})
        trial = self._study.ask({axis.name: distribution(axis) for axis in self._axes})
        self._trials.append(trial)
        setting = {axis.name: value_of(axis, trial.params[axis.name]) for axis in self._axes}
        if self._journal.find(number, self._seeds[0]) is None:
            ended = (one for one in self._journal.outcomes if one.state is not State.again)
            same = (one.trial for one in ended if one.setting == setting and self._is_whole(one.trial))
            if (earlier := next(same, None)) is not None:
                why, value = f"drawn again: trial {earlier}", self._mean(earlier)
                self._journal.add(Outcome(number, self._seeds[0], setting, State.again, value, why=why))
        else:
            folder = folder_of(self._journal.folder, number, self._seeds[0])
            for step, figure in enumerate(validations(folder, self._metric), start=1):
                self.gives_up(number, step, figure)  # later trials are measured by it
        self._advance(number, setting)

    def _advance(self, number: int, setting: dict[str, Any]) -> None:
        """Make ready what a setting still lacks, or tell the study what it came to."""
        first = self._journal.find(number, self._seeds[0])
        missing = [seed for seed in self._seeds if self._journal.find(number, seed) is None]
        if first is None:
            self._ready.append(Trial(number, self._seeds[0], setting))
        elif first.counts and missing:
            self._ready += [Trial(number, seed, setting) for seed in missing]
        else:
            value = self._mean(number) if first.counts else first.value
            pruned = first.state is State.pruned
            state = TrialState.PRUNED if pruned else TrialState.FAIL if value is None else TrialState.COMPLETE
            self._study.tell(number - 1, value if state is TrialState.COMPLETE else None, state)

    def _is_whole(self, number: int) -> bool:
        return all(self._journal.find(number, seed) for seed in self._seeds)

    def _mean(self, number: int) -> float | None:
        return mean_value(self._journal.find(number, seed) for seed in self._seeds)

    def _interrupted(self, known: Container[int]) -> dict[int, dict[str, Any]]:
        """The settings of trials that an earlier start has begun and not ended, by number."""
        files = (self._journal.folder / "trials").glob(f"*-seed-{self._seeds[0]}.yaml")
        begun = {int(file.name.partition("-")[0]): file for file in files}
        found = {number: plain_settings(read_run(file)) for number, file in begun.items() if number not in known}
        return {number: {axis.name: plain[axis.name] for axis in self._axes} for number, plain in found.items()}


def make_sampler(config: TuneConfig, start: int) -> optuna.samplers.BaseSampler:
    """What draws settings; another `start` of the same search draws others."""
    seed = (config.seed * 1_000_003 + start) % 2**32
    samplers = {
        Method.tpe: lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True, multivariate=True),
        Method.gp: lambda: optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False),
        Method.cmaes: lambda: optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
    }
    return samplers.get(config.chosen, lambda: optuna.samplers.RandomSampler(seed=seed))()


def make_pruner(prune: Prune) -> optuna.pruners.BasePruner:
    if prune is Prune.median:
        return optuna.pruners.MedianPruner()
    if prune is Prune.halving:
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
    return optuna.pruners.NopPruner()


def distribution(axis: Axis) -> BaseDistribution:
    if axis.values:
        return CategoricalDistribution([json.dumps(value) for value in axis.values])
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def parameter(axis: Axis, value: Any) -> Any:
    return json.dumps(value) if axis.values else value


def value_of(axis: Axis, parameter: Any) -> Any:
    return json.loads(parameter) if axis.values else axis.rounded(parameter)
