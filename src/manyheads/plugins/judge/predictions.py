"""Files of predictions that `compare` reads: the answers of any program, a column `prediction`, for the rows judged.

n rows . C classes or labels
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import (
    ClassLookup,
    drop_zero_fraction,
    label_cells,
    label_names,
    label_sets,
    normalise_name,
)
from manyheads.data.opening import read_file
from manyheads.data.rows import Rows
from manyheads.data.table import RawTable, coded, require_whole, take
from manyheads.errors import UserError

PREDICTION = "prediction"  # the column of answers
WHOLE = re.compile("[0-9]{1,18}")  # a number that fits into 64 bits


def read_predictions(path: Path, rows: Rows, known: ClassLookup) -> NDArray[Any]:
    """The answers in a file, in the order of `rows`: class ids `(n,)`, or, of several labels `joined`, marks `(n, C)`.

    Raises:
        UserError: no such file or column, other rows than `rows`, or a prediction that is no class.
    """
    if not path.is_file():
        raise UserError(f"runs={path} does not exist: name a run, or a file of predictions")
    table = read_file(path)
    if PREDICTION not in table.names:
        raise UserError(
            f"{path} has no column '{PREDICTION}', but {list_names(table.names)}: name that of the answers so"
        )
    require_whole(table, str(path))
    if len(table.numbers) != len(rows):
        raise UserError(
            f"{path} has {len(table.numbers):,} rows, but {rows.source} has {len(rows):,}: give one for each"
        )
    place_n = places_of(rows, path, table)
    require_same_texts(rows, path, table, place_n)

    # Different cells are few: each is read once, and a row has its code.
    cells = coded(table.column(PREDICTION))
    numbers = table.numbers
    if place_n is not None:
        cells, numbers = cells.take(place_n), take(numbers, place_n)
    multi, classes = rows.sets is not None, table.classes.get(PREDICTION)
    values = label_cells(cells.values, PREDICTION, multi=multi)
    answers, faults = label_sets(values, classes, known) if multi else label_names(values, classes, known)
    labels = known.names
    ids = {name: index for index, name in enumerate(labels)}
    marks = np.zeros((len(values), len(labels)), dtype=bool)
    unknown: dict[int, Any] = {}  # by code: the cell, or the first name in it, that is no class
    for code, answer in enumerate(answers):
        if code in faults:
            unknown[code] = cells.values[code]
            continue
        for name in [answer] if isinstance(answer, str) else answer:
            if name in ids:
                marks[code, ids[name]] = True
            else:
                unknown.setdefault(code, name)
    if unknown:
        row = int(np.isin(cells.codes, [*unknown]).argmax())
        raise UserError(
            f"{path}, row {numbers[row]:,}: the prediction '{format_value(unknown[int(cells.codes[row])])}' is not a "
            f"class of the models: they have {list_names(labels)}"
        )
    if multi:
        return marks[cells.codes]
    return marks.argmax(1).astype(np.int32)[cells.codes]


def places_of(rows: Rows, path: Path, table: RawTable) -> NDArray[np.int64] | None:
    """The row of a file that answers each of `rows`, by the columns `index` and `row` that our own predictions have.

    Returns:
        Places in the table `(n,)`; None: it has the order of `rows`, as neither column is there, or one alone, which
        is of something else.
    """
    ours = {"index": rows.unread.positions if rows.unread else range(len(rows)), "row": rows.numbers}
    names = [name for name in ours if name in table.names]
    numbers = [_whole_numbers(table.column(name)) for name in names]
    theirs = [one for one in numbers if one is not None]
    if names and len(theirs) == len(names):
        our_keys, their_keys = np.stack([np.asarray(ours[name], dtype=np.int64) for name in names]), np.stack(theirs)
        our_order, their_order = np.lexsort(our_keys), np.lexsort(their_keys)
        if np.array_equal(our_keys[:, our_order], their_keys[:, their_order]):
            place_n = np.empty(len(rows), dtype=np.int64)
            place_n[our_order] = their_order
            return place_n
    if len(names) == 2:
        raise UserError(
            f"{path} has the columns index and row, as predictions of evaluate have, but they are not those of "
            f"{rows.source}: give predictions of its rows, or leave out both columns if they are in the same order"
        )
    return None


def _whole_numbers(column: Any) -> NDArray[np.int64] | None:
    """The cells as whole numbers `(n,)`; None where one of them is none."""
    cells = [drop_zero_fraction(normalise_name(cell)) for cell in column]
    if not all(WHOLE.fullmatch(cell) for cell in cells):
        return None
    return np.array(cells, dtype=np.int64)


def require_same_texts(rows: Rows, path: Path, table: RawTable, place_n: NDArray[np.int64] | None) -> None:
    """Refuse a file whose columns `text` and `text_pair` hold other texts than the rows that they answer."""
    for column, texts in (("text", rows.texts), ("text_pair", rows.pairs)):
        if texts is None or column not in table.names:
            continue
        theirs, numbers = table.column(column), table.numbers
        remedy = "give the predictions in the order of the rows"
        if place_n is not None:
            theirs, numbers = take(theirs, place_n), take(numbers, place_n)
            remedy = "give predictions of these rows"
        for at, (their_text, text) in enumerate(zip(theirs, texts, strict=True)):
            if their_text != text:
                raise UserError(
                    f"{path}, row {numbers[at]:,} has another text than {rows.source}, row {rows.numbers[at]:,}: "
                    f"{remedy}, or leave out the column '{column}'"
                )
