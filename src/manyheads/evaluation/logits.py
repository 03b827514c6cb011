"""Arrays of all rows, such as logits: in memory where they are small, else mapped from a file.

`evaluate` keeps the logits of a classifier in its folder of results, with a count of the rows that are answered: after
a kill the same command resumes after them.
"""

import errno
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from manyheads.distributed.faults import inject_fault
from manyheads.errors import UserError
from manyheads.inference.answers import lock_part, write_record
from manyheads.runs.files import fsync_path, read_json

IN_MEMORY = 2**26  # bytes of an array, up to which no file is made
ZEROS = 2**20  # bytes that are written at once where blocks cannot be reserved
EVERY = 1.0  # seconds between two records of how many rows are answered


def new_array(shape: Sequence[int], dtype: Any = np.float32) -> NDArray[Any]:
    """Zeros. A large array is mapped from a file without a name, which is gone once the array is.

    Raises:
        UserError: the disk has no room for all of it.
    """
    if _n_bytes(shape, dtype) <= IN_MEMORY:
        return np.zeros(shape, dtype)
    with TemporaryFile() as file:  # which the map keeps open
        _allocate(file, _n_bytes(shape, dtype), gettempdir(), "name a larger one by TMPDIR")
        return np.memmap(file, dtype, "r+", shape=tuple(shape))


def join_chunks(n: int, chunks: Iterable[Sequence[NDArray[Any]]]) -> list[NDArray[Any]]:
    """Columns of all `n` rows, from the same columns of some rows after others; none of no rows."""
    columns, start = list[NDArray[Any]](), 0
    for chunk in chunks:
        if not columns:
            columns = [new_array((n, *one.shape[1:]), one.dtype) for one in chunk]
        for column, one in zip(columns, chunk, strict=True):
            column[start : start + len(one)] = one
        start += len(chunk[0])
    return columns


def _n_bytes(shape: Sequence[int], dtype: Any) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def _allocate(file: Any, n_bytes: int, where: str, remedy: str) -> None:
    """Reserve all blocks of a file, and keep what it holds: a map of one whose disk is full ends the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:  # macOS has none: zeros after what is there
            start = file.seek(0, os.SEEK_END)
            while start < n_bytes:
                start += file.write(bytes(min(ZEROS, n_bytes - start)))
            file.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise UserError(
            f"{where} has no room for the {n_bytes:,} bytes of the answers ({error.strerror}): free some, or {remedy}"
        ) from error


@dataclass(slots=True)
class KeptLogits:
    """Logits `(rows, models, classes)` that are kept as they come.

    Attributes:
        n_done: how many rows have theirs.
        record: the file that says so; None: there is none.
        about: what else it says.
        recorded: when it was written last.
    """

    array: Any
    n_done: int = 0
    record: Path | None = None
    about: dict[str, Any] = field(default_factory=dict)
    recorded: float = field(default_factory=time.monotonic)

    def add(self, logits: NDArray[np.float32]) -> None:
        """Those of the next rows. Once in `EVERY` seconds what is answered is written to the disk, and then the
        record."""
        self.array[self.n_done : self.n_done + len(logits)] = logits
        inject_fault("chunk")
        self.n_done += len(logits)
        if self.record is None or time.monotonic() - self.recorded < EVERY:
            return
        self.array.flush()
        write_record(self.record, self.about | {"rows": self.n_done})
        self.recorded = time.monotonic()


@contextmanager
def kept_logits(part: Path, shape: tuple[int, int, int], of: dict[str, str] | None) -> Iterator[KeptLogits]:
    """Logits in a file, which is removed at the end of the block. After an interruption it stays, to be resumed; after
    a mistake of the user it does not.

    Args:
        of: what the logits follow from, by name. Where some of the very same are there, they are kept. None: what is
            interrupted begins anew.

    Raises:
        UserError: another process writes them, or the disk has no room for all of them.
    """
    folder, record = part.parent, part.with_name(f"{part.name}.json")
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with os.fdopen(descriptor, "r+b") as file:
        lock_part(file, part, str(folder))
        n_done = 0 if of is None else _n_answered(record, file, shape, of)
        if not n_done and record.exists():  # it is of another part, and would be believed after a kill
            record.unlink()
            fsync_path(folder)
        try:
            _allocate(file, _n_bytes(shape, np.float32), str(folder), "name another folder by output")
            logits = KeptLogits(np.memmap(file, np.float32, "r+", shape=shape), n_done)
            if of is not None:
                logits.record, logits.about = record, {"of": of, "shape": shape}
            yield logits
        except BaseException as error:
            if of is None or isinstance(error, UserError) or not record.exists():
                part.unlink(missing_ok=True)
                record.unlink(missing_ok=True)
            raise
        finally:
            record.with_suffix(".new").unlink(missing_ok=True)
        part.unlink(missing_ok=True)
        record.unlink(missing_ok=True)


def _n_answered(record: Path, file: BinaryIO, shape: tuple[int, int, int], of: dict[str, str]) -> int:
    """How many rows are answered, as the record says, if it is of the same."""
    found: Any = None
    with suppress(OSError, ValueError):
        found = read_json(record)
    is_whole = isinstance(found, dict) and found.keys() == {"of", "shape", "rows"} and isinstance(found["of"], dict)
    if not is_whole or os.fstat(file.fileno()).st_size < _n_bytes(shape, np.float32):
        return 0
    changed = [name for name in of if of[name] != found["of"].get(name)]
    if changed:
        print(f"evaluate: starting anew, as {' and '.join(changed)} changed since the last start", file=sys.stderr)
        return 0
    n_done = found["rows"]
    if found["shape"] != list(shape) or not isinstance(n_done, int) or not 0 < n_done <= shape[0]:
        return 0
    print(f"evaluate: resuming after {n_done:,} of {shape[0]:,} rows, which are answered", file=sys.stderr)
    return n_done
