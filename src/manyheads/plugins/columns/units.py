"""What a classifier reads of the cells of data.columns: a unit of each, by its category or the bucket of its number.

    the parcel came late ␞ high ␞ 12.5    ->    ␟priority: high␟␟amount: 8.0 to 20.0␟the parcel came late

A column of numbers has buckets of about as many training rows each, or one for each number if there are few. A column
of categories has those of two training rows at least. What is missing has a unit, and so have all other categories.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import inf, isfinite, nextafter
from typing import Any

from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import drop_zero_fraction, natural_order, normalise_name
from manyheads.data.formats.fields import FIELD, UNIT
from manyheads.data.formats.votes import number_in
from manyheads.data.texts import is_blank
from manyheads.errors import UserError
from manyheads.plugins.columns.config import column_names

BUCKETS, MOST_CATEGORIES = 8, 200  # of a column
LEAST_NUMBERS = 0.9  # share of the cells of a column of numbers
Known = list[str] | list[float]  # of a column its categories, or the largest number of each bucket but the last


def learn_buckets(data: Any, splits: Any) -> dict[str, Any]:
    """The hook `Section.keep`: what is known of each column by the training rows; a note says it, too."""
    names, n_texts = column_names(data), len(data.text) if isinstance(data.text, list) else 1
    if not names:
        return {}
    cells: list[list[str]] = [[] for _ in names]
    for text in splits.train.texts:
        for of_column, cell in zip(cells, text.split(FIELD)[n_texts:], strict=True):
            of_column.append(clean(cell))
    known = {name: learn_column(of_column) for name, of_column in zip(names, cells, strict=True)}
    said = []
    for (name, of_column), found in zip(known.items(), cells, strict=True):
        what = f"{len(of_column) + 1} buckets of numbers" if is_numbers(of_column) else f"{len(of_column)} categories"
        said.append(f"{name} has {what}, and is missing in {found.count(''):,} of {len(found):,} rows")
    splits.notes.append(f"data.columns: {'; '.join(said)}")
    return {"columns": {"texts": n_texts, "known": known}}


def clean(cell: str) -> str:
    """A cell as it is compared: 1.0 is 1."""
    return drop_zero_fraction(normalise_name(cell.replace(UNIT, " ")))


def learn_column(cells: Sequence[str]) -> Known:
    """What is known of a column by its cells."""
    found = [cell for cell in cells if cell]
    numbers = sorted(filter(isfinite, map(number_in, found)))
    if not numbers or len(numbers) < LEAST_NUMBERS * len(found):
        return natural_order({cell for cell, n in Counter(found).most_common(MOST_CATEGORIES) if n > 1})
    bounds = {*numbers}
    if len(bounds) > BUCKETS:
        bounds = {numbers[-(-at * len(numbers) // BUCKETS) - 1] for at in range(1, BUCKETS)}
    return sorted(bounds - {numbers[-1]})


def is_numbers(known: Known) -> bool:
    return bool(known) and isinstance(known[0], float)


def unit_of(name: str, known: Known, cell: str) -> str:
    """The unit of a cell that is `clean`."""
    if is_numbers(known):
        number, ends = number_in(cell), [-inf, *known, inf]
        at = bisect_left(known, number)  # pyright: ignore[reportArgumentType]
        return f"{name}: {ends[at]} to {ends[at + 1]}" if isfinite(number) else f"{name} is missing"
    if cell in known:
        return f"{name}: {cell}"
    return f"{name} is another" if cell else f"{name} is missing"


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
        n_texts, known = int(kept["columns"]["texts"]), dict(kept["columns"]["known"])
        for name, of_column in known.items():
            units_of(name, [*of_column])
    except (KeyError, TypeError, ValueError):
        raise UserError("config.json: kept.columns is not what a training has written: train the model again") from None
    return partial(read_units, n_texts, known)


def read_units(n_texts: int, known: dict[str, Known], texts: Sequence[str]) -> list[str]:
    """Each text after its units. A UserError where one lacks a column."""
    found = []
    for text in texts:
        parts = text.split(FIELD)
        if is_blank(text) or (len(parts) == n_texts and text.startswith(UNIT)):  # nothing to read, or as it is read
            found.append(text)
            continue
        if len(parts) != n_texts + len(known):
            raise UserError(
                f"the text '{format_value(text)}' comes without {list_names([*known])}, which the model reads, too: "
                "give each row as a mapping from the names of columns to their cells"
            )
        cells = zip(known.items(), parts[n_texts:], strict=True)
        units = [f"{UNIT}{unit_of(*of_column, clean(cell))}{UNIT}" for of_column, cell in cells]
        found.append("".join(units) + FIELD.join(parts[:n_texts]).replace(UNIT, " ").strip())
    return found
