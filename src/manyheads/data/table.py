"""A table as it was read: one split, or a shard of it. Standard library only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from manyheads.config.fields import listed, show


@dataclass(slots=True)
class Table:
    """One split as it was read: nothing is checked yet.

    `column(name)` gives one cell per row, in a list or, of a large table, as `large.Column`; `classes` holds the class
    names of columns whose cells are class ids; `broken` says, by index, why a row could not be read, and `notes` what
    else was noticed.
    """

    names: list[str]
    column: Callable[[str], Any]
    numbers: Sequence[int]
    source: str
    classes: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    positions: Sequence[int] = ()  # of its rows among those of the file, from 0; empty: as they are
    large: bool = False


def taken(column: Any, indices: Any) -> Any:
    """The cells at `indices`, in that order."""
    if hasattr(column, "take"):
        return column.take(indices)
    if isinstance(column, range) and hasattr(indices, "dtype"):
        return indices + column.start
    return [column[at] for at in indices]


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
        column=lambda name: end_to_end([shard.column(name) for shard in shards]),
        numbers=range(1, ends[-1] + 1),
        source=f"{shards[0].source} and {len(shards) - 1} more",
        classes=shards[0].classes,
        large=any(shard.large for shard in shards),
        broken={start + i: why for start, shard in zip(starts, shards, strict=True) for i, why in shard.broken.items()},
    )


def end_to_end(columns: list[Any]) -> Any:
    """The cells of several columns as those of one."""
    if all(isinstance(one, list) for one in columns):
        return [cell for one in columns for cell in one]
    from manyheads.data.large import chained

    return chained(columns)


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
