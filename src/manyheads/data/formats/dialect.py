"""How a csv or tsv is written: what separates its cells, whether quotes are quotes, and where its header is.

Found in the first lines of the file; what is wrong with them is a sentence that says what to do.
"""

import csv
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from manyheads.config.sentences import list_names
from manyheads.errors import UserError

SIGNS = ",;\t|"  # that separate cells; of two that fit alike the first does
SEP = re.compile(r'"?sep=(?P<sign>[!#-/:-@[-`{-~\t])"?(?P=sign)*\s*', re.IGNORECASE)  # Excel's line above a header
# What may be the name of a column: up to four words, such as `review text (en)`, none of which ends as a sentence does.
WORD = r"[\w(\[{]([\w./:()\[\]{}^~#|;-]{0,28}[\w)\]}-])?"
NAME = re.compile(f"{WORD}( {WORD}){{0,3}}")
NUMBER = re.compile(r"[\d.,:/ +-]*")  # or a date
SAMPLE, SAMPLED = 100, 2**20  # lines, and characters, by which the dialect is chosen
LONGEST_NAME = 60  # letters of a column's
MOST_ABOVE = 10  # rows of a title above a header
MOST_ROWS = 0.5  # a larger share of the rows of a table is most of them
MOST_SIGNS = 2**20  # in a line, of which each may begin a cell of some sixty bytes


def are_quotes(lines_anew: Callable[[], Iterable[str]]) -> bool:
    """Whether quotes in a table with tabs are quotes, not plain characters.

    They are if they fit together, and if reading them so makes rows that fit the header better: of the lines that
    quotes join to others, most do not have as many cells as the header by themselves. Where the header has one column
    alone nothing tells, and they are quotes.

    Args:
        lines_anew: gives the lines of the table from the first on, each time it is called.
    """
    quoted = csv.reader(lines_anew(), delimiter="\t", quoting=csv.QUOTE_MINIMAL, strict=True)
    plain = csv.reader(lines_anew(), delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    try:
        header = next(plain, [])
        n_rows, n_other_width = 0, 0
        for row in quoted:
            if not n_rows and row != header:
                return True
            n_rows += 1
            n_other_width += len(row) != len(header)
        n_joined = quoted.line_num - n_rows  # lines within quotes
        if not n_joined or len(header) < 2:
            return True
        n_other_width_plain = sum(len(row) != len(header) for row in plain)
        return 2 * (n_other_width_plain - n_other_width) >= n_joined
    except csv.Error:
        return False


def refuse_wide(lines: Iterable[str], name: str, first: int = 1) -> Iterator[str]:
    """The lines of the file `name`, one by one; they are numbered from `first`.

    Raises:
        UserError: one would be cut into cells that take many times its memory; names it.
    """
    for number, line in enumerate(lines, first):
        if len(line) > MOST_SIGNS and any(line.count(sign) > MOST_SIGNS for sign in SIGNS):
            raise UserError(f"{name}, line {number} has more than {MOST_SIGNS:,} separators: it is no table of texts")
        yield line


class Dialect(NamedTuple):
    """How a csv or tsv is read.

    Attributes:
        dialect: of the csv module.
        n_lines: lines above the header that name the separator: none or one.
        titled: what to do where the header is not the first row, but below a title; empty: it is the first.
        hint: what to do where the first row does not name the columns that are read, for any reason.
    """

    dialect: Any
    n_lines: int
    titled: str
    hint: str


def beginning(lines: Iterator[str]) -> Iterator[str]:
    """The first lines of a file, by which `start_of` tells how it is read."""
    n_characters = 0
    for line in islice(lines, SAMPLE):
        yield line
        n_characters += len(line)
        if n_characters > SAMPLED:
            return


def start_of(lines: list[str], kind: str, has_quotes: Callable[[int], bool], names: Collection[str] = ()) -> Dialect:
    """How a `.csv` or `.tsv` is read that begins with `lines`: the one rule of all that read it.

    A first line such as `sep=;` says what separates cells. Else a .tsv has tabs, and a .csv the sign in its header that
    fits most rows; of those that fit alike the one that makes most cells. Where the header has a space after each
    separator, such spaces are no part of a cell, which may be quoted.

    Args:
        has_quotes: `are_quotes`, of a table with tabs that begins after that many lines.
        names: columns that are looked for, as far as they are known.
    """
    said = SEP.fullmatch(lines[0]) if lines else None
    n_lines = 0
    if said is not None:
        n_lines, lines = 1, lines[1:]
        sign = said["sign"]
    elif kind == ".tsv":
        sign = "\t"
    else:
        sign = _separator(lines)
    header = next((line for line in lines if line.strip()), "")
    is_spaced = sign != "\t" and 0 < header.count(sign) == header.count(f"{sign} ")
    quoting = csv.QUOTE_MINIMAL
    if kind == ".tsv" and sign == "\t" and not has_quotes(n_lines):
        quoting = csv.QUOTE_NONE
    dialect = csv.reader([], delimiter=sign, quoting=quoting, strict=True, skipinitialspace=is_spaced).dialect
    titled = _titled(lines, names)
    if titled is not None and titled.sign != sign and _fit(_rows_by(lines, sign))[0] > MOST_ROWS:
        titled = None  # its sign is in a cell of each row, such as the bar in spam:3|ham:1
    if titled is not None:
        rule = title_rule(n_lines + titled.at + 1, titled.header)
        return Dialect(dialect, n_lines, rule, rule)
    return Dialect(dialect, n_lines, "", _other_separator(lines, sign, kind, n_lines))


def named(sign: str) -> str:
    """A separator, as a sentence names it."""
    return "tab" if sign == "\t" else sign


def _rows_by(lines: list[str], sign: str) -> list[list[str]]:
    """The rows of the beginning of a file, without the last if that may be incomplete."""
    rows: list[list[str]] = []
    with suppress(csv.Error):  # which is said when the file is read
        rows.extend(csv.reader(lines, delimiter=sign))
    is_cut = len(lines) >= SAMPLE - 1 or sum(map(len, lines)) > SAMPLED
    if is_cut and len(rows) > 1:
        rows.pop()
    return rows


def _fit(rows: list[list[str]]) -> tuple[float, int]:
    """The share of rows that have as many cells as the first, their header, has names, and how many cells that has; 0
    and 0 where it has one alone. Blank lines are no rows."""
    rows = [row for row in rows if row]
    if not rows or len(rows[0]) < 2:
        return 0.0, 0
    header, others = rows[0], rows[1:]
    width = len(header)
    named_cells = [at for at, cell in enumerate(header, 1) if cell.strip()]
    least = named_cells[-1] if named_cells else width  # cells after the last name may be left out
    n_fit = sum(least <= len(row) <= width for row in others)
    return n_fit / max(1, len(others)), width


def _separator(lines: list[str]) -> str:
    """The sign in the header of a .csv that fits most rows; of those that fit alike the one that makes most cells."""
    of_sign = {sign: _rows_by(lines, sign) for sign in SIGNS}
    first_by_bars = next((row for row in of_sign["|"] if row), [])
    if not are_names(first_by_bars):  # a text may hold a bar
        del of_sign["|"]
    best, best_fit = SIGNS[0], (0.0, 0)
    for sign, rows in of_sign.items():
        fit = _fit(rows)
        if fit > best_fit:
            best, best_fit = sign, fit
    share, width = best_fit
    if width and not share and (titled := _titled(lines)) is not None:
        return titled.sign
    return best


class _Titled(NamedTuple):
    """A table below a title: its separator, the index of the row that is its header, and the header."""

    sign: str
    at: int
    header: list[str]


def _titled(lines: list[str], names: Collection[str] = ()) -> _Titled | None:
    """The first row below another that seems to be the header: it has one of `names`, or a name in each cell, where
    most rows have as many cells, but those above have fewer."""
    of_sign = {sign: _rows_by(lines, sign) for sign in SIGNS}
    for at in range(1, MOST_ABOVE + 1):
        for sign, rows in of_sign.items():
            if at >= len(rows):
                continue
            header, above = rows[at], rows[:at]
            if not {cell.strip() for cell in header}.isdisjoint(names):
                return _Titled(sign, at, header)
            share, width = _fit(rows[at:])
            if share > MOST_ROWS and are_names(header) and max(map(_n_filled, above)) < width:
                return _Titled(sign, at, header)
    return None


def are_names(header: list[str]) -> bool:
    """Whether each cell of a row may name a column, as each is another and none empty, a number or a sentence."""
    names = [name.strip() for name in header]
    if not names or len({*names}) < len(names):
        return False
    for name in names:
        is_number = NUMBER.fullmatch(name) is not None  # or empty
        if is_number or len(name) > LONGEST_NAME or name[-1] in ".!?":
            return False
    return True


def _n_filled(row: list[str]) -> int:
    return sum(bool(cell.strip()) for cell in row)


def title_rule(number: int, header: Iterable[str]) -> str:
    """That a header is in row `number`, and what to do about it."""
    above = "and what is above it like a title: remove all lines above the header"
    return f"row {number} looks like its header ({list_names([*header])}), {above}"


def _other_separator(lines: list[str], sign: str, kind: str, n_lines: int) -> str:
    """That a table that is not separated by `sign` seems to be so by another one, and what to do about it."""
    first = next((line for line in lines if line.strip()), "")
    if sign in first:
        return ""
    marks = [letter for letter in first if letter in string.punctuation and letter not in "\"'._-"]
    for other in dict.fromkeys([*SIGNS, *marks]):
        rows = _rows_by(lines, other)
        share, _ = _fit(rows)
        if other != sign and share > MOST_ROWS and are_names(next(row for row in rows if row)):
            if n_lines:
                remedy = f"put a first line that says sep={other}"
            elif kind == ".tsv" and other in SIGNS:
                remedy = "let its name end with .csv"
            else:
                remedy = f"put a line that says sep={other} on top"
            return f"its cells seem to be separated by {named(other)}, not by {named(sign)}: {remedy}"
    return ""


def quote_rule(problem: csv.Error) -> str:
    if "unexpected end" in str(problem):
        return "a quoted text is never closed; the file is truncated, or a quote inside a text is not doubled"
    return f"broken quoting ({problem}); double the quotes inside a quoted text"


def width_rule(n_cells: int, width: int, sign: str) -> str:
    """That a row has other cells than its header."""
    has = f"has {n_cells} cell{'s' * (n_cells != 1)}, but the header has {width}"
    if n_cells < width:
        return f"{has}: quote texts that hold a line end"
    return f"{has}: quote texts that hold the separator ({named(sign)})"
