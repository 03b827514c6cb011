"""Files of text, cut into blocks of whole rows once, and read again block by block.

Arrow parses a block of a csv or tsv where it cannot but read it as the csv module does; else the csv module reads it.
"""

import codecs
import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.csv

from manyheads.data import files
from manyheads.data.column import Column
from manyheads.data.delimited import (
    MOST_CELL,
    MOST_SIGNS,
    SAMPLED,
    Cells,
    Header,
    Part,
    are_quotes,
    beginning,
    cells_of_records,
    header_of,
    lines_of,
    quote_rule,
    refuse_wide,
    row_of,
    start_of,
)
from manyheads.data.files import OPENERS, by_elements, by_lines, encoding_rule, reading, require_unchanged
from manyheads.data.seen import fingerprint, remembered
from manyheads.data.table import Table
from manyheads.errors import UserError

BLOCK = 2**23  # bytes that are parsed at once
LF, CR, QUOTE = b'\n\r"'


Parse = Callable[[bytes, int, bool, bool], Part | None]
"""Bytes, the number of their first row, whether the file ends there, whether Arrow is known to read them: what was
read; None: there is no whole row."""


class Index(NamedTuple):
    """Where the blocks of a file are: offset, bytes, rows, number of the first row, and whether Arrow reads it: int64
    `(n, 5)`; the numbers of the rows, and why rows are broken."""

    blocks: np.ndarray
    names: list[str]
    numbers: Sequence[int]
    broken: dict[int, str]


def _scanned(source: "Source", offset: int, number: int) -> Index:
    """Cut a file into blocks, each of which is read once, from `offset` on, where row `number` begins.

    Raises:
        UserError: it is not UTF-8, or too large; or as of `source.parse`.
    """
    blocks, numbers, broken, names = [], [], {}, {}
    rest, n_rows, at = b"", 0, offset
    while True:
        wanted = max(BLOCK, len(rest))  # twice as much where that held no whole row
        more = source.read(at, wanted)
        at += len(more)
        raw, last = rest + more, len(more) < wanted
        with source.decoding(raw, offset, number):
            part = source.parse(raw, number, last, False)
        if part is None:
            rest = raw
            continue
        n_here = len(part.cells.numbers)
        blocks.append((offset, part.n_bytes, n_here, number, part.plain))
        names |= dict.fromkeys(part.cells.names)
        numbers.append(part.cells.numbers)
        broken |= {n_rows + one: why for one, why in part.cells.broken.items()}
        n_rows, number, offset = n_rows + n_here, number + part.n_numbers, offset + part.n_bytes
        rest = raw[part.n_bytes :]
        if last and not rest:
            return Index(np.array(blocks, dtype=np.int64).reshape(-1, 5), [*names], _joined(numbers), broken)


def _joined(numbers: list[Sequence[int]]) -> Sequence[int]:
    """Ranges that follow one another as one range."""
    held = [one for one in numbers if len(one)]
    if all(isinstance(one, range) for one in held) and all(one[-1] + 1 == other[0] for one, other in pairwise(held)):
        return range(held[0][0], held[-1][-1] + 1) if held else range(0)
    return np.concatenate([np.asarray(one, dtype=np.int64) for one in held])  # pyright: ignore[reportReturnType]


class Delimited:
    """Blocks of rows of a csv or tsv, the first of which is row `number` and at byte `begin` after a byte order mark.

    Raises:
        EOFError: its header, or what tells how it is read, does not end in `head`, its beginning, which is not the
            `whole` file.
        UserError: it has no header, or one that is not closed.
    """

    def __init__(self, source: "Source", head: str, cache: Path | None, *, whole: bool) -> None:
        csv.field_size_limit(MOST_CELL)
        self.path = path = source.path
        sample = [*beginning(refuse_wide(lines_of(head), str(path)))]
        if not whole and sum(map(len, sample)) == len(head) <= SAMPLED:
            raise EOFError

        def has_quotes(n_lines: int) -> bool:
            def told() -> dict[str, Any]:
                return {"quoted": are_quotes(lambda: islice(source.wide_lines(), n_lines, None))}

            key, known = (path.name, fingerprint(path)), lambda found: found["quoted"] in (True, False)
            return remembered(cache, "quotes", key, told, known)["quoted"]

        self.dialect, n_lines, _, self.hint = start_of(sample, str(files.kind_of(path)), has_quotes)
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
        self.header: Header = header_of(path, record, self.number - 1, self.dialect.delimiter)
        self.begin = len(head[: lines.n].encode())

    def __call__(self, raw: bytes, number: int, last: bool, plain: bool) -> Part | None:
        if plain:
            return Part(self._cells(memoryview(raw), range(0)), len(raw), 0, True)
        return self._by_arrow(raw, number, last) or self._by_csv(raw, number, last)

    def _by_arrow(self, raw: bytes, number: int, last: bool) -> Part | None:
        """None: Arrow may read it otherwise than the csv module, or not at all."""
        sign = self.dialect.delimiter
        if self.dialect.skipinitialspace or (b"\r" in raw and raw.count(b"\r") != raw.count(b"\r\n")):
            return None
        bytes_N = np.frombuffer(raw, dtype=np.uint8)
        ends = lines = np.flatnonzero(bytes_N == LF)
        quotes = np.flatnonzero(bytes_N == QUOTE) if self.dialect.quoting == csv.QUOTE_MINIMAL else lines[:0]
        if len(quotes):
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
        numbers = range(number, number + n_numbers)
        if blank.any():
            numbers = np.flatnonzero(~blank) + number
        try:
            whole = self._parsed(memoryview(raw)[:end], None) if len(numbers) else None
        except pyarrow.ArrowInvalid:
            return None
        if whole is not None and whole.num_rows != len(numbers):
            return None
        return Part(self._cells(memoryview(raw)[:end], numbers), end, n_numbers, True)  # pyright: ignore[reportArgumentType]

    def _cells(self, raw: memoryview, numbers: Sequence[int]) -> Cells:
        def column(name: str) -> list[Any]:
            return self._parsed(raw, self.header.where[name]).column(0).to_pylist()

        return Cells(self.header.names, column, numbers)

    def _parsed(self, raw: memoryview, at: int | None) -> pyarrow.Table:
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

    def _by_csv(self, raw: bytes, number: int, last: bool) -> Part | None:
        """The rows as the csv module reads them: all, or all but a last one that may go on.

        Raises:
            UserError: broken quotes; names the row.
        """
        text = raw.decode("utf-8") if last else raw[: raw.rfind(b"\n") + 1].decode("utf-8")
        lines, records, n_read = _Counted(refuse_wide(lines_of(text), str(self.path))), [], 0
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
        cells = cells_of_records(self.header, records, number)
        return Part(cells, len(text[:n_read].encode()) if n_read < len(text) else len(text.encode()), len(records))


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
    before, behind = bytes_N[opening[opening > 0] - 1], bytes_N[closing[closing < len(bytes_N) - 1] + 1]
    return bool(np.isin(before, around).all() and np.isin(behind, around).all())


class Source:
    """A file of text that is read in blocks, compressed or not; one that is not `large` is held in memory."""

    def __init__(self, path: Path, *, is_table: bool, large: bool) -> None:
        self.path, self.is_table = path, is_table
        self.is_packed = path.suffix.lower() in OPENERS
        self.parse: Parse = lambda raw, number, last, plain: None
        self._stream, self._process = None, 0
        self._facts: os.stat_result | None = None
        self._held: bytes | None = None
        content = b""
        while not large and len(content) <= files.LARGE and (more := self.read(len(content), BLOCK)):
            content += more
        if not large and len(content) <= files.LARGE:
            self._held, self._stream = content, None

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Bytes of the file once decompressed; forwards from where the last ended is cheap.

        Raises:
            UserError: it cannot be read, holds more than it may, or is not what it was.
        """
        if self._held is not None:
            return self._held[offset : offset + n_bytes]
        with reading(self.path):
            self._facts = self._facts or self.path.stat()
            require_unchanged(self.path, self._facts)
            if self._stream is None or self._process != os.getpid():
                self._stream, self._process = self._open(), os.getpid()
            self._stream.seek(offset)
            found = self._stream.read(n_bytes)
        files.require_bounded(self.path, offset + len(found) if self.is_packed else 0)
        return found

    @contextmanager
    def decoding(self, raw: bytes, offset: int, number: int) -> Iterator[None]:
        """Say in a sentence that the bytes from `offset` on, where row `number` begins, are not UTF-8.

        Raises:
            UserError: they are not; names the row.
        """
        try:
            yield
        except UnicodeDecodeError as problem:
            start, before = problem.start, raw[: problem.start].decode("utf-8")
            row = number - 1 + (row_of(before) if self.is_table else before.count("\n") + 1)
            raise UserError(encoding_rule(self.path, raw, start, offset, row)) from None

    def _open(self) -> Any:
        if self._held is not None:
            return io.BytesIO(self._held)
        return OPENERS[self.path.suffix.lower()](self.path) if self.is_packed else self.path.open("rb")

    def wide_lines(self) -> Iterator[str]:
        """All lines of the file as they are, whatever cannot be decoded, which is told when it is parsed.

        Raises:
            UserError: see `refuse_wide`.
        """
        with reading(self.path), io.TextIOWrapper(self._open(), "utf-8-sig", "replace", newline="") as lines:
            yield from refuse_wide(lines, str(self.path))

    def cells(self, block: tuple[int, ...], name: str) -> list[Any]:
        """The cells of a column in a block."""
        with suppress(UnicodeDecodeError, pyarrow.ArrowInvalid):
            part = _part(self, block)
            cells = part.cells.column(name) if part else []
            if len(cells) == block[2]:
                return cells
        raise UserError(f"{self.path} is not what it was at its time of last change: touch it, so that it is read anew")

    def table(self, index: Index) -> Table:
        """The table of all its blocks."""
        starts = np.concatenate([[0], np.cumsum(index.blocks[:, 2])])
        blocks = [tuple(one) for one in index.blocks.tolist()]
        weight, identity = float(index.blocks[:, 1].sum()) / max(1, int(starts[-1])), fingerprint(self.path)

        @lru_cache
        def column(name: str) -> Column:
            reads = [partial(self.cells, block, name) for block in blocks]
            return Column(reads, starts, f"{identity} {name}", weight)

        hint = self.parse.hint if isinstance(self.parse, Delimited) else ""
        return Table(index.names, column, index.numbers, self.path.name, broken=index.broken, hint=hint)


@lru_cache(maxsize=2)
def _part(source: Source, block: tuple[int, ...]) -> Part | None:
    offset, n_bytes, _, number, plain = block
    return source.parse(source.read(offset, n_bytes), number, True, bool(plain))


def read_in_blocks(path: Path, kind: str, cache: Path | None, *, large: bool) -> Table:
    """The table of a csv, tsv, jsonl, json or txt.

    Raises:
        UserError: see `opening.read_file`.
    """
    is_table, n_bytes = kind in (".csv", ".tsv"), BLOCK
    source = Source(path, is_table=is_table, large=large)
    cache = cache if large else None
    while True:
        raw = source.read(0, n_bytes)
        begin, number = len(codecs.BOM_UTF8) if raw.startswith(codecs.BOM_UTF8) else 0, 0 if is_table else 1
        head = b"" if is_table else raw[begin:].lstrip()
        if kind == ".txt":
            first = head.partition(b"\n")[0].decode("utf-8", "replace")
            source.parse = partial(by_lines, path, files.is_marked(first))
        elif kind == ".json" and head.startswith(b"["):
            source.parse = partial(by_elements, path)
        elif not is_table:
            source.parse = partial(by_lines, path, None)
        else:
            with source.decoding(raw, 0, 1), suppress(EOFError):
                text = codecs.getincrementaldecoder("utf-8")().decode(raw)[bool(begin) :]
                source.parse = rows = Delimited(source, text, cache, whole=len(raw) < n_bytes)
                begin, number = begin + rows.begin, rows.number
        if number:
            break
        n_bytes *= 2

    def scan() -> dict[str, Any]:
        index = _scanned(source, begin, number)
        numbers = index.numbers
        held = [numbers.start, numbers.stop] if isinstance(numbers, range) else numbers
        return index._asdict() | {"numbers": held, "broken": [*index.broken.items()]}

    def fits(found: dict[str, Any]) -> bool:
        blocks, numbers = found["blocks"], found["numbers"]
        held = range(*numbers) if isinstance(numbers, list) else numbers
        if blocks.dtype != np.int64 or blocks.shape[1:] != (5,) or blocks.min(initial=0) < 0:
            return False
        ends = blocks[:, 0] + blocks[:, 1]
        most = files.most_unpacked(path) if source.is_packed else path.stat().st_size
        follows = np.array_equal([begin, *ends[:-1]], blocks[:, 0])
        ends_there = ends[-1] <= most if source.is_packed else ends[-1] == most
        names = source.parse.header.names if isinstance(source.parse, Delimited) else found["names"]
        return bool(follows and ends_there and blocks[:, 2].sum() == len(held) and names == found["names"])

    found = remembered(cache, "index", (path.name, fingerprint(path), BLOCK), scan, fits)
    numbers = range(*found["numbers"]) if isinstance(found["numbers"], list) else found["numbers"]
    return source.table(Index(found["blocks"], found["names"], numbers, dict(found["broken"])))
