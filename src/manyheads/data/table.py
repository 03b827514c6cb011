"""A table as it was read: one split, or a shard of it; what its columns are asked. Standard library at first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain
from operator import eq
from typing import Any, TypeVar

from manyheads.config.data import AT_ONCE
from manyheads.config.sentences import format_value, list_names
from manyheads.errors import UserError

T = TypeVar("T")


@dataclass(slots=True)
class RawTable:
    """One split as it was read: nothing is checked yet.

    `column(name)` gives one cell per row, as a `column.Column` or `Coded`; `numbers` are a range or an array; `classes`
    holds the class names of columns whose cells are class ids; `broken` says, by index, why a row could not be read,
    and `notes` what else was noticed. `hint`: what to do where no column has the name that is looked for.
    """

    names: list[str]
    column: Callable[[str], Any]
    numbers: Sequence[int]
    source: str
    classes: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    positions: Any = ()  # of its rows among those of the file, from 0; empty: as they are
    hint: str = ""


def require_whole(table: RawTable, where: str) -> None:
    """Raise UserError, of `where`, if a row could not be read."""
    if table.broken:
        first = min(table.broken)
        raise UserError(f"{where}, row {table.numbers[first]:,}: {table.broken[first]}; correct it")


def take(column: Any, indices: Any) -> Any:
    """The cells at `indices`, in that order."""
    if hasattr(column, "take"):
        return column.take(indices)
    if isinstance(column, range) and hasattr(indices, "dtype"):
        return indices + column.start
    return [column[at] for at in indices]


def lists_of(column: Any) -> Iterable[list[Any]]:
    """The cells in lists, one after another."""
    return column.parts() if hasattr(column, "parts") else [column]


@lru_cache(maxsize=2)
def cached_read(read: Callable[..., T], *words: Any) -> T:
    """What `read` gives, which is kept for the columns and slices that are asked for next."""
    return read(*words)


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
        return Coded(take(self.codes, indices), self.values)

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
        import numpy as np

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
    for part in lists_of(cells):
        keys = part
        if {*map(type, part)} != {str}:
            keys = [one if type(one) is str else (type(one), repr(one)) for one in part]
        for key, cell in zip(keys, part, strict=True) if not {*keys} <= known.keys() else ():
            if known.setdefault(key, len(known)) == len(values):
                values.append(cell)
        codes.append([*map(known.__getitem__, keys)])
    import numpy as np

    return Coded(np.concatenate([np.array(part, dtype=np.int32) for part in codes]), values)


def concatenate(shards: list[RawTable]) -> RawTable:
    """Shards of one split as one table, its rows counted from 1 over all of them.

    Raises:
        UserError: they have other columns, or the numbers of their classes stand for other names.
    """
    if len(shards) == 1:
        return shards[0]
    from manyheads.data.column import chained

    _require_alike(shards)
    ends = list(accumulate(len(shard.numbers) for shard in shards))
    starts = [0, *ends[:-1]]
    return RawTable(
        names=shards[0].names,
        column=lru_cache(lambda name: chained([shard.column(name) for shard in shards])),
        numbers=range(1, ends[-1] + 1),
        source=f"{shards[0].source} and {len(shards) - 1} more",
        classes=shards[0].classes,
        hint=shards[0].hint,
        broken={start + i: why for start, shard in zip(starts, shards, strict=True) for i, why in shard.broken.items()},
    )


def _require_alike(shards: list[RawTable]) -> None:
    first = shards[0]
    for other in shards:
        if {*other.names} != {*first.names}:
            raise UserError(
                f"{other.source} has the columns {list_names(other.names)}, but {first.source} has "
                f"{list_names(first.names)}: "
                "files of one split must have the same columns"
            )
        changed = next((name for name in first.names if other.classes.get(name) != first.classes.get(name)), None)
        if changed is not None:
            theirs, ours = (list_names(one.classes.get(changed, [])) or "none" for one in (other, first))
            raise UserError(
                f"{other.source} declares the classes {theirs} of '{format_value(changed)}', but {first.source} "
                f"{ours}: files "
                "of one split must give their classes the same numbers; write them from one dataset"
            )


@dataclass(frozen=True, slots=True)
class Unread:
    """The `names` of columns of a table that are not read, and which of its rows `at` are meant."""

    table: RawTable
    names: list[str]
    at: Sequence[int]

    def pick(self, indices: Sequence[int]) -> "Unread":
        return Unread(self.table, self.names, take(self.at, indices))

    @property
    def positions(self) -> Sequence[int]:
        """Of the rows among those of the file, from 0."""
        return take(self.table.positions, self.at) if len(self.table.positions) else self.at

    def columns(self) -> dict[str, Any]:
        """The cells of the rows, by column."""
        return {name: take(self.table.column(name), self.at) for name in self.names}
