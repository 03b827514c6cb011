"""Which setting a search tries next, and which is given up, by Optuna. Imported only where a setting needs it."""

import json
import warnings
from collections import deque
from collections.abc import Collection, Container
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from manyheads.config.conversion import plain_settings
from manyheads.config.figures import lower_is_better
from manyheads.plugins.sweep.axes import Axis
from manyheads.plugins.sweep.config import Method, Prune, TuneConfig
from manyheads.plugins.sweep.journal import Journal
from manyheads.plugins.sweep.outcomes import Outcome, RunState, Trial, mean_value, trial_folder, validations
from manyheads.runs.config_file import read_run

REDUCTION = 3  # of `halving`: one in three is continued at each rung


class StudyQueue:
    """The queue of a search as a study of Optuna: a trial of it for each setting waits until it is taken, and holds the
    runs that have ended. The first seed of a setting decides whether the others follow; their mean counts."""

    def __init__(self, config: TuneConfig, seeds: range, folder: Path, study: optuna.Study) -> None:
        self.folder, self._seeds, self._axes, self._study = folder, seeds, config.axes(), study
        self._own: dict[int, optuna.Trial] = {}  # taken and not finished, by number of the setting
        self._ready: deque[Trial] = deque()

    def _latest(self) -> dict[int, FrozenTrial]:
        """The trial of each setting that counts: of one that was given back the last."""
        every = self._study.get_trials(deepcopy=False)
        return {one.user_attrs["number"]: one for one in every if "number" in one.user_attrs}

    @property
    def outcomes(self) -> list[Outcome]:
        """The runs that have ended, in the order of their numbers."""
        ended = []
        for _, trial in sorted(self._latest().items()):
            ended += self._runs(trial)
        return ended

    def _runs(self, trial: FrozenTrial) -> list[Outcome]:
        """Those of its seeds that have ended."""
        runs = [outcome_of(trial, seed) for seed in self._seeds]
        return [one for one in runs if one is not None]

    def take(self) -> Trial | None:
        """The next run; None where there is none now."""
        while not self._ready and self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            with suppress(UpdateFinishedTrialError):  # another machine was quicker
                self._claim()
        return self._ready.popleft() if self._ready else None

    def _claim(self) -> None:
        """Take a trial that waits and make its runs ready. What is drawn again counts as it did before."""
        trial = self._study.ask({axis.name: distribution(axis) for axis in self._axes})
        number = trial.user_attrs.get("number")
        if number is None:  # which Optuna has made, as none waited any more
            self._study.tell(trial, state=TrialState.FAIL)
            return
        self._own[number] = trial
        setting = {axis.name: value_of(axis, trial.params[axis.name]) for axis in self._axes}
        if outcome_of(self._frozen(number), self._seeds[0]) is None:
            before = self._drawn_before(setting)
            if before:
                why = f"drawn again: trial {before[0].trial}"
                self._record(Outcome(number, self._seeds[0], setting, RunState.again, mean_value(before), why=why))
        if number in self._own:
            self._claimed(number, setting)
        if number in self._own:  # it was not given back meanwhile
            self._advance(number, setting)

    def _claimed(self, number: int, setting: dict[str, Any]) -> None:
        """What else is done with a trial that is taken."""

    def _drawn_before(self, setting: dict[str, Any]) -> list[Outcome]:
        """The runs of a trial of the same setting, where all its seeds have ended."""
        for trial in self._latest().values():
            runs = [one for one in self._runs(trial) if one.is_final and one.state is not RunState.again]
            if len(runs) == len(self._seeds) and runs[0].setting == setting:
                return runs
        return []

    def gives_up(self, number: int, step: int, value: float) -> bool:
        """Whether the setting is given up at its validation figure number `step`, counted from 1."""
        try:
            self._own[number].report(value, step)
            return self._own[number].should_prune()
        except (KeyError, UpdateFinishedTrialError):  # another machine has it now
            return False

    def tend(self) -> Collection[int]:
        """Called often while trials are under way. Returns those that other machines have taken over."""
        return ()

    def waits(self) -> bool:
        """Whether trials may come once none is there: those of other machines that are lost."""
        return False

    def add(self, outcome: Outcome) -> bool:
        """Write down a run that has ended; False where it is not to count, as its trial was given back."""
        if not self._record(outcome):
            return False
        if outcome.trial in self._own:
            trial, is_first = self._frozen(outcome.trial), outcome.seed == self._seeds[0]
            kept = outcome_of(trial, outcome.seed) is not None
            if kept and (is_first or len(self._runs(trial)) == len(self._seeds)):
                self._advance(outcome.trial, outcome.setting)
        return True

    def _record(self, outcome: Outcome) -> bool:
        """Keep it with its trial; False where that was given back."""
        try:
            self._own[outcome.trial].set_user_attr(f"seed {outcome.seed}", outcome.plain)
        except (KeyError, UpdateFinishedTrialError):
            self._drop(outcome.trial)
            return False
        return True

    def _advance(self, number: int, setting: dict[str, Any]) -> None:
        """Queue the runs that a setting still lacks, or report to the study what it came to."""
        trial = self._frozen(number)
        first, runs = outcome_of(trial, self._seeds[0]), self._runs(trial)
        missing = [seed for seed in self._seeds if outcome_of(trial, seed) is None]
        if first is None:
            self._ready.append(Trial(number, self._seeds[0], setting))
        elif first.counts and missing:
            self._ready += [Trial(number, seed, setting) for seed in missing]
        else:
            value = mean_value(runs) if first.counts else first.value
            if first.state is RunState.pruned:
                state, value = TrialState.PRUNED, None
            elif value is None:
                state = TrialState.FAIL
            else:
                state = TrialState.COMPLETE
            with suppress(UpdateFinishedTrialError):  # it was given back meanwhile
                self._study.tell(trial.number, value, state, skip_if_finished=True)
            self._drop(number)

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[self._own[number].number]

    def _drop(self, number: int) -> None:
        self._own.pop(number, None)
        self._ready = deque(one for one in self._ready if one.number != number)


class LocalQueue(StudyQueue):
    """The study of one machine, in memory. A later start rebuilds it from the journal and from what the runs wrote, so
    that a search has one record; nothing is unpickled.

    Args:
        planned: the settings that are tried, where Optuna only prunes; None: its sampler draws them.
    """

    def __init__(
        self, config: TuneConfig, planned: list[dict[str, Any]] | None, seeds: range, journal: Journal
    ) -> None:
        self._journal, self._metric = journal, config.checkpoint.metric
        super().__init__(config, seeds, journal.folder, create_study(config))
        known: dict[int, dict[str, Any]] = {}  # the settings of trials that were begun, by number
        ended: dict[int, dict[str, Any]] = {}  # of their runs
        for one in journal.outcomes:
            known[one.trial] = one.setting
            if one.is_final:
                ended.setdefault(one.trial, {})[f"seed {one.seed}"] = one.plain
        known |= self._interrupted(known)
        n_known, settings = max(known, default=0), dict(enumerate(planned or [], start=1)) | known
        for number in range(1, 1 + max(config.n_trials, n_known)):
            attributes = {"number": number, **ended.get(number, {})}
            enter(self._study, attributes, as_parameters(self._axes, settings.get(number, {})))
        sampler = make_sampler(config, len(known))
        learns = config.chosen is Method.cmaes  # while it draws; the others look at what has ended
        self._study.sampler = sampler if learns else optuna.samplers.RandomSampler()
        for _ in range(n_known):
            self._claim()
        self._study.sampler = sampler

    @property
    def outcomes(self) -> list[Outcome]:
        return self._journal.outcomes

    def _claimed(self, number: int, setting: dict[str, Any]) -> None:
        """Later trials are measured by the figures of a run that has ended."""
        if self._journal.find(number, self._seeds[0]) is not None:
            folder = trial_folder(self.folder, number, self._seeds[0])
            for step, figure in enumerate(validations(folder, self._metric), start=1):
                self.gives_up(number, step, figure)

    def _record(self, outcome: Outcome) -> bool:
        """A run that broke off is left to the next start."""
        self._journal.add(outcome)
        return not outcome.is_final or super()._record(outcome)

    def _interrupted(self, known: Container[int]) -> dict[int, dict[str, Any]]:
        """The settings of trials that an earlier start has begun and not ended, by number."""
        found = {}
        for file in (self.folder / "trials").glob(f"*-seed-{self._seeds[0]}.yaml"):
            number = int(file.name.partition("-")[0])
            if number not in known:
                plain = plain_settings(read_run(file))
                found[number] = {axis.name: plain[axis.name] for axis in self._axes}
        return found


def outcome_of(trial: FrozenTrial, seed: int) -> Outcome | None:
    """The run of a seed that its trial holds."""
    found = trial.user_attrs.get(f"seed {seed}")
    return None if found is None else Outcome.from_plain(found)


def create_study(config: TuneConfig, **where: Any) -> optuna.Study:
    """An empty study; `where` is its storage and name."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", module="optuna")
    direction = "minimize" if lower_is_better(config.checkpoint.metric) else "maximize"
    return optuna.create_study(direction=direction, pruner=make_pruner(config.prune), **where)


def enter(study: optuna.Study, attributes: dict[str, Any], parameters: dict[str, Any]) -> None:
    """Add a trial that waits; what is not among `parameters` is drawn when it is taken."""
    fixed = {"fixed_params": parameters} if parameters else {}
    study.add_trial(optuna.create_trial(state=TrialState.WAITING, user_attrs=attributes, system_attrs=fixed))


def make_sampler(config: TuneConfig, start: int) -> optuna.samplers.BaseSampler:
    """What draws settings; another `start` of the same search draws others."""
    seed = (config.seed * 1_000_003 + start) % 2**32
    if config.chosen is Method.tpe:
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True, multivariate=True)
    if config.chosen is Method.gp:
        return optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False)
    if config.chosen is Method.cmaes:
        return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return optuna.samplers.RandomSampler(seed=seed)


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


def as_parameters(axes: list[Axis], setting: dict[str, Any]) -> dict[str, Any]:
    """A setting, or none, as Optuna's parameters, which are texts and numbers."""
    named = {axis.name: axis for axis in axes}
    return {name: json.dumps(value) if named[name].values else value for name, value in setting.items()}


def value_of(axis: Axis, parameter: Any) -> Any:
    return json.loads(parameter) if axis.values else axis.rounded(parameter)
