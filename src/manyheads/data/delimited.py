"""The rows of a csv or tsv as the csv module reads them.

A text is split into rows by the csv module or at line feeds, never by `str.splitlines`, which also breaks at U+0085 and
U+2028 inside a text.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from manyheads.config.fields import show

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
SIGNS = ",;\t"  # that separate cells
MOST_COLUMNS = 2**18
MOST_SIGNS = 2**20  # in a line, of which each may begin a cell of some sixty bytes
MOST_CELL = min(sys.maxsize, 2**31 - 1)  # characters
Records = list[list[str]]


class Cells(NamedTuple):
    """The cells of a block of rows, by column; the numbers of the rows, and by index why one is broken."""

    names: list[str]
    column: Callable[[str], list[Any]]
    numbers: Sequence[int]
    broken: Mapping[int, str] = MappingProxyType({})


class Part(NamedTuple):
    """What was read of the beginning of some bytes: `n_bytes` of them, with so many rows or lines that numbers count.
    `plain`: Arrow reads them."""

    cells: Cells
    n_bytes: int
    n_numbers: int
    plain: bool = False


def tab_reader(anew: Callable[[], Iterable[str]]) -> Any:
    """The csv module's reader of lines with tabs, which are asked for `anew` to tell what their quotes are."""
    quoting = csv.QUOTE_MINIMAL if are_quotes(anew) else csv.QUOTE_NONE
    return csv.reader(anew(), delimiter="\t", quoting=quoting, strict=True)


def are_quotes(anew: Callable[[], Iterable[str]]) -> bool:
    """Whether quotes are quotes, not plain characters: they fit together, and of the lines that they join to others
    most have not as many cells as the header, or there is one column alone, of which nothing tells."""
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


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text with their ends, as a file opened with newline="" gives them; io.StringIO would hold each
    character once more, in four bytes."""
    return (found[0] for found in LINE.finditer(text))


def refuse_wide(lines: Iterable[str], name: str) -> Iterator[str]:
    """The lines of the file `name`, one by one.

    Raises:
        ValueError: one would be cut into cells that take many times its memory; names it.
    """
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_SIGNS and any(line.count(sign) > MOST_SIGNS for sign in SIGNS):
            raise ValueError(f"{name}, line {number} has more than {MOST_SIGNS:,} separators: it is no table of texts")
        yield line


def require_few(header: list[str], name: str) -> None:
    """Raise ValueError if a file has more columns than any table of texts."""
    if len(header) > MOST_COLUMNS:
        raise ValueError(
            f"{name} has {len(header):,} columns, but a table has at most {MOST_COLUMNS:,}: keep those of the text and "
            "the label"
        )


def csv_reader(lines: Iterable[str], header: str) -> Any:
    """The csv module's reader of `lines`, of which `header` is the first. Where that has a space behind each separator,
    such spaces are no part of a cell, which may be quoted.

    Their sign is a comma, unless the header has none and holds semicolons or tabs instead.
    """
    sign = next((sign for sign in SIGNS if sign in header), ",")
    spaced = sign != "\t" and 0 < header.count(sign) == header.count(f"{sign} ")
    return csv.reader(lines, delimiter=sign, strict=True, skipinitialspace=spaced)


def row_of(text: str) -> int:
    """The row of a csv or tsv in which `text`, its beginning, ends."""
    csv.field_size_limit(MOST_CELL)
    return sum(1 for _ in csv.reader(lines_of(f"{text}x")))


def quote_rule(problem: csv.Error) -> str:
    if "unexpected end" in str(problem):
        return "a quoted text is never closed; the file is truncated, or a quote inside a text is not doubled"
    return f"broken quoting ({problem}); double the quotes inside a quoted text"


class Header(NamedTuple):
    """The columns of a file that have names, where each is, how many cells a row has at least, and at most."""

    names: list[str]
    where: dict[str, int]
    least: int
    width: int


def header_of(path: Path, records: Records) -> Header:
    """What the first of `records` says.

    Raises:
        ValueError: it names no column, or one twice; or there is none.
    """
    require_few(records[0] if records else [], str(path))
    header = [name.strip() for name in records[0]] if records else []
    names = [name for name in header if name]
    if not names:
        raise ValueError(f"{path} has no header: its first row must name the columns, such as text,label")
    where = {name: at for at, name in enumerate(header) if name}
    if len(where) < len(names):
        repeated = next(name for at, name in enumerate(header) if name and where[name] != at)
        raise ValueError(f"{path}, row 1: the header names the column '{show(repeated)}' twice; rename one")
    return Header(names, where, max(where.values()) + 1, len(header))


def cells_of_records(header: Header, body: Records, number: int) -> Cells:
    """The cells of the rows `body`, the first of which is `number`; empty ones are none."""
    numbers: Any = range(number, number + len(body))
    if [] in body:
        numbers = [number for number, record in zip(numbers, body, strict=True) if record]
        body = [record for record in body if record]
    broken: dict[int, str] = {}
    _, where, least, width = header
    for index, record in enumerate(body):
        if not least <= len(record) <= width:
            broken[index] = f"has {len(record)} cells, but the header has {width}: quote texts that hold the separator"

    def column(name: str) -> list[str]:
        at = where[name]
        return [record[at] if at < len(record) else "" for record in body]

    return Cells(header.names, column, numbers, broken)
