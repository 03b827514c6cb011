"""Rows that a verb answers, some at a time: lines of a text become rows, and rows of any input become chunks; which
columns hold the texts.

A chunk holds what goes through the network together, so that an input of any length takes bounded memory.
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from manyheads.config import OnBadText
from manyheads.config.sentences import format_value, list_names
from manyheads.data.formats.dialect import NAME, SIGNS
from manyheads.data.formats.fields import join_cells, name_columns
from manyheads.data.formats.source import MOST_ROW, decoding, reading
from manyheads.data.formats.text_lines import take_labels
from manyheads.data.texts import is_blank, text_faults
from manyheads.errors import UserError

CHUNK = 1024  # rows answered together
MOST_CHARACTERS = 2**22  # of the texts of one chunk, so that long texts make short chunks
RENAME = "rename one of them"
OneOrMore = str | tuple[str, ...]  # a column, or those that are joined
REMEDY = "; correct it, or have such rows answered by null with data.on_bad_row=drop"


class InputRow(NamedTuple):
    """A row as it was read.

    Attributes:
        place: where it is, such as `row 7`; empty: it was typed.
        cells: by column.
        fault: why it could not be read; empty: it could.
    """

    place: str
    cells: dict[str, Any]
    fault: str = ""


@dataclass(slots=True)
class Chunk:
    """Some rows that are answered together.

    Attributes:
        kept: what is repeated in the output for each row. Where there are no texts, one row of empty cells, for the
            names of the columns.
        texts, pairs: the text, and the second text, of each row; pairs are None where there is just one.
        faults: by index, why a row has no answer; names the row.
    """

    kept: list[dict[str, Any]]
    texts: list[str]
    pairs: list[str] | None
    faults: dict[int, str] = field(default_factory=dict)


def chunks_of_lines(
    stream: BinaryIO,
    name: str,
    *,
    pairs: bool,
    fields: Sequence[str] = (),
    at_once: bool = False,
    marked: bool = False,
    on_bad_row: OnBadText = OnBadText.empty,
    columns: Collection[str] = (),
) -> Iterator[Chunk]:
    """One row a line, also where the line is empty.

    Chunks are the same however the stream delivers: in bf16 the last digits of an answer depend on the rows with it,
    so a pipe and a file would differ.

    Args:
        name: of the stream, for sentences.
        pairs: a tab divides the two texts of a row.
        fields: the columns that the text is joined from, which tabs divide.
        at_once: each line is a chunk, for a person who types.
        marked: lines are in the format of fastText; their labels are no part of the text.
        columns: of the text in tables. A first line that looks like a row of JSON, or like a header with one of these,
            is read as a text, but standard error says so.

    Raises:
        UserError: a line cannot be read; names it.
    """

    def read() -> Iterator[InputRow]:
        for number, text in decoded_lines(stream, name):
            if number == 1 and columns and _is_of_table(text, columns):
                begins = f"{name} begins with '{format_value(text)}', but each of its lines is read as a text"
                print(f"{begins}: give a table as a .csv, .tsv or .jsonl by input=<file>", file=sys.stderr)
            how = {"pairs": pairs, "fields": fields, "marked": marked, "on_bad_row": on_bad_row}
            yield row_of_line(text, f"row {number}", name, **how)

    second = "text_pair" if pairs else None
    yield from into_chunks(read(), name, tuple(fields) or "text", second, on_bad_row, most=1 if at_once else CHUNK)


def _is_of_table(line: str, columns: Collection[str]) -> bool:
    """Whether a line looks like a row of JSON, or like a header that names one of these columns."""
    cells = [cell.strip('" ') for cell in re.split(f"[{re.escape(SIGNS)}]", line)]
    return line.startswith('{"') or (len(cells) > 1 and not {*columns}.isdisjoint(cells))


def decoded_lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Number and text of every line. Only a line feed ends one, with or without a carriage return before it: U+0085,
    U+2028 and their like are letters of a text, which is why `str.splitlines` and text-mode iteration are not used.

    Raises:
        UserError: a line is not UTF-8, or so long that it is no text; names it.
    """
    number = offset = 0
    while True:
        with reading(Path(name)):
            line = stream.readline(MOST_ROW + 1)
        if not line:
            return
        number += 1
        content = line.removesuffix(b"\n")
        if len(content) > MOST_ROW:
            raise UserError(f"{name}, row {number} is longer than {MOST_ROW:,} bytes: give one text a line")
        with decoding(name, content, offset, number):
            text = content.removesuffix(b"\r").decode("utf-8")
        if number == 1:
            text = text.removeprefix("\ufeff")
        yield number, text
        offset += len(line)


def row_of_line(
    text: str,
    place: str,
    name: str,
    *,
    pairs: bool,
    fields: Sequence[str] = (),
    marked: bool = False,
    on_bad_row: OnBadText = OnBadText["raise"],
) -> InputRow:
    """A text as a row, see `chunks_of_lines`; an empty line needs no tab."""
    labels, fault = list[str](), ""
    if marked:
        text, labels = take_labels(text)
    cells: dict[str, Any] = {"text": text}
    if pairs or fields:
        names = [*(fields or ["text"]), *["text_pair"] * pairs]
        parts = text.split("\t") if text.strip() else [""] * len(names)
        if len(parts) != len(names):
            where = f"{name}, {place}" if place else name
            what, how = "pairs of texts", "put one tab between the two"
            if fields:
                what, how = f"{list_names(names)}", "put a tab between each two of them"
            fault = f"has {len(parts) - 1} tabs, but the model takes {what}"
            if on_bad_row is not OnBadText.drop:
                raise UserError(f"{where} {fault}: {how}")
            parts = [text, *[None] * (len(names) - 1)]
        cells = dict(zip(names, parts, strict=True))
    if marked:
        cells["labels"] = labels
    return InputRow(place, cells, fault)


def into_chunks(
    rows: Iterable[InputRow],
    name: str,
    first: OneOrMore,
    second: str | None,
    on_bad_row: OnBadText,
    *,
    most: int = CHUNK,
) -> Iterator[Chunk]:
    """Rows in chunks of `most`, or of fewer that hold more than `MOST_CHARACTERS`, by their columns of the text and of
    the second one; of several columns of the text each cell is joined.

    Raises:
        UserError: a row is refused; names it. See `as_chunk`.
    """
    columns = [*_names(first)] if second is None else [*_names(first), second]
    chunk: list[InputRow] = []
    n_characters = 0
    for row in rows:
        chunk.append(row)
        for column in columns:
            cell = row.cells.get(column)
            if isinstance(cell, str):
                n_characters += len(cell)
        if len(chunk) == most or n_characters > MOST_CHARACTERS:
            yield as_chunk(chunk, name, first, second, on_bad_row)
            chunk, n_characters = [], 0
    if chunk:
        yield as_chunk(chunk, name, first, second, on_bad_row)


def _names(columns: OneOrMore) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else columns


def as_chunk(rows: list[InputRow], name: str, first: OneOrMore, second: str | None, on_bad_row: OnBadText) -> Chunk:
    """What is no text is reported as in training. A row whose text is empty has no answer or, under `raise`, is
    refused; one that cannot be read, or whose text is of another type, is refused, or has no answer under `drop`.

    Raises:
        UserError: a row is refused; names it.
    """
    columns = [("the text", _names(first))]
    if second is not None:
        columns.append(("the second text", (second,)))
    faults: dict[int, str] = {}
    for at, row in enumerate(rows):
        missing = [names[0] for _, names in columns if row.cells.keys().isdisjoint(names)]
        if row.fault:
            faults[at] = row.fault
        elif missing:
            faults[at] = f"{missing[0]!r} is missing, but the model reads it"
    refused = [*faults]
    texts: list[list[str]] = []
    for what, (column, *more) in columns:
        cells = [row.cells.get(column) for row in rows]
        if more:
            cells = [join_cells([row.cells.get(one) for one in (column, *more)]) for row in rows]
        for at, why in text_faults(cells, what).items():
            if at in faults:
                continue
            faults[at] = why
            is_empty = cells[at] is None or is_blank(str(cells[at]))
            if not is_empty or on_bad_row is OnBadText["raise"]:
                refused.append(at)
        texts.append([cell if isinstance(cell, str) else "" for cell in cells])
    if refused and on_bad_row is not OnBadText.drop:
        at = min(refused)
        if rows[at].place:
            raise UserError(f"{name}, {rows[at].place}: {faults[at]}{REMEDY}")
        raise UserError(f"{name}: {faults[at]}; type one")
    kept = [row.cells for row in rows]
    for at in faults:
        kept[at] = plain_cell(kept[at])  # what could not be read may be nothing that JSON can hold
    named = {at: f"{rows[at].place}: {faults[at]}" for at in sorted(faults)}
    return Chunk(kept, texts[0], texts[1] if second else None, named)


def plain_cell(cell: Any) -> Any:
    """A cell as JSON has it: types JSON lacks become text, a non-finite number null."""
    if cell is None or isinstance(cell, str | int):
        return cell
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, dict):
        return {name: plain_cell(one) for name, one in cell.items()}
    if isinstance(cell, list | tuple):
        return [plain_cell(one) for one in cell]
    return str(cell)


class WantedColumns(NamedTuple):
    """The columns that are read.

    Attributes:
        text: names that the column of the text may have, of which the first that is there counts.
        text_pair: those of the second text; empty for a model of single texts.
        remedy: how to say which column it is.
        joins: all columns of `text` are needed, which are joined.
    """

    text: list[str]
    text_pair: list[str]
    remedy: str = RENAME
    joins: bool = False


def find_text_columns(
    header: list[str], name: str, wanted: WantedColumns, hint: str = ""
) -> tuple[OneOrMore, str | None]:
    """The columns of the text and of the second text; None: the model takes single texts.

    Args:
        name: of the file, for sentences.
        hint: what to do where there is no such column, if something better than the usual is known.
    """
    for column, times in Counter(header).most_common(1):
        if times > 1:
            raise UserError(f"{name} has the column '{format_value(column)}' twice: name every column once")
    text = wanted.text
    if len(header) == 1 < len(text) and not wanted.text_pair and not wanted.joins:  # a single column is the text
        text = header
    found: list[str | None] = []
    of_text = [[one] for one in text] if wanted.joins else [text]
    for names in (*of_text, wanted.text_pair):
        present = [one for one in names if one in header]
        if names and not present:
            remedy = wanted.remedy
            if wanted.joins:
                remedy = name_columns(text, header, RENAME if remedy == RENAME else "")
            raise UserError(
                f"{name} has no column {names[0]!r}, which the model reads: its columns are {list_names(header)}; "
                f"{hint or remedy}"
            )
        found.append(present[0] if present else None)
    *texts, second = found
    first = tuple(one for one in texts if one)
    assert first, "there is always a name for the text"
    if second in first:
        raise UserError(
            f"data.text={second} and data.text_pair={second} name one column of {name} twice: each needs its own"
        )
    return first if wanted.joins else first[0], second


def require_texts(cells: list[str], name: str, remedy: str) -> None:
    """Raise UserError unless the first line is a row: one of its cells at least is clearly no name of a column."""
    if not all(NAME.fullmatch(cell.strip()) for cell in cells):
        return
    line = " and ".join(f"'{format_value(cell)}'" for cell in cells)
    if len(cells) == 1:
        either, usual, them = "the name of its column or a text", "text", "it"
    else:
        either, usual, them = "the names of its columns or two texts", "text and text_pair", "them"
    otherwise = f"call {them} {usual}" if remedy == RENAME else remedy
    raise UserError(
        f"{name} begins with {line}, which may be {either}: if texts begin there, put a line that says {usual} on top, "
        f"else {otherwise}"
    )
