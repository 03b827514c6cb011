"""Rows of a csv or tsv, as the csv module reads them.

Arrow parses a block where it cannot but read what the csv module does, and finds as many rows; it is some ten times as
fast. A text is split into rows by the csv module or at line feeds, never by `str.splitlines`, which also breaks at
U+0085 and U+2028 inside a text.
"""

import codecs
import csv
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
    require_few,
    start_of,
    width_rule,
)
from manyheads.data.formats.source import MOST_CELL, RowBlock, lines_of
from manyheads.errors import UserError

LF, CR, QUOTE = b'\n\r"'


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
        UserError: it names no column, or one twice; or there is none.
    """
    require_few(record, str(path))
    header = [name.strip() for name in record]
    names = [name for name in header if name]
    if not names:
        raise UserError(f"{path} has no header: its first row must name the columns, such as text,label")
    where = {name: at for at, name in enumerate(header) if name}
    if len(where) < len(names):
        repeated = next(name for at, name in enumerate(header) if name and where[name] != at)
        raise UserError(
            f"{path}, row {number}: the header names the column '{format_value(repeated)}' twice; rename one"
        )
    return Header(record, names, where, max(where.values()) + 1, len(header), sign)


class DelimitedParser:
    """Blocks of rows of a csv or tsv.

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
        lines, self.number = _Counted(refuse_wide(lines_of(head), str(path))), n_lines + 1
        record: list[str] = []
        try:
            rows = csv.reader(islice(lines, n_lines, None), self.dialect)
            for self.number, record in enumerate(rows, n_lines + 2):
                if record:
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

    def _by_arrow(self, raw: bytes, number: int, last: bool) -> RowBlock | None:
        """None: Arrow may read it otherwise than the csv module, or not at all."""
        sign = self.dialect.delimiter
        if self.dialect.skipinitialspace or (b"\r" in raw and raw.count(b"\r") != raw.count(b"\r\n")):
            return None
        if raw.startswith(codecs.BOM_UTF8):  # of a text, which Arrow would leave out
            return None
        bytes_N = np.frombuffer(raw, dtype=np.uint8)
        ends = lines = np.flatnonzero(bytes_N == LF)
        quotes = np.flatnonzero(bytes_N == QUOTE) if self.dialect.quoting == csv.QUOTE_MINIMAL else lines[:0]
        if len(quotes):  # rows end where as many quotes were closed as opened
            ends = lines[np.searchsorted(quotes, lines) % 2 == 0]
        end = len(raw) if last else int(ends[-1]) + 1 if len(ends) else 0
        quotes = quotes[quotes < end]
        if not end or np.diff(lines, prepend=-1, append=len(raw)).max() > MOST_SIGNS:
            return None
        if len(quotes) and not _are_closed(bytes_N[:end], quotes, (LF, CR, QUOTE, ord(sign))):
            return None
        bounds = np.concatenate([[-1], ends[ends < end], [end] if last and raw[-1:] != b"\n" else []]).astype(np.int64)
        lengths = np.diff(bounds) - 1
        blank = (lengths == 0) | ((lengths == 1) & (bytes_N[np.minimum(bounds[:-1] + 1, end - 1)] == CR))
        n_numbers = len(lengths)
        numbers: Any = range(number, number + n_numbers)
        if blank.any():
            numbers = np.flatnonzero(~blank) + number
        try:
            parsed = self._parsed(memoryview(raw)[:end], None) if len(numbers) else None
        except pyarrow.ArrowInvalid:
            return None
        if parsed is not None and parsed.num_rows != len(numbers):
            return None
        return self._arrow_block(memoryview(raw)[:end], numbers, n_numbers, parsed)

    def _arrow_block(self, raw: memoryview, numbers: Sequence[int], n_numbers: int, parsed: Any) -> RowBlock:
        def column(name: str) -> list[Any]:
            return self._parsed(raw, self.header.where[name]).column(0).to_pylist()

        def records() -> Iterator[Any]:
            if parsed is None:
                return iter(())
            return zip(*(one.to_pylist() for one in parsed.columns), strict=True)

        return RowBlock(self.header.names, column, records, numbers, len(raw), n_numbers, by_arrow=True)

    def _parsed(self, raw: memoryview, at: int | None) -> pyarrow.Table:
        """Column `at`, or all."""
        names = [str(one) for one in range(self.header.width)]
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
        text = raw.decode("utf-8") if last else raw[: raw.rfind(b"\n") + 1].decode("utf-8")
        lines = _Counted(refuse_wide(lines_of(text), str(self.path), number))
        records, n_read = list[list[str]](), 0
        reader = csv.reader(lines, self.dialect)
        try:
            for record in reader:
                records.append(record)
                n_read = lines.n
        except csv.Error as problem:
            if last or "unexpected end" not in str(problem):
                raise UserError(f"{self.path}, row {number + len(records)}: {quote_rule(problem)}") from None
        if not records and not last:
            return None
        n_bytes = len(text[:n_read].encode()) if n_read < len(text) else len(text.encode())
        numbers: Sequence[int] = range(number, number + len(records))
        n_numbers = len(records)
        if [] in records:  # blank lines
            numbers = [number for number, record in zip(numbers, records, strict=True) if record]
            records = [record for record in records if record]
        _, names, where, least, width, sign = self.header
        broken: dict[int, str] = {}
        for index, record in enumerate(records):
            if not least <= len(record) <= width:
                broken[index] = width_rule(len(record), width, sign)

        def column(name: str) -> list[str]:
            at = where[name]
            return [record[at] if at < len(record) else "" for record in records]

        return RowBlock(names, column, lambda: records, numbers, n_bytes, n_numbers, broken)


class _Counted:
    """Lines, and how many characters of them were given."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.lines, self.n = lines, 0

    def __iter__(self) -> "_Counted":
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.n += len(line)
        return line


def _are_closed(bytes_N: np.ndarray, quotes: np.ndarray, around: tuple[int, ...]) -> bool:
    """Whether each quote opens a cell at its beginning, closes it at its end, or is one of two inside."""
    if len(quotes) % 2:
        return False
    opening, closing = quotes[0::2], quotes[1::2]
    before, after = bytes_N[opening[opening > 0] - 1], bytes_N[closing[closing < len(bytes_N) - 1] + 1]
    return bool(np.isin(before, around).all() and np.isin(after, around).all())
