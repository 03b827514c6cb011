"""The shapes data takes on its way, and what is wrong with it, said before the first step.

A table as it was read, rows that were checked, the splits of a run. Errors name file and row, warnings are counted.
Standard library only: a mistake is reported before torch is imported.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, combinations
from typing import Any

from manyheads.config import OnBadRow
from manyheads.config.fields import listed, show

HALF = "holds half a character (a lone surrogate), which UTF-8 cannot write"
SCORES = 20  # labels with decimals, of fewer nothing is said
REMEDY = "correct it, or leave such rows out by data.on_bad_row=drop"


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


def text_faults(texts: list[object], what: str) -> dict[int, str]:
    """By index, why a cell cannot be a text: null, not a string, empty, or not encodable."""
    if all(type(text) is str and text and text.isascii() and not text.isspace() for text in texts):
        return {}
    faults: dict[int, str] = {}
    for index, text in enumerate(texts):
        if text is None or text == "":
            faults[index] = f"{what} is empty"
        elif not isinstance(text, str):
            faults[index] = f"{what} is not a string but {_kind(text)}"
        elif text.isspace():
            faults[index] = f"{what} is only white space"
        elif not text.isascii() and not _is_encodable(text):
            faults[index] = f"{what} {HALF}"
    return faults


def label_names(cells: list[object], classes: list[str] | None) -> tuple[list[str], dict[int, str]]:
    """Class name of each cell, and by index why a cell names no class. Names are stripped; whole numbers lose `.0`.

    A list of one label, once or more, is that label; a row with several, or with none, has no class.
    """
    faults: dict[int, str] = {}
    names: list[str] = []
    known: dict[object, str | None] = {}
    for index, cell in enumerate(cells):
        if isinstance(cell, list) and len({str(one).strip() for one in cell}) != 1:
            faults[index] = f"has {len(cell) or 'no'} label{'s' if cell else ''}, but one is needed"
            names.append("")
            continue
        cell = cell[0] if isinstance(cell, list) else cell
        if isinstance(cell, (list, dict, bytes)):
            faults[index] = f"the label is {_kind(cell)}, but a row has one class"
            names.append("")
            continue
        key = (cell, type(cell))
        if key not in known:
            known[key] = _name(cell, classes)
        name = known[key]
        if name is None:
            unknown = classes is not None and cell is not None
            faults[index] = f"the label {cell} is not a known class" if unknown else "the label is empty"
        elif not name.isascii() and not _is_encodable(name):
            faults[index] = f"the label {HALF}"
        names.append(name or "")
    return names, faults


def screen(table: Table, faults: dict[int, str], on_bad_row: OnBadRow, notes: list[str]) -> list[int]:
    """Indices of the good rows of a table with `faults`; a count of the others is added to `notes`.

    Raises:
        ValueError: a row is bad under `raise`, or no row is good; names file and row.
    """
    n_rows = len(table.numbers)
    if faults:
        first = min(faults)
        place = f"row {table.numbers[first]}: {faults[first]}"
        if on_bad_row is OnBadRow["raise"]:
            others = len(faults) - 1
            more = f" ({others:,} more {'row is' if others == 1 else 'rows are'} bad)" if others else ""
            raise ValueError(f"{table.source}, {place}{more}; {REMEDY}")
        notes.append(f"{table.source}: {len(faults):,} of {n_rows:,} rows left out (first: {place})")
    good = [index for index in range(n_rows) if index not in faults]
    if not good:
        raise ValueError(f"{table.source} has no {'usable ' if n_rows else ''}row: a split needs at least one")
    return good


def audit(splits: Splits) -> None:
    """Check what the splits say together; warnings are added to `splits.notes`.

    Raises:
        ValueError: there is only one class.
    """
    if splits.train.targets is None and not splits.multi and len(splits.labels) < 2:
        only = splits.labels[0] if splits.labels else ""
        raise ValueError(
            f"{splits.train.source} has one class only, '{only}': a classifier needs at least two; "
            "check data.label, the column of the label"
        )
    splits.notes += _scores(splits)
    _audit_train(splits)
    named = splits.by_name()
    for (earlier, there), (name, here) in combinations(named.items(), 2):
        splits.notes += _overlap(name, here, earlier, there)


def _scores(splits: Splits) -> Iterable[str]:
    """That labels look like scores: many, and most of them numbers with decimals."""
    broken = [name for name in splits.labels if re.fullmatch(r"-?\d*\.\d+", name) and float(name) % 1]
    if len(broken) > max(SCORES, len(splits.labels) / 2):
        yield (
            f"{splits.train.source}: its {len(splits.labels):,} labels look like scores, such as {broken[0]}: each is "
            "a class of its own, as if none were near another; write a class for each range of them instead"
        )


def _audit_train(splits: Splits) -> None:
    """Repeated texts and contradicting answers inside train."""
    train = splits.train
    answers: Sequence[str] = train.targets or label_words(train, splits.labels)
    first_seen: dict[object, int] = {}
    repeats: list[int] = []
    given: dict[object, set[str]] = defaultdict(set)
    for index, content in enumerate(train.contents()):
        first = first_seen.setdefault(content, index)
        if first != index:
            repeats.append(index)
            given[content] |= {answers[first], answers[index]}
    if repeats:
        row, earlier = repeats[0], first_seen[train.contents()[repeats[0]]]
        splits.notes.append(
            f"train ({train.source}): {len(repeats):,} of {len(train):,} rows repeat the text of an earlier row "
            f"(first: row {train.numbers[row]} repeats row {train.numbers[earlier]})"
        )
    conflicts = [content for content, several in given.items() if len(several) > 1]
    if conflicts:
        names = " and ".join(sorted(given[conflicts[0]]))
        splits.notes.append(
            f"train ({train.source}): {len(conflicts):,} texts carry more than one "
            f"{'target' if train.targets is not None else 'set of labels' if splits.multi else 'label'} "
            f"(first: row {train.numbers[first_seen[conflicts[0]]]}, {names})"
        )


def label_words(rows: Rows, labels: list[str]) -> list[str]:
    """The label of each row or, where it has any number of them, their names joined by |, or that it has none."""
    if rows.sets is None:
        return [labels[label] for label in rows.labels]
    return ["|".join(labels[label] for label in one) or "no label" for one in rows.sets]


def _overlap(name: str, rows: Rows, earlier: str, others: Rows) -> Iterable[str]:
    """Texts of split `name` that are also in the split `earlier`."""
    contents = others.contents()
    first_seen = dict(zip(reversed(contents), range(len(contents) - 1, -1, -1), strict=True))
    shared = [(index, first_seen[content]) for index, content in enumerate(rows.contents()) if content in first_seen]
    if shared:
        here, there = shared[0]
        yield (
            f"{name} ({rows.source}): {len(shared):,} of {len(rows):,} texts are also in {earlier} "
            f"(first: row {rows.numbers[here]} is row {others.numbers[there]} of {others.source})"
        )


def _name(cell: object, classes: list[str] | None) -> str | None:
    if cell is None or cell != cell:
        return None
    if classes is not None and isinstance(cell, int):
        return classes[cell] if 0 <= cell < len(classes) else None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip() or None


def _kind(cell: object) -> str:
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
        bytes: "bytes",
    }
    return names.get(type(cell), f"of type {type(cell).__name__}")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
