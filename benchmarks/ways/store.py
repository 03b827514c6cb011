"""accuracy.json: one measurement a line, written whole after each, also where several schedulers write at once."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ways.recipes import PROTOCOL, Task, words_of

Measured = dict[str, dict[str, Any]]  # by the title of a task


def load(file: Path) -> Measured:
    """Every record of the file, whatever its protocol."""
    return json.loads(file.read_text(encoding="utf-8"))["measured"] if file.exists() else {}


def valid(measured: Measured) -> Measured:
    """The records of today's protocol and words: tables show no others."""
    return {title: one for title, one in measured.items() if is_valid(title, one)}


def is_valid(title: str, found: dict[str, Any]) -> bool:
    return found.get("protocol") == PROTOCOL and found.get("words", []) == words_of(Task.titled(title))


def missing(task: Task, measured: Measured) -> bool:
    """Whether it was never run to the end, or by another protocol or other words than today's."""
    found = measured.get(task.title)
    return found is None or "failed" in found or not is_valid(task.title, found)


def record(file: Path, lock: Path, title: str, found: dict[str, Any]) -> None:
    """Add one measurement to what the file holds now."""
    with locked(lock):
        write(file, {**load(file), title: found})


def merge(file: Path, lock: Path, others: list[Path]) -> tuple[int, int]:
    """Add to `file` what it lacks of the valid records of `others`; a record it has stays.

    Returns:
        How many records were added, and how many differ from one that stayed.
    """
    added = kept = 0
    with locked(lock):
        held = load(file)
        for other in others:
            for title, found in valid(load(other)).items():
                if missing(Task.titled(title), held) and ("failed" not in found or title not in held):
                    held[title] = found
                    added += 1
                else:
                    kept += found != held[title] and "failed" not in found
        write(file, held)
    return added, kept


def write(file: Path, measured: Measured) -> None:
    """The file appears whole or not at all."""
    lines = ",\n".join(
        f"  {json.dumps(title)}: {json.dumps(measured[title], ensure_ascii=False)}" for title in sorted(measured)
    )
    inner = f"\n{lines}\n " if lines else ""
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(f'{{\n "measured": {{{inner}}}\n}}\n', encoding="utf-8")
    part.replace(file)


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """One at a time, over processes."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
