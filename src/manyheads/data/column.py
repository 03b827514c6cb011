"""Columns of tables, which are read again block by block; rows told apart by hashes, and by class.

Hashes have 64 bits (SipHash): of 10 million texts two are the same once in 400,000 times.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain
from operator import eq
from typing import Any

import numpy as np

from manyheads.config.data import AT_ONCE

KEPT = 2**25  # bytes of cells of a column that are kept once they were read


class Column(Sequence[Any]):
    """Cells of a table, read again whenever they are asked for, but few of them, which are kept.

    Args:
        reads: give the cells of each block.
        starts: the first row of each block, and the end: int64.
        identity: names all that the cells depend on; empty: they are in memory.
        weight: bytes of a cell, on average.
        rows: which of the table these are, ascending int64; None: all.
    """

    def __init__(
        self,
        reads: list[Callable[[], list[Any]]],
        starts: np.ndarray,
        identity: str,
        weight: float,
        rows: np.ndarray | None = None,
        kept: list[Any] | None = None,
    ) -> None:
        self.reads, self.starts, self.rows = reads, starts, rows
        self.weight = weight
        self._identity, self._kept = identity, kept

    def __len__(self) -> int:
        return int(self.starts[-1]) if self.rows is None else len(self.rows)

    def __repr__(self) -> str:
        return f"Column of {len(self):,} cells"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def digest(self) -> str:
        """32 hex digits, the same for the same cells of the same files, or for the same cells that are in memory."""
        if not self._identity:
            return blake2b(repr(self[:]).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        digest = blake2b(self._identity.encode(), digest_size=16)
        digest.update(b"" if self.rows is None else np.ascontiguousarray(self.rows).data)
        return digest.hexdigest()

    @property
    def is_kept(self) -> bool:
        """Whether the cells are so few that they stay in memory."""
        return self._kept is not None or self.weight * len(self) <= KEPT

    @property
    def is_of_few(self) -> bool:
        """Whether all cells of its table are so few."""
        return self.weight * int(self.starts[-1]) <= KEPT

    def parts(self, start: int = 0, stop: int | None = None) -> Iterator[list[Any]]:
        """The cells from `start` on, in lists."""
        stop = len(self) if stop is None else stop
        if self._kept is None and self.is_kept:
            self._kept = list(chain.from_iterable(self._read(0, len(self))))
        if self._kept is not None:
            yield self._kept[start:stop]
        else:
            yield from self._read(start, stop)

    def _read(self, start: int, stop: int) -> Iterator[list[Any]]:
        if start >= stop:
            yield []
            return
        first, last = (at if self.rows is None else int(self.rows[at]) for at in (start, stop - 1))
        begin, end = np.searchsorted(self.starts, [first, last], "right") - 1
        for block in range(begin, end + 1):
            low, high = (int(one) for one in self.starts[block : block + 2])
            if self.rows is None:
                yield _cells(self.reads[block])[max(first, low) - low : min(last + 1, high) - low]
                continue
            some = slice(*np.searchsorted(self.rows[start:stop], [low, high]) + start)
            if some.start < some.stop:
                cells = _cells(self.reads[block])
                yield [cells[at] for at in (self.rows[some] - low).tolist()]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.parts())

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            return list(chain.from_iterable(self.parts(start, stop)))
        at = range(len(self))[at]
        return next(self.parts(at, at + 1))[0]

    def take(self, indices: Any) -> Sequence[Any]:
        """The cells at `indices`; those that do not ascend as a list."""
        indices = np.asarray(indices, dtype=np.int64)
        rows = indices if self.rows is None else self.rows[indices]
        if np.all(rows[1:] > rows[:-1]):
            kept = None if self._kept is None else [self._kept[at] for at in indices.tolist()]
            return Column(self.reads, self.starts, self._identity, self.weight, rows, kept)
        found, back = np.unique(rows, return_inverse=True)
        cells = list(Column(self.reads, self.starts, self._identity, self.weight, found))
        return [cells[one] for one in back.tolist()]


class Sampled(Column):
    """Cells of a stream, which are read from its beginning on, but for those of a few `held` rows, ascending, which are
    at hand. `checked` is what `rows.checked` would find in all of them."""

    def __init__(self, column: Column, held: np.ndarray, cells: list[Any], checked: Any) -> None:
        super().__init__(column.reads, column.starts, column._identity, column.weight, column.rows)
        self.held, self.cells, self.checked = held, cells, checked

    def readable(self) -> np.ndarray:
        """Which of the cells are at hand."""
        rows = np.arange(len(self)) if self.rows is None else self.rows
        return np.flatnonzero(np.isin(rows, self.held, assume_unique=True))

    def take(self, indices: Any) -> Column:
        """The cells at `indices`, which ascend."""
        indices = np.asarray(indices, dtype=np.int64)
        rows = indices if self.rows is None else self.rows[indices]
        places = np.searchsorted(self.held, rows)
        if len(rows) and places[-1] < len(self.held) and np.array_equal(self.held[places], rows):
            return in_memory([self.cells[at] for at in places.tolist()])
        part = Column(self.reads, self.starts, self._identity, self.weight, rows)
        return Sampled(part, self.held, self.cells, None)


@lru_cache(maxsize=3)
def _cells(read: Callable[[], list[Any]]) -> list[Any]:
    return read()


def sliced(read: Callable[[int, slice], list[Any]], sizes: list[int], identity: str, weight: float) -> Column:
    """The cells of parts of `sizes` rows, of which `read` gives a slice, in blocks of `AT_ONCE`."""
    places = [
        (part, slice(at, min(at + AT_ONCE, size))) for part, size in enumerate(sizes) for at in range(0, size, AT_ONCE)
    ]
    ends = np.cumsum([0, *(rows.stop - rows.start for _, rows in places)])
    return Column([partial(read, *place) for place in places], ends, identity, weight)


def chained(columns: list[Any]) -> Any:
    """The cells of several columns as those of one."""
    parts = [one if isinstance(one, Column) else in_memory(one) for one in columns]
    ends = np.cumsum([0, *(int(one.starts[-1]) for one in parts)])
    rows = None
    if any(one.rows is not None for one in parts):
        every = [np.arange(int(one.starts[-1])) if one.rows is None else one.rows for one in parts]
        rows = np.concatenate([of_one + end for of_one, end in zip(every, ends[:-1], strict=True)])
    starts = [one.starts[:-1] + end for one, end in zip(parts, ends[:-1], strict=True)]
    identity = blake2b(repr([one.digest for one in parts]).encode(), digest_size=16).hexdigest()
    weight = sum(one.weight * len(one) for one in parts) / max(1, sum(map(len, parts)))
    reads = [read for one in parts for read in one.reads]
    return Column(reads, np.concatenate([*starts, ends[-1:]]), identity, weight, rows)


def in_memory(cells: Sequence[Any]) -> Column:
    """A list as a column of one block."""
    held = list(cells)
    return Column([lambda: held], np.array([0, len(held)]), "", 0.0, None, held)


def stable(cells: list[Any]) -> np.ndarray:
    """Hashes of texts that are the same in every process, unlike Python's: int64. What is no text has that of none."""
    texts = (cell.encode("utf-8", "surrogatepass") if isinstance(cell, str) else b"" for cell in cells)
    return np.frombuffer(b"".join(blake2b(text, digest_size=8).digest() for text in texts), dtype=np.int64)


def of_pairs(first: Sequence[int], second: Sequence[int]) -> np.ndarray:
    """Hashes of pairs by those of both texts: int64."""
    former, latter = (np.asarray(one, dtype=np.int64).view(np.uint64) for one in (first, second))
    both = former * np.uint64(0x9E3779B97F4A7C15) + latter
    return ((both ^ (both >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)).view(np.int64)


def repeats(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that hold the text of an earlier one, ascending, and for each the first row that holds it."""
    ordered = np.sort(hashes)  # far faster than to sort their places, too
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    order = np.flatnonzero(several[np.searchsorted(several[:-1], hashes)] == hashes) if len(several) else several
    order = order[np.argsort(hashes[order], kind="stable")]
    ordered = hashes[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    later = order[~is_first]
    firsts = order[is_first][np.cumsum(is_first)[~is_first] - 1]
    back = np.argsort(later)
    return later[back], firsts[back]


def shared(hashes: np.ndarray, others: np.ndarray) -> tuple[int, int, int]:
    """How many rows hold a text that `others` hold, the first of them, and the first there."""
    found = among(hashes, others)
    if not len(found):
        return 0, 0, 0
    return len(found), int(found[0]), int(np.flatnonzero(others == hashes[found[0]])[0])


def among(hashes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The rows that hold a text that `others` hold, ascending. By sorting: tables of hashes do not fit into a cache."""
    order, known = np.argsort(hashes), np.sort(others)
    asked = hashes[order]
    at = np.searchsorted(known, asked)
    at[at == len(known)] = 0
    return np.sort(order[known[at] == asked] if len(known) else order[:0])


def firsts_by_class(labels: Sequence[int], later: np.ndarray) -> dict[int, np.ndarray]:
    """The rows but the `later` ones, ascending, by their class; classes in the order in which they occur."""
    firsts = np.delete(np.arange(len(labels)), later)
    of_firsts = np.asarray(labels)[firsts]
    order = np.argsort(of_firsts, kind="stable")
    classes, starts = np.unique(of_firsts[order], return_index=True)
    rows = dict(zip(classes.tolist(), np.split(firsts[order], starts[1:]), strict=True))
    return dict(sorted(rows.items(), key=lambda one: one[1][0]))
