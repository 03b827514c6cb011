"""Answers as rows of a file: JSON lines, csv or tsv, and parquet. Nothing heavy is imported before it is asked for."""

import csv
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

from manyheads.config.sentences import format_value
from manyheads.data.class_names import join_names
from manyheads.errors import UserError

Row = dict[str, Any]

# Legal inside a JSON string, yet many readers break a line there, and terminals obey them.
BREAKS = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
SIGNS = {".csv": ",", ".tsv": "\t"}  # that separate cells
LISTS = ("labels", "prediction", "set")  # columns of several labels, joined in a csv
GROUP, MOST_OF_GROUP = 2**16, 2**27  # rows of a row group, and bytes
PLAIN = {"int64": {int}, "double": {int, float}, "list": {list}, "string": {str}, "mixed": {str}}  # cells of a column


def json_bytes(rows: list[Row], *, escaped: bool) -> bytes:
    """An object a line; `escaped`: in ASCII alone."""
    lines = [json.dumps(row, ensure_ascii=escaped, allow_nan=False).translate(BREAKS) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def csv_bytes(rows: list[Row], columns: list[str], sign: str, *, first: bool) -> bytes:
    """Rows of plain cells, a missing one empty, below a header where they are the first."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=sign, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    if first:
        writer.writerow(columns)
    for row in rows:
        cells = (row.get(column) for column in columns)
        writer.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue().encode()


def parquet_bytes(rows: list[Row], columns: dict[str, str], setting: str, *, first: bool) -> bytes:
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
        cells = [json_text(one) for one in found[name]] if kind == "mixed" else found[name]
        array = _array(cells, kind)
        if array is None:
            raise UserError(
                f"{setting} has one type a column, and that of '{format_value(name)}' is {_type(kind)} by its first "
                "rows, but "
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


def json_text(cell: Any) -> str | None:
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


def add_answer(kept: Row, answer: Row) -> Row:
    """The columns that are kept, then the answer; one that is called like a part of it becomes `input_label`, and one
    that is called so already `input_input_label`: so a name is the same in all rows, whatever else they hold."""

    def is_like_one(name: str) -> bool:
        while name not in answer and name.startswith("input_"):
            name = name.removeprefix("input_")
        return name in answer

    return {f"input_{name}" if is_like_one(name) else name: cell for name, cell in kept.items()} | answer


def as_cells(answer: Row, *, joined: bool, ranked: bool) -> Row:
    """An answer as cells."""
    flat: Row = {}
    for name, value in answer.items():
        if name == "probabilities" and ranked:
            for at, (label, probability) in enumerate(value.items(), 1):
                flat |= {f"label_{at}": None if probability is None else label, f"p_{at}": probability}
        elif name == "probabilities":
            flat |= {f"p_{label}": probability for label, probability in value.items()}
        else:
            flat[name] = join_names(value) if joined and name in LISTS and isinstance(value, list) else value
    return flat


def plain_or_json(cell: Any, *, joined: bool) -> Any:
    texts = not joined and isinstance(cell, list) and all(isinstance(one, str) for one in cell)
    plain = cell is None or texts or (isinstance(cell, str | int | float) and not isinstance(cell, bool))
    return cell if plain else json.dumps(cell, ensure_ascii=False)
