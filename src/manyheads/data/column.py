"""A column of texts: what it is, and why it is read from its file again and again.

A corpus may be larger than memory, and a Python string takes 50 bytes more than its letters. So a `Column` holds no
texts. It holds where they are, and works like a memory-mapped array: it has a length, slices and selections of rows,
but a text is there only while somebody looks at it. A selection costs eight bytes a row, however long the texts are.

    file        | block 0        | block 1          | block 2       |   whole rows, some megabytes each
    reads       [ parse block 0,   parse block 1,     parse block 2 ]   a function a block, which gives its cells
    starts      [ 0,               4,                 9,            12 ]   first row of each block, and the end
    rows        [     2, 3,          5,                     10, 11 ]   the selection, such as train; None: all rows

To read rows 2 to 5 of this selection, `starts` tells that row 5 is in block 1 and rows 10 and 11 in block 2. Block 0 is
not parsed. The last three blocks that were parsed are kept, so that neighbours cost nothing; rows of a selection
ascend, so that one pass parses each block once. A column that comes to less than `KEPT` bytes is kept once it was read.

Each format makes its own blocks: bytes of a csv or jsonl (formats/blocks.py), row groups of parquet, rows of a
`datasets.Dataset`, parts of a stream. All later steps (checks, splits, tokens) see a `Column` alone.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain
from operator import eq
from typing import Any

import numpy as np

from manyheads.config.data import AT_ONCE
from manyheads.data.rows import Rows

KEPT = 2**25  # bytes of a column that is kept in memory once it was read


class Column(Sequence[Any]):
    """Cells of a column that are read again whenever they are asked for; see the top of this file.

    Args:
        reads: a function a block, which gives the cells of the block.
        starts: the first row of each block, and the number of rows of the table: int64 `(blocks + 1,)`.
        identity: names all that the cells depend on, such as a fingerprint of the file; empty: they are in memory.
        bytes_per_cell: on average.
        rows: the selected rows of the table, ascending int64; None: all.
        kept: the selected cells, where they are in memory.
    """

    def __init__(
        self,
        reads: list[Callable[[], list[Any]]],
        starts: np.ndarray,
        identity: str,
        bytes_per_cell: float,
        rows: np.ndarray | None = None,
        kept: list[Any] | None = None,
    ) -> None:
        self.reads, self.starts, self.rows = reads, starts, rows
        self.bytes_per_cell = bytes_per_cell
        self._identity, self._kept = identity, kept

    def __len__(self) -> int:
        if self.rows is None:
            return self.n_in_table
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Column of {len(self):,} cells"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def n_in_table(self) -> int:
        """Rows of the table, selected or not."""
        return int(self.starts[-1])

    @property
    def digest(self) -> str:
        """Content fingerprint: 32 hex digits, the same for the same cells of the same files, or for the same cells in
        memory."""
        if not self._identity:
            return blake2b(repr(self[:]).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        digest = blake2b(self._identity.encode(), digest_size=16)
        if self.rows is not None:
            digest.update(np.ascontiguousarray(self.rows).data)
        return digest.hexdigest()

    @property
    def is_kept(self) -> bool:
        """Whether the cells stay in memory once they were read."""
        return self._kept is not None or self.bytes_per_cell * len(self) <= KEPT

    @property
    def is_of_small_table(self) -> bool:
        """Whether this column of the whole table, selected or not, would be kept."""
        return self.bytes_per_cell * self.n_in_table <= KEPT

    def parts(self, start: int = 0, stop: int | None = None) -> Iterator[list[Any]]:
        """The cells from `start` to `stop`, in lists; one list at least."""
        if stop is None:
            stop = len(self)
        if self._kept is None and self.is_kept:
            self._kept = list(chain.from_iterable(self._read(0, len(self))))
        if self._kept is None:
            yield from self._read(start, stop)
        else:
            yield self._kept[start:stop]

    def _read(self, start: int, stop: int) -> Iterator[list[Any]]:
        if start >= stop:
            yield []
            return
        first, last = start, stop - 1  # rows of the table
        if self.rows is not None:
            first, last = int(self.rows[start]), int(self.rows[stop - 1])
        first_block, last_block = np.searchsorted(self.starts, [first, last], "right") - 1
        for block in range(first_block, last_block + 1):
            low, high = int(self.starts[block]), int(self.starts[block + 1])
            if self.rows is None:
                yield _cells(self.reads[block])[max(first, low) - low : min(last + 1, high) - low]
                continue
            begin, end = np.searchsorted(self.rows[start:stop], [low, high]) + start
            if begin < end:  # else no selected row is in this block
                cells = _cells(self.reads[block])
                yield [cells[at] for at in (self.rows[begin:end] - low).tolist()]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.parts())

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step != 1:
                return self.take(np.arange(start, stop, step))
            return list(chain.from_iterable(self.parts(start, stop)))
        at = range(len(self))[at]  # a negative index counts from the end, one that is too large is an IndexError
        return next(self.parts(at, at + 1))[0]

    def take(self, indices: Any) -> Sequence[Any]:
        """The cells at `indices`: a column where they ascend, else a list."""
        indices = np.asarray(indices, dtype=np.int64)
        rows = self._rows_at(indices)
        if np.all(rows[1:] > rows[:-1]):
            kept = None
            if self._kept is not None:
                kept = [self._kept[at] for at in indices.tolist()]
            return Column(self.reads, self.starts, self._identity, self.bytes_per_cell, rows, kept)
        # read each row once, in the order of the file, then hand them out in the order that was asked for
        ascending, places = np.unique(rows, return_inverse=True)
        cells = list(Column(self.reads, self.starts, self._identity, self.bytes_per_cell, ascending))
        return [cells[at] for at in places.tolist()]

    def _rows_at(self, indices: np.ndarray) -> np.ndarray:
        """The rows of the table that are at these places of the selection."""
        return indices if self.rows is None else self.rows[indices]


class SampledColumn(Column):
    """A column of a stream, which can only be read from its beginning, except for a sample of its rows that is held.

    Args:
        column: all cells of the stream.
        held: the rows of the sample, ascending int64.
        cells: the cells of these rows.
        checked: what `texts.hash_cells` would find in all cells, which were seen in the first pass.
    """

    def __init__(self, column: Column, held: np.ndarray, cells: list[Any], checked: Any) -> None:
        super().__init__(column.reads, column.starts, column._identity, column.bytes_per_cell, column.rows)
        self.held, self.cells, self.checked = held, cells, checked

    def readable(self) -> np.ndarray:
        """The places of the cells that are held."""
        rows = np.arange(len(self)) if self.rows is None else self.rows
        return np.flatnonzero(np.isin(rows, self.held, assume_unique=True))

    def take(self, indices: Any) -> Column:
        """The cells at `indices`, which ascend: in memory if all of them are held."""
        rows = self._rows_at(np.asarray(indices, dtype=np.int64))
        places = np.searchsorted(self.held, rows)
        if len(rows) and places[-1] < len(self.held) and np.array_equal(self.held[places], rows):
            return in_memory([self.cells[at] for at in places.tolist()])
        part = Column(self.reads, self.starts, self._identity, self.bytes_per_cell, rows)
        return SampledColumn(part, self.held, self.cells, None)


@lru_cache(maxsize=3)
def _cells(read: Callable[[], list[Any]]) -> list[Any]:
    return read()


def sliced_column(
    read: Callable[[int, slice], list[Any]], sizes: list[int], identity: str, bytes_per_cell: float
) -> Column:
    """A column in blocks of `AT_ONCE` rows, of something that has parts, such as the row groups of a parquet file.

    Args:
        read: gives the cells of a slice of a part.
        sizes: rows of each part.
    """
    reads, starts, n_rows = [], [0], 0
    for part, size in enumerate(sizes):
        for begin in range(0, size, AT_ONCE):
            end = min(begin + AT_ONCE, size)
            reads.append(partial(read, part, slice(begin, end)))
            n_rows += end - begin
            starts.append(n_rows)
    return Column(reads, np.array(starts, dtype=np.int64), identity, bytes_per_cell)


def chained(columns: list[Any]) -> Any:
    """Several columns, or lists, one after another as one column."""
    parts: list[Column] = []
    for column in columns:
        parts.append(column if isinstance(column, Column) else in_memory(column))
    ends = np.cumsum([0, *(part.n_in_table for part in parts)])  # where the rows of each part begin, and the end
    reads, starts, rows = [], [], []
    for part, begin in zip(parts, ends[:-1], strict=True):
        reads += part.reads
        starts.append(part.starts[:-1] + begin)
    selected = None
    if any(part.rows is not None for part in parts):
        for part, begin in zip(parts, ends[:-1], strict=True):
            rows.append(part._rows_at(np.arange(len(part))) + begin)
        selected = np.concatenate(rows)
    identity = blake2b(repr([part.digest for part in parts]).encode(), digest_size=16).hexdigest()
    n_bytes = sum(part.bytes_per_cell * len(part) for part in parts)
    bytes_per_cell = n_bytes / max(1, sum(map(len, parts)))
    return Column(reads, np.concatenate([*starts, ends[-1:]]), identity, bytes_per_cell, selected)


def zipped(columns: list[Any], join: Callable[[Sequence[Any]], Any], by: str = "") -> Column:
    """What `join` makes of the cells of a row, as one column: of several columns of one table, or lists.

    Args:
        by: names all else that `join` depends on.
    """
    parts = [column if isinstance(column, Column) else in_memory(column) for column in columns]
    first = parts[0]
    for part in parts[1:]:
        if not (np.array_equal(part.starts, first.starts) and np.array_equal(part.rows, first.rows)):  # pyright: ignore[reportArgumentType]
            return in_memory([*map(join, zip(*parts, strict=True))])

    def read(block: int) -> list[Any]:
        return [*map(join, zip(*(part.reads[block]() for part in parts), strict=True))]

    reads = [partial(read, block) for block in range(len(first.reads))]
    identity = ""
    if all(part._identity for part in parts):
        identity = " ".join([*(part._identity for part in parts), by])
    return Column(reads, first.starts, identity, sum(part.bytes_per_cell for part in parts), first.rows)


def join_rows(parts: list[Rows], n_classes: int = 0) -> Rows:
    """Rows of several files as those of one: all single texts, or all pairs. If some have probabilities, all do; rows
    without a weight have the mean of those that have one, and those that are no votes count as one."""
    first = parts[0]
    if len(parts) == 1:
        return first
    joined = Rows(
        texts=chained([rows.texts for rows in parts]),
        pairs=None if first.pairs is None else chained([rows.pairs or [] for rows in parts]),
        labels=np.concatenate([np.asarray(rows.labels) for rows in parts]),  # pyright: ignore[reportArgumentType]
        source=f"{first.source} and {len(parts) - 1} more",
        numbers=np.concatenate([np.asarray(rows.numbers) for rows in parts]),  # pyright: ignore[reportArgumentType]
        sets=None if first.sets is None else [ids for rows in parts for ids in rows.sets or []],
    )
    if any(rows.probabilities is not None for rows in parts):
        joined.probabilities = np.concatenate([_probabilities(rows, n_classes) for rows in parts])
    if any(rows.weights is not None for rows in parts):
        usual = float(np.concatenate([rows.weights for rows in parts if rows.weights is not None]).mean())
        joined.weights = _concatenated([rows.weights for rows in parts], parts, usual)
    if any(rows.any_of is not None for rows in parts):
        joined.any_of = _concatenated([rows.any_of for rows in parts], parts, False)
    if any(rows.voters is not None for rows in parts):
        joined.voters = _concatenated([rows.voters for rows in parts], parts, np.float32(1))
    return joined


def _concatenated(known: list[Any], parts: list[Rows], otherwise: Any) -> np.ndarray:
    """An array of each of `parts`, as one; of those that have none `otherwise` for each row."""
    return np.concatenate(
        [np.full(len(rows), otherwise) if one is None else one for one, rows in zip(known, parts, strict=True)]
    )


def _probabilities(rows: Rows, n_classes: int) -> np.ndarray:
    """Those of rows `(n, C)`; of labels 1."""
    if rows.probabilities is not None:
        return rows.probabilities
    found_nC = np.zeros((len(rows), n_classes), dtype=np.float32)
    for at, ids in enumerate(rows.sets or zip(rows.labels, strict=True)):
        found_nC[at, [*ids]] = 1
    return found_nC


def in_memory(cells: Sequence[Any]) -> Column:
    """A list as a column of one block."""
    held = list(cells)
    return Column([lambda: held], np.array([0, len(held)]), "", 0.0, None, held)
