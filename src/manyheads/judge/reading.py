"""The texts a verb is asked about: one that was typed, a file, or standard input. Nothing heavy is imported."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from manyheads.config import TextColumns
from manyheads.data.files import OPENERS
from manyheads.judge.lines import Chunk, as_chunk, read_lines
from manyheads.judge.records import RENAME, read_objects, read_table, require_texts

OTHER_KINDS = {  # what is not read, as rows are read as they come
    ".parquet": "is parquet, of which {verb} reads no rows: write it as .csv or .jsonl first",
    ".json": "is JSON as a whole, but {verb} reads rows: write one object a line, as .jsonl",
    **dict.fromkeys(OPENERS, "is compressed, but {verb} reads rows as they are: decompress it first"),
}
READERS = {".csv": read_table, ".tsv": read_table, ".jsonl": read_objects}


def check_texts(verb: str, text: str, name: str) -> None:
    """Find what is wrong with the typed `text`, or the file `name` ("-": standard input), before torch is imported.

    Raises:
        ValueError: both are given, the text is not UTF-8, or there is no such file or one of another kind.
    """
    file = Path(name)
    if text and name != "-":
        raise ValueError(f"text and input={name} are both given: give one text, or a file of texts")
    if text and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("text is not UTF-8: type it in the encoding of the terminal, or give it as a file by input=")
    if name != "-" and (file.is_dir() or not file.exists()):
        what = "is a folder" if file.is_dir() else "does not exist"
        raise ValueError(
            f"input={name} {what}: name a file of one text a line, a .csv, .tsv or .jsonl, or - for standard input"
        )
    if name != "-" and file.suffix.lower() in OTHER_KINDS:
        raise ValueError(f"input={name} {OTHER_KINDS[file.suffix.lower()].format(verb=verb)}")


@contextmanager
def opened_texts(text: str, name: str, deliverable: Any, named: TextColumns | None = None) -> Iterator[Iterator[Chunk]]:
    """The texts, a chunk at a time, as the model of `deliverable` takes them: by its columns, or those that are
    `named`, in pairs or single. None: the verb has no setting that names one.

    Raises:
        ValueError: names the line that is mistaken, or a column that is named where there are none.
    """
    pair = named.text_pair if named else ""
    if pair and not deliverable.pairs:
        raise ValueError(f"data.text_pair={pair} does nothing, as the model of run takes single texts: remove it")
    if named and (named.text or pair) and (text or Path(name).suffix.lower() not in READERS):
        setting = f"data.text={named.text}" if named.text else f"data.text_pair={pair}"
        raise ValueError(
            f"{setting} names a column, but {'text' if text else f'input={name}'} has none: remove it, or give a .csv, "
            ".tsv or .jsonl"
        )
    if text:
        yield iter([as_chunk([text], "text", 1, pairs=deliverable.pairs)])
        return
    with _opened(name) as stream:
        yield _chunks(name, stream, deliverable, named)


def _chunks(name: str, stream: BinaryIO, deliverable: Any, named: TextColumns | None) -> Iterator[Chunk]:
    columns = deliverable.columns
    read = READERS.get(Path(name).suffix.lower())
    if read is None:
        at_once = name == "-" and sys.stdin.isatty()
        source = "standard input" if name == "-" else name
        return read_lines(stream, source, pairs=deliverable.pairs, at_once=at_once)
    text, text_pair = (
        [one] if (one := getattr(named, key, "")) else [key, its] if columns.preset else [its, key]
        for key, its in (("text", columns.text), ("text_pair", columns.text_pair))
    )
    remedy = RENAME if named is None else "name one by data.text=<column>"
    if deliverable.pairs:
        typed = named is not None and bool(named.text or named.text_pair)
        if not typed and _is_bare_tsv(name, stream, text, remedy):
            return read_lines(stream, name, pairs=True)
        remedy = RENAME if named is None else "name both by data.text=<column> data.text_pair=<column>"
    return read(stream, name, text=text, text_pair=text_pair if deliverable.pairs else [], remedy=remedy)


def _is_bare_tsv(name: str, stream: BinaryIO, text: list[str], remedy: str) -> bool:
    """Whether a .tsv has pairs from its first line on, which names no column.

    Raises:
        ValueError: it may name two.
    """
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


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name != "-":
        with open(name, "rb") as file:
            yield file
        return
    if sys.stdin.isatty():
        print("type one text a line; end with Ctrl-D", file=sys.stderr)
    yield sys.stdin.buffer
