"""The texts that a verb is asked about: one that was typed, lines of a file or of standard input, or rows of a table.

They come a chunk at a time, in bounded memory for any length of input, also from a pipe, and nothing heavy is
imported. Only a line feed ends a line, with or without a carriage return before it: U+0085, U+2028 and their like are
letters of a text, which is why `str.splitlines` and text-mode iteration are not used.
"""

import csv
import json
import math
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

from manyheads.config import OnBadText, TextColumns
from manyheads.config.fields import listed, show
from manyheads.data.delimited import (
    MOST_ABOVE,
    NAME,
    SEP,
    are_quotes,
    beginning,
    quote_rule,
    refuse_wide,
    require_few,
    start_of,
    width_rule,
)
from manyheads.data.files import LONGEST, OPENERS, OTHERS, is_marked, taken_apart
from manyheads.data.rows import is_blank, text_faults
from manyheads.errors import UserError

if TYPE_CHECKING:
    from manyheads.inference.predictor import Predictor

CHUNK = 1024  # rows answered together
MOST_CHARACTERS = 2**22  # of the texts of one chunk, so that long texts make short chunks
MOST_LINE = 2**24  # bytes; a longer line is no text but a file of another kind

RENAME = "rename one of them"
REMEDY = "; correct it, or have such rows answered by null with data.on_bad_row=drop"
OTHER_KINDS = {  # what is not read, as rows are read as they come
    ".json": "is JSON as a whole, but {verb} reads rows: write one object a line, as .jsonl",
    **OTHERS,
    **dict.fromkeys(OPENERS, "is compressed, but {verb} reads rows as they are: decompress it first"),
}

T = TypeVar("T")


class Row(NamedTuple):
    """A row as it was read: where it is, its cells, and why it could not be read."""

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


def read_lines(
    stream: BinaryIO,
    name: str,
    *,
    pairs: bool,
    at_once: bool = False,
    marked: bool = False,
    on_bad_row: OnBadText = OnBadText.empty,
) -> Iterator[Chunk]:
    """One row a line, also where the line is empty; with `pairs` a tab divides the two texts, and where lines are
    `marked`, the format of fastText, their labels are no part of them. A mistake is a UserError that names the line.

    Chunks are the same however the stream delivers: in bf16 the last digits of an answer depend on the rows with it,
    so a pipe and a file would differ. `at_once`, for a person who types: each line is a chunk.
    """
    rows = (
        as_row(decode(line.removesuffix(b"\n"), name, at), f"line {at}", name, pairs=pairs, marked=marked)
        for at, line in whole_lines(stream, name)
    )
    second = "text_pair" if pairs else None
    yield from as_chunks(rows, name, "text", second, on_bad_row, most=1 if at_once else CHUNK)


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


def as_row(text: str, place: str, name: str, *, pairs: bool, marked: bool = False) -> Row:
    """A text as a row, as `read_lines` gives it; an empty line has no tab."""
    more = {}
    if marked:
        text, more["labels"] = taken_apart(text)
    if not pairs:
        return Row(place, {"text": text} | more)
    cells = text.split("\t") if text.strip() else ["", ""]
    if len(cells) != 2:
        raise UserError(
            f"{name}{place and f', {place}'} has {len(cells) - 1} tabs, but the model takes pairs of texts: one tab "
            "must stand between the two"
        )
    return Row(place, {"text": cells[0], "text_pair": cells[1]} | more)


def as_chunks(
    rows: Iterator[Row], name: str, first: str, second: str | None, on_bad_row: OnBadText, *, most: int = CHUNK
) -> Iterator[Chunk]:
    """Rows in chunks, by their columns of the text and of the second one. What is no text is reported as in training. A
    row whose text is empty has no answer or, under `raise`, is refused; one that cannot be read, or whose text is of
    another type, is refused, or has no answer under `drop`.

    Raises:
        UserError: a row is refused; names it.
    """
    columns = {"the text": first} if second is None else {"the text": first, "the second text": second}

    def length(row: Row) -> int:
        return sum(len(cell) for one in columns.values() if isinstance(cell := row.cells.get(one), str))

    for part in filled(rows, length, most=most):
        faults = {at: f" {row.why}" for at, row in enumerate(part) if row.why}
        for column in columns.values():
            missing = (at for at, row in enumerate(part) if column not in row.cells and at not in faults)
            faults |= dict.fromkeys(missing, f": {column!r} is missing, but the model reads it")
        refused, texts = [*faults], list[list[str]]()
        for what, column in columns.items():
            cells = [row.cells.get(column) for row in part]
            found = {at: f": {why}" for at, why in text_faults(cells, what).items() if at not in faults}
            refused += [at for at in found if cells[at] is not None and not is_blank(str(cells[at]))]
            faults |= found
            texts.append([cell if isinstance(cell, str) else "" for cell in cells])
        if on_bad_row is OnBadText["raise"]:
            refused = [*faults]
        if refused and on_bad_row is not OnBadText.drop:
            at = min(refused)
            remedy = "" if part[at].why else REMEDY if part[at].place else "; type one"
            raise UserError(f"{name}{part[at].place and f', {part[at].place}'}{faults[at]}{remedy}")
        named = {at: f"{part[at].place}{why}" for at, why in sorted(faults.items())}
        kept = [plain(row.cells) if at in faults else row.cells for at, row in enumerate(part)]
        yield Chunk(kept, texts[0], texts[1] if second else None, named)


def whole_lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Number and content of every line, with its end."""
    number = 0
    while line := stream.readline(MOST_LINE + 1):
        number += 1
        if len(line.removesuffix(b"\n")) > MOST_LINE:
            raise UserError(f"{name}, line {number} is longer than {MOST_LINE:,} bytes: give one text a line")
        yield number, line


def decode(line: bytes, name: str, number: int) -> str:
    """The text of line `number`, without its carriage return and, in the first, byte order mark."""
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        utf_16 = number == 1 and line.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
        remedy = f"iconv -f {'utf-16' if utf_16 else 'latin1'} -t utf-8 FILE > NEW"
        raise UserError(
            f"{name}, line {number} is not UTF-8: {error.reason} at byte {error.start + 1}; save it as UTF-8, "
            f"{'as' if utf_16 else 'if it is Latin-1'} by {remedy}"
        ) from error
    return text.removeprefix("\ufeff") if number == 1 else text


def read_table(
    stream: BinaryIO,
    name: str,
    *,
    text: list[str],
    text_pair: list[str],
    remedy: str = RENAME,
    on_bad_row: OnBadText = OnBadText.empty,
) -> Iterator[Chunk]:
    """The rows of a csv or tsv with a header, read as training reads them; one that has a single column may begin with
    a text. Blank lines are no rows. A mistake is a UserError that names the line.

    Args:
        name: the file, as error messages call it.
        text, text_pair: columns that may hold the text and the second one, of which the first there is counts; no
            `text_pair` for a model of single texts.
        remedy: how to say which column it is.
        on_bad_row: see `as_chunks`.
    """
    csv.field_size_limit(MOST_LINE)

    def decoded(file: BinaryIO) -> Iterator[str]:
        """The lines with their ends, as the csv reader wants them: a quoted cell may go on over several."""
        for number, line in whole_lines(file, name):
            end = "\r\n" if line.endswith(b"\r\n") else "\n" if line.endswith(b"\n") else ""
            yield decode(line.removesuffix(b"\n"), name, number) + end

    def anew(n_lines: int) -> Iterator[str]:
        with open(name, "rb") as file:
            yield from islice(refuse_wide(decoded(file), name), n_lines, None)

    lines = refuse_wide(decoded(stream), name)
    sample = [*beginning(lines)]
    kind = Path(name).suffix.lower()
    dialect, n_lines, titled, hint = start_of(
        sample, kind, lambda n_lines: are_quotes(lambda: anew(n_lines)), [*text, *text_pair]
    )
    rows = _rows(csv.reader(islice(chain(sample, lines), n_lines, None), dialect), name, n_lines)
    first = next(rows, (0, []))
    header = [cell.strip() for cell in first[1]]
    require_few(header, name)
    width = len(header)
    while header and not header[-1]:  # as spreadsheets leave them
        header.pop()
    if not header:
        raise UserError(f"{name} is empty: its first line must name the columns")
    is_bare = len(header) == 1 < len(text) and not text_pair and header[0] not in text
    if is_bare:
        if titled:
            raise UserError(f"{name} begins with '{show(header[0])}', which names no column: {titled}")
        require_texts(header, name, remedy)
        rows, header = chain([first], rows), text[-1:]
    columns = _columns(header, name, text, text_pair, hint or remedy)

    def read() -> Iterator[Row]:
        """The cells by their columns: of the `width` that the first line had, those after the last name are none."""
        for number, row in rows:
            fits = len(header) <= len(row) <= width and not (is_bare and any(map(str.strip, row[1:])))
            why = "" if fits else width_rule(len(row), 1 if is_bare else width, dialect.delimiter)
            yield Row(f"line {number}", dict(zip(header, row, strict=False)), why)

    yield from as_chunks(read(), name, *columns, on_bad_row)


def require_texts(cells: list[str], name: str, remedy: str) -> None:
    """Raise UserError unless the first line is a row: one of its cells at least is clearly no name of a column."""
    if all(NAME.fullmatch(cell.strip()) for cell in cells):
        line, one = " and ".join(f"'{show(cell)}'" for cell in cells), len(cells) == 1
        either = "the name of its column or a text" if one else "the names of its columns or two texts"
        usual = "text" if one else "text and text_pair"
        called = f"call {'it' if one else 'them'} {usual}" if remedy == RENAME else remedy
        raise UserError(
            f"{name} begins with {line}, which may be {either}: if texts begin there, put a line that says {usual} "
            f"on top, else {called}"
        )


def read_objects(
    stream: BinaryIO,
    name: str,
    *,
    text: list[str],
    text_pair: list[str],
    remedy: str = RENAME,
    on_bad_row: OnBadText = OnBadText.empty,
) -> Iterator[Chunk]:
    """The rows of a file of one JSON object a line, whose first names the columns; all else as of `read_table`."""
    rows = _objects(stream, name)
    first: list[Row] = []  # up to the first object
    for row in rows:
        first.append(row)
        if not row.why or on_bad_row is not OnBadText.drop:
            break
    if not first:
        return
    place, head, why = first[-1]
    if why:
        raise UserError(f"{name}, {place} {why}")
    if len(head) == 1 < len(text) and not text_pair:
        text = list(head)
    columns = _columns(list(head), name, text, text_pair, remedy)
    yield from as_chunks(chain(first, rows), name, *columns, on_bad_row)


def read_parquet(
    stream: BinaryIO,
    name: str,
    *,
    text: list[str],
    text_pair: list[str],
    remedy: str = RENAME,
    on_bad_row: OnBadText = OnBadText.empty,
) -> Iterator[Chunk]:
    """The rows of a parquet file, as of `read_table`."""
    from manyheads.inference.parquet import read_rows

    names, rows = read_rows(stream, name)
    if len(names) == 1 < len(text) and not text_pair:
        text = names
    columns = _columns(names, name, text, text_pair, remedy)

    def read() -> Iterator[Row]:
        for at, row in enumerate(rows, 1):
            yield Row(f"row {at}", {one: cell if one in columns else plain(cell) for one, cell in row.items()})

    yield from as_chunks(read(), name, *columns, on_bad_row)


def plain(cell: Any) -> Any:
    """A cell as JSON has it: types JSON lacks become text, a non-finite number null."""
    if cell is None or isinstance(cell, str | int):
        return cell
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, dict):
        return {name: plain(one) for name, one in cell.items()}
    return [plain(one) for one in cell] if isinstance(cell, list | tuple) else str(cell)


def _rows(reader: Any, name: str, n_lines: int) -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the number of its first line; `n_lines` are above them."""
    first = n_lines + 1  # line of a row
    try:
        for row in reader:
            if row:
                yield first, row
            first = n_lines + reader.line_num + 1
    except csv.Error as error:
        if "new-line" in str(error):  # what csv goes on to say is of Python's open()
            remedy = "end lines by a line feed, and quote texts that hold a carriage return"
            raise UserError(f"{name}, line {first} is not csv: a bare carriage return is in it; {remedy}") from error
        if "unexpected end" in str(error) or "expected after" in str(error):
            raise UserError(f"{name}, line {first}: {quote_rule(error)}") from error
        raise UserError(f"{name}, line {first} is not csv: {error}") from error


def _objects(stream: BinaryIO, name: str) -> Iterator[Row]:
    for number, line in whole_lines(stream, name):
        content = decode(line.removesuffix(b"\n"), name, number)
        if content.isspace() or not content:
            continue
        one, why = None, ""
        try:
            one = json.loads(content)
            written = json.dumps(one, ensure_ascii=False)  # what is kept must be possible to write
            written.encode()
        except UnicodeEncodeError:
            why = "holds half a character (a lone surrogate), which UTF-8 cannot write: correct it"
        except (ValueError, RecursionError) as error:
            why = f"is not JSON ({error}): write one object a line"
        else:
            if not isinstance(one, dict):
                why = 'is not a JSON object such as {"text": "..."}'
            elif "NaN" in written or "Infinity" in written:  # which JSON has no word for
                one = plain(one)
        yield Row(f"line {number}", {}, why) if why or one is None else Row(f"line {number}", one)


def _columns(
    header: list[str], name: str, text: list[str], text_pair: list[str], remedy: str
) -> tuple[str, str | None]:
    """The columns of the text and of the second text, if there is to be one."""
    for twice, times in Counter(header).most_common(1):
        if times > 1:
            raise UserError(f"{name} has the column '{show(twice)}' twice: name every column once")
    found = [next((one for one in names if one in header), None) for names in (text, text_pair)]
    for names, one in zip((text, text_pair), found, strict=True):
        if names and one is None:
            raise UserError(
                f"{name} has no column {names[0]!r}, which the model reads: its columns are {listed(header)}; {remedy}"
            )
    first, second = found
    assert first is not None, "there is always a name for the text"
    if first == second:
        raise UserError(
            f"data.text={first} and data.text_pair={first} name one column of {name} twice: each needs its own"
        )
    return first, second


READERS = {".csv": read_table, ".tsv": read_table, ".jsonl": read_objects, ".parquet": read_parquet}


def check_texts(verb: str, text: str, name: str) -> None:
    """Raise UserError if both the typed `text` and the file `name` ("-": standard input) are given, the text is not
    UTF-8, or there is no such file or one of another kind; before torch is imported."""
    file = Path(name)
    if text and name != "-":
        raise UserError(f"text and input={name} are both given: give one text, or a file of texts")
    if text and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError("text is not UTF-8: type it in the encoding of the terminal, or give it as a file by input=")
    if name != "-" and (file.is_dir() or not file.exists()):
        what = "is a folder" if file.is_dir() else "does not exist"
        raise UserError(
            f"input={name} {what}: name a file of one text a line, a .csv, .tsv, .jsonl or .parquet, or - for standard "
            "input"
        )
    if name != "-" and file.suffix.lower() in OTHER_KINDS:
        raise UserError(f"input={name} {OTHER_KINDS[file.suffix.lower()].format(verb=verb)}")


@contextmanager
def opened_texts(
    text: str, name: str, predictor: "Predictor[Any]", named: TextColumns | None = None
) -> Iterator[Iterator[Chunk]]:
    """The texts, a chunk at a time, as the predictor takes them: by its columns, or those that are `named`, in pairs
    or single. None: the verb has no setting that names one. A mistake is a UserError that names the line."""
    pair = named.text_pair if named else ""
    if pair and not predictor.pairs:
        raise UserError(f"data.text_pair={pair} does nothing, as the model of run takes single texts: remove it")
    if named and (named.text or pair) and (text or Path(name).suffix.lower() not in READERS):
        setting = f"data.text={named.text}" if named.text else f"data.text_pair={pair}"
        raise UserError(
            f"{setting} names a column, but {'text' if text else f'input={name}'} has none: remove it, or give a .csv, "
            ".tsv, .jsonl or .parquet"
        )
    if text:
        row = as_row(text, "", "text", pairs=predictor.pairs)
        second = "text_pair" if predictor.pairs else None
        yield as_chunks(iter([row]), "text", "text", second, OnBadText["raise"])
        return
    if name == "-" and sys.stdin.isatty():
        print("type one text a line; end with Ctrl-D", file=sys.stderr)
    with nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb", buffering=LONGEST) as stream:
        yield _in_chunks(name, stream, predictor, named)


def _in_chunks(name: str, stream: BinaryIO, predictor: "Predictor[Any]", named: TextColumns | None) -> Iterator[Chunk]:
    columns, on_bad_row = predictor.settings.columns, named.on_bad_row if named else OnBadText.empty
    kind = Path(name).suffix.lower()
    read = READERS.get(kind)
    if read is None:
        source, at_once = ("standard input", sys.stdin.isatty()) if name == "-" else (name, False)
        marked = kind == ".txt" and is_marked(_first_lines(stream)[0])
        return read_lines(stream, source, pairs=predictor.pairs, at_once=at_once, marked=marked, on_bad_row=on_bad_row)
    text, text_pair = (
        [one] if (one := getattr(named, key, "")) else [key, its] if columns.preset else [its, key]
        for key, its in (("text", columns.text), ("text_pair", columns.text_pair))
    )
    remedy = RENAME if named is None else "name one by data.text=<column>"
    if predictor.pairs:
        typed = named is not None and bool(named.text or named.text_pair)
        if not typed and kind == ".tsv" and _is_bare(name, _first_lines(stream), text, remedy):
            return read_lines(stream, name, pairs=True, on_bad_row=on_bad_row)
        remedy = RENAME if named is None else "name both by data.text=<column> data.text_pair=<column>"
    text_pair = text_pair if predictor.pairs else []
    return read(stream, name, text=text, text_pair=text_pair, remedy=remedy, on_bad_row=on_bad_row)


def _first_lines(stream: BinaryIO) -> list[str]:
    """The first lines of a file, one at least, as far as they can be seen before they are read."""
    assert isinstance(stream, BufferedReader)
    return stream.peek().decode("utf-8-sig", "replace").split("\n")[:MOST_ABOVE]


def _is_bare(name: str, lines: list[str], text: list[str], remedy: str) -> bool:
    """Whether a .tsv has pairs from its first line on, and none names columns; a UserError where the first may."""
    rows = [[cell.strip().strip('"') for cell in line.split("\t")] for line in lines]
    if len(rows[0]) > 2 or any({*row} & {*text} for row in rows) or SEP.fullmatch(lines[0]):
        return False
    if len(rows[0]) == 2:
        require_texts(rows[0], name, remedy)
    return True
