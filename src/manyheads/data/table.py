"""A table as it was read: one split, or a shard of it; and its columns, which are read again block by block."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import accumulate, chain
from operator import eq
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from manyheads.config.fields import listed, show

T = TypeVar("T")
AT_ONCE = 2**15  # rows that are made Python objects at once
KEPT = 2**25  # bytes of cells of a column that are kept once they were read


class Cells(NamedTuple):
    """The cells of a block of rows, by column; the numbers of the rows, and by index why one is broken."""

    names: list[str]
    column: Callable[[str], list[Any]]
    numbers: Sequence[int]
    broken: Mapping[int, str] = MappingProxyType({})


@dataclass(slots=True)
class Table:
    """One split as it was read: nothing is checked yet.

    `column(name)` gives one cell per row, as a `Column` or `Coded`; `numbers` are a range or an array; `classes` holds
    the class names of columns whose cells are class ids; `broken` says, by index, why a row could not be read, and
    `notes` what else was noticed.
    """

    names: list[str]
    column: Callable[[str], Any]
    numbers: Sequence[int]
    source: str
    classes: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    positions: Any = ()  # of its rows among those of the file, from 0; empty: as they are


def taken(column: Any, indices: Any) -> Any:
    """The cells at `indices`, in that order."""
    if hasattr(column, "take"):
        return column.take(indices)
    return np.asarray(indices) + column.start if isinstance(column, range) else [column[at] for at in indices]


def parts_of(column: Any) -> Iterable[list[Any]]:
    """The cells in lists, one after another."""
    return column.parts() if hasattr(column, "parts") else [column]


class Column(Sequence[Any]):
    """Cells of a table, read again whenever they are asked for, but few of them, which are kept.

    Args:
        reads: give the cells of each block.
        starts: the first row of each block, and the end: int64.
        identity: stands for all that the cells depend on.
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
        return f"Column({self.identity})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def identity(self) -> str:
        """The same for the same cells, where they are kept; else for the same cells of the same files."""
        if self.is_kept:
            return blake2b(repr(self[:]).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        digest = blake2b(self._identity.encode(), digest_size=16)
        digest.update(b"" if self.rows is None else np.ascontiguousarray(self.rows).data)
        return digest.hexdigest()

    @property
    def is_kept(self) -> bool:
        """Whether the cells are so few that they stay in memory."""
        return self._kept is not None or self.weight * len(self) <= KEPT

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


@lru_cache(maxsize=3)
def _cells(read: Callable[[], list[Any]]) -> list[Any]:
    return read()


def sliced(read: Callable[[int, slice], list[Any]], sizes: list[int], identity: str, weight: float) -> Column:
    """The cells of parts of so many rows each, of which `read` gives a slice, in blocks of `AT_ONCE`."""
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
    identity = blake2b(repr([one.identity for one in parts]).encode(), digest_size=16).hexdigest()
    weight = sum(one.weight * len(one) for one in parts) / max(1, sum(map(len, parts)))
    reads = [read for one in parts for read in one.reads]
    return Column(reads, np.concatenate([*starts, ends[-1:]]), identity, weight, rows)


def in_memory(cells: Sequence[Any]) -> Column:
    """A list as a column of one block."""
    held = list(cells)
    return Column([lambda: held], np.array([0, len(held)]), "", 0.0, None, held)


class Coded(Sequence[Any]):
    """Cells of which few are different: the number of each in `values`, where each occurs once, in the order in which
    they do."""

    def __init__(self, codes: Any, values: list[Any]) -> None:
        self.codes, self.values = codes, values

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return repr([*self])

    def __iter__(self) -> Iterator[Any]:
        return map(self.values.__getitem__, self._numbers())

    def _numbers(self) -> Iterator[int]:
        return chain.from_iterable(
            self.codes[start : start + AT_ONCE].tolist() for start in range(0, len(self), AT_ONCE)
        )

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Coded(self.codes[at], self.values)
        return self.values[self.codes[at]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def take(self, indices: Any) -> "Coded":
        """The cells at `indices`."""
        return Coded(taken(self.codes, indices), self.values)

    def used(self) -> list[Any]:
        """The values that occur."""
        known = {*self._numbers()}
        return [value for code, value in enumerate(self.values) if code in known]

    def over(self, values: list[Any]) -> "Coded":
        """As many cells, with these in place of the values."""
        return Coded(self.codes, values)

    def mapped(self, of: Callable[[Any], Any]) -> "Coded":
        """What `of` makes of the cells; those of values that do not occur are None."""
        known = {*self._numbers()}
        return self.over([of(value) if code in known else None for code, value in enumerate(self.values)])

    def numbers(self, of_value: list[int]) -> Any:
        """A number for each cell, by that of its value."""
        return np.array([-1 if one is None else one for one in of_value], dtype=np.int32)[self.codes]

    def marked(self, of_code: Mapping[int, T]) -> dict[int, T]:
        """By row what is said of its value, by the number of that."""
        return {row: of_code[code] for row, code in enumerate(self._numbers()) if code in of_code} if of_code else {}


def coded(cells: Sequence[Any]) -> Coded:
    """The cells of a column with each different one held once; 1, 1.0 and true are different."""
    if isinstance(cells, Coded):
        return cells
    known: dict[Any, int] = {}
    values: list[Any] = []
    codes = []
    for part in parts_of(cells):
        keys = part
        if {*map(type, part)} != {str}:
            keys = [one if type(one) is str else (type(one), repr(one)) for one in part]
        for key, cell in zip(keys, part, strict=True) if not {*keys} <= known.keys() else ():
            if known.setdefault(key, len(known)) == len(values):
                values.append(cell)
        codes.append([*map(known.__getitem__, keys)])
    return Coded(np.concatenate([np.array(part, dtype=np.int32) for part in codes]), values)


def joined(shards: list[Table]) -> Table:
    """Shards of one split as one table, its rows counted from 1 over all of them.

    Raises:
        ValueError: they have other columns, or the numbers of their classes stand for other names.
    """
    if len(shards) == 1:
        return shards[0]
    _require_alike(shards)
    ends = list(accumulate(len(shard.numbers) for shard in shards))
    starts = [0, *ends[:-1]]
    return Table(
        names=shards[0].names,
        column=lambda name: chained([shard.column(name) for shard in shards]),
        numbers=range(1, ends[-1] + 1),
        source=f"{shards[0].source} and {len(shards) - 1} more",
        classes=shards[0].classes,
        broken={start + i: why for start, shard in zip(starts, shards, strict=True) for i, why in shard.broken.items()},
    )


def _require_alike(shards: list[Table]) -> None:
    first = shards[0]
    for other in shards:
        if {*other.names} != {*first.names}:
            raise ValueError(
                f"{other.source} has the columns {listed(other.names)}, but {first.source} has {listed(first.names)}: "
                "files of one split must have the same columns"
            )
        changed = next((name for name in first.names if other.classes.get(name) != first.classes.get(name)), None)
        if changed is not None:
            theirs, ours = (listed(one.classes.get(changed, [])) or "none" for one in (other, first))
            raise ValueError(
                f"{other.source} declares the classes {theirs} of '{show(changed)}', but {first.source} {ours}: files "
                "of one split must give their classes the same numbers; write them from one dataset"
            )


@dataclass(frozen=True, slots=True)
class Unread:
    """The `names` of columns of a table that are not read, and which of its rows `at` are meant."""

    table: Table
    names: list[str]
    at: Sequence[int]

    def pick(self, indices: Sequence[int]) -> "Unread":
        return Unread(self.table, self.names, taken(self.at, indices))

    @property
    def positions(self) -> Sequence[int]:
        """Of the rows among those of the file, from 0."""
        return taken(self.table.positions, self.at) if len(self.table.positions) else self.at

    def columns(self) -> dict[str, Any]:
        """The cells of the rows, by column."""
        return {name: taken(self.table.column(name), self.at) for name in self.names}
