"""Rows with named columns, a chunk at a time: csv and json lines, every column kept. Standard library only."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, BinaryIO

from manyheads.config.plain import listed, show
from manyheads.data.delimited import csv_reader, refuse_wide, require_few, tab_reader
from manyheads.judge.lines import MOST_LINE, Chunk, decode, filled, whole_lines

# What may be the name of a column: up to four words, such as `review text (en)`, none of which ends as a sentence does.
WORD = r"[\w(\[{]([\w./:()\[\]{}-]{0,28}[\w)\]}-])?"
NAME = re.compile(f"{WORD}( {WORD}){{0,3}}")
RENAME = "rename one of them"


def read_table(
    stream: BinaryIO, name: str, *, text: list[str], text_pair: list[str], remedy: str = RENAME
) -> Iterator[Chunk]:
    """The rows of a csv with a header; one that has a single column may begin with a text. Blank lines are no rows.

    Args:
        name: the file, as error messages call it.
        text: columns that may hold the text, the first there is counts; one alone must be there.
        text_pair: columns that may hold the second text, none for a model of single texts.
        remedy: how to say which column it is.

    Raises:
        ValueError: a missing column, or the line of a row that is not UTF-8, not csv, or has too few or many cells.
    """
    csv.field_size_limit(MOST_LINE)
    reader = _reader(stream, name)
    rows = _rows(reader, name)
    first_row = next(rows, [])
    header = [cell.strip() for cell in first_row]
    require_few(header, name)
    width = len(header)
    while header and not header[-1]:  # as spreadsheets leave them
        header.pop()
    if not header:
        raise ValueError(f"{name} is empty: its first line must name the columns")
    twice, times = Counter(header).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{name} has the column '{show(twice)}' twice: name every column once")
    if len(header) == 1 < len(text) and not text_pair and header[0] not in text:
        require_texts(header, name, remedy)
        rows, header = chain([first_row], rows), text[-1:]
    first, second = _columns(header, name, text, text_pair, remedy)
    yield from _chunks((_record(row, header, width, name, reader.line_num) for row in rows), first, second)


def require_texts(cells: list[str], name: str, remedy: str) -> None:
    """Whether the first line of a file is a row, as at least one of its cells is clearly no name of a column.

    Raises:
        ValueError: it may be either.
    """
    if all(NAME.fullmatch(cell.strip()) for cell in cells):
        line, one = " and ".join(f"'{show(cell)}'" for cell in cells), len(cells) == 1
        either = "the name of its column or a text" if one else "the names of its columns or two texts"
        usual = "text" if one else "text and text_pair"
        called = f"call {'it' if one else 'them'} {usual}" if remedy == RENAME else remedy
        raise ValueError(
            f"{name} begins with {line}, which may be {either}: if texts begin there, put a line that says {usual} "
            f"on top, else {called}"
        )


def read_objects(
    stream: BinaryIO, name: str, *, text: list[str], text_pair: list[str], remedy: str = RENAME
) -> Iterator[Chunk]:
    """The rows of a file of one JSON object a line, whose first names the columns. Blank lines are no rows.

    Arguments as of `read_table`.

    Raises:
        ValueError: a missing column, or the line that is not UTF-8, not a JSON object, or whose text is no string.
    """
    objects = _objects(stream, name)
    number, head = next(objects, (0, {}))
    if not number:
        return
    if len(head) == 1 < len(text) and not text_pair:
        text = list(head)
    columns = _columns(list(head), name, text, text_pair, remedy)
    records = (_checked(one, columns, name, at) for at, one in chain([(number, head)], objects))
    yield from _chunks(records, *columns)


def _reader(stream: BinaryIO, name: str) -> Any:
    """Of the rows, by the rules of training; a .tsv is a file that can be read twice."""
    if not name.lower().endswith(".tsv"):
        lines = refuse_wide(_decoded(stream, name), name)
        first_line = next(lines, "")
        return csv_reader(chain([first_line], lines), first_line)

    def anew() -> Iterator[str]:
        with open(name, "rb") as file:
            yield from refuse_wide(_decoded(file, name), name)

    return tab_reader(anew)


def _chunks(records: Iterator[dict[str, Any]], first: str, second: str | None) -> Iterator[Chunk]:
    for kept in filled(records, lambda record: len(record[first]) + (0 if second is None else len(record[second]))):
        pairs = None if second is None else [row[second] for row in kept]
        yield Chunk(kept, [row[first] for row in kept], pairs)


def _decoded(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines with their ends, as the csv reader wants them: a quoted cell may go on over several."""
    for number, line in whole_lines(stream, name):
        end = "\n" if line.endswith(b"\n") else ""
        carriage = "\r" if line.endswith(b"\r\n") else ""
        yield decode(line.removesuffix(b"\n"), name, number) + carriage + end


def _rows(reader: Any, name: str) -> Iterator[list[str]]:
    first = 1  # line of a row
    try:
        for row in reader:
            if row:
                yield row
            first = reader.line_num + 1
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise ValueError(
                f"{name}, line {first}: a quoted text is never closed; the file is truncated, or a quote inside a text "
                "is not doubled"
            ) from error
        raise ValueError(f"{name}, line {first} is not csv: {error}") from error


def _objects(stream: BinaryIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in whole_lines(stream, name):
        content = decode(line.removesuffix(b"\n"), name, number)
        if content.isspace() or not content:
            continue
        try:
            one = json.loads(content)
            json.dumps(one, ensure_ascii=False, allow_nan=False).encode()  # what is kept must be possible to write
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}, line {number} is not JSON ({error}): write one object a line") from error
        if not isinstance(one, dict):
            raise ValueError(f'{name}, line {number} is not a JSON object such as {{"text": "..."}}')
        yield number, one


def _checked(one: dict[str, Any], columns: tuple[str, str | None], name: str, number: int) -> dict[str, Any]:
    for column in columns:
        if column is not None and not isinstance(one.get(column), str):
            what = "is no text" if column in one else "is missing"
            raise ValueError(f"{name}, line {number}: {column!r} {what}, but the model reads it: give it a string")
    return one


def _columns(
    header: list[str], name: str, text: list[str], text_pair: list[str], remedy: str
) -> tuple[str, str | None]:
    """The columns of the text and of the second text, if there is to be one."""
    found = [next((one for one in names if one in header), None) for names in (text, text_pair)]
    for names, one in zip((text, text_pair), found, strict=True):
        if names and one is None:
            raise ValueError(
                f"{name} has no column {names[0]!r}, which the model reads: its columns are {listed(header)}; {remedy}"
            )
    first, second = found
    assert first is not None, "there is always a name for the text"
    if first == second:
        raise ValueError(
            f"data.text={first} and data.text_pair={first} name one column of {name} twice: each needs its own"
        )
    return first, second


def _record(row: list[str], header: list[str], width: int, name: str, number: int) -> dict[str, str]:
    """The cells by their columns; of the `width` that the first line had those behind the last name are none."""
    if not len(header) <= len(row) <= width:
        raise ValueError(f"{name}, line {number} has {len(row)} cells, but its header names {len(header)} columns")
    return dict(zip(header, row, strict=False))
