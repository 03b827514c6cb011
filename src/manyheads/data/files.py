"""One local file to one `Table`: csv, tsv, json lines, lines of text (all also compressed) and parquet.

A .txt file holds a text a line, or lines in the format of fastText. A file of another kind is refused by what can be
done about it.
"""

import bz2
import codecs
import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.config.data import KINDS, PACKED_KINDS, TEXT_KINDS
from manyheads.config.fields import listed, show
from manyheads.data.delimited import Cells, Part
from manyheads.errors import UserError

ARCHIVES = (".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")


MARK = "__label__"
OF_TREC = re.compile(r"[A-Z]+:[A-Za-z]+ +\S")
TREC = (
    "is in TREC's format, CLASS:kind text: write it as .tsv, as by "
    r"(printf 'label\ttext\n'; iconv -f latin1 -t utf-8 FILE | sed 's/:[^ ]* /\t/') > NEW.tsv"
)
MARKED = re.compile(rf"(?:{MARK}\S*\s*)*")
OTHERS: dict[str, str] = {  # kinds that are not read, and what to do about them
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods", ".numbers"), "is a spreadsheet: save it as .csv"),
    **dict.fromkeys((".ndjson", ".jsonlines"), "holds JSON lines: let its name end with .jsonl"),
}
SPACES = re.compile(r"[ \t\n\r]*")  # of JSON
Packed = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
OPENERS: dict[str, Callable[[Path], Packed]] = dict(
    zip(PACKED_KINDS, (gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile), strict=True)
)
MOST_BYTES = 2**32  # of a decompressed file: a small one may unpack to more than any memory holds
MOST_TIMES = 100  # its own size, where that is more than FREE_BYTES: texts come to a tenth or a third
FREE_BYTES = 2**27
LONGEST = 2**20  # bytes of a line that is looked at to tell what a file is
MOST_OBJECT = 2**26  # bytes in which one JSON object ends
LARGE = 2**26  # bytes of files from which they are not held in memory, but read again
PACKED = 4  # bytes of text that one of a compressed file is taken for
KINDS_IN_WORDS = "csv, tsv, jsonl, json, txt or parquet (the text kinds also as .gz, .bz2, .xz)"


def known_kind(path: Path) -> str:
    """What a file is that is not read, and the remedy; empty where it is not known."""
    if path.name.lower().endswith(ARCHIVES):
        return "is an archive: unpack it, and give the file or the folder that was in it"
    if path.suffix.lower() == ".label":
        return TREC
    if path.suffix.lower() in OTHERS:
        return OTHERS[path.suffix.lower()]
    if path.is_file():
        try:
            with path.open("rb") as file:
                head = file.readline(LONGEST)
        except OSError:
            head = b""
        if is_marked(head.decode("utf-8", "replace")):
            return "is in fastText's format, which is read from a .txt: let its name end with .txt"
    return ""


def why_unread(path: Path) -> str:
    """The same, of any file."""
    return known_kind(path) or f"is not a kind of file that is read: give {KINDS_IN_WORDS}"


def why_empty(folder: Path) -> str:
    """Why a folder holds no data file: by the first one in it whose kind is known."""
    inside = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    known = next(((path.name, why) for path in inside if (why := known_kind(path))), None)
    return f"its {known[0]} {known[1]}" if known else f"put files of {KINDS_IN_WORDS} into it"


def read_lines(path: Path, text: str, number: int, *, marked: bool) -> Cells:
    """One text a line, the first of which is line `number`, in the column `text`; lines of white space alone are none.
    Where they are `marked` by `__label__`, the format of fastText, the names in such marks are the column `labels`.

    Raises:
        UserError: the lines are TREC's.
    """
    lines = {at: line.strip("\r") for at, line in enumerate(text.split("\n"), start=number) if line.strip()}
    texts = [*lines.values()]
    if marked:
        return _marked(texts, [*lines])
    if number == 1 and texts and all(map(OF_TREC.match, texts)):
        raise UserError(f"{path} {TREC}")
    return Cells(["text"], lambda name: texts, [*lines])


def is_marked(line: str) -> bool:
    """Whether a file that begins with this line is fastText's: a label is at the beginning of it, or at its end."""
    words = line.removeprefix("\ufeff").split()
    return any(word.startswith(MARK) for word in (*words[:1], *words[-1:]))


def taken_apart(line: str) -> tuple[str, list[str]]:
    """A line of fastText as its text and its labels, at the beginning of it and at its end."""
    first = MARKED.match(line)
    text, last = line[first.end() if first else 0 :], list[str]()
    while (words := text.rsplit(None, 1)) and words[-1].startswith(MARK) and words[-1] != MARK:
        text = words[0] if len(words) > 1 else ""
        last.insert(0, words[-1].removeprefix(MARK))
    return text, [*(first[0].replace(MARK, " ").split() if first else ()), *last]


def _marked(lines: list[str], numbers: list[int]) -> Cells:
    found = [taken_apart(line) for line in lines]
    cells = {"text": [text for text, _ in found], "labels": [labels or [""] for _, labels in found]}
    broken = {
        at: f"has no {MARK} at its beginning or end"
        for at, (line, (_, labels)) in enumerate(zip(lines, found, strict=True))
        if not labels and not line.startswith(MARK)
    }
    return Cells(["text", "labels"], cells.__getitem__, numbers, broken)


def kind_of(path: Path) -> str | None:
    """`.csv`, `.tsv`, `.jsonl`, `.json`, `.txt` or `.parquet`; None for a file of another kind."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in OPENERS:
        suffixes.pop()
        return suffixes[-1] if suffixes and suffixes[-1] in TEXT_KINDS else None
    return suffixes[-1] if suffixes and suffixes[-1] in KINDS else None


def is_large(paths: Iterable[Path]) -> bool:
    """Whether these files are not held, as they would fill the memory together."""
    n_bytes = 0
    for path in paths:
        with reading(path):
            n_bytes += path.stat().st_size * (1 if path.suffix in TEXT_KINDS else PACKED)
    return n_bytes > LARGE


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in a sentence why a file cannot be read or decompressed.

    Raises:
        UserError: it cannot.
    """
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as problem:
        raise UserError(
            f"{path} cannot be decompressed ({problem}): the file is truncated or damaged; copy it again"
        ) from None
    except OSError as problem:
        if path.suffix.lower() in OPENERS and problem.errno is None:
            raise UserError(f"{path} cannot be decompressed ({problem}): it is damaged or of another kind") from None
        raise UserError(f"{path} cannot be read: {problem.strerror or problem}; check its permissions") from None


def text_of(path: Path) -> str:
    """The content of a text file.

    Raises:
        UserError: it cannot be read, or is not UTF-8; names file and line.
    """
    with reading(path):
        raw = path.read_bytes()
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as problem:
        row = raw.count(b"\n", 0, problem.start) + 1
        raise UserError(encoding_rule(path, raw, problem.start, 0, row)) from None


def encoding_rule(path: Path, raw: bytes, start: int, offset: int, row: int) -> str:
    """That a file is not UTF-8: `raw`, which begins at `offset`, by its byte `start` in `row`."""
    if not offset and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"{path} is UTF-16, not UTF-8: save it as UTF-8, as by iconv -f utf-16 -t utf-8 FILE > NEW"
    return (
        f"{path}, row {row}: byte {raw[start]:#04x} at position {offset + start:,} is not UTF-8; save the file as "
        "UTF-8, if it is Latin-1 by iconv -f latin1 -t utf-8 FILE > NEW"
    )


def require_bounded(path: Path, n_bytes: int) -> None:
    """Raise UserError if a file holds more once decompressed than a file of its size may."""
    if n_bytes > (most := most_unpacked(path)):
        raise UserError(
            f"{path} holds more than {most:,} bytes once decompressed: "
            "decompress it yourself and give the plain file, or split it"
        )


def require_unchanged(path: Path, before: os.stat_result) -> None:
    """Raise UserError if a file is not of the size and time of last change that it was of `before`."""
    now = path.stat()
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise UserError(f"{path} was changed while it is in use: start again")


def most_unpacked(path: Path) -> int:
    """Bytes that a file of this size may hold once decompressed."""
    return min(MOST_BYTES, max(FREE_BYTES, MOST_TIMES * path.stat().st_size))


def by_lines(path: Path, marked: bool | None, raw: bytes, number: int, last: bool, plain: bool) -> Part | None:
    """Whole lines of text, `marked` or not, or, if that is None, of JSON objects."""
    n_bytes = len(raw) if last else raw.rfind(b"\n") + 1
    if not n_bytes and not last:
        return None
    text, n_lines = raw[:n_bytes].decode(), raw.count(b"\n", 0, n_bytes)
    if marked is not None:
        return Part(read_lines(path, text, number, marked=marked), n_bytes, n_lines, True)
    if number == 1 and not last and len(raw) < MOST_OBJECT and goes_on(text):
        return None  # until the sentence is known: one object is spread over the lines
    whole = number == 1 and last and not plain
    return Part(read_json_lines(path, text, number, whole=whole), n_bytes, n_lines, True)


def by_elements(path: Path, raw: bytes, number: int, last: bool, plain: bool) -> Part | None:
    """Whole elements of a JSON array."""
    text = codecs.getincrementaldecoder("utf-8")().decode(raw, last)
    cells, end = read_json_array(path, text, number, opens=number == 1, closes=last, last=last and not plain)
    n_rows = len(cells.numbers)
    if not n_rows and not last:
        if len(raw) >= MOST_OBJECT:
            read_json_array(path, text, number, opens=number == 1, closes=True, last=True)  # which says why
        return None
    return Part(cells, len(raw) if end == len(text) else len(text[:end].encode()), n_rows, True)


def read_json_lines(path: Path, text: str, number: int, *, whole: bool) -> Cells:
    """One object a line, the first of which is line `number`; `whole`: there are no more."""
    objects: list[Any] = []
    numbers: list[int] = []
    broken: dict[int, str] = {}
    for at, line in enumerate(text.split("\n"), start=number):
        if not line or line.isspace():
            continue
        try:
            objects.append(json.loads(line))
        except (ValueError, RecursionError) as problem:
            if not objects and whole:
                _refuse_one_object(path, text)
            together = "Extra data" in str(problem) and line.lstrip().startswith("{")
            broken[len(objects)] = "holds more than one JSON object" if together else f"is not JSON ({problem})"
            objects.append({})
        numbers.append(at)
    if whole and len(objects) == 1 and isinstance(objects[0], dict) and _are((list, dict), objects[0].values()):
        raise UserError(_one_object(path, objects[0]))
    return cells_of_objects(objects, numbers, broken)


def goes_on(text: str) -> bool:
    """Whether the first line begins a JSON object that it does not end."""
    line = next((line for line in text.split("\n") if line.strip()), "")
    try:
        json.loads(line)
    except json.JSONDecodeError as problem:
        return problem.pos >= len(line.rstrip())
    except RecursionError:
        pass  # it is told as a broken row
    return False


def read_json_array(path: Path, text: str, number: int, *, opens: bool, closes: bool, last: bool) -> tuple[Cells, int]:
    """The elements of an array, the first of which is row `number`, and where those end that are whole. It `opens` with
    the text, may close only in one that `closes`, so that its end is never alone, and must in the `last`.

    Raises:
        UserError: it is no such array.
    """
    decode, objects, wrong = json.JSONDecoder().raw_decode, list[Any](), None
    at = _behind_spaces(text, _behind_spaces(text, 0) + opens)
    closed = opens and closes and text.startswith("]", at)
    end = _behind_spaces(text, at + closed)
    try:
        while end < len(text) and not closed:
            one, at = decode(text, end)
            at = _behind_spaces(text, at)
            closed = closes and text.startswith("]", at)
            if not closed and not text.startswith(",", at):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            objects.append(one)
            end = _behind_spaces(text, at + 1)
        if not closed or end < len(text):
            raise json.JSONDecodeError("Extra data" if closed else "Expecting value", text, end)
    except (json.JSONDecodeError, RecursionError) as problem:
        wrong = problem
    if last and wrong is not None:
        why = f"{wrong}" if number == 1 else f"row {number + len(objects)}: {getattr(wrong, 'msg', wrong)}"
        raise UserError(f"{path} is not JSON ({why}): it must hold an array of objects, or one object a line")
    return cells_of_objects(objects, range(number, number + len(objects)), {}), end


def _behind_spaces(text: str, at: int) -> int:
    found = SPACES.match(text, at)
    return found.end() if found else at


def _refuse_one_object(path: Path, text: str) -> None:
    """Raise UserError if the whole text is one JSON object, spread over its lines."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(whole, dict):
        raise UserError(_one_object(path, whole))


def _one_object(path: Path, whole: dict[str, Any]) -> str:
    arrays = [key for key, value in whole.items() if isinstance(value, list) and _are(dict, value)]
    hint = ""
    if len(arrays) == 1:
        hint = f"; save the array under '{show(arrays[0])}' alone"
    elif arrays:
        names = listed([show(key) for key in arrays])
        hint = f"; save each of its arrays, {names}, as a file of that name, in one folder"
    elif _are(dict, whole.values()) or _are(list, whole.values()):
        hint = "; it holds columns instead: of pandas, write it by to_json(FILE, orient='records', lines=True)"
    return f"{path} is a single JSON object, but it must hold an array of objects, or one object a line{hint}"


def _are(kind: type | tuple[type, ...], values: Iterable[Any]) -> bool:
    found = [*values]
    return bool(found) and all(isinstance(one, kind) for one in found)


def cells_of_objects(objects: list[Any], numbers: Sequence[int], broken: dict[int, str]) -> Cells:
    """The cells of objects, by their keys."""
    names: dict[str, None] = {}
    for index, one in enumerate(objects):
        if not isinstance(one, dict):
            broken[index] = 'is not a JSON object such as {"text": "...", "label": "..."}'
            objects[index] = {}
        else:
            names.update(dict.fromkeys(one))

    def column(name: str) -> list[Any]:
        return [one.get(name) for one in objects]

    return Cells([*names], column, numbers, broken)
