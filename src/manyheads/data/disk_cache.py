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
PATIENCE = 86_400.0  # seconds, as a lock is left by who is killed
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
    """One process at a time computes `path`, unless it is there. The kernel holds the lock, on a file next to it, so
    that a process that is killed leaves it free. Who has waited for `patience` seconds continues without it, as does
    everybody on a disk without locks; they do not have it, which is what is given."""
    from filelock import FileLock

    lock = FileLock(path.with_suffix(".lock"), timeout=patience, fallback_to_soft=False)
    if not path.is_file():
        with suppress(OSError):  # no locks, no patience, or a cache that cannot be written, which is said later
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    try:
        yield lock.is_locked
    finally:
        if lock.is_locked:
            with suppress(OSError):
                Path(lock.lock_file).unlink()  # who waits for it finds the file in place
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
    fits: Callable[[dict[str, Any]], bool] = bool,
) -> dict[str, Any]:
    """Arrays and what JSON holds, from the cache where they were made before and `fits` says yes, or fails on nothing;
    or as they are made now."""
    import numpy as np

    if folder is None:
        return make()
    path = folder / f"{name}-{blake2b(repr((FORMAT, key)).encode(), digest_size=16).hexdigest()}.npz"
    with file_lock(path, PATIENCE):
        if path.is_file():
            try:
                with np.load(path, allow_pickle=False) as found:
                    held = json.loads(found["json"].tobytes())
                    held |= {one: found[one] for one in found.files if one != "json"}
                if fits(held):
                    return held
            except DAMAGE:
                pass
            log.warning("%s is damaged and is made again", path)
        made = make()
        arrays: dict[str, Any] = {one: value for one, value in made.items() if isinstance(value, np.ndarray)}
        about = json.dumps({one: value for one, value in made.items() if one not in arrays}, default=str).encode()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as part, part.open("wb") as file:
                np.savez(file, json=np.frombuffer(about, dtype=np.uint8), **arrays)
        except OSError as problem:
            log.warning("the cache %s cannot be written (%s): choose another folder by data.cache", folder, problem)
        return made


def cached_splits(
    folder: Path,
    asked: Any,
    tables: dict[str, RawTable],
    columns: Any,
    make: Callable[[], Splits],
    *,
    with_unread: bool,
) -> Splits:
    """The splits of large tables, by role, as `make` found them before or finds them now; `asked` is all that they
    depend on apart from what is read."""
    names = [*columns.by_key().values()]
    key = asked, names, [(role, *(table.column(one).digest for one in names)) for role, table in tables.items()]
    made: list[Splits] = []

    def of(name: str) -> RawTable:
        return tables.get(name) or next(iter(tables.values()))

    def about() -> dict[str, Any]:
        made.append(make())
        every = made[0].by_name()
        told = [_describe_rows(name, rows, of(name).column(columns.text)) for name, rows in every.items()]
        whole = {"labels": made[0].labels, "notes": made[0].notes, "splits": [*every]}
        return whole | {key: value for one in told for key, value in one.items()}

    def fits(found: dict[str, Any]) -> bool:
        return all(_fits(found, name, len(of(name).numbers)) for name in found["splits"])

    found = cached_on_disk(folder, "splits", key, about, fits)
    if made:
        return made[0]
    rows = {name: _rows_again(found, name, of(name), columns, with_unread=with_unread) for name in found["splits"]}
    return Splits(rows["train"], rows["validation"], rows.get("test"), found["labels"], found["notes"])


def _describe_rows(name: str, rows: Rows, every: Any) -> dict[str, Any]:
    """What of the rows of a large table its columns do not say; `every` is that of all its texts."""
    import numpy as np

    texts: Any = rows.texts
    found: dict[str, Any] = {f"{name} labels": np.asarray(rows.labels)}
    if len(texts) < len(every):
        found[f"{name} rows"] = texts.rows if every.rows is None else np.searchsorted(every.rows, texts.rows)
    if rows.targets is not None:
        found[f"{name} targets"] = True
    sets: Any = rows.sets
    if sets is not None:
        found |= {f"{name} sets": sets.codes, f"{name} values": sets.values}
    return found


def _fits(found: dict[str, Any], name: str, n_rows: int) -> bool:
    """Whether what is remembered of a split is of rows and classes that there are."""
    which, ids, n_classes = found.get(f"{name} rows"), found[f"{name} labels"], len(found["labels"])
    if which is not None:
        if which.ndim != 1 or which.dtype.kind != "i" or (which[1:] <= which[:-1]).any():
            return False
        if not len(which) or which[0] < 0 or which[-1] >= n_rows:
            return False
        n_rows = len(which)
    codes, values = found.get(f"{name} sets"), found.get(f"{name} values")
    most = max(n_classes, 1) - (values is None)
    if ids.dtype.kind != "i" or ids.shape != (n_rows,) or ids.min() < 0 or ids.max() > most:
        return False
    if codes is None or values is None:
        return codes is values
    if codes.dtype.kind != "i" or codes.shape != (n_rows,) or codes.min() < 0 or codes.max() >= len(values):
        return False
    return all(0 <= one < n_classes for value in values if value is not None for one in value)


def _rows_again(found: dict[str, Any], name: str, table: RawTable, columns: Any, *, with_unread: bool) -> Rows:
    """The rows that `_told` describes."""
    which = found.get(f"{name} rows")

    def some(column: Any) -> Any:
        return column if which is None else take(column, which)

    sets: Any = None
    if f"{name} sets" in found:
        values = [None if one is None else tuple(one) for one in found[f"{name} values"]]
        sets = Coded(found[f"{name} sets"], values)
    texts = table.column(columns.text)
    rows = Rows(
        texts=some(texts),
        pairs=None if columns.pair is None else some(table.column(columns.pair)),
        labels=found[f"{name} labels"],
        source=table.source,
        numbers=some(table.numbers),
        targets=some(table.column(columns.answer)) if f"{name} targets" in found else None,
        sets=sets,
    )
    if with_unread:
        names = [one for one in table.names if one not in columns.by_key().values()]
        rows.unread = Unread(table, names, range(len(texts)) if which is None else which)
    return rows
