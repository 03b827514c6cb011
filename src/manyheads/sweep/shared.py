"""A search of several machines: each types the same command, and Optuna's storage holds what they have in common.

The first machine enters all trials, waiting; each takes one at a time, and writes down its runs as they end. While a
machine works on a trial it counts a beat up. Where that stands still for `LOST` seconds by another machine's clock, the
trial is given back: it is ended, which succeeds for one machine alone, and waits again with its setting and the runs
that are done. Whoever finds that its trial was given back leaves it. Imported where it is asked for.
"""

import logging
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import optuna
from optuna.exceptions import DuplicatedStudyError, OptunaError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Engine, event
from sqlalchemy.exc import SQLAlchemyError

from manyheads.config import Metric, TuneConfig
from manyheads.runs.atomic import replace_file
from manyheads.sweep.journal import NAME, Outcome, State, check_question, mean_value
from manyheads.sweep.optuna import distribution, make_pruner, make_sampler, parameter, value_of
from manyheads.sweep.scheduler import Trial

BEAT = 15.0  # seconds between two signs of life of a trial
LOST = 120.0  # seconds without one after which it is given back; a run that is told to end saves within half of them
LOOK = 2.0  # seconds between two looks for a trial that waits
READY = 60.0  # seconds in which the first machine enters the trials
MARK = ".search"  # holds in a folder which search of a storage it belongs to
OURS = ("trials", "trials.csv", "report.html")  # what a search or a run leaves in its folder
MOST_TRIES = 3  # of a trial whose run is killed or breaks off, or whose machine is lost
log = logging.getLogger("manyheads.tune")


@contextmanager
def join_search(
    config: TuneConfig, planned: list[dict[str, Any]] | None, seeds: range, folder: Path, question: dict[str, Any]
) -> "Iterator[Shared]":
    """The search in `config.storage` that has the name of `folder`, begun or joined. At the end the trials that this
    machine has not finished are given back.

    Raises:
        ValueError: the storage cannot be used, or holds another search of that name; the folder holds something else.
    """
    if folder.is_file() or (folder / NAME).exists():
        raise ValueError(f"output={folder} holds something else than a shared search: name another by output=FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        shared = Shared(config, planned, seeds, folder, question)
        try:
            yield shared
        finally:
            shared.leave()
    except (OptunaError, SQLAlchemyError) as error:
        raise ValueError(_unusable(config.storage, error)) from error


class Shared:
    """The queue and the journal of such a search.

    Args:
        planned: the settings that are tried; None: the sampler draws them.
    """

    def __init__(
        self,
        config: TuneConfig,
        planned: list[dict[str, Any]] | None,
        seeds: range,
        folder: Path,
        question: dict[str, Any],
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.filterwarnings("ignore", module="optuna")
        self.folder, self._seeds, self._axes = folder, seeds, config.axes()
        self._own: dict[int, optuna.Trial] = {}  # of this machine and not finished, by number of the setting
        self._ready: deque[Trial] = deque()
        self._signs: dict[int, tuple[Any, float]] = {}  # of other machines' trials: the last, and when it was new here
        self._looked = self._beaten = self._waited = -LOST
        self._study = self._join(config, planned, question)

    def _join(self, config: TuneConfig, planned: list[dict[str, Any]] | None, question: dict[str, Any]) -> optuna.Study:
        storage, name = open_storage(config.storage), self.folder.name
        direction = "minimize" if config.checkpoint.metric is Metric.loss else "maximize"
        sampler = make_sampler(config, uuid4().int)  # machines that draw at the same time draw other settings
        asked = {"trials": config.n_trials, "seeds": config.seeds, **question}
        try:
            study = optuna.create_study(storage=storage, study_name=name, direction=direction)
            for number in range(1, 1 + config.n_trials):
                setting = planned[number - 1] if planned else {}
                self._enter(study, {"number": number}, {axis.name: parameter(axis, setting[axis.name])
                                                        for axis in self._axes if setting})  # fmt: skip
            study.set_user_attr("id", uuid4().hex)
            study.set_user_attr("question", asked)
        except DuplicatedStudyError:
            study = optuna.load_study(study_name=name, storage=storage)
        until = time.monotonic() + READY
        while "question" not in study.user_attrs:
            if time.monotonic() > until:
                raise ValueError(
                    f"storage={config.storage} holds a search {name} whose first machine did not enter its trials: "
                    "name another by output=FOLDER"
                ) from None
            time.sleep(0.1)
        check_question(study.user_attrs["question"], asked, f"storage={config.storage}")
        self._mark_folder(study.user_attrs.get("id", ""))
        study.sampler, study.pruner = sampler, make_pruner(config.prune)
        return study

    def _mark_folder(self, own: str) -> None:
        """Make the folder this search's: its trials would go on from what another's have left there."""
        mark = self.folder / MARK
        held = mark.read_text(encoding="utf-8") if mark.is_file() else ""
        if held != own and any((self.folder / name).exists() for name in OURS):
            raise ValueError(
                f"output={self.folder} holds something else than this search: name another by output=FOLDER"
            )
        with replace_file(mark) as part:
            part.write_text(own, encoding="utf-8")

    def _enter(self, study: optuna.Study, marks: dict[str, Any], parameters: dict[str, Any]) -> None:
        """A trial that waits; what is not among `parameters` is drawn by who takes it."""
        fixed = {"fixed_params": parameters} if parameters else {}
        study.add_trial(optuna.create_trial(state=TrialState.WAITING, user_attrs=marks, system_attrs=fixed))

    def _latest(self) -> dict[int, FrozenTrial]:
        """The trial of each setting that counts: of one that was given back the last."""
        every = self._study.get_trials(deepcopy=False)
        return {one.user_attrs["number"]: one for one in every if "number" in one.user_attrs}

    @property
    def outcomes(self) -> list[Outcome]:
        """The runs of all machines that have ended, in the order of their numbers."""
        latest = self._latest()
        made = ((latest[number], seed) for number in sorted(latest) for seed in self._seeds)
        return [found for trial, seed in made if (found := _outcome(trial, seed)) is not None]

    def take(self) -> Trial | None:
        """The next trial; None where there is none now."""
        if not self._ready and time.monotonic() - self._looked > LOOK:
            while not self._ready and self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                with suppress(UpdateFinishedTrialError):
                    self._claim()
            self._looked = -LOST if self._ready else time.monotonic()
        return self._ready.popleft() if self._ready else None

    def _claim(self) -> None:
        """Take a trial that waits and make its runs ready; nothing where another machine was quicker."""
        trial = self._study.ask({axis.name: distribution(axis) for axis in self._axes})
        number = trial.user_attrs.get("number")
        if number is None:  # which Optuna has made, as none waited any more
            self._study.tell(trial, state=TrialState.FAIL)
            return
        self._own[number] = trial
        setting = {axis.name: value_of(axis, trial.params[axis.name]) for axis in self._axes}
        latest = self._latest()
        known = (one for one in self.outcomes if one.setting == setting and one.trial != number and one.is_final)
        whole = (one.trial for one in known if latest[one.trial].state is TrialState.COMPLETE)
        if (earlier := next(whole, None)) is not None and _outcome(latest[number], self._seeds[0]) is None:
            value, why = latest[earlier].value, f"drawn again: trial {earlier}"
            self.add(Outcome(number, self._seeds[0], setting, State.again, value, why=why))
        if trial.user_attrs.get("tries", 1) > MOST_TRIES:  # it may be what brings machines down
            for seed in (seed for seed in self._seeds if _outcome(latest[number], seed) is None):
                self.add(Outcome(number, seed, setting, State.broken, why=f"its machine was lost {MOST_TRIES} times"))
        self._advance(number, setting)

    def gives_up(self, number: int, step: int, value: float) -> bool:
        """Whether the setting is given up at its validation figure number `step`, counted from 1."""
        try:
            self._own[number].report(value, step)
            return self._own[number].should_prune()
        except (KeyError, UpdateFinishedTrialError):
            return False  # it was given back: `tend` says so

    def add(self, outcome: Outcome) -> bool:
        """Write down a run that has ended; False where its trial was given back meanwhile, or is given back here, as
        the run broke off and may be tried again."""
        trial = self._own.get(outcome.trial)
        if trial is None:
            return False
        tries = trial.user_attrs.get("tries", 1)
        if not outcome.is_final and tries < MOST_TRIES:
            log.info("trial %d, seed %d: %s; it is tried again", outcome.trial, outcome.seed, outcome.why)
            self._give_back(self._frozen(trial), tries + 1)
            self._drop(outcome.trial)
            return False
        try:
            trial.set_user_attr(f"seed {outcome.seed}", asdict(outcome) | {"state": outcome.state.name})
        except UpdateFinishedTrialError:
            self._drop(outcome.trial)
            return False
        return True

    def ended(self, outcome: Outcome) -> None:
        """Take in a run that has ended and was written down."""
        first = outcome.seed == self._seeds[0]
        if outcome.trial in self._own and (first or self._is_whole(self._frozen(self._own[outcome.trial]))):
            self._advance(outcome.trial, outcome.setting)

    def _advance(self, number: int, setting: dict[str, Any]) -> None:
        """Make ready what a setting still lacks, or tell the study what it came to."""
        trial = self._frozen(self._own[number])
        first = _outcome(trial, self._seeds[0])
        missing = [seed for seed in self._seeds if _outcome(trial, seed) is None]
        if first is None:
            self._ready.append(Trial(number, self._seeds[0], setting))
        elif first.counts and missing:
            self._ready += [Trial(number, seed, setting) for seed in missing]
        else:
            found = [_outcome(trial, seed) for seed in self._seeds]
            value = mean_value(found) if first.counts else first.value
            pruned = first.state is State.pruned
            state = TrialState.PRUNED if pruned else TrialState.FAIL if value is None else TrialState.COMPLETE
            with suppress(UpdateFinishedTrialError):  # it was given back meanwhile
                self._study.tell(
                    trial.number, value if state is TrialState.COMPLETE else None, state, skip_if_finished=True
                )
            self._drop(number)

    def _is_whole(self, trial: FrozenTrial) -> bool:
        return all(_outcome(trial, seed) is not None for seed in self._seeds)

    def _frozen(self, trial: optuna.Trial) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[trial.number]

    def _drop(self, number: int) -> None:
        self._own.pop(number, None)
        self._ready = deque(one for one in self._ready if one.number != number)

    def tend(self) -> set[int]:
        """Give signs of life, and give back what other machines have lost.

        Returns:
            Settings that others have given back, whose runs are to end.
        """
        now, gone = time.monotonic(), set()
        if now - self._beaten < BEAT:
            return gone
        self._beaten = now
        for number, trial in list(self._own.items()):
            try:
                trial.set_user_attr("beat", trial.user_attrs.get("beat", 0) + 1)
            except UpdateFinishedTrialError:
                log.warning("trial %d was given back to other machines, as this one gave no sign of life", number)
                self._drop(number)
                gone.add(number)
        for number, trial in self._latest().items():
            if number in self._own or self._is_finished(trial) or trial.state is TrialState.WAITING:
                continue
            sign = (trial.state, trial.user_attrs.get("beat", 0))  # a trial that was just ended has its own time
            before, since = self._signs.get(trial.number, (None, now))
            if sign != before:
                self._signs[trial.number] = (sign, now)
            elif now - since > LOST and self._give_back(trial, trial.user_attrs.get("tries", 1) + 1):
                log.info("trial %d is given back: its machine gave no sign of life for %.0f s", number, LOST)
        return gone

    def waits(self) -> bool:
        """Whether other machines still have trials, which may be given back."""
        if time.monotonic() - self._waited < LOOK:
            return True
        left = [number for number, trial in self._latest().items() if not self._is_finished(trial)]
        if left and self._waited < 0:
            log.info("nothing is left to begin: waiting for %d trial(s) of other machines", len(left))
        self._waited = time.monotonic()
        return bool(left)

    def _is_finished(self, trial: FrozenTrial) -> bool:
        """Not where a machine was killed between ending a trial and entering it again."""
        first = _outcome(trial, self._seeds[0])
        return trial.state.is_finished() and first is not None and not (trial.state is TrialState.FAIL and first.counts)

    def _give_back(self, trial: FrozenTrial, tries: int) -> bool:
        """End a trial and let its setting wait again; False where another machine has."""
        if not trial.state.is_finished():
            try:
                self._study.tell(trial.number, state=TrialState.FAIL)
            except (ValueError, UpdateFinishedTrialError):
                return False
        marks = {name: one for name, one in trial.user_attrs.items() if name != "beat"} | {"tries": tries}
        self._enter(self._study, marks, trial.params or trial.system_attrs.get("fixed_params", {}))
        return True

    def leave(self) -> None:
        """Give back what is not finished."""
        for number, trial in list(self._own.items()):
            self._give_back(self._frozen(trial), trial.user_attrs.get("tries", 1))
            self._drop(number)


def _outcome(trial: FrozenTrial, seed: int) -> Outcome | None:
    found = trial.user_attrs.get(f"seed {seed}")
    return None if found is None else Outcome(**(found | {"state": State[found["state"]]}))


def open_storage(name: str) -> BaseStorage:
    """Optuna's storage of an address such as sqlite:///search.db or postgresql://host/name, or a journal file.

    Raises:
        ValueError: it cannot be opened.
    """
    options = {"connect_args": {"timeout": 60}} if name.startswith("sqlite") else {"pool_pre_ping": True}
    for again in (True, True, False):  # machines that make its tables at the same time are in each other's way
        try:
            if "://" in name:
                storage = RDBStorage(name, engine_kwargs=options)
                if name.startswith("sqlite"):
                    _lock_whole_transactions(storage.engine)
                return storage
            path = Path(name).expanduser().absolute()
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+b") as file:
                file.seek(0)
                if (first := file.readline(4096)) and b'"op_code":' not in first:  # Optuna would add to it, or break
                    raise ValueError("it holds something else than a journal of Optuna")
            return JournalStorage(JournalFileBackend(str(path)))
        except ImportError as error:
            module = getattr(error.__cause__ or error.__context__ or error, "name", None)
            packages = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary"}
            raise ValueError(
                f"storage={name} needs its database's Python driver, the module {module}, which is not installed: "
                f"pip install {packages.get(str(module), 'the package that has it')}"
            ) from error
        except (OptunaError, SQLAlchemyError, OSError, ValueError) as error:
            if not again:
                raise ValueError(_unusable(name, error)) from error
            time.sleep(1.0)
    raise AssertionError("the last attempt returns or raises")


def _lock_whole_transactions(engine: Engine) -> None:
    """What a transaction has read stays so until it writes, also in SQLite, which knows no locks of rows: else two
    machines would take the same trial."""

    def leave_to_us(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", leave_to_us)
    event.listen(engine, "begin", begin)
    engine.dispose()


def _unusable(name: str, error: Exception) -> str:
    reason = str(error).strip().partition("\n")[0].rstrip(".:")
    return (
        f"storage={name} cannot be used ({reason}): see that it can be reached and written to; the same command then "
        "goes on"
    )
