"""The texts a verb is asked about: one that was typed, a file, or standard input. Nothing heavy is imported."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from manyheads.data.files import OPENERS
from manyheads.judge.lines import Chunk, as_chunk, read_lines
from manyheads.judge.records import read_objects, read_table

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
def opened_texts(text: str, name: str, deliverable: Any) -> Iterator[Iterator[Chunk]]:
    """The texts, a chunk at a time, as the model of `deliverable` takes them: by its columns, in pairs or single.

    Raises:
        ValueError: names the line that is mistaken.
    """
    if text:
        yield iter([as_chunk([text], "text", 1, pairs=deliverable.pairs)])
        return
    with _opened(name) as stream:
        yield _chunks(name, stream, deliverable)


def _chunks(name: str, stream: BinaryIO, deliverable: Any) -> Iterator[Chunk]:
    columns = deliverable.columns
    read = READERS.get(Path(name).suffix.lower())
    texts = ["text", columns.text] if columns.preset else [columns.text, "text"]
    text_pair = ["text_pair", columns.text_pair] if columns.preset else [columns.text_pair, "text_pair"]
    if read is None or (deliverable.pairs and _is_bare_tsv(name, stream, texts)):
        return read_lines(stream, "standard input" if name == "-" else name, pairs=deliverable.pairs)
    return read(stream, name, text=texts, text_pair=text_pair if deliverable.pairs else [])


def _is_bare_tsv(name: str, stream: BinaryIO, texts: list[str]) -> bool:
    """Whether a .tsv has pairs from its first line on, which names no column."""
    if Path(name).suffix.lower() != ".tsv":
        return False
    assert isinstance(stream, BufferedReader)
    names = stream.peek().partition(b"\n")[0].decode("utf-8-sig", "replace").split("\t")
    return not {one.strip() for one in names} & set(texts)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name != "-":
        with open(name, "rb") as file:
            yield file
        return
    if sys.stdin.isatty():
        print("type one text a line; end with Ctrl-D", file=sys.stderr)
    yield sys.stdin.buffer
