"""Parquet in and out, in bounded memory: the rows of a file, and answers that become one.

pyarrow is imported when it is asked for.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from manyheads.config.fields import show
from manyheads.data.arrow import unpacked
from manyheads.errors import UserError

Row = dict[str, Any]
ROWS_AT_ONCE = 1024
MOST_AT_ONCE = 2**24  # bytes of texts
GROUP, MOST_OF_GROUP = 2**16, 2**27  # rows of a row group, and bytes
PLAIN = {"int64": {int}, "double": {int, float}, "list": {list}, "string": {str}, "mixed": {str}}  # cells of a column


def read_rows(stream: BinaryIO, name: str) -> tuple[list[str], Iterator[Row]]:
    """The names of the columns of the file `name`, and its rows, as yet to be made plain; a UserError where it is
    not parquet, damaged, or holds text that is not UTF-8."""
    import pyarrow.parquet

    damaged = f"{name} cannot be read as parquet: the file is truncated, damaged or of another kind; copy it again"
    try:
        schema = pyarrow.parquet.ParquetFile(stream).schema_arrow
        texts = [one.name for one in schema if pyarrow.types.is_string(one.type)]
        # a text is held once, as in the file, whose bytes would all be kept if they were fetched beforehand
        file = pyarrow.parquet.ParquetFile(stream, read_dictionary=texts, pre_buffer=False)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
        raise UserError(damaged) from None

    def rows() -> Iterator[Row]:
        try:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                texts = [one for one in batch.columns if isinstance(one, pyarrow.DictionaryArray)]
                step = len(batch) if sum(map(unpacked, texts)) <= MOST_AT_ONCE else 1
                for at in range(0, len(batch), step):
                    yield from batch.slice(at, step).to_pylist()
        except UnicodeDecodeError:
            raise UserError(f"{name} holds text that is not UTF-8; write it as UTF-8") from None
        except (pyarrow.ArrowException, OSError):
            raise UserError(damaged) from None

    return schema.names, rows()


def as_stream(rows: list[Row], columns: dict[str, str], setting: str, *, first: bool) -> bytes:
    """Some rows, to be added to an Arrow stream, with its head where they are the first. Then `columns` are given the
    types that their cells have: text, whole numbers, numbers, or lists of texts; a cell may be missing. A column
    without a value there, or with values that no one type holds, is text, in which other cells are JSON. A later row
    that has a cell of another type is a UserError, which names the `setting` of the file."""
    import pyarrow

    found = {name: [row.get(name) for row in rows] for name in columns}
    for name, cells in found.items() if first else ():
        if columns[name]:
            continue
        kinds = PLAIN if any(one is not None for one in cells) else ()
        columns[name] = next((one for one in kinds if _array(cells, one) is not None), "mixed")
    arrays = []
    for name, kind in columns.items():
        cells = [as_text(one) for one in found[name]] if kind == "mixed" else found[name]
        array = _array(cells, kind)
        if array is None:
            raise UserError(
                f"{setting} has one type a column, and that of '{show(name)}' is {_type(kind)} by its first rows, but "
                "a later cell is of another: name a .jsonl, whose rows may differ"
            )
        arrays.append(array)
    batch = pyarrow.RecordBatch.from_arrays(arrays, names=list(columns))
    head = batch.schema.serialize().to_pybytes() if first else b""
    return head + batch.serialize().to_pybytes()


@cache
def _type(kind: str) -> Any:
    import pyarrow

    types = {"int64": pyarrow.int64(), "double": pyarrow.float64(), "list": pyarrow.list_(pyarrow.string())}
    return types.get(kind, pyarrow.string())


def _array(cells: list[Any], kind: str) -> Any:
    """The cells as they are, or None where one is not of the type: pyarrow itself would cut 2.5 to 2."""
    import pyarrow

    if not {type(one) for one in cells if one is not None} <= PLAIN[kind]:
        return None
    try:
        return pyarrow.array(cells, type=_type(kind))
    except (pyarrow.ArrowException, OverflowError):  # a whole number that is too large
        return None


def as_text(cell: Any) -> str | None:
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)


def write_parquet(part: Path, whole: Path) -> None:
    """The batches of a part as row groups of some more rows."""
    import pyarrow.ipc
    import pyarrow.parquet

    if not part.stat().st_size:
        pyarrow.parquet.write_table(pyarrow.table({}), whole)
        return
    with (
        part.open("rb") as file,
        pyarrow.ipc.open_stream(file) as batches,
        pyarrow.parquet.ParquetWriter(whole, batches.schema) as writer,
    ):
        held: list[Any] = []
        for batch in batches:
            held.append(batch)
            if sum(map(len, held)) >= GROUP or sum(one.nbytes for one in held) >= MOST_OF_GROUP:
                writer.write_table(pyarrow.Table.from_batches(held))
                held = []
        if held:
            writer.write_table(pyarrow.Table.from_batches(held))
