"""The journal of a search: what is asked in its first line, then a line of JSON for each run that ended.

A line is flushed to the disk as a whole; one that a kill has torn is dropped by the next start. Two searches never
write into the same folder: the first holds a lock on the file.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from manyheads.config.plain import show
from manyheads.tune.outcome import Outcome, State

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
