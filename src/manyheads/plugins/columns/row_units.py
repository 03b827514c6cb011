"""What a model reads of the columns of a row: units before its text. Plain Python, which predict.py of an export has
next to it.

    the parcel came late ␞ high ␞ 12.5    ->    ␟priority: high␟␟amount: 8.0 to 20.0␟the parcel came late
"""

from bisect import bisect_left
from math import inf, isfinite
from unicodedata import normalize

FIELD, UNIT = "\u241e", "\u241f"  # between the columns of a row; around a unit


def rows_with_units(kept: dict, texts: list[str]) -> list[str]:
    """Each row, whose columns are joined, as its text after the units; what was read so before stays as it is."""
    return [read_row(text, **kept["columns"]) for text in texts]


def read_row(text: str, texts: int, known: dict[str, list], names: list | tuple = ()) -> str:
    """A row that is joined of `texts` texts, which are read after their `names`, if any, and the columns `known`."""
    parts = [part.strip() for part in text.split(FIELD)]
    is_read = text.startswith(UNIT) if known else all(map(str.startswith, parts, names))
    if not text.strip() or (len(parts) == texts and is_read):
        return text
    if len(parts) != texts + len(known):
        raise LookupError(
            f"the text '{text[:60]}' comes without {', '.join(known) or 'its columns'}, which the model reads: give "
            "each row as a mapping from the names of columns to their cells, or with its columns joined by ' \u241e '"
        )
    units = [unit_of(name, known[name], clean(cell)) for name, cell in zip(known, parts[texts:], strict=True)]
    named = [f"{name} {part}" for name, part in zip(names, parts, strict=False)] or parts[:texts]
    rest = f" {FIELD} ".join(named).replace(UNIT, " ").strip()
    return "".join(f"{UNIT}{unit}{UNIT}" for unit in units) + rest


def clean(cell: str) -> str:
    """A cell as it is compared: composed, with single spaces; 1.0 is 1, and True, as Python writes it, is true."""
    cell = " ".join(normalize("NFC", cell.replace(UNIT, " ")).split())
    if cell.lower() in ("true", "false"):
        return cell.lower()
    whole, dot, fraction = cell.partition(".")
    return whole if dot and not fraction.strip("0") and whole.lstrip("+-").isdecimal() else cell


def as_number(cell: str) -> float:
    """The number that a cell is; NaN where it is none, such as 12_3, which Python reads as 123."""
    try:
        return float(cell.replace("_", "x"))
    except ValueError:
        return float("nan")


def is_numbers(known: list) -> bool:
    """Whether these are the bounds of buckets of numbers, not names of categories."""
    return bool(known) and isinstance(known[0], float)


def unit_of(name: str, known: list, cell: str) -> str:
    """The unit of a cell of the column `name`: by its category, or by the bucket of its number."""
    if is_numbers(known):
        number, ends = as_number(cell), [-inf, *known, inf]
        at = bisect_left(known, number)
        return f"{name}: {ends[at]} to {ends[at + 1]}" if isfinite(number) else f"{name} is missing"
    if cell in known:
        return f"{name}: {cell}"
    return f"{name} is another" if cell else f"{name} is missing"
