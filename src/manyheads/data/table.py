"""A table as it was read: one split, or all of them; and columns of few different cells. Standard library at first."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from operator import eq
from typing import Any, TypeVar

from manyheads.config.data import AT_ONCE
from manyheads.errors import UserError

T = TypeVar("T")


@dataclass(slots=True)
class RawTable:
    """One split as it was read: nothing is checked yet.

    Attributes:
        names: of its columns.
        column: from a name to the cells, one a row: a `column.Column` or `Coded`.
        numbers: of the rows, as a user counts them in `source`: a range or an array.
        source: the name of the file or dataset, as messages have it.
        classes: the names of the classes, by column, where cells are class ids.
        broken: by index, why a row could not be read.
        notes: what else was noticed, for the log and the report.
        positions: of the rows among those of the file, from 0; empty: all rows of the file, in order.
        hint: what to do where no column has the name that is looked for.
        multi: its rows have any number of labels, whatever these are.
    """

    names: list[str]
    column: Callable[[str], Any]
    numbers: Sequence[int]
    source: str
    classes: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    positions: Any = ()
    hint: str = ""
    multi: bool = False


def select_rows(table: RawTable, indices: Any) -> RawTable:
    """The rows of a table at `indices`, an ascending array."""
    broken: dict[int, str] = {}
    for at, why in table.broken.items():
        place = int(indices.searchsorted(at))
        if place < len(indices) and indices[place] == at:
            broken[place] = why
    return replace(
        table,
        column=lambda name: take(table.column(name), indices),
        numbers=take(table.numbers, indices),
        broken=broken,
        positions=take(table.positions, indices) if len(table.positions) else indices,
    )


def require_whole(table: RawTable, where: str) -> None:
    """Raise UserError, of `where`, if a row could not be read."""
    if table.broken:
        first = min(table.broken)
        raise UserError(f"{where}, row {table.numbers[first]:,}: {table.broken[first]}; correct it")


def take(column: Any, indices: Any) -> Any:
    """The cells at `indices`, in that order. Arrays and columns have a method for it; a range gives an array."""
    if hasattr(column, "take"):
        return column.take(indices)
    if isinstance(column, range) and hasattr(indices, "dtype"):
        return indices + column.start
    return [column[at] for at in indices]


def lists_of(column: Any) -> Iterable[list[Any]]:
    """The cells in lists, one after another."""
    if hasattr(column, "parts"):
        return column.parts()
    return [column]


def cells_in(array: Any) -> list[Any]:
    """The cells of a column of Arrow. A number in single or half precision is the shortest decimal that means it, as in
    a csv: 0.1, not 0.10000000149011612."""
    if array.type == "halffloat":
        from numpy import float16

        return [None if cell is None else float(str(float16(cell))) for cell in array.to_pylist()]
    if array.type == "float32":
        array = array.cast("string").cast("float64")
    return array.to_pylist()


@lru_cache(maxsize=2)
def cached_read(read: Callable[..., T], *arguments: Any) -> T:
    """The result of `read`, which is kept for the columns and slices that are asked for next."""
    return read(*arguments)


class Coded(Sequence[Any]):
    """Cells of which few are different, such as labels: each different cell is held once.

    Args:
        codes: the index in `values` of each cell: int32 `(rows,)`.
        values: the different cells, in the order in which they occur first.
    """

    def __init__(self, codes: Any, values: list[Any]) -> None:
        self.codes, self.values = codes, values

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return repr([*self])

    def __iter__(self) -> Iterator[Any]:
        return map(self.values.__getitem__, self._plain_codes())

    def _plain_codes(self) -> Iterator[int]:
        """The codes as numbers of Python, which are several times faster to look up by than those of NumPy."""
        starts = range(0, len(self), AT_ONCE)
        return chain.from_iterable(self.codes[start : start + AT_ONCE].tolist() for start in starts)

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
        """The values that occur: a selection of rows may have lost some."""
        known = {*self._plain_codes()}
        return [value for code, value in enumerate(self.values) if code in known]

    def with_values(self, values: list[Any]) -> "Coded":
        """The same codes, of other values."""
        return Coded(self.codes, values)

    def mapped(self, of: Callable[[Any], Any]) -> "Coded":
        """What `of` makes of the cells; that of values that do not occur is None."""
        known = {*self._plain_codes()}
        values = []
        for code, value in enumerate(self.values):
            values.append(of(value) if code in known else None)
        return Coded(self.codes, values)

    def numbers(self, of_value: list[int | None]) -> Any:
        """A number for each cell, by that of its value: int32 `(rows,)`; None becomes -1."""
        import numpy as np

        return np.array([-1 if number is None else number for number in of_value], dtype=np.int32)[self.codes]

    def by_row(self, of_code: Mapping[int, T]) -> dict[int, T]:
        """What is said of some values, by their codes, as said of the rows that have them."""
        if not of_code:
            return {}
        return {row: of_code[code] for row, code in enumerate(self._plain_codes()) if code in of_code}


def coded(cells: Sequence[Any]) -> Coded:
    """The cells of a column with each different one held once; 1, 1.0 and true are different."""
    import numpy as np

    if isinstance(cells, Coded):
        return cells
    known: dict[Any, int] = {}  # from a key to its code
    values: list[Any] = []
    codes: list[Any] = []
    for part in lists_of(cells):
        keys = part
        if {*map(type, part)} != {str}:  # other cells may be lists, which are no keys, and 1 == 1.0 == True
            keys = [cell if type(cell) is str else (type(cell), repr(cell)) for cell in part]
        if not {*keys} <= known.keys():
            for key, cell in zip(keys, part, strict=True):
                if key not in known:
                    known[key] = len(values)
                    values.append(cell)
        codes.append(np.array([*map(known.__getitem__, keys)], dtype=np.int32))
    return Coded(np.concatenate(codes), values)


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
        if len(self.table.positions):
            return take(self.table.positions, self.at)
        return self.at

    def columns(self) -> dict[str, Any]:
        """The cells of the rows, by column."""
        return {name: take(self.table.column(name), self.at) for name in self.names}
