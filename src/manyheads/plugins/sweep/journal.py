"""The journal of a search: what each of its runs came to.

The first line of the journal holds the settings of the search, each other line, of JSON, a run that ended. A line is
flushed to the disk as a whole; one that a kill has torn is dropped by the next start. Two searches never write into the
same folder: the first holds a lock.
"""

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

from manyheads.errors import UserError
from manyheads.plugins.sweep.outcomes import Outcome, RunState, Trial
from manyheads.plugins.sweep.same_search import check_same_search

NAME, LOCK = "journal.jsonl", ".journal.lock"


class Journal:
    """The runs of a search that have ended, by number and seed; of a run that was made twice the last. It is also the
    queue of those that are known beforehand, `trials`."""

    gives_up = None  # none of them is ended early: see `StudyQueue.gives_up`

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
        for trial in self.trials:
            if self.find(trial.number, trial.seed) is None:
                return trial
        return None

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
            check_same_search(_read_line(lines[0], path), search, f"output={folder}")
        else:
            _append(file, search)
        yield Journal(folder, file, [_read_outcome(line, path) for line in lines[1:]])


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


def _read_outcome(line: bytes, path: Path) -> Outcome:
    values = _read_line(line, path)
    if values.keys() != {one.name for one in fields(Outcome)} or values["state"] not in RunState.__members__:
        raise UserError(f"{path} is not the journal of a search: name another folder by output=FOLDER")
    return Outcome.from_plain(values)


def _read_line(line: bytes, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not the journal of a search: name another folder by output=FOLDER")
    return values
