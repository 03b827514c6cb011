"""Optuna's side of a search: which setting is tried next, and which is given up. Imported where it is asked for."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState

from manyheads.config import Method, Metric, Prune, TuneConfig
from manyheads.config.tune import Axis

FILE = "optuna.log"
REDUCTION = 3  # of `halving`: one in three goes on at each rung


class Study:
    """A study that goes on where it was. Trials are counted from 1.

    Args:
        planned: the settings that are tried, where Optuna only prunes; None: its sampler draws them.
    """

    def __init__(self, config: TuneConfig, folder: Path, planned: list[dict[str, Any]] | None) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", module="optuna")
        self._axes = config.axes()
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(folder / FILE))),
            study_name="search",
            direction="minimize" if config.checkpoint.metric is Metric.loss else "maximize",
            load_if_exists=True,
            pruner=_pruner(config.prune),
        )
        known = self._study.get_trials(deepcopy=False)
        self._study.sampler = _sampler(config, len(known))
        for setting in (planned or [])[len(known) :]:
            self._study.enqueue_trial({axis.name: _parameter(axis, setting[axis.name]) for axis in self._axes})
        self._begun = {one.number + 1: one for one in known if one.state is TrialState.RUNNING}
        self._trials: dict[int, Trial] = {}
        self._reported = {number: set(one.intermediate_values) for number, one in self._begun.items()}

    @property
    def n_begun(self) -> int:
        """Trials that were drawn, ended or not."""
        return sum(one.state is not TrialState.WAITING for one in self._study.get_trials(deepcopy=False))

    def unfinished(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The trials that an earlier start has drawn and not ended."""
        for number, frozen in self._begun.items():
            self._trials[number] = Trial(self._study, frozen._trial_id)
            if frozen.params.keys() == {axis.name for axis in self._axes}:
                yield number, {axis.name: _value(axis, frozen.params[axis.name]) for axis in self._axes}
            else:  # killed while it was drawn
                self.tell(number, None)

    def ask(self) -> tuple[int, dict[str, Any]]:
        """The number and setting of a new trial."""
        trial = self._study.ask({axis.name: _distribution(axis) for axis in self._axes})
        self._trials[trial.number + 1] = trial
        return trial.number + 1, {axis.name: _value(axis, trial.params[axis.name]) for axis in self._axes}

    def gives_up(self, number: int, step: int, value: float) -> bool:
        """Note the validation figure `step`, counted from 1, of a trial; whether it is to be given up."""
        trial, before = self._trials[number], self._reported.setdefault(number, set())
        if step not in before:
            before.add(step)
            trial.report(value, step)
        return trial.should_prune()

    def tell(self, number: int, value: float | None, *, pruned: bool = False) -> None:
        """End a trial by its figure; None: it failed."""
        state = TrialState.PRUNED if pruned else TrialState.FAIL if value is None else TrialState.COMPLETE
        self._study.tell(number - 1, value if state is TrialState.COMPLETE else None, state, skip_if_finished=True)


def _sampler(config: TuneConfig, n_known: int) -> optuna.samplers.BaseSampler:
    """A start that goes on draws others than the one before, whose draws are known."""
    seed = (config.seed * 1_000_003 + n_known) % 2**32
    samplers = {
        Method.tpe: lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True, multivariate=True),
        Method.gp: lambda: optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False),
        Method.cmaes: lambda: optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
    }
    return samplers.get(config.chosen, lambda: optuna.samplers.RandomSampler(seed=seed))()


def _pruner(prune: Prune) -> optuna.pruners.BasePruner:
    if prune is Prune.median:
        return optuna.pruners.MedianPruner()
    if prune is Prune.halving:
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)
    return optuna.pruners.NopPruner()


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.values:
        return CategoricalDistribution([json.dumps(value) for value in axis.values])
    if axis.whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def _parameter(axis: Axis, value: Any) -> Any:
    return json.dumps(value) if axis.values else value


def _value(axis: Axis, parameter: Any) -> Any:
    return json.loads(parameter) if axis.values else axis.rounded(parameter)
