"""Texts of a stream, a chunk at a time: bounded memory for any length of input. Standard library only.

Only \\n and \\r\\n end a line. U+0085, U+2028 and their like are letters of a text, which is why `str.splitlines`
and text-mode iteration are not used.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

CHUNK = 1024  # rows answered together
MOST_CHARACTERS = 2**22  # of the texts of one chunk, so that long texts make short chunks
MOST_LINE = 2**24  # bytes; a longer line is no text but a file of another kind

T = TypeVar("T")


@dataclass(slots=True)
class Chunk:
    """Some rows: what is repeated in the output for each, and its text(s)."""

    kept: list[dict[str, Any]]
    texts: list[str]
    pairs: list[str] | None


def read_lines(stream: BinaryIO, name: str, *, pairs: bool, at_once: bool = False) -> Iterator[Chunk]:
    """One row a line, also where the line is empty; with `pairs` a tab divides the two texts.

    Chunks are the same however the stream delivers: in bf16 the last digits of an answer depend on the rows beside it,
    so a pipe and a file would differ. `at_once`, for a person who types: each line is a chunk.

    Raises:
        ValueError: names the line that is not UTF-8, is endless, or holds no tab or several.
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


def whole_lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Number and content of every line, with its end."""
    number = 0
    while line := stream.readline(MOST_LINE + 1):
        number += 1
        if len(line.removesuffix(b"\n")) > MOST_LINE:
            raise ValueError(_endless(name, number))
        yield number, line


def _endless(name: str, number: int) -> str:
    return f"{name}, line {number} is longer than {MOST_LINE:,} bytes: give one text a line"


def decode(line: bytes, name: str, number: int) -> str:
    """The text of line `number`, without its carriage return and, in the first, byte order mark.

    Raises:
        ValueError: names the line that is not UTF-8.
    """
    try:
        text = line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}, line {number} is not UTF-8: {error.reason} at byte {error.start + 1}") from error
    return text.removeprefix("\ufeff") if number == 1 else text
