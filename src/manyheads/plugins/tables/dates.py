"""`data.split_by=COLUMN`: the newest rows of a file are its test split, those before them validation.

A model is used on rows that are newer than those it has learnt from; where these differ from month to month, a random
split promises too much.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import numpy as np

from manyheads.config.facts import require
from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import drop_zero_fraction
from manyheads.data.table import RawTable, coded, select_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR = re.compile(r"([12]\d{3})(?:-(\d\d))?")  # or a month of it
SECONDS = re.compile(r"-?\d{9,13}(\.\d+)?")  # since 1970, or thousandths of them
YEAR_FIRST = re.compile(r"(\d{4})([/.])(\d{1,2})\2(\d{1,2})(?=$|[ T])")
STAMP = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])([01]\d|2[0-3])([0-5]\d)?")  # 202405311030: no seconds
HALF_DAY = re.compile(r"\d\s*[ap]\.?m\b", re.IGNORECASE)  # which the standard library passes over
LONGEST_SECONDS = 1e11  # more are thousandths
SHORT_HOUR = re.compile(r"(?<=[T ,])(?=\d:\d\d)")  # of 9:30, where ISO 8601 has 09:30
NUMBERED = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})(?:[ ,T]+(\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?))?")
NAMED = re.compile(r"(\d{1,2})([-/])([a-z]{3,9})\2(\d{4}|\d{2})(?=$|[ T])", re.IGNORECASE)  # 31-May-24
ZONE = re.compile(r" (?=[+-]\d\d:?\d\d$)")
FEWEST_DAYS, LAST_DAY = 28, 31  # of a month: as many different numbers of two digits are no years
USUAL = "write dates such as 2024-05-31"


def split_by_date(data: Any, tables: dict[str, Any]) -> dict[str, Any]:
    """The splits of one table, by the column `data.split_by`.

    Raises:
        UserError: there are several tables, or other settings that draw splits; or the column is missing, says nothing
            that can be read as dates, or has too few of them.
    """
    column = data.split_by
    setting = f"data.split_by={column}"
    require("all" in tables, f"{setting} draws splits of one file, but there are {list_names([*tables])}: remove it")
    for name in ("folds", "group"):
        value = getattr(data, name)
        require(not value, f"{setting} and data.{name}={value} both say how splits are drawn: remove one of them")
    table = tables["all"]()
    names = list_names(table.names)
    require(column in table.names, f"{setting} is no column of {table.source}: its columns are {names}")
    require(len(table.numbers) > 0, f"{table.source} has no row: a split needs at least one")
    cells, notes, broken = table.column(column), [*table.notes], dict(table.broken)
    seconds_n = read_dates(cells, setting, table.source, notes)
    for at in np.flatnonzero(np.isnan(seconds_n)).tolist():
        said = f"'{format_value(cells[at])}' is none that can be read, as 2024-05-31 can"
        if cells[at] in (None, ""):
            said = "is empty"
        broken.setdefault(at, f"the date in '{format_value(column)}' {said}")
    seconds_n[[*broken]] = np.nan  # these rows are refused, or left out, among those of train
    n = int((~np.isnan(seconds_n)).sum())
    shares = {"test": data.test_share}
    if not data.validates_on_train:
        shares["validation"] = data.validation_share
    parts: dict[str, Any] = {}
    whole = replace(table, broken=broken, notes=[])
    for role, share in shares.items():
        n_wanted = max(1, round(share * n))
        is_new_n = newest(seconds_n, n_wanted)
        first, last = (_as_text(seconds_n[is_new_n])) if is_new_n.any() else ("", "")
        seconds_n = np.where(is_new_n, np.inf, seconds_n)
        left_n = seconds_n[np.isfinite(seconds_n)]
        require(len(left_n) > 0, f"{setting} leaves no row of {table.source} to learn from: its dates are too few")
        n_tied = int((left_n == left_n.max()).sum())
        ties = f" ({n_tied:,} rows of one date stay together before them)" if is_new_n.sum() < n_wanted else ""
        found = f"{int(is_new_n.sum()):,} of {n:,} rows of {table.source}"
        notes.append(f"{role}: {found} are the newest by {format_value(column)}, from {first} to {last}{ties}")
        parts[role] = partial(_part, whole, np.flatnonzero(is_new_n), [])
    return {"train": partial(_part, whole, np.flatnonzero(~np.isinf(seconds_n)), notes), **parts}


def _part(table: RawTable, indices: Any, notes: list[str]) -> RawTable:
    return replace(select_rows(table, indices), notes=notes)


def newest(seconds_n: Any, n_wanted: int) -> Any:
    """The newest rows, bool `(n,)`: at most `n_wanted`, as rows of one date stay together, but always those of the last
    date. NaN and infinity are none."""
    found_n = np.where(np.isfinite(seconds_n), seconds_n, -np.inf)
    ordered_n = np.sort(found_n)
    is_new_n = found_n > ordered_n[-n_wanted - 1] if n_wanted < len(ordered_n) else np.zeros(len(found_n), dtype=bool)
    if not is_new_n.any():
        is_new_n = (found_n == ordered_n[-1]) & np.isfinite(found_n)
    return is_new_n


def read_dates(cells: Sequence[Any], setting: str, source: str, notes: list[str]) -> Any:
    """Seconds since 1970 of each cell, float64 `(n,)`; NaN where there is no date that can be read.

    Raises:
        UserError: none can be read, or nothing says whether days or months come first.
    """
    column = coded(cells)
    numbered = [NUMBERED.fullmatch(str(cell).strip()) for cell in column.values]
    slashed = [one for one in numbered if one is not None and one[2] != "."]
    n_day_first, n_month_first = (sum(int(one[place]) > 12 for one in slashed) for place in (1, 3))
    require(
        not slashed or n_day_first != n_month_first,
        f"{setting}: nothing in {source} says whether '{slashed[0][0] if slashed else ''}' begins with the day or the "
        f"month: {USUAL}",
    )
    short = [one for one in numbered if one is not None and len(one[4]) == 2]
    firsts = {int(one[1]) for one in short}  # days, or years of which a column may have many and always the same day
    are_days = n_month_first > n_day_first or len(firsts) >= FEWEST_DAYS or len(short) < len([*filter(None, numbered)])
    if short and all(one[2] == "." for one in short):  # most languages with dots begin with the day
        are_days = are_days or len(firsts) >= 2 * len({one[4] for one in short})
    require(
        not short or (are_days and max(firsts) <= LAST_DAY),
        f"{setting}: nothing in {source} says whether '{short[0][0] if short else ''}' begins with the day or the "
        f"year: {USUAL}",
    )
    seconds_V, is_plain_V = np.full(len(column.values), np.nan), np.zeros(len(column.values), dtype=bool)
    for at, cell in enumerate(column.values):
        try:
            made = read_date(cell, day_first=n_day_first > n_month_first)
            if made is not None:
                is_plain_V[at] = made.tzinfo is None
                made = made.replace(tzinfo=UTC) if made.tzinfo is None else made.astimezone(UTC)
                seconds_V[at] = (made - EPOCH).total_seconds()
        except (ValueError, OverflowError):  # in UTC the end of the year 9999 may be one of 10000
            continue
    is_read_V = ~np.isnan(seconds_V)
    first = format_value(column.values[0])
    require(bool(is_read_V.any()), f"{setting}: no cell of {source} is a date (first: '{first}'): {USUAL}")
    n_plain = int(is_plain_V[column.codes].sum())
    if n_plain and (is_read_V & ~is_plain_V).any():
        notes.append(f"{source}: {n_plain:,} dates have no time zone, as others have: they count as UTC")
    return seconds_V[column.codes]


def read_date(cell: Any, *, day_first: bool) -> datetime | None:
    """A date of ISO 8601, also with slashes or dots, or of an e-mail; a year; seconds or thousandths since 1970; day,
    month and year as numbers. None: there is none. A ValueError where it cannot be read."""
    if cell is None or cell == "" or cell != cell:
        return None
    if isinstance(cell, date):
        return cell if isinstance(cell, datetime) else datetime.combine(cell, time())
    text = drop_zero_fraction(str(cell).strip())  # of a year in a column that has empty cells, too
    text = SHORT_HOUR.sub("0", text)
    if found := YEAR.fullmatch(text):
        return datetime(int(found[1]), int(found[2] or 1), 1)
    if STAMP.fullmatch(text) or HALF_DAY.search(text):
        raise ValueError
    if SECONDS.fullmatch(text):
        seconds = float(text)
        return datetime.fromtimestamp(seconds / 1000 if abs(seconds) > LONGEST_SECONDS else seconds, UTC)
    if found := NUMBERED.fullmatch(text):
        day, month = int(found[1]), int(found[3])
        if found[2] != "." and not day_first:
            day, month = month, day
        year = found[4] if len(found[4]) == 4 else f"{20 if int(found[4]) < 69 else 19}{found[4]}"  # as POSIX does
        return datetime.fromisoformat(f"{year}-{month:02}-{day:02}T{found[5] or '00:00'}")
    if found := YEAR_FIRST.match(text):
        text = f"{found[1]}-{int(found[3]):02}-{int(found[4]):02}{text[found.end() :]}"
    text = NAMED.sub(r"\1 \3 \4", text)
    try:
        return datetime.fromisoformat(ZONE.sub("", re.sub(" UTC$", "Z", text)))
    except ValueError:
        return parsedate_to_datetime(text if ":" in text else f"{text} 00:00")


def _as_text(seconds_n: Any) -> tuple[str, str]:
    """The first and the last day."""
    first, last = (datetime.fromtimestamp(one, UTC).strftime("%Y-%m-%d") for one in (seconds_n.min(), seconds_n.max()))
    return first, last
