"""The texts that a verb is asked about: one that was typed, lines of a file or of standard input, or rows of a table.

They come a chunk at a time, in bounded memory for any length of input, also from a pipe, and nothing heavy is
imported. Only a line feed ends a line, with or without a carriage return before it: U+0085, U+2028 and their like are
letters of a text, which is why `str.splitlines` and text-mode iteration are not used.
"""

import csv
import json
import re
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from manyheads.config import TextColumns
from manyheads.config.fields import listed, show
from manyheads.data.delimited import csv_reader, quote_rule, refuse_wide, require_few, tab_reader
from manyheads.data.files import OPENERS

if TYPE_CHECKING:
    from manyheads.inference.predictor import Predictor

CHUNK = 1024  # rows answered together
MOST_CHARACTERS = 2**22  # of the texts of one chunk, so that long texts make short chunks
MOST_LINE = 2**24  # bytes; a longer line is no text but a file of another kind

# What may be the name of a column: up to four words, such as `review text (en)`, none of which ends as a sentence does.
WORD = r"[\w(\[{]([\w./:()\[\]{}-]{0,28}[\w)\]}-])?"
NAME = re.compile(f"{WORD}( {WORD}){{0,3}}")
RENAME = "rename one of them"
OTHER_KINDS = {  # what is not read, as rows are read as they come
    ".json": "is JSON as a whole, but {verb} reads rows: write one object a line, as .jsonl",
    **dict.fromkeys(OPENERS, "is compressed, but {verb} reads rows as they are: decompress it first"),
}

T = TypeVar("T")


@dataclass(slots=True)
class Chunk:
    """Some rows: what is repeated in the output for each, and its text(s)."""

    kept: list[dict[str, Any]]
    texts: list[str]
    pairs: list[str] | None


def read_lines(stream: BinaryIO, name: str, *, pairs: bool, at_once: bool = False) -> Iterator[Chunk]:
    """One row a line, also where the line is empty; with `pairs` a tab divides the two texts. A mistake is a ValueError
    that names the line.

    Chunks are the same however the stream delivers: in bf16 the last digits of an answer depend on the rows with it,
    so a pipe and a file would differ. `at_once`, for a person who types: each line is a chunk.
    """
    number = 1
    lines = (decode(line.removesuffix(b"\n"), name, at) for at, line in whole_lines(stream, name))
    for texts in filled(lines, len, most=1 if at_once else CHUNK):
        yield as_chunk(texts, name, number, pairs=pairs)
        number += len(texts)


def filled(items: Iterable[T], length: Callable[[T], int], *, most: int = CHUNK) -> Iterator[list[T]]:
    """Lists of `most` items, or of fewer that hold more than `MOST_CHARACTERS`."""
    chunk: list[T] = []
    n_characters = 0
    for item in items:
        chunk.append(item)
        n_characters += length(item)
        if len(chunk) == most or n_characters > MOST_CHARACTERS:
            yield chunk
            chunk, n_characters = [], 0
    if chunk:
        yield chunk


def as_chunk(texts: list[str], name: str, number: int, *, pairs: bool) -> Chunk:
    """Texts as rows, the first of which is line `number` of `name`; with `pairs` a tab divides the two texts."""
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


def whole_lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Number and content of every line, with its end."""
    number = 0
    while line := stream.readline(MOST_LINE + 1):
        number += 1
        if len(line.removesuffix(b"\n")) > MOST_LINE:
            raise ValueError(f"{name}, line {number} is longer than {MOST_LINE:,} bytes: give one text a line")
        yield number, line


def decode(line: bytes, name: str, number: int) -> str:
    """The text of line `number`, without its carriage return and, in the first, byte order mark."""
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        utf_16 = number == 1 and line.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
        remedy = f"iconv -f {'utf-16' if utf_16 else 'latin1'} -t utf-8 FILE > NEW"
        raise ValueError(
            f"{name}, line {number} is not UTF-8: {error.reason} at byte {error.start + 1}; save it as UTF-8, "
            f"{'as' if utf_16 else 'if it is Latin-1'} by {remedy}"
        ) from error
    return text.removeprefix("\ufeff") if number == 1 else text


def read_table(
    stream: BinaryIO, name: str, *, text: list[str], text_pair: list[str], remedy: str = RENAME
) -> Iterator[Chunk]:
    """The rows of a csv or tsv with a header; one that has a single column may begin with a text. Blank lines are no
    rows. A mistake is a ValueError that names the line.

    Args:
        name: the file, as error messages call it.
        text, text_pair: columns that may hold the text and the second one, of which the first there is counts; no
            `text_pair` for a model of single texts.
        remedy: how to say which column it is.
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
    if len(header) == 1 < len(text) and not text_pair and header[0] not in text:
        require_texts(header, name, remedy)
        rows, header = chain([first_row], rows), text[-1:]
    columns = _columns(header, name, text, text_pair, remedy)

    def records() -> Iterator[dict[str, str]]:
        """The cells by their columns: of the `width` that the first line had, those after the last name are none."""
        for row in rows:
            if not len(header) <= len(row) <= width:
                cells = f"has {len(row)} cells, but its header names {len(header)} columns"
                raise ValueError(f"{name}, line {reader.line_num} {cells}: quote texts that hold the separator")
            yield dict(zip(header, row, strict=False))

    yield from _chunks(records(), *columns)


def require_texts(cells: list[str], name: str, remedy: str) -> None:
    """Raise ValueError unless the first line is a row: one of its cells at least is clearly no name of a column."""
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
    """The rows of a file of one JSON object a line, whose first names the columns; all else as of `read_table`."""
    objects = _objects(stream, name)
    number, head = next(objects, (0, {}))
    if not number:
        return
    if len(head) == 1 < len(text) and not text_pair:
        text = list(head)
    columns = _columns(list(head), name, text, text_pair, remedy)
    records = (_checked(one, columns, name, at) for at, one in chain([(number, head)], objects))
    yield from _chunks(records, *columns)


def read_parquet(
    stream: BinaryIO, name: str, *, text: list[str], text_pair: list[str], remedy: str = RENAME
) -> Iterator[Chunk]:
    """The rows of a parquet file, as of `read_table`."""
    from manyheads.inference.parquet import plain, read_rows

    names, rows = read_rows(stream, name)
    if len(names) == 1 < len(text) and not text_pair:
        text = names
    columns = _columns(names, name, text, text_pair, remedy)
    checked = (_checked(row, columns, name, at, "row") for at, row in enumerate(rows, 1))
    yield from _chunks(({column: plain(cell) for column, cell in row.items()} for row in checked), *columns)


def _reader(stream: BinaryIO, name: str) -> Any:
    """Of the rows, by the rules of training; a .tsv is a file that can be read twice."""

    def lines(file: BinaryIO) -> Iterator[str]:
        """With their ends, as the csv reader wants them: a quoted cell may go on over several."""
        for number, line in whole_lines(file, name):
            end = "\r\n" if line.endswith(b"\r\n") else "\n" if line.endswith(b"\n") else ""
            yield decode(line.removesuffix(b"\n"), name, number) + end

    def anew() -> Iterator[str]:
        with open(name, "rb") as file:
            yield from refuse_wide(lines(file), name)

    if name.lower().endswith(".tsv"):
        return tab_reader(anew)
    found = refuse_wide(lines(stream), name)
    first_line = next(found, "")
    return csv_reader(chain([first_line], found), first_line)


def _chunks(records: Iterator[dict[str, Any]], first: str, second: str | None) -> Iterator[Chunk]:
    for kept in filled(records, lambda record: len(record[first]) + (0 if second is None else len(record[second]))):
        pairs = None if second is None else [row[second] for row in kept]
        yield Chunk(kept, [row[first] for row in kept], pairs)


def _rows(reader: Any, name: str) -> Iterator[list[str]]:
    first = 1  # line of a row
    try:
        for row in reader:
            if row:
                yield row
            first = reader.line_num + 1
    except csv.Error as error:
        if "new-line" in str(error):  # what csv goes on to say is of Python's open()
            remedy = "end lines by a line feed, and quote texts that hold a carriage return"
            raise ValueError(f"{name}, line {first} is not csv: a bare carriage return is in it; {remedy}") from error
        if "unexpected end" in str(error) or "expected after" in str(error):
            raise ValueError(f"{name}, line {first}: {quote_rule(error)}") from error
        raise ValueError(f"{name}, line {first} is not csv: {error}") from error


def _objects(stream: BinaryIO, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in whole_lines(stream, name):
        content = decode(line.removesuffix(b"\n"), name, number)
        if content.isspace() or not content:
            continue
        try:
            one = json.loads(content)
            json.dumps(one, ensure_ascii=False, allow_nan=False).encode()  # what is kept must be possible to write
        except UnicodeEncodeError as error:
            half = "half a character (a lone surrogate), which UTF-8 cannot write"
            raise ValueError(f"{name}, line {number} holds {half}: correct it") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}, line {number} is not JSON ({error}): write one object a line") from error
        if not isinstance(one, dict):
            raise ValueError(f'{name}, line {number} is not a JSON object such as {{"text": "..."}}')
        yield number, one


def _checked(
    one: dict[str, Any], columns: tuple[str, str | None], name: str, number: int, place: str = "line"
) -> dict[str, Any]:
    for column in columns:
        if column is not None and not isinstance(one.get(column), str):
            what = "is no text" if column in one else "is missing"
            raise ValueError(f"{name}, {place} {number}: {column!r} {what}, but the model reads it: give it a string")
    return one


def _columns(
    header: list[str], name: str, text: list[str], text_pair: list[str], remedy: str
) -> tuple[str, str | None]:
    """The columns of the text and of the second text, if there is to be one."""
    for twice, times in Counter(header).most_common(1):
        if times > 1:
            raise ValueError(f"{name} has the column '{show(twice)}' twice: name every column once")
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


READERS = {".csv": read_table, ".tsv": read_table, ".jsonl": read_objects, ".parquet": read_parquet}


def check_texts(verb: str, text: str, name: str) -> None:
    """Raise ValueError if both the typed `text` and the file `name` ("-": standard input) are given, the text is not
    UTF-8, or there is no such file or one of another kind; before torch is imported."""
    file = Path(name)
    if text and name != "-":
        raise ValueError(f"text and input={name} are both given: give one text, or a file of texts")
    if text and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("text is not UTF-8: type it in the encoding of the terminal, or give it as a file by input=")
    if name != "-" and (file.is_dir() or not file.exists()):
        what = "is a folder" if file.is_dir() else "does not exist"
        raise ValueError(
            f"input={name} {what}: name a file of one text a line, a .csv, .tsv, .jsonl or .parquet, or - for standard "
            "input"
        )
    if name != "-" and file.suffix.lower() in OTHER_KINDS:
        raise ValueError(f"input={name} {OTHER_KINDS[file.suffix.lower()].format(verb=verb)}")


@contextmanager
def opened_texts(
    text: str, name: str, predictor: "Predictor[Any]", named: TextColumns | None = None
) -> Iterator[Iterator[Chunk]]:
    """The texts, a chunk at a time, as the predictor takes them: by its columns, or those that are `named`, in pairs
    or single. None: the verb has no setting that names one. A mistake is a ValueError that names the line."""
    pair = named.text_pair if named else ""
    if pair and not predictor.pairs:
        raise ValueError(f"data.text_pair={pair} does nothing, as the model of run takes single texts: remove it")
    if named and (named.text or pair) and (text or Path(name).suffix.lower() not in READERS):
        setting = f"data.text={named.text}" if named.text else f"data.text_pair={pair}"
        raise ValueError(
            f"{setting} names a column, but {'text' if text else f'input={name}'} has none: remove it, or give a .csv, "
            ".tsv, .jsonl or .parquet"
        )
    if text:
        yield iter([as_chunk([text], "text", 1, pairs=predictor.pairs)])
        return
    if name == "-" and sys.stdin.isatty():
        print("type one text a line; end with Ctrl-D", file=sys.stderr)
    with nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb") as stream:
        yield _in_chunks(name, stream, predictor, named)


def _in_chunks(name: str, stream: BinaryIO, predictor: "Predictor[Any]", named: TextColumns | None) -> Iterator[Chunk]:
    columns = predictor.settings.columns
    read = READERS.get(Path(name).suffix.lower())
    if read is None:
        source, at_once = ("standard input", sys.stdin.isatty()) if name == "-" else (name, False)
        return read_lines(stream, source, pairs=predictor.pairs, at_once=at_once)
    text, text_pair = (
        [one] if (one := getattr(named, key, "")) else [key, its] if columns.preset else [its, key]
        for key, its in (("text", columns.text), ("text_pair", columns.text_pair))
    )
    remedy = RENAME if named is None else "name one by data.text=<column>"
    if predictor.pairs:
        typed = named is not None and bool(named.text or named.text_pair)
        if not typed and _is_bare_tsv(name, stream, text, remedy):
            return read_lines(stream, name, pairs=True)
        remedy = RENAME if named is None else "name both by data.text=<column> data.text_pair=<column>"
    return read(stream, name, text=text, text_pair=text_pair if predictor.pairs else [], remedy=remedy)


def _is_bare_tsv(name: str, stream: BinaryIO, text: list[str], remedy: str) -> bool:
    """Whether a .tsv has pairs from its first line on, which names no column; a ValueError where it may name two."""
    if Path(name).suffix.lower() != ".tsv":
        return False
    assert isinstance(stream, BufferedReader)
    cells = stream.peek().partition(b"\n")[0].decode("utf-8-sig", "replace").split("\t")
    cells = [one.strip().strip('"') for one in cells]
    if len(cells) > 2 or {*cells} & {*text}:
        return False
    if len(cells) == 2:
        require_texts(cells, name, remedy)
    return True
