"""What was found in large data, on disk, so that the second start reads none of it, and of several processes one does.

A file of the cache is named by all that it depends on. Files of data are known by their size, the time of their last
change and a hash of places all over them.
"""

import json
import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from manyheads.config import DataConfig
from manyheads.data.rows import Rows, Splits
from manyheads.data.table import Coded, RawTable, Unread, take
from manyheads.runs.files import replace_file

FORMAT = "1"
PATIENCE = 86_400.0  # seconds: a process that is killed leaves its lock free
SAMPLES, SAMPLED = 64, 2**16  # places of a file that are hashed, and bytes of each
DAMAGE = (  # what numpy, zip and JSON raise for a file that is not what they wrote
    OSError, EOFError, ValueError, TypeError, AttributeError, LookupError, RuntimeError, MemoryError,
    OverflowError, BadZipFile, struct.error, zlib.error,
)  # fmt: skip
log = logging.getLogger(__name__)


def cache_folder(data: DataConfig) -> Path:
    """`data.cache`, else $MANYHEADS_CACHE, else ~/.cache/manyheads."""
    return Path(data.cache or os.environ.get("MANYHEADS_CACHE") or "~/.cache/manyheads").expanduser()


@contextmanager
def file_lock(path: Path, patience: float) -> Iterator[bool]:
    """One process at a time computes `path`, unless it is there; yields whether this process has the lock.

    The kernel holds it, on a file next to `path`, so that a process that is killed leaves it free. A process that has
    waited for `patience` seconds continues without it, as does every process on a disk without locks.
    """
    from filelock import FileLock

    lock = FileLock(path.with_suffix(".lock"), timeout=patience, fallback_to_soft=False)
    if not path.is_file():
        with suppress(OSError):  # no locks, too long a wait, or a cache that cannot be written, which is said later
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    try:
        yield lock.is_locked
    finally:
        if lock.is_locked:
            with suppress(OSError):
                Path(lock.lock_file).unlink()  # a process that waits for it finds the file in place
            lock.release()


def fingerprint(path: Path) -> str:
    """Size, time of the last change, and a hash of places all over the file."""
    facts = path.stat()
    return _fingerprint(path, facts.st_size, facts.st_mtime_ns)


@lru_cache(1024)
def _fingerprint(path: Path, n_bytes: int, changed: int) -> str:
    digest = blake2b(f"{n_bytes} {changed}".encode(), digest_size=16)
    with path.open("rb") as file:
        for at in range(SAMPLES if n_bytes > SAMPLED else 1):
            file.seek(max(0, n_bytes - SAMPLED) * at // (SAMPLES - 1))
            digest.update(file.read(SAMPLED))
    return digest.hexdigest()


def cached_on_disk(
    folder: Path | None,
    name: str,
    key: Any,
    make: Callable[[], dict[str, Any]],
    fits: Callable[[dict[str, Any]], bool],
) -> dict[str, Any]:
    """Arrays and what JSON holds, from the cache where they were made before; or as they are made now.

    Args:
        folder: of the cache; None: nothing is cached.
        name: what the file is called, before a digest of `key`.
        key: all that the result depends on.
        make: makes the result.
        fits: whether what was found may be such a result. If it raises what damage raises, it is not.
    """
    import numpy as np

    if folder is None:
        return make()
    path = folder / f"{name}-{blake2b(repr((FORMAT, key)).encode(), digest_size=16).hexdigest()}.npz"
    with file_lock(path, PATIENCE):
        if path.is_file():
            try:
                with np.load(path, allow_pickle=False) as file:
                    found = json.loads(file["json"].tobytes())
                    for key_of_array in file.files:
                        if key_of_array != "json":
                            found[key_of_array] = file[key_of_array]
                if fits(found):
                    return found
            except DAMAGE:
                pass
            log.warning("%s is damaged and is made again", path)
        made = make()
        arrays: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for key_of_value, value in made.items():
            if isinstance(value, np.ndarray):
                arrays[key_of_value] = value
            else:
                others[key_of_value] = value
        as_bytes = np.frombuffer(json.dumps(others, default=str).encode(), dtype=np.uint8)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as part, part.open("wb") as file:
                np.savez(file, json=as_bytes, **arrays)
        except OSError as problem:
            warn_unwritable(folder, str(problem))
        return made


@lru_cache  # once in a process
def warn_unwritable(folder: Path, problem: str) -> None:
    """Say that the cache is not kept."""
    log.warning("the cache %s cannot be written (%s): choose another folder by data.cache", folder, problem)


def cached_splits(
    folder: Path,
    asked: Any,
    tables: dict[str, RawTable],
    columns: Any,
    make: Callable[[], Splits],
    *,
    with_unread: bool,
) -> Splits:
    """The splits of large tables, as `make` found them before or finds them now.

    Args:
        asked: all that they depend on apart from what is read.
        tables: by role; a split that has none of its own is a part of the first.
        columns: a `columns.ColumnRoles`.
        with_unread: rows can give the columns that are not read.
    """
    names = columns.names
    digests = [(role, *(table.column(name).digest for name in names)) for role, table in tables.items()]
    whole = next(iter(tables.values()))
    made: list[Splits] = []

    def describe() -> dict[str, Any]:
        splits = make()
        made.append(splits)
        by_name = splits.by_name()
        found: dict[str, Any] = {"labels": splits.labels, "notes": splits.notes, "splits": [*by_name]}
        for name, rows in by_name.items():
            found |= _describe_rows(name, rows, tables.get(name, whole).column(columns.text))
        return found

    def fits(found: dict[str, Any]) -> bool:
        return all(_fits(found, name, len(tables.get(name, whole).numbers)) for name in found["splits"])

    found = cached_on_disk(folder, "splits", (asked, names, digests), describe, fits)
    if made:
        return made[0]
    rows: dict[str, Rows] = {}
    for name in found["splits"]:
        rows[name] = _rows_again(found, name, tables.get(name, whole), columns, with_unread=with_unread)
    return Splits(rows["train"], rows["validation"], rows.get("test"), found["labels"], found["notes"])


def _describe_rows(name: str, rows: Rows, every: Any) -> dict[str, Any]:
    """What of the rows of a large table its columns do not say; `every` is that of all its texts."""
    import numpy as np

    texts: Any = rows.texts
    found: dict[str, Any] = {f"{name} labels": np.asarray(rows.labels)}
    if len(texts) < len(every):
        found[f"{name} rows"] = texts.rows
        if every.rows is not None:  # a part of a file, by its column `split`
            found[f"{name} rows"] = np.searchsorted(every.rows, texts.rows)
    if rows.targets is not None:
        found[f"{name} targets"] = True
    sets: Any = rows.sets
    if sets is not None:
        found[f"{name} sets"] = sets.codes
        found[f"{name} values"] = sets.values
    return found


def _fits(found: dict[str, Any], name: str, n_rows: int) -> bool:
    """Whether what is remembered of a split is of rows and classes that there are."""
    which, ids, n_classes = found.get(f"{name} rows"), found[f"{name} labels"], len(found["labels"])
    codes, values = found.get(f"{name} sets"), found.get(f"{name} values")
    if which is not None:
        if which.ndim != 1 or which.dtype.kind != "i" or (which[1:] <= which[:-1]).any():
            return False
        if not len(which) or which[0] < 0 or which[-1] >= n_rows:
            return False
        n_rows = len(which)
    largest = max(n_classes, 1)
    if values is None:  # else the number of classes is the label of a row that has none
        largest -= 1
    if ids.dtype.kind != "i" or ids.shape != (n_rows,) or ids.min() < 0 or ids.max() > largest:
        return False
    if codes is None or values is None:
        return codes is values
    if codes.dtype.kind != "i" or codes.shape != (n_rows,) or codes.min() < 0 or codes.max() >= len(values):
        return False
    return all(0 <= label < n_classes for value in values if value is not None for label in value)


def _rows_again(found: dict[str, Any], name: str, table: RawTable, columns: Any, *, with_unread: bool) -> Rows:
    """The rows that `_describe_rows` describes."""
    which = found.get(f"{name} rows")

    def some(column: Any) -> Any:
        return column if which is None else take(column, which)

    texts = table.column(columns.text)
    rows = Rows(some(texts), None, found[f"{name} labels"], table.source, some(table.numbers))
    if columns.pair is not None:
        rows.pairs = some(table.column(columns.pair))
    if f"{name} targets" in found:
        rows.targets = some(table.column(columns.answer))
    if f"{name} sets" in found:
        values = [None if value is None else tuple(value) for value in found[f"{name} values"]]
        sets: Any = Coded(found[f"{name} sets"], values)
        rows.sets = sets
    if with_unread:
        names = [column for column in table.names if column not in columns.names]
        rows.unread = Unread(table, names, range(len(texts)) if which is None else which)
    return rows
