"""The shapes data takes on its way: a table as it was read, rows that were checked, the splits of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate
from typing import Any

from manyheads.config.fields import listed, show


@dataclass(slots=True)
class Table:
    """One split as it was read: nothing is checked yet.

    `column(name)` gives one cell per row; `classes` holds the class names of columns whose cells are
    class ids; `broken` says, by index, why a row could not be read, and `notes` what else was noticed.
    """

    names: list[str]
    column: Callable[[str], list[Any]]
    numbers: Sequence[int]
    source: str
    classes: dict[str, list[str]] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    positions: Sequence[int] = ()  # of its rows among those of the file, from 0; empty: as they are


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
        column=lambda name: [cell for shard in shards for cell in shard.column(name)],
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

    def pick(self, indices: list[int]) -> "Unread":
        return Unread(self.table, self.names, [self.at[i] for i in indices])

    @property
    def positions(self) -> Sequence[int]:
        """Of the rows among those of the file, from 0."""
        return [self.table.positions[i] for i in self.at] if self.table.positions else self.at

    def columns(self) -> dict[str, list[Any]]:
        """The cells of the rows, by column."""
        cells = {name: self.table.column(name) for name in self.names}
        return {name: [of_name[i] for i in self.at] for name, of_name in cells.items()}


@dataclass(slots=True)
class Rows:
    """Checked rows of one split.

    `numbers` are the row numbers users see in `source`: the header of a csv or tsv is row 1, a jsonl row is its
    line, anything else counts from 1. `labels` are class ids; where a row is answered by a text, `targets` are these
    texts and every label is 0. Where a row has any number of labels, `sets` holds their ids, in their order, and
    `labels` the rarest of each, by which splits are carved: as many as there are classes where
    it has none. `unread` is the rest of the table, where that was asked for.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[int]
    source: str
    numbers: Sequence[int]
    targets: list[str] | None = None
    sets: list[tuple[int, ...]] | None = None
    unread: Unread | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def pick(self, indices: list[int]) -> "Rows":
        """The rows at `indices`, in that order."""
        return Rows(
            texts=[self.texts[i] for i in indices],
            pairs=None if self.pairs is None else [self.pairs[i] for i in indices],
            labels=[self.labels[i] for i in indices],
            source=self.source,
            numbers=[self.numbers[i] for i in indices],
            targets=None if self.targets is None else [self.targets[i] for i in indices],
            sets=None if self.sets is None else [self.sets[i] for i in indices],
            unread=None if self.unread is None else self.unread.pick(indices),
        )

    def contents(self) -> list[Any]:
        """What makes two rows the same text: the text, or the pair of texts."""
        return self.texts if self.pairs is None else list(zip(self.texts, self.pairs, strict=True))

    def digest(self, labels: list[str]) -> str:
        """Sixteen hex digits of the texts and their answers, in their order; classes count by their names."""
        ids = [(label,) for label in self.labels] if self.sets is None else self.sets
        answers = self.targets or ["|".join(sorted(labels[id] for id in one)) if labels else "" for one in ids]
        found = blake2b(digest_size=8)
        for text, pair, answer in zip(self.texts, self.pairs or [""] * len(self), answers, strict=True):
            found.update("\0".join((text, pair, answer, "")).encode())
        return found.hexdigest()

    def as_targets(self) -> "Rows":
        """The target texts as rows of their own."""
        assert self.targets is not None
        return Rows(self.targets, None, self.labels, self.source, self.numbers)


@dataclass(slots=True)
class Splits:
    """The splits of a run. `labels[i]` names class i, none where rows are answered by texts; `notes` are facts and
    warnings for the log and the report."""

    train: Rows
    validation: Rows
    test: Rows | None
    labels: list[str]
    notes: list[str] = field(default_factory=list)

    @property
    def multi(self) -> bool:
        """Whether a row has any number of labels: each of them is then answered by itself."""
        return self.train.sets is not None

    def by_name(self) -> dict[str, Rows]:
        """The splits there are, by their names."""
        named = {"train": self.train, "validation": self.validation}
        return named if self.test is None else {**named, "test": self.test}
