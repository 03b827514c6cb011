"""What each run of a search came to, and the journal of it.

The first line of the journal holds the settings of the search, each other line, of JSON, a run that ended. A line is
flushed to the disk as a whole; one that a kill has torn is dropped by the next start. Two searches never write into the
same folder: the first holds a lock.
"""

import json
import math
import os
import signal
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from pathlib import Path
from statistics import fmean
from typing import Any, BinaryIO, NamedTuple

from manyheads.config import RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.config.figures import lower_is_better
from manyheads.config.sentences import format_value
from manyheads.distributed.signals import OUT_OF_TIME
from manyheads.errors import UserError
from manyheads.plugins.sweep.config import named_texts
from manyheads.runs.checkpoints import newest_checkpoint, read_progress
from manyheads.runs.config_file import REMOVED
from manyheads.runs.metrics_csv import read_metrics_csv
from manyheads.runs.summary import NETWORK, Interval

NAME, LOCK = "journal.jsonl", ".journal.lock"
DIVERGED = "training diverged"


class RunState(Enum):
    done = "done"
    late = "late"  # its minutes were up: its best figure so far counts
    pruned = "pruned"
    failed = "failed"  # the setting itself cannot be trained
    broken = "broken"  # killed, or ended by something else: the next start tries again
    again = "again"  # the setting of an earlier trial, whose figures count


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: setting number `trial`, counted from 1, with one seed.

    Attributes:
        value: the network's best validation figure, or, of a fold, its figure on the rows that judge the run.
        low, high: the interval over these rows, known of a run that came to its end.
        epochs, steps: how many were completed.
        seconds: of the whole process.
        why: what went wrong.
    """

    trial: int
    seed: int
    setting: dict[str, Any]
    state: RunState
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
        return self.state in (RunState.done, RunState.late) and self.value is not None

    @property
    def figure(self) -> float | Interval | None:
        """Its value, with its interval where that is known."""
        if self.value is None or self.low is None or self.high is None:
            return self.value
        return Interval(self.value, min(self.low, self.value), max(self.high, self.value))

    @property
    def is_final(self) -> bool:
        """Whether another start leaves it as it is."""
        return self.state is not RunState.broken

    @property
    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"state": self.state.name}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "Outcome":
        made: dict[str, Any] = values | {"state": RunState[values["state"]]}
        return cls(**made)


class Trial(NamedTuple):
    """A run of `tune`: setting `number`, counted from 1, with one seed."""

    number: int
    seed: int
    setting: dict[str, Any]


class Journal:
    """The runs of a search that have ended, by number and seed; of a run that was made twice the last. It is also the
    queue of those that are known beforehand, `trials`, of which none is given up."""

    gives_up = None

    def __init__(self, folder: Path, file: BinaryIO, outcomes: list[Outcome]) -> None:
        self.folder = folder
        self.trials: Iterator[Trial] = iter(())
        self._file = file
        self._outcomes = {(one.trial, one.seed): one for one in outcomes}

    @property
    def outcomes(self) -> list[Outcome]:
        """In the order of their numbers."""
        return [self._outcomes[key] for key in sorted(self._outcomes)]

    def find(self, trial: int, seed: int) -> Outcome | None:
        """A run that need not be made again."""
        found = self._outcomes.get((trial, seed))
        return found if found is not None and found.is_final else None

    def take(self) -> Trial | None:
        """The next run that is not in the journal yet; None where there is none."""
        return next((one for one in self.trials if self.find(one.number, one.seed) is None), None)

    def tend(self) -> Collection[int]:
        """Nothing is to be done while trials are under way, and no other machine takes them over."""
        return ()

    def waits(self) -> bool:
        """Whether trials may come once none is there."""
        return False

    def add(self, outcome: Outcome) -> bool:
        """Write down a run that has ended."""
        _append(self._file, outcome.plain)
        self._outcomes[outcome.trial, outcome.seed] = outcome
        return True


@contextmanager
def open_journal(folder: Path, search: dict[str, Any]) -> Iterator[Journal]:
    """The journal in `folder`, begun or continued; `search` holds the settings that must stay the same.

    Raises:
        UserError: the folder holds something else, another search, or one that is under way.
    """
    path = folder / NAME
    if folder.is_file() or (folder.is_dir() and not path.exists() and any(folder.iterdir())):
        raise UserError(f"output={folder} is not empty and holds no search: name another folder by output=FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    in_use = f"output={folder} is in use by another search: wait for its end, or name another folder"
    with path.open("a+b") as file, locked(folder / LOCK, in_use):
        lines = _whole_lines(file)
        if lines:
            check_same_search(_read(lines[0], path), search, f"output={folder}")
        else:
            _append(file, search)
        yield Journal(folder, file, [_outcome(line, path) for line in lines[1:]])


@contextmanager
def locked(path: Path, in_use: str, *, wait: float = 0) -> Iterator[None]:
    """Hold the lock file `path` while the block lasts. The lock is the kernel's, so that a process that is killed
    leaves it free; a disk without locks holds none.

    Raises:
        UserError: another process still holds it after `wait` seconds; says `in_use`.
    """
    from filelock import FileLock, Timeout  # mistakes in the settings do not wait for it

    lock = FileLock(path, timeout=wait, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise UserError(in_use) from error
    except OSError:
        pass  # such a disk
    try:
        yield
    finally:
        if lock.is_locked:
            path.unlink(missing_ok=True)
            lock.release()


def _whole_lines(file: BinaryIO) -> list[bytes]:
    """The lines that have an end; a last line without one is cut off."""
    file.seek(0)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        file.truncate(len(whole))
    return whole.splitlines()


def _append(file: BinaryIO, values: dict[str, Any]) -> None:
    file.write((json.dumps(values, ensure_ascii=False) + "\n").encode())
    file.flush()
    os.fsync(file.fileno())


def check_same_search(held: dict[str, Any], asked: dict[str, Any], where: str) -> None:
    """Refuse to continue another search than the one that `where` holds. One of an earlier version has the default of
    each setting that is newer, and may hold settings removed since, where they are as today's optimiser is.

    Raises:
        UserError: names what differs.
    """
    asked = json.loads(json.dumps(asked))  # as it reads from a file
    held = {name: value for name, value in held.items() if name not in REMOVED or value != REMOVED[name]}
    held = {name: value for name, value in plain_settings(RunConfig()).items() if name in asked} | held
    for name in dict.fromkeys([*asked, *held]):
        if held.get(name) != asked.get(name):
            was, now = format_value(held.get(name)), format_value(asked.get(name))
            remedy = "name another folder by output=FOLDER"
            if name == "data":
                what = f"other data ({_differing(held, asked, name)})"
            elif name == "files":
                what = f"runs of other content of {_differing(held, asked, name)}"
            elif name in named_texts():
                what = f"other texts of {name}"
            elif name in ("manyheads", "torch"):
                what = f"runs of {name} {was}, not {now}"
            else:
                what = f"a search with {name}={was}, not {name}={now}"
                if name == "method":
                    remedy = f"type method={was} to continue it, or {remedy}"
            raise UserError(f"{where} holds {what}: {remedy}")


def _differing(held: dict[str, Any], asked: dict[str, Any], name: str) -> str:
    """Which of the digests of one name differ."""
    was = held[name] if isinstance(held.get(name), dict) else {}
    now = asked[name] if isinstance(asked.get(name), dict) else {}
    return ", ".join(key for key in dict.fromkeys([*now, *was]) if was.get(key) != now.get(key))


def mean_value(runs: Iterable[Outcome | None]) -> float | None:
    """The mean of the figures that count."""
    values = [one.value for one in runs if one is not None and one.counts and one.value is not None]
    return fmean(values) if values else None


def _outcome(line: bytes, path: Path) -> Outcome:
    values = _read(line, path)
    if values.keys() != {one.name for one in fields(Outcome)} or values["state"] not in RunState.__members__:
        raise UserError(f"{path} is not the journal of a search: name another folder by output=FOLDER")
    return Outcome.from_plain(values)


def _read(line: bytes, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not the journal of a search: name another folder by output=FOLDER")
    return values


def read_outcome(start: Outcome, code: int, folder: Path, log: Path, metric: str) -> Outcome:
    """The outcome of a process that ended with exit `code`; `start` says which run it was, and how long it took."""
    if code == 0:
        return _finished(start, folder, metric)
    known = replace(start, **progress_of(folder))
    finite = [figure for figure in validations(folder, metric) if math.isfinite(figure)]
    value = (min if lower_is_better(metric) else max)(finite, default=None)
    if start.state is RunState.pruned:
        return replace(known, value=value)
    if code == OUT_OF_TIME and value is not None:
        return replace(known, state=RunState.late, value=value)
    if code == OUT_OF_TIME:
        return replace(known, state=RunState.failed, why="its minutes were up before the first validation")
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return replace(known, state=RunState.broken, why=f"killed by {name}")
    why = _last_line(log) or f"exit code {code}"
    return replace(known, state=RunState.failed if DIVERGED in why else RunState.broken, why=why)


def trial_folder(output: Path, number: int, seed: int) -> Path:
    """Where a search trains a run; next to it are the log of its process and a file of its settings."""
    return output / "trials" / f"{number:03d}-seed-{seed}"


def progress_of(folder: Path) -> dict[str, int]:
    """The epochs and steps that a run has completed: by its newest checkpoint, or metrics.csv, whose rows count both
    from 0 and may end earlier, or later."""
    checkpoint, curves = newest_checkpoint(folder / "checkpoints"), read_metrics_csv(folder / "metrics.csv")
    saved = read_progress(checkpoint) if checkpoint else {"epoch": 0, "step": 0}
    ended = [int(row["epoch"]) + 1 for row in curves if "train_loss" in row and "epoch" in row]
    steps = [int(row["step"]) + 1 for row in curves]
    return {"epochs": max(saved["epoch"], *ended, 0), "steps": max(saved["step"], *steps, 0)}


def validations(folder: Path, metric: str) -> list[float]:
    """The figure after each validation so far, in order; empty where there is none yet."""
    name = f"validation_{metric}"
    return [row[name] for row in read_metrics_csv(folder / "metrics.csv") if name in row]


def _finished(known: Outcome, folder: Path, metric: str) -> Outcome:
    try:
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return replace(known, state=RunState.broken, why=f"{folder} holds no summary.json")
    value = (summary.get("best") or {}).get("value")
    if value is None:
        return replace(known, state=RunState.failed, why="it made no validation figure")
    split = "test" if summary.get("test") else "validation"
    network = summary.get("members", {}).get(split, {}).get(NETWORK) or summary[split]
    interval = network.get(metric) or {}
    if split == "test":  # the rows of a fold, which chose no epoch
        value = interval["value"]
    counts = {name: summary[name] for name in ("epochs", "steps")} | {"seconds": summary["wall_seconds"]}
    return replace(
        known, state=RunState.done, value=value, low=interval.get("low"), high=interval.get("high"), **counts
    )


def _last_line(log: Path) -> str:
    """The last line that a process wrote, which is the sentence of a user's mistake."""
    if not log.is_file():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
