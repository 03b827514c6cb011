"""accuracy.json: one measurement a line, written whole after each, also where several schedulers write at once."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ways.recipes import Task, words_of

Measured = dict[str, dict[str, Any]]  # by the title of a task


def load(file: Path) -> dict[str, Any]:
    """Everything; `measured` holds the runs."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"measured": {}}


def missing(task: Task, measured: Measured) -> bool:
    """Whether it was never run to the end, or by another recipe than today's."""
    found = measured.get(task.title)
    return found is None or "failed" in found or found.get("words", []) != words_of(task)


def record(file: Path, lock: Path, title: str, found: dict[str, Any], about: dict[str, Any]) -> None:
    """Add one measurement to what the file holds now."""
    with locked(lock):
        held = load(file)
        held["measured"][title] = found
        write(file, {**about, "measured": held["measured"]})


def write(file: Path, results: dict[str, Any]) -> None:
    """The file appears whole or not at all."""
    about = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in results.items() if key != "measured"]
    runs = results["measured"]
    lines = ",\n".join(
        f"  {json.dumps(title)}: {json.dumps(runs[title], ensure_ascii=False)}" for title in sorted(runs)
    )
    inner = ",\n".join([*about, f' "measured": {{\n{lines}\n }}'])
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(f"{{\n{inner}\n}}\n", encoding="utf-8")
    part.replace(file)


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """One at a time, over processes."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
