"""Tables, files of JSON objects and parquet files, read once, as rows that a verb answers.

The parsers are those of training, see reading.py. NumPy and pyarrow come with this module.
"""

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from manyheads.config import OnBadText
from manyheads.config.sentences import format_value
from manyheads.data.formats.blocks import stream_file
from manyheads.data.formats.delimited import DelimitedParser
from manyheads.data.formats.dialect import width_rule
from manyheads.data.opening import read_file
from manyheads.data.texts import NOT_UTF8
from manyheads.errors import UserError
from manyheads.inference.chunks import (
    REMEDY,
    Chunk,
    InputRow,
    WantedColumns,
    find_text_columns,
    into_chunks,
    plain_cell,
    require_texts,
)


def chunks_of_table(path: Path, wanted: WantedColumns, on_bad_row: OnBadText = OnBadText.empty) -> Iterator[Chunk]:
    """The rows of a csv or tsv with a header; one that has a single column may begin with a text. Blank lines are no
    rows.

    Raises:
        UserError: a row or the header cannot be read; names the row.
    """
    file, rows = stream_file(path, [*wanted.text, *wanted.text_pair])
    assert isinstance(file.parse, DelimitedParser)
    header, titled = file.parse.header, file.parse.titled
    names = [cell.strip() for cell in header.record]
    while not names[-1]:  # as spreadsheets leave them
        names.pop()
    may_lack_header = len(names) == 1 < len(wanted.text) and not wanted.text_pair and not wanted.joins
    is_bare = may_lack_header and names[0] not in wanted.text
    if is_bare:
        if titled:
            raise UserError(f"{path} begins with '{format_value(names[0])}', which names no column: {titled}")
        if file.parse.hint and not {*wanted.text}.isdisjoint(re.split(r"\W", names[0])):
            raise UserError(f"{path} begins with '{format_value(names[0])}', but {file.parse.hint}")
        require_texts(names, str(path), wanted.remedy)
        rows = chain([(file.number - 1, header.record, "")], rows)  # what was taken for a header is the first row
        names = wanted.text[-1:]
    columns = find_text_columns(names, str(path), wanted, file.parse.hint)

    def read() -> Iterator[InputRow]:
        for number, record, fault in rows:
            if is_bare and any(cell.strip() for cell in record[1:]):
                fault = width_rule(len(record), 1, header.sign)
            yield InputRow(f"row {number}", dict(zip(names, record, strict=False)), fault)

    yield from _rows_or_header(into_chunks(read(), str(path), *columns, on_bad_row), names)


def _rows_or_header(chunks: Iterator[Chunk], names: list[str]) -> Iterator[Chunk]:
    """The chunks of a table; where it has no rows, one that holds the names of its columns alone."""
    yield next(chunks, Chunk([dict.fromkeys(names)], [], None))
    yield from chunks


def chunks_of_objects(path: Path, wanted: WantedColumns, on_bad_row: OnBadText = OnBadText.empty) -> Iterator[Chunk]:
    """The rows of a file of JSON objects, the first of which names the columns.

    Raises:
        UserError: a row cannot be read; names it.
    """
    rows = _objects(path)
    first: list[InputRow] = []  # up to the first object
    for row in rows:
        first.append(row)
        if not row.fault or on_bad_row is not OnBadText.drop:
            break
    if not first:
        return
    if first[-1].fault:
        raise UserError(f"{path}, {first[-1].place}: {first[-1].fault}{REMEDY}")
    columns = find_text_columns([*first[-1].cells], str(path), wanted)

    def read() -> Iterator[InputRow]:
        for row in chain(first, rows):
            named = [name for name in wanted.text if name in row.cells]
            if named and not wanted.joins and columns[0] not in wanted.text and not row.fault:
                raise UserError(
                    f"{path}, {row.place} has the column '{format_value(named[0])}', but the first object has "
                    f"'{format_value(columns[0])}' alone, which would be read as the text: correct the first object"
                )
            yield row

    yield from into_chunks(read(), str(path), *columns, on_bad_row)


def _objects(path: Path) -> Iterator[InputRow]:
    _, rows = stream_file(path)
    for number, cells, fault in rows:
        place = f"row {number}"
        try:
            written = json.dumps(cells, ensure_ascii=False)
            written.encode()
        except UnicodeEncodeError:
            yield InputRow(place, {}, fault or NOT_UTF8)
            continue
        except RecursionError:
            yield InputRow(place, {}, fault or "holds too many lists within lists")
            continue
        if "NaN" in written or "Infinity" in written:  # which JSON has no word for
            cells = plain_cell(cells)
        yield InputRow(place, cells, fault)


def chunks_of_rows(path: Path, wanted: WantedColumns, on_bad_row: OnBadText = OnBadText.empty) -> Iterator[Chunk]:
    """The rows of a file of a kind that a plugin reads, which are in memory."""
    table = read_file(path)
    if table.hint and len(table.names) == 1 and table.names[0] not in wanted.text:
        raise UserError(f"{path} begins with '{format_value(table.names[0])}', which names no column: {table.hint}")
    columns = find_text_columns(table.names, str(path), wanted, table.hint)

    def read() -> Iterator[InputRow]:
        cells = [table.column(name) for name in table.names]
        for at, (number, *row) in enumerate(zip(table.numbers, *cells, strict=True)):
            yield InputRow(f"row {number}", dict(zip(table.names, row, strict=True)), table.broken.get(at, ""))

    yield from _rows_or_header(into_chunks(read(), str(path), *columns, on_bad_row), table.names)


def chunks_of_parquet(path: Path, wanted: WantedColumns, on_bad_row: OnBadText = OnBadText.empty) -> Iterator[Chunk]:
    """The rows of a parquet file."""
    from manyheads.data.formats.parquet import stream_parquet

    names, rows = stream_parquet(path)
    columns = find_text_columns(names, str(path), wanted)

    def read() -> Iterator[InputRow]:
        for number, row in enumerate(rows, 1):
            for name, cell in row.items():
                if name not in columns:
                    row[name] = plain_cell(cell)
            yield InputRow(f"row {number}", row)

    yield from _rows_or_header(into_chunks(read(), str(path), *columns, on_bad_row), names)
