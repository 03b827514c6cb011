"""Tables of several pieces: the shards of a split, rows that were given in Python."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from manyheads.config.sentences import format_value, list_names
from manyheads.data.column import chained, in_memory
from manyheads.data.table import RawTable, cells_in
from manyheads.errors import UserError

NO_ROWS = "holds no rows that can be read: give a DataFrame, columns by name, or a list of (text, label)"


def join_shards(shards: list[RawTable]) -> RawTable:
    """Shards of one split as one table, its rows counted from 1 over all of them.

    Raises:
        UserError: they have other columns, or the numbers of their classes stand for other names.
    """
    first = shards[0]
    n_rows, broken = 0, dict[int, str]()
    for shard in shards:
        _require_like(first, shard)
        for at, why in shard.broken.items():
            broken[n_rows + at] = why
        n_rows += len(shard.numbers)
    return RawTable(
        names=first.names,
        column=lru_cache(lambda name: chained([shard.column(name) for shard in shards])),
        numbers=range(1, n_rows + 1),
        source=f"{first.source} and {len(shards) - 1} more",
        classes=first.classes,
        hint=first.hint,
        broken=broken,
    )


def _require_like(first: RawTable, other: RawTable) -> None:
    """Raise UserError if two shards have other columns or other classes."""
    if {*other.names} != {*first.names}:
        raise UserError(
            f"{other.source} has the columns {list_names(other.names)}, but {first.source} has "
            f"{list_names(first.names)}: files of one split must have the same columns"
        )
    for name in first.names:
        ours, theirs = first.classes.get(name), other.classes.get(name)
        if ours != theirs:
            raise UserError(
                f"{other.source} declares the classes {list_names(theirs or []) or 'none'} of '{format_value(name)}', "
                f"but {first.source} {list_names(ours or []) or 'none'}: files of one split must give their classes "
                "the same numbers; write them from one dataset"
            )


def given_rows(rows: Any, source: str, classes: Sequence[str] = ()) -> RawTable:
    """See `opening.table_from`."""
    found: dict[str, list[Any]] = {}
    if hasattr(rows, "collect"):  # a frame of polars that is still to be read
        rows = rows.collect()
    if isinstance(rows, str | bytes | Path):
        raise UserError(f"{source} is '{format_value(rows)}', not rows: give a file by data.path=<file>")
    if hasattr(rows, "columns") and hasattr(rows, "isna"):  # of pandas, without importing it
        if not rows.columns.is_unique:
            raise UserError(f"{source} has two columns of one name: name every column once")
        types = rows.dtypes.items()  # dates and numbers in half or single precision: as to_csv writes them
        texts = {name: str for name, one in types if one.kind == "M" or (one.kind == "f" and one.itemsize < 8)}
        filled = rows.astype(texts).astype(object).where(~rows.isna(), None)
        for name in rows.columns:
            found[str(name)] = filled[name].tolist()
    elif hasattr(rows, "__arrow_c_stream__"):  # of polars and others; pandas' own of numbers have floats for nulls
        import pyarrow

        try:
            table = pyarrow.table(rows)
        except pyarrow.ArrowInvalid:  # a single column
            raise UserError(f"{source} {NO_ROWS}") from None
        found = {name: cells_in(table.column(name)) for name in table.column_names}
    elif isinstance(rows, Mapping):
        for name, cells in rows.items():
            if getattr(getattr(cells, "dtype", None), "kind", "") == "f":
                found[str(name)] = list(cells.__array__())  # tolist() forgets the precision
            else:
                found[str(name)] = cells.tolist() if hasattr(cells, "tolist") else list(cells)
    else:
        found = _columns_of(list(rows) if isinstance(rows, Iterable) else [], source)
    lengths = {name: len(cells) for name, cells in found.items()}
    if len({*lengths.values()}) != 1:
        raise UserError(f"{source} has columns of different lengths, {lengths}: give each row a cell in each")
    columns = {name: in_memory([*map(_without_array, cells)]) for name, cells in found.items()}
    declared = {"label": [*classes]} if classes else {}
    return RawTable([*columns], columns.__getitem__, range(1, max(lengths.values()) + 1), source, declared)


def _without_array(cell: Any) -> Any:
    """A cell with a list in the place of an array, such as pandas makes of the lists in a .parquet, with a plain number
    in the place of NumPy's, which does not stand for a class, and with None in the place of pandas.NA."""
    if type(cell).__name__ == "NAType":  # which compares with nothing
        return None
    kind = getattr(getattr(cell, "dtype", None), "kind", "")
    if kind == "f" and not cell.ndim:  # of which 0.1 in single precision is 0.1
        return float(str(cell))
    is_number = kind in "iu"
    return cell.tolist() if getattr(cell, "ndim", 0) or (is_number and hasattr(cell, "tolist")) else cell


def _columns_of(rows: list[Any], source: str) -> dict[str, list[Any]]:
    """The columns of a list of rows, by name."""
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = dict.fromkeys(name for row in rows for name in row)
        return {str(name): [row.get(name) for row in rows] for name in names}
    if rows and all(isinstance(row, str) for row in rows):
        return {"text": rows}
    for names in (["text", "label"], ["text", "text_pair", "label"]):
        if rows and all(isinstance(row, tuple | list) and len(row) == len(names) for row in rows):
            return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    raise UserError(f"{source} {NO_ROWS}")
