"""What each run of a search came to, and the journal that keeps it.

What one run of a search came to, read from its folder.

The journal of a search: what is asked in its first line, then a line of JSON for each run that ended.

A line is flushed to the disk as a whole; one that a kill has torn is dropped by the next start. Two searches never
write into the same folder: the first holds a lock on the file.
"""

import fcntl
import json
import math
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any

from manyheads.config import Metric
from manyheads.config.fields import show
from manyheads.distributed.signals import OUT_OF_TIME
from manyheads.runs.folder import read_curves

DIVERGED = "training diverged"


class State(Enum):
    done = "done"
    late = "late"  # its minutes were up: its best figure so far counts
    pruned = "pruned"
    failed = "failed"  # the setting itself cannot be trained
    broken = "broken"  # killed, or ended by something else: the next start tries again
    again = "again"  # the setting of an earlier trial, whose figures count


COUNTS = (State.done, State.late)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: setting number `trial`, counted from 1, with one seed.

    `value` is the best validation figure, `low` and `high` its interval over the rows of the split, known of a run
    that came to its end. `why` says what went wrong. `seconds` are of the whole process.
    """

    trial: int
    seed: int
    setting: dict[str, Any]
    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None
    epochs: int = 0
    steps: int = 0
    seconds: float = 0.0
    why: str = ""

    @property
    def counts(self) -> bool:
        """Whether its figure is that of a setting."""
        return self.state in COUNTS and self.value is not None

    @property
    def is_final(self) -> bool:
        """Whether another start leaves it as it is."""
        return self.state is not State.broken


def validations(folder: Path, metric: Metric) -> list[float]:
    """The figure after each validation so far, in order; empty where there is none yet."""
    name = f"validation_{metric.name}"
    return [row[name] for row in read_curves(folder / "metrics.csv") if name in row]


def best_of(figures: list[float], metric: Metric) -> float | None:
    finite = [figure for figure in figures if math.isfinite(figure)]
    return (min if metric is Metric.loss else max)(finite, default=None)


def last_line(log: Path) -> str:
    """The last thing a process said, which in a mistake is its sentence."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else ""


def read_outcome(start: Outcome, code: int, folder: Path, log: Path, metric: Metric) -> Outcome:
    """The outcome of a process that ended with exit `code`; `start` says which run it was, and how long it took."""
    steps = [int(row["step"]) for row in read_curves(folder / "metrics.csv")]
    known = {"trial": start.trial, "seed": start.seed, "setting": start.setting, "seconds": start.seconds}
    known["steps"] = max(steps, default=0)
    if code == 0:
        return _finished(known, folder, metric)
    if start.state is State.pruned:
        return Outcome(**known, state=State.pruned, value=best_of(validations(folder, metric), metric))
    if code == OUT_OF_TIME:
        figures = validations(folder, metric)
        value = best_of(figures, metric)
        if value is None:
            return Outcome(**known, state=State.failed, why="its minutes were up before the first validation")
        return Outcome(**known, state=State.late, value=value, epochs=len(figures))
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        return Outcome(**known, state=State.broken, why=f"killed by {_signal_name(number)}")
    why = last_line(log) or f"exit code {code}"
    return Outcome(**known, state=State.failed if DIVERGED in why else State.broken, why=why)


def _finished(known: dict[str, Any], folder: Path, metric: Metric) -> Outcome:
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Outcome(**known, state=State.broken, why=f"{folder} holds no summary.json")
    best = summary.get("best") or {}
    if best.get("value") is None:
        return Outcome(**known, state=State.failed, why="it made no validation figure")
    interval = summary["validation"].get(metric.name) or {}
    known["seconds"] = summary["wall_seconds"]
    known["steps"] = summary["steps"]
    return Outcome(
        **known,
        state=State.done,
        value=best["value"],
        low=interval.get("low"),
        high=interval.get("high"),
        epochs=summary["epochs"],
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


NAME = "journal.jsonl"


class Journal:
    """The runs of a search that have ended, by number and seed; of a run that was made twice the last."""

    def __init__(self, folder: Path, descriptor: int, outcomes: list[Outcome]) -> None:
        self.folder = folder
        self._descriptor = descriptor
        self._outcomes = {(one.trial, one.seed): one for one in outcomes}

    @property
    def outcomes(self) -> list[Outcome]:
        """In the order of their numbers."""
        return [self._outcomes[key] for key in sorted(self._outcomes)]

    def find(self, trial: int, seed: int) -> Outcome | None:
        """A run that need not be made again."""
        found = self._outcomes.get((trial, seed))
        return found if found is not None and found.is_final else None

    def add(self, outcome: Outcome) -> None:
        _append(self._descriptor, asdict(outcome) | {"state": outcome.state.name})
        self._outcomes[outcome.trial, outcome.seed] = outcome


@contextmanager
def open_journal(folder: Path, question: dict[str, Any]) -> Iterator[Journal]:
    """The journal in `folder`, begun or gone on with; `question` is what must stay the same.

    Raises:
        ValueError: the folder holds something else, another question, or a search that is under way.
    """
    path = folder / NAME
    if folder.is_file() or (folder.is_dir() and not path.exists() and any(folder.iterdir())):
        raise ValueError(f"output={folder} is not empty and holds no search: name another folder by output=FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        _lock(descriptor, folder)
        lines = _whole_lines(descriptor)
        if lines:
            _check_same(lines[0], question, path, folder)
        else:
            _append(descriptor, question)
        yield Journal(folder, descriptor, [_outcome(line, path) for line in lines[1:]])
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ValueError(
            f"output={folder} is in use by another search: wait for its end, or name another folder"
        ) from error


def _whole_lines(descriptor: int) -> list[bytes]:
    """The lines that have an end; what stands behind the last end is cut off."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.ftruncate(descriptor, len(whole))
    return whole.splitlines()


def _append(descriptor: int, values: dict[str, Any]) -> None:
    line = (json.dumps(values, ensure_ascii=False) + "\n").encode()
    while line:  # a full disk may take part of it
        line = line[os.write(descriptor, line) :]
    os.fsync(descriptor)


def _check_same(line: bytes, question: dict[str, Any], path: Path, folder: Path) -> None:
    held = _read(line, path)
    asked = json.loads(json.dumps(question))
    for name in dict.fromkeys([*asked, *held]):
        if held.get(name) != asked.get(name):
            was, now = (show(one.get(name)) for one in (held, asked))
            texts = {"data": "other data", "pretrain.also": "other texts of pretrain.also"}
            made = f"runs of {name} {was}, not {now}" if name in ("manyheads", "torch") else ""
            what = texts.get(name) or made or f"a search with {name}={was}, not {name}={now}"
            go_on = f"type method={was} to go on, or " if name == "method" else ""
            raise ValueError(f"output={folder} holds {what}: {go_on}name another folder by output=FOLDER")


def _outcome(line: bytes, path: Path) -> Outcome:
    values = _read(line, path)
    if values.keys() != {one.name for one in fields(Outcome)} or values["state"] not in State.__members__:
        raise ValueError(f"{path} is not the journal of a search: name another folder by output=FOLDER")
    values["state"] = State[values["state"]]
    return Outcome(**values)


def _read(line: bytes, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise ValueError(f"{path} is not the journal of a search: name another folder by output=FOLDER")
    return values
