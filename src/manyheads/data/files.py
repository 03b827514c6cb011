"""One local file to one `Table`: csv, tsv, json lines, lines of text (all also compressed) and parquet.

A .txt file holds a text a line, or lines as fastText writes them. A file of another kind is refused by what can be
done about it. Standard library only.
"""

import bz2
import codecs
import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.config.fields import listed, show
from manyheads.data.delimited import read_csv, read_tsv, row_of
from manyheads.data.table import Table

ARCHIVES = (".zip", ".7z", ".rar", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")


MARK = "__label__"
OF_TREC = re.compile(r"[A-Z]+:[A-Za-z]+ +\S")
TREC = (
    "is in TREC's format, CLASS:kind text: write it as .tsv, as by "
    r"(printf 'label\ttext\n'; iconv -f latin1 -t utf-8 FILE | sed 's/:[^ ]* /\t/') > NEW.tsv"
)
Packed = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
OPENERS: dict[str, Callable[[Path], Packed]] = {".gz": gzip.GzipFile, ".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile}
MOST_BYTES = 2**32  # of a decompressed file: a small one may unpack to more than any memory holds
MOST_TIMES = 100  # its own size, where that is more than FREE_BYTES: texts come to a tenth or a third
FREE_BYTES = 2**27
BLOCK = 2**24  # bytes decompressed at once
LARGE = 2**26  # bytes of files from which rows are not held as Python objects, which takes four times as many
PACKED = 4  # bytes of text that one of a compressed file is taken for
TEXT_KINDS = (".csv", ".tsv", ".jsonl", ".json", ".txt")
KINDS = (*TEXT_KINDS, ".parquet")
KINDS_IN_WORDS = "csv, tsv, jsonl, json, txt or parquet (the text kinds also as .gz, .bz2, .xz)"


def known_kind(path: Path) -> str:
    """What a file is that is not read, and the remedy; empty where it is not known."""
    if path.name.lower().endswith(ARCHIVES):
        return "is an archive: unpack it, and give the file or the folder that was in it"
    if path.suffix.lower() == ".label":
        return TREC
    if path.is_file():
        try:
            with path.open("rb") as file:
                head = file.read(len(MARK))
        except OSError:
            head = b""
        if head == MARK.encode():
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


def read_lines(path: Path, text: str, number: int = 1, *, marked: bool | None = None) -> Table:
    """One text a line, the first of which is line `number`, in the column `text`; lines of white space alone are none.
    Where the first starts with `__label__`, as of fastText, or they are `marked`, the names behind such marks are the
    column `labels`.

    Raises:
        ValueError: the lines are TREC's.
    """
    lines = {at: line.strip("\r") for at, line in enumerate(text.split("\n"), start=number) if line.strip()}
    texts = [*lines.values()]
    if marked or (marked is None and texts and texts[0].startswith(MARK)):
        return _marked(texts, [*lines], path.name)
    if number == 1 and texts and all(map(OF_TREC.match, texts)):
        raise ValueError(f"{path} {TREC}")
    return Table(names=["text"], column=lambda name: texts, numbers=[*lines], source=path.name)


def _marked(lines: list[str], numbers: list[int], source: str) -> Table:
    words = [re.match(rf"((?:{MARK}\S*\s*)*)(.*)", line, re.DOTALL) for line in lines]
    cells = {
        "text": [found[2] if found else "" for found in words],
        "labels": [found[1].replace(MARK, " ").split() or [""] if found else [""] for found in words],
    }
    broken = {at: f"does not start with {MARK}" for at, line in enumerate(lines) if not line.startswith(MARK)}
    return Table(names=["text", "labels"], column=cells.__getitem__, numbers=numbers, source=source, broken=broken)


def kind_of(path: Path) -> str | None:
    """`.csv`, `.tsv`, `.jsonl`, `.json`, `.txt` or `.parquet`; None for a file of another kind."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in OPENERS:
        suffixes.pop()
        return suffixes[-1] if suffixes and suffixes[-1] in TEXT_KINDS else None
    return suffixes[-1] if suffixes and suffixes[-1] in KINDS else None


def stem_of(path: Path) -> str:
    """File name without its kind and compression: `train` of `train.csv.gz`."""
    name = path.name
    while Path(name).suffix.lower() in (*KINDS, *OPENERS):
        name = Path(name).stem
    return name


def is_large(paths: Iterable[Path]) -> bool:
    """Whether the rows of these files together are read block by block, as they would fill the memory."""
    n_bytes = 0
    for path in paths:
        with reading(path):
            n_bytes += path.stat().st_size * (1 if path.suffix in TEXT_KINDS else PACKED)
    return n_bytes > LARGE


def read_file(path: Path, *, large: bool | None = None, cache: Path | None = None) -> Table:
    """Read a file whose `kind_of` is known; `large`: block by block, by default where it `is_large`. Where its blocks
    are is kept in the folder `cache`.

    Raises:
        ValueError: the file is unreadable, truncated, undecodable or has no header; names file and row.
    """
    kind = kind_of(path)
    large = is_large([path]) if large is None else large
    if kind == ".parquet":
        from manyheads.data.arrow import read_parquet

        return read_parquet(path, large=large)
    if large:
        from manyheads.data.blocks import read_in_blocks

        if (table := read_in_blocks(path, str(kind), cache)) is not None:
            return table
    read = {
        ".csv": read_csv,
        ".tsv": read_tsv,
        ".jsonl": read_json_lines,
        ".json": _read_json,
        ".txt": read_lines,
    }[str(kind)]
    return read(path, text_of(path, is_table=kind in (".csv", ".tsv")))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in a sentence why a file cannot be read or decompressed.

    Raises:
        ValueError: it cannot.
    """
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as problem:
        raise ValueError(
            f"{path} cannot be decompressed ({problem}): the file is truncated or damaged; copy it again"
        ) from None
    except OSError as problem:
        if path.suffix.lower() in OPENERS and problem.errno is None:
            raise ValueError(f"{path} cannot be decompressed ({problem}): it is damaged or of another kind") from None
        raise ValueError(f"{path} cannot be read: {problem.strerror or problem}; check its permissions") from None


def text_of(path: Path, *, is_table: bool) -> str:
    """The content of a text file, decompressed.

    Raises:
        ValueError: it cannot be read, is truncated, or not UTF-8; names file and row.
    """
    with reading(path):
        raw = _unpacked(path) if path.suffix.lower() in OPENERS else path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        start = problem.start + (len(codecs.BOM_UTF8) if raw.startswith(codecs.BOM_UTF8) else 0)
        before = raw[:start].decode("utf-8-sig")
        row = row_of(before) if is_table else before.count("\n") + 1
        raise ValueError(encoding_rule(path, raw, start, 0, row)) from None


def encoding_rule(path: Path, raw: bytes, start: int, offset: int, row: int) -> str:
    """That a file is not UTF-8: `raw`, which begins at `offset`, by its byte `start` in `row`."""
    if not offset and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"{path} is UTF-16, not UTF-8: save it as UTF-8, as by iconv -f utf-16 -t utf-8 FILE > NEW"
    return (
        f"{path}, row {row}: byte {raw[start]:#04x} at position {offset + start:,} is not UTF-8; save the file as "
        "UTF-8, if it is Latin-1 by iconv -f latin1 -t utf-8 FILE > NEW"
    )


def _unpacked(path: Path) -> bytes:
    """The decompressed content, block by block, so that what is too large is refused before it fills the memory."""
    blocks, n_bytes = [], 0
    with OPENERS[path.suffix.lower()](path) as file:
        while block := file.read(BLOCK):
            blocks.append(block)
            n_bytes += len(block)
            require_bounded(path, n_bytes)
    return b"".join(blocks)


def require_bounded(path: Path, n_bytes: int) -> None:
    """Raise ValueError if a file holds more once decompressed than a file of its size may."""
    if n_bytes > (most := most_unpacked(path)):
        raise ValueError(
            f"{path} holds more than {most:,} bytes once decompressed: "
            "decompress it yourself and give the plain file, or split it"
        )


def require_unchanged(path: Path, before: os.stat_result) -> None:
    """Raise ValueError if a file is not of the size and time of last change that it was of `before`."""
    now = path.stat()
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise ValueError(f"{path} was changed while it is in use: start again")


def most_unpacked(path: Path) -> int:
    """Bytes that a file of this size may hold once decompressed."""
    return min(MOST_BYTES, max(FREE_BYTES, MOST_TIMES * path.stat().st_size))


def _read_json(path: Path, text: str) -> Table:
    """A JSON array of objects, or one object a line."""
    if not text.lstrip().startswith("["):
        return read_json_lines(path, text)
    try:
        objects = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(
            f"{path} is not JSON ({problem}): it must hold an array of objects, or one object a line"
        ) from None
    return _from_objects(path, objects, range(1, len(objects) + 1), {})


def read_json_lines(path: Path, text: str, number: int = 1, *, whole: bool = True) -> Table:
    """One object a line, the first of which is line `number`; `whole`: there are no more."""
    objects: list[Any] = []
    numbers: list[int] = []
    broken: dict[int, str] = {}
    first = number
    for number, line in enumerate(text.split("\n"), start=first):
        if not line or line.isspace():
            continue
        try:
            objects.append(json.loads(line))
        except (ValueError, RecursionError) as problem:
            if not objects and first == 1:
                _refuse_one_object(path, text if whole else text_of(path, is_table=False))
            together = "Extra data" in str(problem) and line.lstrip().startswith("{")
            broken[len(objects)] = "holds more than one JSON object" if together else f"is not JSON ({problem})"
            objects.append({})
        numbers.append(number)
    if (
        whole
        and first == len(objects) == 1
        and isinstance(objects[0], dict)
        and _are((list, dict), objects[0].values())
    ):
        raise ValueError(_one_object(path, objects[0]))
    return _from_objects(path, objects, numbers, broken)


def _refuse_one_object(path: Path, text: str) -> None:
    """Raise ValueError if the whole text is one JSON object, spread over its lines."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(whole, dict):
        raise ValueError(_one_object(path, whole))


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


def _from_objects(path: Path, objects: list[Any], numbers: Any, broken: dict[int, str]) -> Table:
    names: dict[str, None] = {}
    for index, one in enumerate(objects):
        if not isinstance(one, dict):
            broken[index] = 'is not a JSON object such as {"text": "...", "label": "..."}'
            objects[index] = {}
        else:
            names.update(dict.fromkeys(one))

    def column(name: str) -> list[Any]:
        return [one.get(name) for one in objects]

    return Table(names=list(names), column=column, numbers=numbers, source=path.name, broken=broken)
