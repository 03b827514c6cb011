"""Rows with any number of labels: names as they were read, their ids, and which of them splits are carved by.

Standard library only.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from manyheads.config.plain import listed, show
from manyheads.data.audit import label_names
from manyheads.data.columns import MULTI_LABEL, Columns, label_cells
from manyheads.data.rows import Rows, Table

SIGNS = ",;|"  # that join names
NAMES = 3  # of labels in a sentence


def as_found(table: Table, columns: Columns) -> Columns:
    """`columns` of the training split, which says whether a row of the data has any number of labels: where each has
    just one it is a class like any other, as it is in a column of another name than `labels` that is not all lists."""
    cells = label_cells(table, columns.answer)
    in_lists = columns.answer == MULTI_LABEL or all(isinstance(cell, list) for cell in cells)
    several = any(isinstance(cell, list) and len({str(one).strip() for one in cell}) != 1 for cell in cells)
    return replace(columns, multi=in_lists and several)


def joined_otherwise(table: Table, columns: Columns) -> list[str]:
    """A note on names of labels that are joined in one cell, and are a class of their own together.

    Raises:
        ValueError: they are in the column `labels`, where | joins them; or cells are lists of zeros and ones.
    """
    _refuse_marks(table, columns)
    cells = [cell for cell in table.column(columns.answer) if isinstance(cell, str)]
    sign = _joining_sign({*cells})
    in_labels = columns.answer == MULTI_LABEL
    if not sign or (in_labels and any("|" in cell for cell in cells)):
        return []
    first = next(cell for cell in cells if sign in cell)
    found = (
        f"{table.source}: the column '{show(columns.answer)}' joins names by '{sign}', as in '{show(first)}', so that "
        "each combination is a class of its own"
    )
    if in_labels:
        raise ValueError(f"{found}: join them by |, or, if these are names of classes, call the column label")
    return [f"{found}; if these are several labels, call the column labels and join them by |"]


def _refuse_marks(table: Table, columns: Columns) -> None:
    """Raise ValueError if each cell is a list of as many zeros and ones."""
    cells = [cell for at, cell in enumerate(table.column(columns.answer)) if at not in table.broken]
    lengths = {len(cell) if isinstance(cell, list) else 0 for cell in cells}
    if len(lengths) != 1 or lengths <= {0, 1} or columns.answer in table.classes:
        return
    if all(one in (0, 1) for cell in cells for one in cell):
        raise ValueError(
            f"{table.source}: each cell of '{show(columns.answer)}' is a list of {max(lengths)} zeros and ones, by "
            'which nothing is called: list the names of the labels that are 1, such as ["joy", "anger"], or none'
        )


def _joining_sign(cells: set[str]) -> str:
    """The sign between names of which most are also in other cells; empty: there is none."""
    for sign in SIGNS:
        parts = {cell: {part.strip(" []'\"") for part in cell.split(sign)} for cell in cells}
        counts = Counter(part for of_cell in parts.values() for part in of_cell)
        joined = {part for cell, of_cell in parts.items() if sign in cell for part in of_cell}
        if sum(counts[part] > 1 for part in joined) * 2 > len(joined):
            return sign
    return ""


def label_sets(cells: list[object], classes: list[str] | None) -> tuple[list[tuple[str, ...]], dict[int, str]]:
    """Label names of each cell, each once, in its order, and by index why a cell is no set of labels. An empty one has
    none."""
    of_cells = [cell if isinstance(cell, list) else [] if cell is None or cell == "" else [cell] for cell in cells]
    names, faults = label_names([name for cell in of_cells for name in cell], classes)
    sets: list[tuple[str, ...]] = []
    found: dict[int, str] = {}
    start = 0
    for index, cell in enumerate(of_cells):
        one = tuple(dict.fromkeys(names[start : start + len(cell)]))
        wrong = next((faults[at] for at in range(start, start + len(cell)) if at in faults), None)
        if wrong is not None:
            found[index] = wrong
        sets.append(one)
        start += len(cell)
    return sets, found


def named_twice(table: Table, cells: list[Any], answers: list[Any], faults: Collection[int]) -> list[str]:
    """A note on good rows that name a label more than once, if any do: `answers` are what was read of their `cells`."""
    lists = [at for at, cell in enumerate(cells) if isinstance(cell, list) and len(cell) > 1 and at not in faults]
    found = [at for at in lists if isinstance(answers[at], str) or len(answers[at]) < len(cells[at])]
    if not found:
        return []
    rows = "1 row names" if len(found) == 1 else f"{len(found):,} rows name"
    return [f"{table.source}: {rows} a label twice, which counts once (first: row {table.numbers[found[0]]})"]


def give_sets(rows: Rows, names: Sequence[Sequence[str]], labels: list[str]) -> None:
    """Give each row the ids of its labels, and the rarest of them in these rows."""
    of_name = {name: index for index, name in enumerate(labels)}
    rows.sets = [tuple(sorted(of_name[name] for name in one)) for one in names]
    counts = Counter(label for one in rows.sets for label in one)
    rows.labels = [min(one, key=lambda label: (counts[label], label), default=len(labels)) for one in rows.sets]


def describe(rows: Rows, labels: list[str]) -> str:
    """What a reader of the log should know: that, and where, a row has not just one label.

    Raises:
        ValueError: no row has any.
    """
    assert rows.sets is not None
    if not labels:
        raise ValueError(f"{rows.source} has no row with a label: a classifier needs at least one; check data.label")
    several, none = sum(len(one) > 1 for one in rows.sets), sum(not one for one in rows.sets)
    counts = [f"{n:,} {words}" for n, words in ((several, "with several"), (none, "with none")) if n]
    first = next(at for at, one in enumerate(rows.sets) if len(one) != 1)
    known = f"{len(labels)} label{'s' * (len(labels) > 1)}"
    return (
        f"{rows.source}: {' and '.join(counts)} of the {known} among {len(rows):,} rows (first: row "
        f"{rows.numbers[first]}: {listed([labels[id] for id in rows.sets[first][:NAMES]]) or 'none'}), so each label "
        "is answered by itself"
    )
