"""Texts of a stream, a chunk at a time: bounded memory for any length of input. Standard library only.

Only \\n and \\r\\n end a line. U+0085, U+2028 and their like are letters of a text, which is why `str.splitlines`
and text-mode iteration are not used.
"""

import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

CHUNK = 1024  # rows answered together
BLOCK = 2**20  # bytes asked of the stream at once
MOST_CHARACTERS = 2**22  # of the texts of one chunk, so that long texts make short chunks


@dataclass(slots=True)
class Chunk:
    """Some rows: what is repeated in the output for each, and its text(s)."""

    kept: list[dict[str, str]]
    texts: list[str]
    pairs: list[str] | None


def read_lines(stream: BinaryIO, name: str, *, pairs: bool) -> Iterator[Chunk]:
    """One row a line, also where the line is empty; with `pairs` a tab divides the two texts.

    What has arrived is handed on at once: a slow stream is not kept waiting for a full chunk.

    Raises:
        ValueError: names the line that is not UTF-8, or holds no tab or several.
    """
    number = 1
    for lines in _arriving(stream):
        for start in range(0, len(lines), CHUNK):
            some = lines[start : start + CHUNK]
            texts = [_decode(line, name, at) for at, line in enumerate(some, number)]
            yield as_chunk(texts, name, number, pairs=pairs)
            number += len(some)


def as_chunk(texts: list[str], name: str, number: int, *, pairs: bool) -> Chunk:
    """Texts as rows, the first of which is line `number` of `name`; with `pairs` a tab divides the two texts.

    Raises:
        ValueError: names the line that holds no tab or several.
    """
    if not pairs:
        return Chunk([{"text": text} for text in texts], texts, None)
    cells = [text.split("\t") for text in texts]
    for at, row in enumerate(cells, number):
        if len(row) != 2:
            where = name if name == "text" else f"{name}, line {at}"
            raise ValueError(
                f"{where} has {len(row) - 1} tabs, but the model takes pairs of texts: "
                "one tab must stand between the two"
            )
    kept = [{"text": first, "text_pair": second} for first, second in cells]
    return Chunk(kept, [first for first, _ in cells], [second for _, second in cells])


def read_table(stream: BinaryIO, name: str, *, text: list[str], text_pair: list[str]) -> Iterator[Chunk]:
    """The rows of a csv with a header, all their columns kept. Blank lines are no rows.

    Args:
        name: the file, as error messages call it.
        text: columns that may hold the text, the first there is counts; if there is none, a file's only column.
        text_pair: columns that may hold the second text, none for a model of single texts.

    Raises:
        ValueError: a missing column, or the line of a row that is not UTF-8, not csv, or has too few or many cells.
    """
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(_decoded(stream, name))
    rows = _rows(reader, name)
    header = next(rows, None)
    if header is None:
        raise ValueError(f"{name} is empty: its first line must name the columns")
    first, second = _columns(header, name, text, text_pair)
    records = (_record(row, header, name, reader.line_num) for row in rows)
    while kept := _some(records, first):
        pairs = None if second is None else [row[second] for row in kept]
        yield Chunk(kept, [row[first] for row in kept], pairs)


def _arriving(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines as they arrive, without their ends. The last one needs no end."""
    read: Any = getattr(stream, "read1", stream.read)
    parts: list[bytes] = []
    while block := read(BLOCK):
        head, newline, rest = block.rpartition(b"\n")
        if not newline:
            parts.append(block)
            continue
        yield b"".join([*parts, head]).split(b"\n")
        parts = [rest] if rest else []
    if parts:
        yield [b"".join(parts)]


def _decode(line: bytes, name: str, number: int) -> str:
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}, line {number} is not UTF-8: {error.reason} at byte {error.start + 1}") from error
    return text.removeprefix("\ufeff") if number == 1 else text


def _decoded(file: BinaryIO, name: str) -> Iterator[str]:
    """Lines with their ends, as the csv reader wants them: a quoted cell may go on over several."""
    for number, line in enumerate(file, 1):
        end = "\n" if line.endswith(b"\n") else ""
        carriage = "\r" if line.endswith(b"\r\n") else ""
        yield _decode(line.removesuffix(b"\n"), name, number) + carriage + end


def _rows(reader: Any, name: str) -> Iterator[list[str]]:
    try:
        yield from (row for row in reader if row)
    except csv.Error as error:
        raise ValueError(f"{name}, line {reader.line_num} is not csv: {error}") from error


def _columns(header: list[str], name: str, text: list[str], text_pair: list[str]) -> tuple[str, str | None]:
    """The columns of the text and of the second text, if there is to be one."""
    twice = sorted({one for one in header if header.count(one) > 1})
    if twice:
        raise ValueError(f"{name} has the column {twice[0]!r} twice: name every column once")
    if len(header) == 1 and not text_pair:
        return header[0], None
    found = [next((one for one in names if one in header), None) for names in (text, text_pair)]
    for names, one in zip((text, text_pair), found, strict=True):
        if names and one is None:
            raise ValueError(
                f"{name} has no column {names[0]!r}, which the model reads: its columns are {', '.join(header)}; "
                "rename one of them"
            )
    first, second = found
    assert first is not None, "there is always a name for the text"
    return first, second


def _record(row: list[str], header: list[str], name: str, number: int) -> dict[str, str]:
    if len(row) != len(header):
        raise ValueError(f"{name}, line {number} has {len(row)} cells, but its header names {len(header)} columns")
    return dict(zip(header, row, strict=True))


def _some(records: Iterable[dict[str, str]], column: str) -> list[dict[str, str]]:
    """The next rows, as many as make a chunk."""
    chunk, n_characters = [], 0
    for record in islice(records, CHUNK):
        chunk.append(record)
        n_characters += len(record[column])
        if n_characters > MOST_CHARACTERS:
            break
    return chunk
