"""Parquet files: a table of columns that are read row group by row group, or rows one after another."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from manyheads.config.sentences import format_value
from manyheads.data.class_names import declared_classes
from manyheads.data.column import sliced_column
from manyheads.data.disk_cache import fingerprint
from manyheads.data.formats.source import most_unpacked, require_unchanged
from manyheads.data.table import RawTable, cached_read, cells_in
from manyheads.errors import UserError

DAMAGED = "cannot be read as parquet: the file is truncated, damaged or of another kind; copy it again"
CELL = 8  # bytes of a list that each takes
ROWS_AT_ONCE = 1024
MOST_AT_ONCE = 2**24  # bytes of texts


def read_parquet(path: Path, *, large: bool) -> RawTable:
    """Read the schema now, a column when it is asked for, row group by row group; a file that is not `large` is held.

    Class names that `datasets` wrote into the schema are kept.

    Raises:
        UserError: not parquet, truncated, a text that is not UTF-8, or cells that fill the memory; names the file.
    """
    try:
        content = path if large else pyarrow.BufferReader(path.read_bytes())
        with pyarrow.parquet.ParquetFile(content) as file:
            schema, metadata = file.schema_arrow, file.metadata
        texts = [one.name for one in schema if pyarrow.types.is_string(one.type)]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
        raise UserError(f"{path} {DAMAGED}") from None
    most, facts, checked = most_unpacked(path), path.stat(), set[tuple[str, int]]()

    def opened(**how: Any) -> Any:  # anew, as an open file keeps what was read of it
        return pyarrow.parquet.ParquetFile(content, metadata=metadata, **how)

    def check(name: str, groups: Sequence[int]) -> None:
        with opened(read_dictionary=texts) as packed:
            if _n_bytes(packed, name, most, [*groups]) > most:
                much = f"{most:,} bytes once decompressed"
                raise UserError(f"{path} holds more than {much}: split it, or write it as csv")

    def array(name: str, group: int) -> Any:
        if large:
            require_unchanged(path, facts)
            if (name, group) not in checked:
                check(name, [group])
                checked.add((name, group))
        with opened() as file:
            return file.read_row_group(group, columns=[name]).column(name)

    def cells(name: str, group: int, rows: slice) -> list[Any]:
        with _decoding(path, name):
            return cells_in(cached_read(array, name, group)[rows])

    @lru_cache
    def column(name: str) -> Any:
        groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        if not large:  # all of it will be held
            with _decoding(path, name):
                check(name, range(len(groups)))
        bytes_per_row = sum(group.total_byte_size for group in groups) / max(1, metadata.num_rows)
        sizes = [group.num_rows for group in groups]
        return sliced_column(partial(cells, name), sizes, f"{fingerprint(path)} {name}", bytes_per_row)

    return RawTable(
        names=schema.names,
        column=column,
        numbers=range(1, metadata.num_rows + 1),
        source=path.name,
        classes=_classes(schema.metadata or {}),
    )


@contextmanager
def _decoding(path: Path, name: str) -> Iterator[None]:
    """Say in a sentence that a column of a parquet file cannot be read."""
    try:
        yield
    except UnicodeDecodeError:
        raise UserError(
            f"{path}: the column '{format_value(name)}' holds text that is not UTF-8; write it as UTF-8"
        ) from None
    except (pyarrow.ArrowException, OSError, KeyError):
        raise UserError(f"{path} {DAMAGED}") from None


def _n_bytes(packed: Any, name: str, most: int, groups: list[int]) -> int:
    """What the cells take, or some more than `most`: a text that the file holds once may be in a million rows."""
    n_bytes = 0
    for batch in packed.iter_batches(columns=[name], row_groups=groups):
        cells = batch.column(0)
        n_bytes += CELL * len(cells)
        if isinstance(cells, pyarrow.DictionaryArray):
            n_bytes += _unpacked(cells)
        else:
            n_bytes += cells.nbytes
        if n_bytes > most:
            break
    return n_bytes


def _unpacked(texts: Any) -> int:
    """Bytes of texts that are each held once in a dictionary, and that any number of rows may have."""
    lengths = pyarrow.compute.call_function("binary_length", [texts.dictionary]).take(texts.indices)
    return pyarrow.compute.call_function("sum", [lengths]).as_py() or 0


def _classes(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    try:
        return declared_classes(json.loads(metadata[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}


def stream_parquet(path: Path) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """The names of the columns of a file, and its rows one after another, in bounded memory.

    Raises:
        UserError: not parquet, damaged, or a text that is not UTF-8; names the file.
    """
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
        texts = [one.name for one in schema if pyarrow.types.is_string(one.type)]
        # a text is held once, as in the file, whose bytes would all be kept if they were fetched beforehand
        file = pyarrow.parquet.ParquetFile(path, read_dictionary=texts, pre_buffer=False)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
        raise UserError(f"{path} {DAMAGED}") from None

    def rows() -> Iterator[dict[str, Any]]:
        try:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                texts = [cells for cells in batch.columns if isinstance(cells, pyarrow.DictionaryArray)]
                if sum(map(_unpacked, texts)) <= MOST_AT_ONCE:
                    parts = [batch]
                else:  # a long text may be in each of the rows
                    parts = (batch.slice(at, 1) for at in range(len(batch)))
                for part in parts:
                    for row in zip(*map(cells_in, part.columns), strict=True):
                        yield dict(zip(schema.names, row, strict=True))
        except UnicodeDecodeError:
            raise UserError(f"{path} holds text that is not UTF-8; write it as UTF-8") from None
        except (pyarrow.ArrowException, OSError):
            raise UserError(f"{path} {DAMAGED}") from None

    return schema.names, rows()
