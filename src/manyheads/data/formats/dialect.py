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
MOST_COLUMNS = 2**18
MOST_SIGNS = 2**20  # in a line, of which each may begin a cell of some sixty bytes


def are_quotes(anew: Callable[[], Iterable[str]]) -> bool:
    """Whether quotes in lines with tabs, which are asked for `anew`, are quotes, not plain characters: they fit
    together, and of the lines that they join to others most have not as many cells as the header, or there is one
    column alone, of which nothing tells."""
    quoted, plain = (
        csv.reader(anew(), delimiter="\t", quoting=quoting, strict=True)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)
    )
    n_rows, n_others = 0, 0
    try:
        header = next(plain, [])
        for row in quoted:
            if not n_rows and row != header:
                return True
            n_rows += 1
            n_others += len(row) != len(header)
        n_within = quoted.line_num - n_rows
        if not n_within or len(header) < 2:
            return True
        return 2 * (sum(len(row) != len(header) for row in plain) - n_others) >= n_within
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


def require_few(header: list[str], name: str) -> None:
    """Raise UserError if a file has more columns than any table of texts."""
    if len(header) > MOST_COLUMNS:
        raise UserError(
            f"{name} has {len(header):,} columns, but a table has at most {MOST_COLUMNS:,}: keep those of the text and "
            "the label"
        )


class Dialect(NamedTuple):
    """How a csv or tsv is read. `n_lines` above the header name the separator. `titled`, `hint`: what to do where the
    first row does not name the columns that are read, as the header is below it or for any reason."""

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
    n_lines = int(said is not None)
    lines = lines[n_lines:]
    sign = said["sign"] if said else "\t" if kind == ".tsv" else _separator(lines)
    header = next((line for line in lines if line.strip()), "")
    spaced = sign != "\t" and 0 < header.count(sign) == header.count(f"{sign} ")
    quoted = kind != ".tsv" or sign != "\t" or has_quotes(n_lines)
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    dialect = csv.reader([], delimiter=sign, quoting=quoting, strict=True, skipinitialspace=spaced).dialect
    titled = _titled(lines, names)
    rule = title_rule(n_lines + titled[1] + 1, titled[2]) if titled else ""
    return Dialect(dialect, n_lines, rule, rule or _other_separator(lines, sign, kind, n_lines))


def named(sign: str) -> str:
    """A separator, as a sentence names it."""
    return "tab" if sign == "\t" else sign


def _rows_by(lines: list[str], sign: str) -> list[list[str]]:
    """The rows of the beginning of a file, without the last if that may be incomplete."""
    rows: list[list[str]] = []
    with suppress(csv.Error):  # which is said when the file is read
        rows.extend(csv.reader(lines, delimiter=sign))
    is_cut = len(lines) >= SAMPLE - 1 or sum(map(len, lines)) > SAMPLED
    return rows[:-1] if is_cut and len(rows) > 1 else rows


def _fit(rows: list[list[str]]) -> tuple[float, int]:
    """The share of rows that have the cells which the first, their header, names, and how many cells that has; nothing
    where it has one alone. Blank lines are no rows."""
    rows = [row for row in rows if row]
    width = len(rows[0]) if rows else 0
    if width < 2:
        return 0.0, 0
    least = max((at for at, cell in enumerate(rows[0], 1) if cell.strip()), default=width)
    return sum(least <= len(row) <= width for row in rows[1:]) / max(1, len(rows) - 1), width


def _separator(lines: list[str]) -> str:
    of_sign = {sign: _rows_by(lines, sign) for sign in SIGNS}
    if not _are_names(next(filter(None, of_sign["|"]), [])):  # a text may hold a bar
        del of_sign["|"]
    fits = {sign: _fit(rows) for sign, rows in of_sign.items()}
    best = max(fits, key=lambda sign: fits[sign])
    share, width = fits[best]
    if width and not share and (titled := _titled(lines)):
        return titled[0]
    return best if width else SIGNS[0]


def _titled(lines: list[str], names: Collection[str] = ()) -> tuple[str, int, list[str]] | None:
    """Of a table that seems to begin below a title: its separator, the index of the row that is its header, and that:
    it has one of `names`, or a name in each cell, where most rows have as many cells, but those above have fewer."""
    of_sign = {sign: _rows_by(lines, sign) for sign in SIGNS}
    for at in range(1, MOST_ABOVE + 1):
        for sign, rows in of_sign.items():
            share, width = _fit(rows[at:])
            if at < len(rows) and not {one.strip() for one in rows[at]}.isdisjoint(names):
                return sign, at, rows[at]
            if share > 0.5 and _are_names(rows[at]) and max(map(_n_filled, rows[:at])) < width:
                return sign, at, rows[at]
    return None


def _are_names(header: list[str]) -> bool:
    """Whether each cell of a row may name a column, as each is another and none empty, a number or a sentence."""
    names = [name.strip() for name in header]
    is_text = [bool(NUMBER.fullmatch(name)) or len(name) > LONGEST_NAME or name[-1] in ".!?" for name in names]
    return 0 < len(names) == len({*names}) and not any(is_text)


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
    for other in dict.fromkeys([*SIGNS, *(one for one in first if one in string.punctuation and one not in "\"'._-")]):
        rows = _rows_by(lines, other)
        if _fit(rows)[0] > 0.5 and _are_names(next(filter(None, rows))):
            put = f"a first line that says sep={other}" if n_lines else f"a line that says sep={other} on top"
            remedy = "let its name end with .csv" if kind == ".tsv" and other in SIGNS and not n_lines else f"put {put}"
            return f"its cells seem to be separated by {named(other)}, not by {named(sign)}: {remedy}"
    return ""


def quote_rule(problem: csv.Error) -> str:
    if "unexpected end" in str(problem):
        return "a quoted text is never closed; the file is truncated, or a quote inside a text is not doubled"
    return f"broken quoting ({problem}); double the quotes inside a quoted text"


def width_rule(n_cells: int, width: int, sign: str) -> str:
    """That a row has other cells than its header."""
    return f"has {n_cells} cells, but the header has {width}: quote texts that hold the separator ({named(sign)})"
