"""The bytes of a data file, decompressed, in bounded memory; every failure is a sentence that names the file."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from manyheads.config.data import PACKED_KINDS
from manyheads.errors import UserError

Compressed = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
OPENERS: dict[str, Callable[[Path], Compressed]] = dict(
    zip(PACKED_KINDS, (gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile), strict=True)
)
READ_AT_ONCE = 2**23  # bytes
MOST_HELD = 2**26  # bytes of a decompressed file that are held in memory
MOST_BYTES = 2**32  # of a decompressed file: a small one may unpack to more than any memory holds
MOST_TIMES = 100  # its own size, where that is more than FREE_BYTES: texts come to a tenth or a third
FREE_BYTES = 2**27
MOST_ROW = 2**26  # bytes: a longer one is no row of texts
MOST_CELL = min(sys.maxsize, 2**31 - 1)  # characters
# What a file of another kind begins with; the mark of UTF-32 begins with that of UTF-16.
_ENCODED = "is {0}, not UTF-8: save it as UTF-8, as by iconv -f {1} -t utf-8 FILE > NEW"
OTHER_KINDS = {
    codecs.BOM_UTF32_LE: _ENCODED.format("UTF-32", "utf-32"),
    codecs.BOM_UTF32_BE: _ENCODED.format("UTF-32", "utf-32"),
    codecs.BOM_UTF16_LE: _ENCODED.format("UTF-16", "utf-16"),
    codecs.BOM_UTF16_BE: _ENCODED.format("UTF-16", "utf-16"),
    b"\x1f\x8b": "is compressed by gzip: let its name end with .gz",
    b"PK\x03\x04": "is an archive or a spreadsheet: unpack it, or save it as .csv",
    b"PAR1": "is a parquet file: let its name end with .parquet",
}
NO_MARK = {  # of UTF-16: every other byte of Latin letters is 0
    re.compile(rb"[^\0]\0[^\0]\0"): _ENCODED.format("UTF-16", "utf-16le"),
    re.compile(rb"\0[^\0]\0[^\0]"): _ENCODED.format("UTF-16", "utf-16be"),
}
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class RowBlock(NamedTuple):
    """Whole rows at the beginning of some bytes.

    Attributes:
        names: of its columns.
        column: gives the cells of a column, one a row.
        records: gives the rows: lists of cells in the order of a header, or mappings by name.
        numbers: of the rows, as a user counts them in the file.
        n_bytes: of the text that it is of.
        n_numbers: by how many the number of the row that follows is greater than that of the first.
        broken: by index, why a row cannot be read.
        by_arrow: whether Arrow reads these bytes as the csv module does.
    """

    names: list[str]
    column: Callable[[str], list[Any]]
    records: Callable[[], Iterable[Any]]
    numbers: Sequence[int]
    n_bytes: int
    n_numbers: int
    broken: Mapping[int, str] = MappingProxyType({})
    by_arrow: bool = False


# From bytes, the number of their first row, whether the file ends there, and whether they were read before and found to
# be `by_arrow`, to the rows that are whole; None: there is none.
Parse = Callable[[bytes, int, bool, bool], RowBlock | None]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in a sentence why a file cannot be read or decompressed."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as problem:
        raise UserError(
            f"{path} cannot be decompressed ({problem}): it is truncated, damaged or of another kind; copy it again"
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
    with decoding(path, raw):
        return raw.decode().removeprefix("\ufeff")


@contextmanager
def decoding(
    path: Path | str,
    raw: bytes,
    offset: int = 0,
    number: int = 1,
    *,
    rows_begun: Callable[[str], int] | None = None,
) -> Iterator[None]:
    """Say in a sentence that `raw`, which begins at byte `offset` of a file with row `number`, is not UTF-8, or of
    another kind.

    Args:
        rows_begun: how many rows a text has that is cut anywhere; None: each line is one.
    """
    for pattern, what in NO_MARK.items():
        if not offset and pattern.match(raw):
            raise UserError(f"{path} {what}")
    try:
        yield
    except UnicodeDecodeError as problem:
        start = problem.start
        for beginning, what in OTHER_KINDS.items():
            if not offset and raw.startswith(beginning):
                raise UserError(f"{path} {what}") from None
        if rows_begun is not None:
            number += rows_begun(raw[:start].decode("utf-8")) - 1
        else:
            number += raw.count(b"\n", 0, start)
        raise UserError(
            f"{path}, row {number}: byte {raw[start]:#04x} at position {offset + start:,} is not UTF-8; save the file "
            "as UTF-8, if it is of Windows or Latin-1 by iconv -f cp1252 -t utf-8 FILE > NEW"
        ) from None


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text with their ends, as a file opened with newline="" gives them; io.StringIO would hold each
    character once more, in four bytes."""
    return (found[0] for found in LINE.finditer(text))


def most_unpacked(path: Path) -> int:
    """Bytes that a file of this size may hold once decompressed."""
    return min(MOST_BYTES, max(FREE_BYTES, MOST_TIMES * path.stat().st_size))


def require_unchanged(path: Path, before: os.stat_result) -> None:
    """Raise UserError if the size or the time of last change of a file is not what it was `before`."""
    now = path.stat()
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise UserError(f"{path} was changed while it is in use: start again")


class Source:
    """A file of text, compressed or not, of which any bytes can be read.

    Args:
        large: False: it is held in memory, unless it proves to be large.
        once: it is read from its beginning to its end only, as a pipe can be, and may grow meanwhile.
    """

    def __init__(self, path: Path, *, large: bool, once: bool = False) -> None:
        self.path, self.once = path, once
        self.is_compressed = path.suffix.lower() in OPENERS
        self._stream, self._process = None, 0
        self._facts: os.stat_result | None = None
        self._held: bytes | None = None
        if large:
            return
        content = b""
        while len(content) <= MOST_HELD and (more := self.read(len(content), READ_AT_ONCE)):
            content += more
        if len(content) <= MOST_HELD:
            self._held, self._stream = content, None

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Bytes of the file once decompressed; forwards from where the last ended is cheap.

        Raises:
            UserError: it cannot be read, holds more than it may, or is not what it was.
        """
        if self._held is not None:
            return self._held[offset : offset + n_bytes]
        with reading(self.path):
            if not self.once:
                self._facts = self._facts or self.path.stat()
                require_unchanged(self.path, self._facts)
            if self._stream is None or self._process != os.getpid():  # a fork shares the place in the file
                self._stream, self._process = self._open(), os.getpid()
            if not self.once:
                self._stream.seek(offset)
            found = self._stream.read(n_bytes)
        if self.is_compressed and offset + len(found) > (most := most_unpacked(self.path)):
            raise UserError(
                f"{self.path} holds more than {most:,} bytes once decompressed: "
                "decompress it yourself and give the plain file, or split it"
            )
        return found

    def _open(self) -> Any:
        if self._held is not None:
            return io.BytesIO(self._held)
        if self.is_compressed:
            return OPENERS[self.path.suffix.lower()](self.path)
        return self.path.open("rb")

    def close(self) -> None:
        """Close the file; another read opens it again."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def lines(self) -> Iterator[str]:
        """All lines of the file; what cannot be decoded is replaced, as it is reported when rows are read."""
        with reading(self.path), io.TextIOWrapper(self._open(), "utf-8-sig", "replace", newline="") as lines:
            yield from lines
