"""A text file (csv, tsv, jsonl, json, txt), compressed or not, as blocks of whole rows.

Rows have no fixed length, so where a row begins is known only after all rows before it were parsed. Training needs rows
many times and in any order, and cannot hold a large file. So the file is parsed once from beginning to end, and what is
kept is an index: where each block of whole rows is. Later a block is read and parsed again by itself (column.py).

    read_text_file    for training and evaluation: the index, as a table; that of a large file is kept on disk
    stream_file       for prediction: the rows one after another, in one pass, also from a pipe
    open_file         of both: how the file is written, by its beginning
    blocks_of         of both: the blocks of a file, in one pass
"""

import codecs
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow

from manyheads.data.column import Column
from manyheads.data.disk_cache import cached_on_disk, fingerprint
from manyheads.data.formats.delimited import DelimitedParser, csv_rows_begun
from manyheads.data.formats.dialect import are_quotes, beginning, refuse_wide, start_of
from manyheads.data.formats.jsonl import elements_begun, parse_array, parse_objects
from manyheads.data.formats.kinds import kind_of
from manyheads.data.formats.source import MOST_ROW, Parse, RowBlock, Source, decoding, lines_of, most_unpacked
from manyheads.data.formats.text_lines import is_marked, parse_lines, refuse_carriage_returns
from manyheads.data.table import RawTable
from manyheads.errors import UserError

BLOCK = 2**23  # bytes that are parsed at once where they are read again
STREAMED = 2**20  # where they are read once


class OpenFile(NamedTuple):
    """A text file of which it is known how it is written.

    Attributes:
        source: its bytes.
        parse: from bytes to rows.
        head: what was read of it so far.
        begin: the byte at which the first row begins.
        number: the number of that row.
        rows_begun: how many rows a text has that is cut anywhere; None: each line is one.
    """

    source: Source
    parse: Parse
    head: bytes
    begin: int
    number: int
    rows_begun: Callable[[str], int] | None


class Index(NamedTuple):
    """Where the rows of a file are.

    Attributes:
        blocks: of each block offset, bytes, rows, number of the first row, and whether Arrow reads it: int64 `(n, 5)`.
        names: of the columns.
        numbers: of the rows.
        broken: by index, why a row cannot be read.
    """

    blocks: np.ndarray
    names: list[str]
    numbers: Sequence[int]
    broken: dict[int, str]


def read_text_file(path: Path, *, large: bool, cache: Path | None = None) -> RawTable:
    """The table of a csv, tsv, jsonl, json or txt; see `opening.read_file`."""
    if not large:
        cache = None
    file = open_file(Source(path, large=large), BLOCK, cache=cache)

    def scan() -> dict[str, Any]:
        index = _index(file)
        numbers = index.numbers
        if isinstance(numbers, range):
            numbers = [numbers.start, numbers.stop]  # as JSON can hold it
        return index._asdict() | {"numbers": numbers, "broken": [*index.broken.items()]}

    def numbers_of(found: dict[str, Any]) -> Sequence[int]:
        if isinstance(found["numbers"], list):
            return range(*found["numbers"])
        return found["numbers"]

    def fits(found: dict[str, Any]) -> bool:
        blocks = found["blocks"]
        if blocks.dtype != np.int64 or blocks.shape[1:] != (5,) or blocks.min(initial=0) < 0:
            return False
        begins, ends = blocks[:, 0], blocks[:, 0] + blocks[:, 1]
        if not np.array_equal([file.begin, *ends[:-1]], begins):
            return False
        if file.source.is_compressed and ends[-1] > most_unpacked(path):
            return False
        if not file.source.is_compressed and ends[-1] != path.stat().st_size:
            return False
        names = found["names"]
        if isinstance(file.parse, DelimitedParser):
            names = file.parse.header.names
        return bool(blocks[:, 2].sum() == len(numbers_of(found)) and names == found["names"])

    found = cached_on_disk(cache, "index", (path.name, fingerprint(path), BLOCK), scan, fits)
    return _table(file, Index(found["blocks"], found["names"], numbers_of(found), dict(found["broken"])))


def stream_file(path: Path, columns: Sequence[str] = ()) -> tuple[OpenFile, Iterator[tuple[int, Any, str]]]:
    """A file of text that is read once, as a pipe can be, and the number of each row, the row (see `RowBlock.records`),
    and why it cannot be read, or nothing. `columns`: names that are looked for in a header."""
    file = open_file(Source(path, large=True, once=True), STREAMED, columns=columns)
    return file, _rows(file)


def _rows(file: OpenFile) -> Iterator[tuple[int, Any, str]]:
    try:
        for _, _, block in blocks_of(file, STREAMED):
            numbered = zip(block.numbers, block.records(), strict=True)
            for at, (number, record) in enumerate(numbered):
                yield int(number), record, block.broken.get(at, "")
    finally:
        file.source.close()


def open_file(source: Source, n_bytes: int, *, cache: Path | None = None, columns: Sequence[str] = ()) -> OpenFile:
    """Find out how a file of text is read, by its first `n_bytes`, or as many more as it takes."""
    path, kind = source.path, str(kind_of(source.path))
    has_quotes = partial(_has_quotes, source, cache)

    def rows_begun(before: str) -> int:
        lines = beginning(refuse_wide(lines_of(before.removeprefix("\ufeff")), str(path)))
        return csv_rows_begun(start_of([*lines], kind, has_quotes).dialect, before)

    head = b""
    while True:
        head += source.read(len(head), n_bytes - len(head))
        is_whole = len(head) < n_bytes
        begin = 0
        if head.startswith(codecs.BOM_UTF8):
            begin = len(codecs.BOM_UTF8)
        parse = _line_parser(path, kind, head[begin:])
        if parse is not None:
            is_array = parse.func is parse_array
            return OpenFile(source, parse, head, begin, 1, elements_begun if is_array else None)
        with decoding(path, head, rows_begun=rows_begun), suppress(EOFError):
            text = codecs.getincrementaldecoder("utf-8")().decode(head)  # which leaves out half a letter at the end
            if begin:
                text = text[1:]
            parse = DelimitedParser(path, kind, text, has_quotes, columns, whole=is_whole)
            begun = partial(csv_rows_begun, parse.dialect)
            return OpenFile(source, parse, head, begin + parse.begin, parse.number, begun)
        _require_end(path, head, 1)
        n_bytes *= 2


def _line_parser(path: Path, kind: str, head: bytes) -> "partial[RowBlock | None] | None":
    """What parses a file whose rows need no header; None: it is a csv or tsv."""
    head = head.lstrip()
    if kind == ".txt":
        refuse_carriage_returns(path, head)
        first = head.partition(b"\n")[0].decode("utf-8", "replace")
        return partial(parse_lines, path, is_marked(first))
    if kind == ".json" and head.startswith(b"["):
        return partial(parse_array, path)
    if kind in (".json", ".jsonl"):
        return partial(parse_objects, path)
    return None


def _has_quotes(source: Source, cache: Path | None, n_lines: int) -> bool:
    """`are_quotes` of a whole file with tabs, after its first `n_lines`."""

    def lines() -> Iterator[str]:
        return islice(refuse_wide(source.lines(), str(source.path)), n_lines, None)

    def look() -> dict[str, Any]:
        return {"quoted": are_quotes(lines)}

    if cache is None:
        return are_quotes(lines)
    key = source.path.name, fingerprint(source.path)
    return cached_on_disk(cache, "quotes", key, look, lambda found: found["quoted"] in (True, False))["quoted"]


def blocks_of(file: OpenFile, n_bytes: int) -> Iterator[tuple[int, int, RowBlock]]:
    """The offset of each block of about `n_bytes`, the number of its first row, and the block.

    Raises:
        UserError: it is not UTF-8, too large, or has a row without an end; or see `file.parse`.
    """
    source, offset, number = file.source, file.begin, file.number
    raw, at, more = file.head[offset:], len(file.head), b""  # `raw` begins at `offset`, and was read up to `at`
    if len(raw) < n_bytes:
        more = source.read(at, n_bytes - len(raw))
    last = len(raw) + len(more) < n_bytes
    while True:
        raw, at = raw + more, at + len(more)
        with decoding(source.path, raw, offset, number, rows_begun=file.rows_begun):
            block = file.parse(raw, number, last, False)
        if block is None:
            _require_end(source.path, raw, number)
        else:
            yield offset, number, block
            offset, number, raw = offset + block.n_bytes, number + block.n_numbers, raw[block.n_bytes :]
            if last and not raw:
                return
        wanted = max(n_bytes, len(raw))  # twice as much where that held no whole row
        more = source.read(at, wanted)
        last = len(more) < wanted


def _require_end(path: Path, raw: bytes, number: int) -> None:
    """Raise UserError if the row that `raw` begins with has no end within `MOST_ROW` bytes."""
    if len(raw) > MOST_ROW:
        raise UserError(
            f"{path}, row {number} is longer than {MOST_ROW:,} bytes: end each row by a line feed, and close its quotes"
        )


def _index(file: OpenFile) -> Index:
    """Cut a file into blocks, each of which is read once."""
    blocks: list[tuple[int, ...]] = []
    numbers: list[Sequence[int]] = []
    names: dict[str, None] = {}
    broken: dict[int, str] = {}
    n_rows = 0
    for offset, number, block in blocks_of(file, BLOCK):
        n_here = len(block.numbers)
        blocks.append((offset, block.n_bytes, n_here, number, block.by_arrow))
        names |= dict.fromkeys(block.names)
        numbers.append(block.numbers)
        broken |= {n_rows + at: why for at, why in block.broken.items()}
        n_rows += n_here
    if isinstance(file.parse, DelimitedParser):
        broken = file.parse.with_remedy(broken, n_rows)
    return Index(np.array(blocks, dtype=np.int64).reshape(-1, 5), [*names], _joined(numbers), broken)


def _joined(numbers: list[Sequence[int]]) -> Sequence[int]:
    """Ranges that follow one another as one range."""
    filled = [of_block for of_block in numbers if len(of_block)]
    if not filled:
        return range(0)
    are_ranges = all(isinstance(of_block, range) for of_block in filled)
    if are_ranges and all(one[-1] + 1 == other[0] for one, other in pairwise(filled)):
        return range(filled[0][0], filled[-1][-1] + 1)
    return np.concatenate(filled).astype(np.int64)  # pyright: ignore[reportReturnType]


def _table(file: OpenFile, index: Index) -> RawTable:
    """The table of all blocks of a file."""
    path = file.source.path
    starts = np.concatenate([[0], np.cumsum(index.blocks[:, 2])])
    blocks = [tuple(one) for one in index.blocks.tolist()]
    bytes_per_row = float(index.blocks[:, 1].sum()) / max(1, int(starts[-1]))
    identity = fingerprint(path)
    # without what was read of it, which would be kept as long as the table
    source, parse = file.source, file.parse

    @lru_cache
    def column(name: str) -> Column:
        reads = [partial(_cells, source, parse, block, name) for block in blocks]
        return Column(reads, starts, f"{identity} {name}", bytes_per_row)

    hint = file.parse.hint if isinstance(file.parse, DelimitedParser) else ""
    return RawTable(index.names, column, index.numbers, path.name, broken=index.broken, hint=hint)


def _cells(source: Source, parse: Parse, block: tuple[int, ...], name: str) -> list[Any]:
    """The cells of a column in a block."""
    with suppress(UnicodeDecodeError, pyarrow.ArrowInvalid):
        found = _block(source, parse, block)
        if found is not None:
            cells = found.column(name)
            if len(cells) == block[2]:
                return cells
    raise UserError(f"{source.path} is not what it was at its time of last change: touch it, so that it is read anew")


@lru_cache(maxsize=2)
def _block(source: Source, parse: Parse, block: tuple[int, ...]) -> RowBlock | None:
    offset, n_bytes, _, number, by_arrow = block
    return parse(source.read(offset, n_bytes), number, True, bool(by_arrow))
