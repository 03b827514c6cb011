"""What is wrong with the rows of a run, said before the first step: bad rows, one class alone, repeated texts.

Errors name file and row, warnings are counted. Standard library at first.
"""

import re
from collections import defaultdict
from itertools import combinations
from typing import Any

from manyheads.config import OnBadRow
from manyheads.config.sentences import format_value
from manyheads.data.rows import Rows, Splits, class_counts, comparable_hashes, label_words, row_hashes
from manyheads.data.table import RawTable
from manyheads.errors import UserError

MAX_SCORES = 20  # labels with decimals that need no note
REMEDY = "correct it, or leave such rows out by data.on_bad_row=drop"


def good_rows(table: RawTable, faults: dict[int, str], on_bad_row: OnBadRow, notes: list[str]) -> Any:
    """Indices of the rows of a table without `faults`, int64; a count of the others is added to `notes`.

    Raises:
        UserError: a row is bad under `raise`, or no row is good; names file and row.
    """
    import numpy as np

    n_rows = len(table.numbers)
    if n_rows == 0:
        raise UserError(f"{table.source} has no row: a split needs at least one")
    if not faults:
        return np.arange(n_rows)
    first = f"row {table.numbers[min(faults)]}: {faults[min(faults)]}"
    if on_bad_row is OnBadRow["raise"]:
        n_more = len(faults) - 1
        more = ""
        if n_more:
            more = f" ({n_more:,} more {'row is' if n_more == 1 else 'rows are'} bad)"
        raise UserError(f"{table.source}, {first}{more}; {REMEDY}")
    good = np.delete(np.arange(n_rows), [*faults])
    if not len(good):
        raise UserError(
            f"{table.source} has no usable row, but a split needs at least one: {len(faults):,} of {n_rows:,} are left "
            f"out by data.on_bad_row=drop (first: {first})"
        )
    notes.append(f"{table.source}: {len(faults):,} of {n_rows:,} rows left out (first: {first})")
    return good


def labels_of_one_row(rows: Rows, labels: list[str]) -> list[str]:
    """A note on labels that only one row has, as a line of units or of sums would have."""
    alone = [id for id, n in enumerate(class_counts(rows, len(labels))) if n == 1]
    if not alone:
        return []
    at = next(at for at, ids in enumerate(rows.sets or ((id,) for id in rows.labels)) if alone[0] in ids)
    return [
        f"{rows.source}: {len(alone):,} of {len(labels):,} labels have a single row (first: row {rows.numbers[at]}, "
        f"'{format_value(labels[alone[0]])}'): remove such rows if they are not examples"
    ]


def audit_splits(splits: Splits) -> None:
    """Check the splits of a run against each other; warnings are added to `splits.notes`.

    Raises:
        UserError: there is only one class.
    """
    has_classes = splits.train.targets is None and not splits.multi
    if has_classes and len(splits.labels) < 2:
        only = splits.labels[0] if splits.labels else ""
        where = "data.label, the column of the label" if splits.train.voters is None else "the columns of the votes"
        raise UserError(
            f"{splits.train.source} has one class only, '{only}': a classifier needs at least two; check {where}"
        )
    splits.notes += _scores_as_labels(splits)
    splits.notes += _repeated_texts(splits)
    for (earlier, others), (name, rows) in combinations(splits.by_name().items(), 2):
        splits.notes += _shared_texts(name, rows, earlier, others)


def _scores_as_labels(splits: Splits) -> list[str]:
    """A note if there are many labels, and most of them are numbers with decimals."""
    scores = [name for name in splits.labels if re.fullmatch(r"-?\d*\.\d+", name) and float(name) % 1]
    if len(scores) <= max(MAX_SCORES, len(splits.labels) / 2):
        return []
    return [
        f"{splits.train.source}: its {len(splits.labels):,} labels look like scores, such as {scores[0]}: each is "
        "a class of its own, as if none were near another; write a class for each range of them instead"
    ]


def _repeated_texts(splits: Splits) -> list[str]:
    """Notes on texts that occur several times in train, and on those of them with different answers."""
    from manyheads.data.hashes import repeats

    train = splits.train
    later, firsts = (rows.tolist() for rows in repeats(row_hashes(train)))
    if not later:
        return []
    repeat = "repeats" if len(later) == 1 else "repeat"
    notes = [
        f"train ({train.source}): {len(later):,} of {len(train):,} rows {repeat} the text of an earlier row "
        f"(first: row {train.numbers[later[0]]} repeats row {train.numbers[firsts[0]]})"
    ]
    repeated = sorted({*later, *firsts})
    part = train.pick(repeated)
    answers = dict(zip(repeated, part.targets or label_words(part, splits.labels), strict=True))
    by_first: dict[int, set[str]] = defaultdict(set)
    for row, first in zip(later, firsts, strict=True):
        by_first[first] |= {answers[first], answers[row]}
    conflicts = [first for first, several in by_first.items() if len(several) > 1]
    if conflicts:
        what = "label"
        if train.targets is not None:
            what = "target"
        elif splits.multi:
            what = "set of labels"
        names = " and ".join(sorted(by_first[conflicts[0]]))
        texts = "1 text carries" if len(conflicts) == 1 else f"{len(conflicts):,} texts carry"
        notes.append(
            f"train ({train.source}): {texts} more than one {what} (first: row {train.numbers[conflicts[0]]}, {names})"
        )
    return notes


def _shared_texts(name: str, rows: Rows, earlier: str, others: Rows) -> list[str]:
    """A note if texts of the split `name` are also in the split `earlier`."""
    from manyheads.data.hashes import count_shared

    n_shared, here, there = count_shared(*comparable_hashes(rows, others))
    if not n_shared:
        return []
    return [
        f"{name} ({rows.source}): {n_shared:,} of {len(rows):,} texts are also in {earlier} "
        f"(first: row {rows.numbers[here]} is row {others.numbers[there]} of {others.source})"
    ]
