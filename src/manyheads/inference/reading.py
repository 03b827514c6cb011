"""The texts that a verb answers: one that was typed, lines of a file or of standard input, or rows of a table.

They come a chunk at a time, in bounded memory for any length of input, also from a pipe. Tables are read by the parsers
that read the data of a training, so that the same rows are found, and the same mistakes. Nothing heavy is imported.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from manyheads.config import OnBadText, TextColumns
from manyheads.config.sentences import format_value, list_names
from manyheads.data.formats.dialect import MOST_ABOVE, NAME, SEP, width_rule
from manyheads.data.formats.kinds import LONGEST_HEAD, kind_of, remedy_for, why_not_read
from manyheads.data.formats.source import MOST_ROW, OPENERS, decoding, reading
from manyheads.data.formats.text_lines import is_marked, take_labels
from manyheads.data.texts import NOT_UTF8, is_blank, text_faults
from manyheads.errors import UserError

if TYPE_CHECKING:
    from manyheads.data.formats.delimited import DelimitedParser
    from manyheads.inference.predictor import Predictor

CHUNK = 1024  # rows answered together
MOST_CHARACTERS = 2**22  # of the texts of one chunk, so that long texts make short chunks

RENAME = "rename one of them"
BY_TEXT = "name one by data.text=<column>"
BY_PAIR = "name both by data.text=<column> data.text_pair=<column>"
REMEDY = "; correct it, or have such rows answered by null with data.on_bad_row=drop"


class InputRow(NamedTuple):
    """A row as it was read: where it is, its cells by column, and why it could not be read."""

    place: str
    cells: dict[str, Any]
    why: str = ""


@dataclass(slots=True)
class Chunk:
    """Some rows: what is repeated in the output for each, its text(s), and by index why some have no answer: `faults`,
    of which each names the row."""

    kept: list[dict[str, Any]]
    texts: list[str]
    pairs: list[str] | None
    faults: dict[int, str] = field(default_factory=dict)


class Wanted(NamedTuple):
    """The columns that are read: names that that of the text may have, and that of the second text, of which the first
    that is there counts; `text_pair` is empty for a model of single texts. `remedy`: how to say which column it is."""

    text: list[str]
    text_pair: list[str]
    remedy: str = RENAME


def chunks_of_lines(
    stream: BinaryIO,
    name: str,
    *,
    pairs: bool,
    at_once: bool = False,
    marked: bool = False,
    on_bad_row: OnBadText = OnBadText.empty,
) -> Iterator[Chunk]:
    """One row a line, also where the line is empty; with `pairs` a tab divides the two texts, and where lines are
    `marked`, the format of fastText, their labels are no part of them.

    Chunks are the same however the stream delivers: in bf16 the last digits of an answer depend on the rows with it,
    so a pipe and a file would differ. `at_once`, for a person who types: each line is a chunk.

    Raises:
        UserError: a line cannot be read; names it.
    """
    lines = decoded_lines(stream, name)
    rows = (row_of_line(text, f"row {number}", name, pairs=pairs, marked=marked) for number, text in lines)
    second = "text_pair" if pairs else None
    yield from chunks_of_rows(rows, name, "text", second, on_bad_row, most=1 if at_once else CHUNK)


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
        yield number, text.removeprefix("\ufeff") if number == 1 else text
        offset += len(line)


def row_of_line(text: str, place: str, name: str, *, pairs: bool, marked: bool = False) -> InputRow:
    """A text as a row, see `chunks_of_lines`; an empty line needs no tab."""
    more = {}
    if marked:
        text, more["labels"] = take_labels(text)
    if not pairs:
        return InputRow(place, {"text": text} | more)
    cells = text.split("\t") if text.strip() else ["", ""]
    if len(cells) != 2:
        raise UserError(
            f"{name}{place and f', {place}'} has {len(cells) - 1} tabs, but the model takes pairs of texts: one tab "
            "must stand between the two"
        )
    return InputRow(place, {"text": cells[0], "text_pair": cells[1]} | more)


def chunks_of_rows(
    rows: Iterable[InputRow], name: str, first: str, second: str | None, on_bad_row: OnBadText, *, most: int = CHUNK
) -> Iterator[Chunk]:
    """Rows in chunks of `most`, or of fewer that hold more than `MOST_CHARACTERS`, by their columns of the text and of
    the second one.

    Raises:
        UserError: a row is refused; names it. See `as_chunk`.
    """
    chunk: list[InputRow] = []
    n_characters = 0
    for row in rows:
        chunk.append(row)
        for column in (first, second):
            cell = row.cells.get(column) if column is not None else None
            n_characters += len(cell) if isinstance(cell, str) else 0
        if len(chunk) == most or n_characters > MOST_CHARACTERS:
            yield as_chunk(chunk, name, first, second, on_bad_row)
            chunk, n_characters = [], 0
    if chunk:
        yield as_chunk(chunk, name, first, second, on_bad_row)


def as_chunk(rows: list[InputRow], name: str, first: str, second: str | None, on_bad_row: OnBadText) -> Chunk:
    """What is no text is reported as in training. A row whose text is empty has no answer or, under `raise`, is
    refused; one that cannot be read, or whose text is of another type, is refused, or has no answer under `drop`.

    Raises:
        UserError: a row is refused; names it.
    """
    columns = {"the text": first}
    if second is not None:
        columns["the second text"] = second
    faults = {at: row.why for at, row in enumerate(rows) if row.why}
    for column in columns.values():
        for at, row in enumerate(rows):
            if column not in row.cells and at not in faults:
                faults[at] = f"{column!r} is missing, but the model reads it"
    refused, texts = [*faults], list[list[str]]()
    for what, column in columns.items():
        cells = [row.cells.get(column) for row in rows]
        for at, why in text_faults(cells, what).items():
            if at in faults:
                continue
            faults[at] = why
            if on_bad_row is OnBadText["raise"] or (cells[at] is not None and not is_blank(str(cells[at]))):
                refused.append(at)
        texts.append([cell if isinstance(cell, str) else "" for cell in cells])
    if refused and on_bad_row is not OnBadText.drop:
        at = min(refused)
        place = rows[at].place
        where, remedy = (f"{name}, {place}", REMEDY) if place else (name, "; type one")
        raise UserError(f"{where}: {faults[at]}{remedy}")
    named = {at: f"{rows[at].place}: {why}" for at, why in sorted(faults.items())}
    kept = [plain_cell(row.cells) if at in faults else row.cells for at, row in enumerate(rows)]
    return Chunk(kept, texts[0], texts[1] if second else None, named)


def chunks_of_table(path: Path, wanted: Wanted, on_bad_row: OnBadText = OnBadText.empty) -> Iterator[Chunk]:
    """The rows of a csv or tsv with a header; one that has a single column may begin with a text. Blank lines are no
    rows.

    Raises:
        UserError: a row or the header cannot be read; names the row.
    """
    file, rows = _opened(path, [*wanted.text, *wanted.text_pair])
    parse: DelimitedParser = file.parse
    header = parse.header
    names = [cell.strip() for cell in header.record]
    while not names[-1]:  # as spreadsheets leave them
        names.pop()
    is_bare = len(names) == 1 < len(wanted.text) and not wanted.text_pair and names[0] not in wanted.text
    if is_bare:
        if parse.titled:
            raise UserError(f"{path} begins with '{format_value(names[0])}', which names no column: {parse.titled}")
        require_texts(names, str(path), wanted.remedy)
        rows = chain([(file.number - 1, header.record, "")], rows)
        names = wanted.text[-1:]
    columns = _find_columns(names, str(path), wanted, parse.hint)

    def read() -> Iterator[InputRow]:
        for number, record, why in rows:
            if is_bare and any(map(str.strip, record[1:])):
                why = width_rule(len(record), 1, header.sign)
            yield InputRow(f"row {number}", dict(zip(names, record, strict=False)), why)

    yield from chunks_of_rows(read(), str(path), *columns, on_bad_row)


def chunks_of_objects(path: Path, wanted: Wanted, on_bad_row: OnBadText = OnBadText.empty) -> Iterator[Chunk]:
    """The rows of a file of JSON objects, the first of which names the columns.

    Raises:
        UserError: a row cannot be read; names it.
    """

    def read() -> Iterator[InputRow]:
        for number, one, why in _opened(path)[1]:
            cells, unwritable = writable(one)
            yield InputRow(f"row {number}", {} if unwritable else cells, why or unwritable)

    rows = read()
    first: list[InputRow] = []  # up to the first object
    for row in rows:
        first.append(row)
        if not row.why or on_bad_row is not OnBadText.drop:
            break
    if not first:
        return
    if first[-1].why:
        raise UserError(f"{path}, {first[-1].place}: {first[-1].why}{REMEDY}")
    columns = _find_columns([*first[-1].cells], str(path), wanted)

    def read_by_columns() -> Iterator[InputRow]:
        for row in chain(first, rows):
            named = [one for one in wanted.text if one in row.cells]
            if named and columns[0] not in wanted.text and not row.why:
                raise UserError(
                    f"{path}, {row.place} has the column '{format_value(named[0])}', but the first object has "
                    f"'{format_value(columns[0])}' alone, which would be read as the text: correct the first object"
                )
            yield row

    yield from chunks_of_rows(read_by_columns(), str(path), *columns, on_bad_row)


def _opened(path: Path, columns: Sequence[str] = ()) -> tuple[Any, Iterator[tuple[int, Any, str]]]:
    """See `blocks.stream_file`."""
    from manyheads.data.formats.blocks import stream_file  # and numpy and pyarrow with it

    return stream_file(path, columns)


def writable(cells: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """An object as JSON can write it again, and why it cannot, or nothing."""
    try:
        written = json.dumps(cells, ensure_ascii=False)
        written.encode()
    except UnicodeEncodeError:
        return cells, NOT_UTF8
    except RecursionError:
        return cells, "holds too many lists within lists"
    if "NaN" in written or "Infinity" in written:  # which JSON has no word for
        return plain_cell(cells), ""
    return cells, ""


def chunks_of_parquet(path: Path, wanted: Wanted, on_bad_row: OnBadText = OnBadText.empty) -> Iterator[Chunk]:
    """The rows of a parquet file.

    Raises:
        UserError: it cannot be read.
    """
    from manyheads.data.formats.parquet import stream_parquet

    names, rows = stream_parquet(path)
    columns = _find_columns(names, str(path), wanted)

    def read() -> Iterator[InputRow]:
        for at, row in enumerate(rows, 1):
            cells = {name: cell if name in columns else plain_cell(cell) for name, cell in row.items()}
            yield InputRow(f"row {at}", cells)

    yield from chunks_of_rows(read(), str(path), *columns, on_bad_row)


def require_texts(cells: list[str], name: str, remedy: str) -> None:
    """Raise UserError unless the first line is a row: one of its cells at least is clearly no name of a column."""
    if all(NAME.fullmatch(cell.strip()) for cell in cells):
        line, one = " and ".join(f"'{format_value(cell)}'" for cell in cells), len(cells) == 1
        either = "the name of its column or a text" if one else "the names of its columns or two texts"
        usual = "text" if one else "text and text_pair"
        called = f"call {'it' if one else 'them'} {usual}" if remedy == RENAME else remedy
        raise UserError(
            f"{name} begins with {line}, which may be {either}: if texts begin there, put a line that says {usual} "
            f"on top, else {called}"
        )


def plain_cell(cell: Any) -> Any:
    """A cell as JSON has it: types JSON lacks become text, a non-finite number null."""
    if cell is None or isinstance(cell, str | int):
        return cell
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, dict):
        return {name: plain_cell(one) for name, one in cell.items()}
    return [plain_cell(one) for one in cell] if isinstance(cell, list | tuple) else str(cell)


def _find_columns(header: list[str], name: str, wanted: Wanted, hint: str = "") -> tuple[str, str | None]:
    """The columns of the text and of the second text, if there is to be one. `hint`: what to do where the first is not
    there, if something better than the usual is known."""
    for twice, times in Counter(header).most_common(1):
        if times > 1:
            raise UserError(f"{name} has the column '{format_value(twice)}' twice: name every column once")
    text = wanted.text
    if len(header) == 1 < len(text) and not wanted.text_pair:  # a single column is the text
        text = header
    found = [next((one for one in names if one in header), None) for names in (text, wanted.text_pair)]
    for names, one in zip((text, wanted.text_pair), found, strict=True):
        if names and one is None:
            raise UserError(
                f"{name} has no column {names[0]!r}, which the model reads: its columns are {list_names(header)}; "
                f"{hint or wanted.remedy}"
            )
    first, second = found
    assert first is not None, "there is always a name for the text"
    if first == second:
        raise UserError(
            f"data.text={first} and data.text_pair={first} name one column of {name} twice: each needs its own"
        )
    return first, second


READERS: dict[str | None, Callable[[Path, Wanted, OnBadText], Iterator[Chunk]]] = {
    ".csv": chunks_of_table,
    ".tsv": chunks_of_table,
    ".jsonl": chunks_of_objects,
    ".json": chunks_of_objects,
    ".parquet": chunks_of_parquet,
}


def check_input(text: str, name: str) -> None:
    """Raise UserError if both the typed `text` and the file `name` ("-": standard input) are given, the text is not
    UTF-8, or there is no such file or one of another kind; before torch is imported."""
    file = Path(name)
    if text and name != "-":
        raise UserError(f"text and input={name} are both given: give one text, or a file of texts")
    if text and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError("text is not UTF-8: type it in the encoding of the terminal, or give it as a file by input=")
    if name == "-":
        return
    if file.is_dir() or not file.exists():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise UserError(
            f"input={name} {what}: name a file of one text a line, a .csv, .tsv, .jsonl or .parquet, or - for standard "
            "input"
        )
    if kind_of(file) is None and (file.suffix.lower() in OPENERS or remedy_for(file)):
        raise UserError(f"input={name} {why_not_read(file)}")
    if kind_of(file) == ".tsv" and not file.is_file():
        raise UserError(
            f"input={name} is a pipe, but a .tsv is read twice, first to see what its quotes are: give a file"
        )


@contextmanager
def open_texts(
    text: str, name: str, predictor: "Predictor[Any]", named: TextColumns | None = None
) -> Iterator[Iterator[Chunk]]:
    """The texts, a chunk at a time, as the predictor takes them: by its columns, or those that are `named`, in pairs
    or single. None: the verb has no setting that names one.

    Raises:
        UserError: a mistake in the settings, or in a row, which it names.
    """
    pair, on_bad_row = named.text_pair if named else "", named.on_bad_row if named else OnBadText.empty
    file, read = Path(name), READERS.get(kind_of(Path(name)))
    if pair and not predictor.pairs:
        raise UserError(f"data.text_pair={pair} does nothing, as the model of run takes single texts: remove it")
    if named and (named.text or pair) and (text or read is None):
        setting = f"data.text={named.text}" if named.text else f"data.text_pair={pair}"
        raise UserError(
            f"{setting} names a column, but {'text' if text else f'input={name}'} has none: remove it, or give a .csv, "
            ".tsv, .jsonl or .parquet"
        )
    if text:
        row = row_of_line(text, "", "text", pairs=predictor.pairs)
        second = "text_pair" if predictor.pairs else None
        yield chunks_of_rows([row], "text", "text", second, OnBadText["raise"])
    elif name == "-":
        by_hand = sys.stdin.isatty()
        if by_hand:
            print("type one text a line; end with Ctrl-D", file=sys.stderr)
        stream, pairs = sys.stdin.buffer, predictor.pairs
        yield chunks_of_lines(stream, "standard input", pairs=pairs, at_once=by_hand, on_bad_row=on_bad_row)
    elif read is None:
        with open_lines(file) as stream:
            marked = kind_of(file) == ".txt" and is_marked(first_lines(stream)[0])
            yield chunks_of_lines(stream, name, pairs=predictor.pairs, marked=marked, on_bad_row=on_bad_row)
    else:
        wanted = _wanted(predictor, named)
        typed = named is not None and bool(named.text or named.text_pair)
        if predictor.pairs and not typed and kind_of(file) == ".tsv":
            with open_lines(file) as stream:
                if _has_no_header(name, first_lines(stream), wanted.text, RENAME if named is None else BY_TEXT):
                    yield chunks_of_lines(stream, name, pairs=True, on_bad_row=on_bad_row)
                    return
        yield read(file, wanted, on_bad_row)


def _wanted(predictor: "Predictor[Any]", named: TextColumns | None) -> Wanted:
    """The columns that a predictor reads, unless others are `named`: those of its training, or ours, of which those of
    a preset come second."""
    columns = predictor.settings.columns
    names: list[list[str]] = []
    for key, own in (("text", columns.text), ("text_pair", columns.text_pair)):
        if one := getattr(named, key, ""):
            names.append([one])
        else:
            names.append([key, own] if columns.preset else [own, key])
    text, text_pair = names
    remedy = RENAME
    if named is not None:
        remedy = BY_PAIR if predictor.pairs else BY_TEXT
    return Wanted(text, text_pair if predictor.pairs else [], remedy)


def open_lines(file: Path) -> Any:
    """A file of lines, decompressed.

    Raises:
        UserError: it cannot be opened.
    """
    with reading(file):
        if file.suffix.lower() in OPENERS:
            return OPENERS[file.suffix.lower()](file)
        return file.open("rb", buffering=LONGEST_HEAD)


def first_lines(stream: Any) -> list[str]:
    """The first lines of a file, one at least, as far as they can be seen before they are read."""
    return stream.peek(LONGEST_HEAD).decode("utf-8-sig", "replace").split("\n")[:MOST_ABOVE]


def _has_no_header(name: str, lines: list[str], text: list[str], remedy: str) -> bool:
    """Whether a .tsv has pairs from its first line on, and none names columns; a UserError where the first may."""
    rows = [[cell.strip().strip('"') for cell in line.split("\t")] for line in lines]
    if len(rows[0]) > 2 or any({*row} & {*text} for row in rows) or SEP.fullmatch(lines[0]):
        return False
    if len(rows[0]) == 2:
        require_texts(rows[0], name, remedy)
    return True
