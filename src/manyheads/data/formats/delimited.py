"""Rows of a csv or tsv, as the csv module reads them.

Arrow parses a block where it cannot but read what the csv module does, and finds as many rows; it is some ten times as
fast. A text is split into rows by the csv module or at line feeds, never by `str.splitlines`, which also breaks at
U+0085 and U+2028 inside a text.
"""

import codecs
import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.csv

from manyheads.config.sentences import format_value
from manyheads.data.formats.dialect import (
    MOST_SIGNS,
    SAMPLED,
    beginning,
    quote_rule,
    refuse_wide,
    start_of,
    width_rule,
)
from manyheads.data.formats.source import MOST_CELL, RowBlock, lines_of
from manyheads.errors import UserError

LF, CR, QUOTE = b'\n\r"'
MOST_COLUMNS = 2**18  # more than any table of texts has


class Header(NamedTuple):
    """The first row that is not blank.

    Attributes:
        record: its cells as they are.
        names: of the columns that have one.
        where: the place of each of these.
        least, width: cells of a row, at least and at most.
        sign: what separates them.
    """

    record: list[str]
    names: list[str]
    where: dict[str, int]
    least: int
    width: int
    sign: str


def header_of(path: Path, record: list[str], number: int, sign: str) -> Header:
    """What the row `number`, the first that is not blank, says.

    Raises:
        UserError: it names no column, one twice, or too many; or there is none.
    """
    if len(record) > MOST_COLUMNS:
        raise UserError(
            f"{path} has {len(record):,} columns, but a table has at most {MOST_COLUMNS:,}: keep those of the text and "
            "the label"
        )
    header = [name.strip() for name in record]
    names = [name for name in header if name]
    if not names:
        raise UserError(f"{path} has no header: its first row must name the columns, such as text,label")
    counts = Counter(names)
    for name in names:
        if counts[name] > 1:
            raise UserError(
                f"{path}, row {number}: the header names the column '{format_value(name)}' twice; rename one"
            )
    where = {name: at for at, name in enumerate(header) if name}
    return Header(record, names, where, max(where.values()) + 1, len(header), sign)


class DelimitedParser:
    """Parses blocks of rows of a csv or tsv; see `source.Parse`.

    Args:
        head: the beginning of the file, without a byte order mark.
        whole: that is all of it.
        has_quotes: whether quotes are quotes in a table with tabs that begins after that many lines; see
            `dialect.are_quotes`.
        columns: names that are looked for, as far as they are known.

    Attributes:
        begin, number: the characters above the first row, and its number.
        titled, hint: see `dialect.Dialect`.

    Raises:
        EOFError: the header, or what tells how the file is read, does not end in `head`.
        UserError: the file has no header, or one that is not closed.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        head: str,
        has_quotes: Callable[[int], bool],
        columns: Sequence[str] = (),
        *,
        whole: bool,
    ) -> None:
        csv.field_size_limit(MOST_CELL)
        self.path = path
        sample = [*beginning(refuse_wide(lines_of(head), str(path)))]
        if not whole and sum(map(len, sample)) == len(head) <= SAMPLED:
            raise EOFError
        self.dialect, n_lines, self.titled, self.hint = start_of(sample, kind, has_quotes, columns)
        lines = _CountedLines(refuse_wide(lines_of(head), str(path)))
        self.number = n_lines + 1
        record: list[str] = []
        try:
            rows = csv.reader(islice(lines, n_lines, None), self.dialect)
            for self.number, record in enumerate(rows, n_lines + 2):
                if record:  # the header; blank lines above it are left out
                    break
        except csv.Error as problem:
            if not whole and "unexpected end" in str(problem):
                raise EOFError from None
            raise UserError(f"{path}, row {self.number}: {quote_rule(problem)}") from None
        if lines.n == len(head) and not whole:
            raise EOFError
        self.header = header_of(path, record, self.number - 1, self.dialect.delimiter)
        self.begin = len(head[: lines.n].encode())

    def __call__(self, raw: bytes, number: int, last: bool, by_arrow: bool) -> RowBlock | None:
        """See `source.Parse`.

        Raises:
            UserError: broken quotes; names the row.
        """
        if by_arrow:
            return self._arrow_block(memoryview(raw), range(0), 0, None)
        return self._by_arrow(raw, number, last) or self._by_csv(raw, number, last)

    def with_remedy(self, broken: dict[int, str], n_rows: int) -> dict[int, str]:
        """Why rows of a table of `n_rows` are broken, with a remedy where each has one cell more than the header, as R
        writes the names of rows."""
        rule = width_rule(self.header.width + 1, self.header.width, self.header.sign)
        if n_rows < 2 or len(broken) < n_rows or {*broken.values()} != {rule}:
            return broken
        return dict.fromkeys(broken, f"{rule}, or add a name to the header, which all rows exceed")

    def _by_arrow(self, raw: bytes, number: int, last: bool) -> RowBlock | None:
        """The rows as Arrow reads them; None: it may read them otherwise than the csv module, or not at all.

        Shapes: `bytes_B` the bytes; `lines_L` and `quotes_Q` where line feeds and quotes are; `bounds_R` before each
        row, and the end of the last.
        """
        if self.dialect.skipinitialspace or (b"\r" in raw and raw.count(b"\r") != raw.count(b"\r\n")):
            return None
        if raw.startswith(codecs.BOM_UTF8):  # of a text, which Arrow would leave out
            return None
        bytes_B = np.frombuffer(raw, dtype=np.uint8)
        lines_L = np.flatnonzero(bytes_B == LF)
        if np.diff(lines_L, prepend=-1, append=len(raw)).max() > MOST_SIGNS:
            return None
        quotes_Q, ends = lines_L[:0], lines_L
        if self.dialect.quoting == csv.QUOTE_MINIMAL:
            quotes_Q = np.flatnonzero(bytes_B == QUOTE)
        if len(quotes_Q):  # a line feed ends a row where as many quotes were closed as opened
            ends = lines_L[np.searchsorted(quotes_Q, lines_L) % 2 == 0]
        end = 0  # of the last whole row
        if last:
            end = len(raw)
        elif len(ends):
            end = int(ends[-1]) + 1
        if not end:
            return None
        quotes_Q = quotes_Q[quotes_Q < end]
        around = (LF, CR, QUOTE, ord(self.dialect.delimiter))
        if len(quotes_Q) and not _are_closed(bytes_B[:end], quotes_Q, around):
            return None

        bounds_R = np.concatenate([[-1], ends[ends < end]])
        if last and not raw.endswith(b"\n"):
            bounds_R = np.append(bounds_R, end)
        lengths = np.diff(bounds_R) - 1
        is_return = bytes_B[np.minimum(bounds_R[:-1] + 1, end - 1)] == CR
        is_blank = (lengths == 0) | ((lengths == 1) & is_return)  # which is no row for either, but has a number
        numbers: Any = range(number, number + len(lengths))
        if is_blank.any():
            numbers = np.flatnonzero(~is_blank) + number
        whole = memoryview(raw)[:end]
        if not len(numbers):
            return self._arrow_block(whole, numbers, len(lengths), None)
        try:
            parsed = self._parsed(whole, None)
        except pyarrow.ArrowInvalid:
            return None
        if parsed.num_rows != len(numbers):
            return None
        return self._arrow_block(whole, numbers, len(lengths), parsed)

    def _arrow_block(self, raw: memoryview, numbers: Sequence[int], n_numbers: int, parsed: Any) -> RowBlock:
        def column(name: str) -> list[Any]:
            return self._parsed(raw, self.header.where[name]).column(0).to_pylist()

        def records() -> Iterator[Any]:
            if parsed is None:
                return iter(())
            return zip(*(cells.to_pylist() for cells in parsed.columns), strict=True)

        return RowBlock(self.header.names, column, records, numbers, len(raw), n_numbers, by_arrow=True)

    def _parsed(self, raw: memoryview, at: int | None) -> pyarrow.Table:
        """Column `at`; None: all."""
        names = [str(index) for index in range(self.header.width)]
        return pyarrow.csv.read_csv(
            pyarrow.BufferReader(raw),
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=len(raw) + 1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.dialect.delimiter,
                quote_char=False if self.dialect.quoting == csv.QUOTE_NONE else '"',
                newlines_in_values=True,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pyarrow.string()),
                null_values=[],
                strings_can_be_null=False,
                include_columns=None if at is None else [str(at)],
            ),
        )

    def _by_csv(self, raw: bytes, number: int, last: bool) -> RowBlock | None:
        """The rows as the csv module reads them: all, or all but a last one that may be incomplete."""
        if not last:
            raw = raw[: raw.rfind(b"\n") + 1]
        text = raw.decode("utf-8")
        lines = _CountedLines(refuse_wide(lines_of(text), str(self.path), number))
        every: list[list[str]] = []
        n_read = 0  # characters of whole rows
        try:
            for record in csv.reader(lines, self.dialect):
                every.append(record)
                n_read = lines.n
        except csv.Error as problem:
            if last or "unexpected end" not in str(problem):
                raise UserError(f"{self.path}, row {number + len(every)}: {quote_rule(problem)}") from None
        if not every and not last:
            return None
        records = every
        numbers: Sequence[int] = range(number, number + len(every))
        if [] in every:  # blank lines, which are no rows, but have numbers
            records = [record for record in every if record]
            numbers = [at for at, record in zip(numbers, every, strict=True) if record]
        header = self.header
        broken: dict[int, str] = {}
        for index, record in enumerate(records):
            if not header.least <= len(record) <= header.width:
                broken[index] = width_rule(len(record), header.width, header.sign)
        if last and number == self.number:  # these are all rows
            broken = self.with_remedy(broken, len(records))

        def column(name: str) -> list[str]:
            at = header.where[name]
            return [record[at] if at < len(record) else "" for record in records]

        return RowBlock(
            names=header.names,
            column=column,
            records=lambda: records,
            numbers=numbers,
            n_bytes=len(text[:n_read].encode()) if n_read < len(text) else len(raw),
            n_numbers=len(every),
            broken=broken,
        )


def csv_rows_begun(dialect: Any, text: str) -> int:
    """How many rows of a csv begin in a text that is cut anywhere."""
    csv.field_size_limit(MOST_CELL)
    return sum(1 for _ in csv.reader(lines_of(f"{text}x"), dialect, strict=False))


class _CountedLines:
    """Lines, and how many characters of them were given."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines, self.n = lines, 0

    def __iter__(self) -> "_CountedLines":
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.n += len(line)
        return line


def _are_closed(bytes_B: np.ndarray, quotes_Q: np.ndarray, around: tuple[int, ...]) -> bool:
    """Whether each quote opens a cell at its beginning, closes it at its end, or is one of two inside: next to it is a
    byte of `around`, or nothing."""
    if len(quotes_Q) % 2:
        return False
    opening, closing = quotes_Q[0::2], quotes_Q[1::2]
    before = bytes_B[opening[opening > 0] - 1]
    after = bytes_B[closing[closing < len(bytes_B) - 1] + 1]
    return bool(np.isin(before, around).all() and np.isin(after, around).all())
