"""A search on several machines: the same command is typed on each, and Optuna's storage holds what they share.

The first machine enters all trials, waiting; each machine takes one at a time, and records its runs as they end. While
it works on a trial it counts a heartbeat up. Where that has not changed for `LOST` seconds by another machine's clock,
that machine gives the trial back: it is ended, which succeeds for one machine alone, and waits again with its setting
and the runs that are done. A machine whose trial was given back drops it. Imported only with `storage=`.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

from manyheads.errors import UserError
from manyheads.plugins.sweep.config import TuneConfig
from manyheads.plugins.sweep.journal import NAME
from manyheads.plugins.sweep.optuna import (
    StudyQueue,
    as_parameters,
    create_study,
    enter,
    make_pruner,
    make_sampler,
    outcome_of,
)
from manyheads.plugins.sweep.outcomes import Outcome, RunState, Trial
from manyheads.plugins.sweep.same_search import check_same_search
from manyheads.runs.files import write_atomic

BEAT = 15.0  # seconds between two heartbeats of a trial
LOST = 120.0  # seconds without one after which it is given back; a run that is asked to end saves within half of them
LOOK = 2.0  # seconds between two looks for a trial that waits
READY = 60.0  # seconds in which the first machine enters the trials
MARK = ".search"  # holds in a folder which search of a storage it belongs to
OURS = ("trials", "trials.csv", "search.json", "report.html")  # what a search leaves in its folder
MOST_TRIES = 3  # of a trial whose run is killed or breaks off, or whose machine is lost
log = logging.getLogger("manyheads.tune")


@contextmanager
def join_search(
    config: TuneConfig, planned: list[dict[str, Any]] | None, seeds: range, folder: Path, question: dict[str, Any]
) -> "Iterator[SharedQueue]":
    """The search in `config.storage` that has the name of `folder`, begun or joined. At the end the trials that this
    machine has not finished are given back.

    Raises:
        UserError: the storage cannot be used, or holds another search of that name; the folder holds something else.
    """
    if folder.is_file() or (folder / NAME).exists():
        raise UserError(f"output={folder} holds something else than a shared search: name another by output=FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        asked = {"trials": config.n_trials, "seeds": config.seeds, **question}
        study = _joined(config, planned, folder, asked)
        study.sampler = make_sampler(config, uuid4().int)  # machines that draw at the same time draw other settings
        study.pruner = make_pruner(config.prune)
        shared = SharedQueue(config, seeds, folder, study)
        try:
            yield shared
        finally:
            shared.leave()
    except (OptunaError, SQLAlchemyError) as error:
        raise UserError(_unusable(config.storage, error)) from error


def _joined(
    config: TuneConfig, planned: list[dict[str, Any]] | None, folder: Path, asked: dict[str, Any]
) -> optuna.Study:
    """The study in the storage, into which the first machine enters all trials."""
    storage, name = open_storage(config.storage), folder.name
    try:
        study = create_study(config, storage=storage, study_name=name)
        for number, setting in enumerate(planned or [{}] * config.n_trials, start=1):
            enter(study, {"number": number}, as_parameters(config.axes(), setting))
        study.set_user_attr("id", uuid4().hex)
        study.set_user_attr("question", asked)
    except DuplicatedStudyError:
        study = optuna.load_study(study_name=name, storage=storage)
    until = time.monotonic() + READY
    while "question" not in study.user_attrs:
        if time.monotonic() > until:
            raise UserError(
                f"storage={config.storage} holds a search {name} whose first machine did not enter its trials: "
                "name another by output=FOLDER"
            )
        time.sleep(0.1)
    check_same_search(study.user_attrs["question"], asked, f"storage={config.storage}")
    _mark_folder(folder, study.user_attrs.get("id", ""))
    return study


def _mark_folder(folder: Path, own: str) -> None:
    """Make the folder this search's: its trials would resume from what those of another search have left there."""
    mark = folder / MARK
    held = mark.read_text(encoding="utf-8") if mark.is_file() else ""
    if held != own and any((folder / name).exists() for name in OURS):
        raise UserError(f"output={folder} holds something else than this search: name another by output=FOLDER")
    write_atomic(mark, own)


class SharedQueue(StudyQueue):
    """The queue of such a search, and all that is written down of it."""

    def __init__(self, config: TuneConfig, seeds: range, folder: Path, study: optuna.Study) -> None:
        super().__init__(config, seeds, folder, study)
        self._gone: set[int] = set()  # trials that were given back when one of their runs ended, others under way
        self._beats: dict[int, tuple[Any, float]] = {}  # of other machines' trials: the last, and when it was new here
        self._looked = self._beaten = self._waited = -LOST
        self._clock = 0.0  # of the wall at the last heartbeat: the monotonic clock stops while a machine sleeps

    def take(self) -> Trial | None:
        if not self._ready and time.monotonic() - self._looked <= LOOK:
            return None
        found = super().take()
        self._looked = -LOST if found else time.monotonic()
        return found

    def _claimed(self, number: int, setting: dict[str, Any]) -> None:
        """A trial that was given back too often may be what brings machines down."""
        if self._tries(number) <= MOST_TRIES:
            return
        trial, why = self._frozen(number), f"its machine was lost {MOST_TRIES} times"
        for seed in self._seeds:
            broken = Outcome(number, seed, setting, RunState.broken, why=why)
            if outcome_of(trial, seed) is None and not self._record(broken):
                return

    def add(self, outcome: Outcome) -> bool:
        kept = super().add(outcome)
        if not kept:
            self._gone.add(outcome.trial)
        return kept

    def _record(self, outcome: Outcome) -> bool:
        """Also False where a run broke off that may be tried again: its trial is given back."""
        number = outcome.trial
        if number in self._own and not outcome.is_final and self._tries(number) < MOST_TRIES:
            log.info("trial %d, seed %d: %s; it is tried again", number, outcome.seed, outcome.why)
            self._give_back(self._frozen(number), self._tries(number) + 1)
            self._drop(number)
            return False
        return super()._record(outcome)

    def _tries(self, number: int) -> int:
        return self._own[number].user_attrs.get("tries", 1)

    def tend(self) -> set[int]:
        """Give heartbeats, and give back the trials of machines that gave none.

        Returns:
            Own trials that were given back, whose runs are to be killed.
        """
        now, gone = time.monotonic(), self._gone
        self._gone = set()
        if now - self._beaten < BEAT and abs(time.time() - self._clock) < LOST:
            return gone
        self._beaten, self._clock = now, time.time()
        for number, trial in list(self._own.items()):
            try:
                trial.set_user_attr("beat", trial.user_attrs.get("beat", 0) + 1)
            except UpdateFinishedTrialError:
                log.warning("trial %d was given back to other machines, as this one gave no heartbeat", number)
                self._drop(number)
                gone.add(number)
        for number, trial in self._latest().items():
            if number in self._own or self._is_finished(trial) or trial.state is TrialState.WAITING:
                continue
            beat = (trial.state, trial.user_attrs.get("beat", 0))  # a trial that was just ended has its own time
            before, since = self._beats.get(trial.number, (None, now))
            if beat != before:
                self._beats[trial.number] = (beat, now)
            elif now - since > LOST and self._give_back(trial, trial.user_attrs.get("tries", 1) + 1):
                log.info("trial %d is given back: its machine gave no heartbeat for %.0f s", number, LOST)
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
        first = outcome_of(trial, self._seeds[0])
        return trial.state.is_finished() and first is not None and not (trial.state is TrialState.FAIL and first.counts)

    def _give_back(self, trial: FrozenTrial, tries: int) -> bool:
        """End a trial and let its setting wait again; False where another machine has."""
        if not trial.state.is_finished():
            try:
                self._study.tell(trial.number, state=TrialState.FAIL)
            except (ValueError, UpdateFinishedTrialError):
                return False
        attributes = {name: one for name, one in trial.user_attrs.items() if name != "beat"} | {"tries": tries}
        enter(self._study, attributes, trial.params or trial.system_attrs.get("fixed_params", {}))
        return True

    def leave(self) -> None:
        """Give back what is not finished."""
        for number in list(self._own):
            self._give_back(self._frozen(number), self._tries(number))
            self._drop(number)


def open_storage(name: str) -> BaseStorage:
    """Optuna's storage of an address such as sqlite:///search.db or postgresql://host/name, or a journal file.

    Raises:
        UserError: it cannot be opened.
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
                    raise UserError("it holds something else than a journal of Optuna")
            return JournalStorage(JournalFileBackend(str(path)))
        except ImportError as error:
            module = getattr(error.__cause__ or error.__context__ or error, "name", None)
            packages = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary"}
            raise UserError(
                f"storage={name} needs its database's Python driver, the module {module}, which is not installed: "
                f"pip install {packages.get(str(module), 'the package that has it')}"
            ) from error
        except (OptunaError, SQLAlchemyError, OSError, ValueError) as error:
            if not again:
                raise UserError(_unusable(name, error)) from error
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
        "continues"
    )
