"""The units of data.columns: which there are is learnt from the training rows; row_units.py reads rows by them.

A column of numbers has buckets of about as many training rows each, or one for each number if there are few. A column
of categories has those of two training rows at least. What is missing has a unit, and so have all other categories.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf, isfinite, nextafter
from typing import Any

from manyheads.data.class_names import natural_order
from manyheads.data.formats.fields import FIELD
from manyheads.data.ids.terms import UNIT
from manyheads.errors import UserError
from manyheads.plugins.columns.config import column_names
from manyheads.plugins.columns.row_units import as_number, clean, is_numbers, rows_with_units, unit_of

BUCKETS, MOST_CATEGORIES = 8, 200  # of a column
LEAST_NUMBERS = 0.9  # share of the cells of a column of numbers
WITH_COMMA = re.compile(r"[-+]?\d[\d.]*,[\d.,]*\d")  # as in 12,5 and 1.234,50
Known = list[str] | list[float]  # of a column its categories, or the largest number of each bucket but the last


def learn_buckets(data: Any, splits: Any) -> dict[str, Any]:
    """The hook `Section.keep`: what is known of each column by the training rows; a note says it, too."""
    names, texts = column_names(data), data.text if isinstance(data.text, list) else [data.text]
    if not names and not data.text_names:
        return {}
    n_texts = len(texts)
    cells: list[list[str]] = [[] for _ in names]
    for text in splits.train.texts:
        for of_column, cell in zip(cells, text.split(FIELD)[n_texts:], strict=True):
            of_column.append(clean(cell))
    known = {name: learn_column(of_column) for name, of_column in zip(names, cells, strict=True)}
    said = []
    for (name, of_column), found in zip(known.items(), cells, strict=True):
        what = f"{len(of_column) + 1} buckets of numbers" if is_numbers(of_column) else f"{len(of_column)} categories"
        if sum(WITH_COMMA.fullmatch(cell) is not None for cell in found) > len(found) / 2:
            what += " (a number with a comma is a category: write 12.5)"
        said.append(f"{name} has {what}, and is missing in {found.count(''):,} of {len(found):,} rows")
    if said:
        splits.notes.append(f"data.columns: {'; '.join(said)}")
    return {
        "columns": {"texts": n_texts, "known": known, "names": [f"{one.strip()}:" for one in texts] * data.text_names}
    }


def learn_column(cells: Sequence[str]) -> Known:
    """What is known of a column by its cells."""
    found = [cell for cell in cells if cell]
    numbers = sorted(filter(isfinite, map(as_number, found)))
    if not numbers or len(numbers) < LEAST_NUMBERS * len(found):
        return natural_order({cell for cell, n in Counter(found).most_common(MOST_CATEGORIES) if n > 1})
    bounds = {*numbers}
    if len(bounds) > BUCKETS:
        bounds = {numbers[-(-at * len(numbers) // BUCKETS) - 1] for at in range(1, BUCKETS)}
    return sorted(bounds - {numbers[-1]})


def units_of(name: str, known: Known) -> list[str]:
    """All units that a column may have, that of what is missing first."""
    cells = ["", UNIT, *map(str, known)]
    if is_numbers(known):
        cells.append(str(nextafter(float(known[-1]), inf)))
    return [*dict.fromkeys(unit_of(name, known, cell) for cell in cells)]


def unit_reader(kept: Any) -> Callable[[Sequence[str]], list[str]] | None:
    """The hook `Section.read`. A UserError where what was kept is not what `learn_buckets` returns."""
    if "columns" not in kept:
        return None
    try:
        columns = kept["columns"]
        for name, known in columns["known"].items():
            units_of(name, [*known])
        names = columns.get("names", [])
        if len(names) not in (0, int(columns["texts"])) or not all(isinstance(name, str) for name in names):
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError("config.json: kept.columns is not what a training has written: train the model again") from None

    def read(texts: Sequence[str]) -> list[str]:
        try:
            return rows_with_units(kept, [*texts])
        except LookupError as problem:
            raise UserError(str(problem)) from None

    return read
