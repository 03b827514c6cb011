"""`data.rename=FILE`: labels by other names. Labels that get one name are one class; where there is no new name, the
rows of the label are left out."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from manyheads.config.data import MergeLabels
from manyheads.config.facts import require
from manyheads.config.sentences import format_list, format_value, list_names
from manyheads.data.class_names import ClassLookup, label_cells, label_names, normalise_name
from manyheads.data.column import in_memory
from manyheads.data.columns import find_columns
from manyheads.data.opening import named_table
from manyheads.data.table import RawTable, coded, select_rows
from manyheads.errors import UserError

FROM, TO = "from", "to"


def rename_labels(data: Any, tables: dict[str, Any]) -> dict[str, Any]:
    """The tables with labels by the names of the file `data.rename`."""
    for name in ("votes", "label_columns"):
        value = format_list(getattr(data, name))
        require(
            not getattr(data, name),
            f"data.rename={data.rename} renames labels, not those of data.{name}={value}: remove it",
        )
    new_names = read_new_names(data.rename)
    return {role: partial(_renamed, read, data, new_names) for role, read in tables.items()}


def read_new_names(path: str) -> dict[str, str]:
    """The new name of each label that has one; empty: its rows are left out.

    Raises:
        UserError: there is no such file, it lacks a column, or a row has no label, or one that another row has.
    """
    table, setting = named_table("data.rename", path, (FROM, TO)), f"data.rename={path}"
    new_names: dict[str, str] = {}
    for number, old, new in zip(table.numbers, table.column(FROM), table.column(TO), strict=True):
        name = normalise_name(old)
        require(bool(name), f"{setting}, row {number}: {FROM} is empty: name the label, or remove the row")
        require(
            name not in new_names, f"{setting}, row {number}: '{format_value(name)}' is renamed twice: remove one row"
        )
        new_names[name] = normalise_name(new)
    return new_names


def _renamed(read: Any, data: Any, new_names: dict[str, str]) -> RawTable:
    table = read()
    try:
        column = find_columns(table, data).answer
    except UserError:  # it lacks a column: whoever needs that says so
        return table
    cells, classes = coded(table.column(column)), table.classes.get(column)
    counts_V = np.bincount(cells.codes, minlength=len(cells.values))
    known, seen = ClassLookup([*new_names], any_case=data.merge_labels is MergeLabels.case), set[str]()
    strange: dict[Any, str] = {}  # numbers of classes that there are not, and why they name none

    def new_name(cell: Any) -> Any:
        if classes and isinstance(cell, int | float) and cell == cell:
            (name,), why = label_names([cell], classes)
            if why:
                strange[cell] = why[0]
                return cell
            cell = name
        name = known.find(cell)
        if name not in new_names:
            return cell
        seen.add(name)
        return new_names[name]

    values: list[Any] = []
    is_left_V, faults = np.zeros(len(cells.values), dtype=bool), dict[int, str]()
    for at, cell in enumerate(label_cells(cells.values, column)):
        old = cell if isinstance(cell, list) else [cell]
        new = [name for one, name in zip(old, map(new_name, old), strict=True) if name or not normalise_name(one)]
        for one in old:
            if isinstance(one, int | float) and one in strange:
                faults[at] = strange[one]
        if len({*map(normalise_name, old)}) == len(old):  # else the row names a label twice, which is said
            new = [*dict.fromkeys(new)]
        is_left_V[at] = bool(old) and not new and counts_V[at] > 0
        values.append(new if isinstance(cell, list) else (new or [None])[0])
    notes = [*table.notes]
    if unseen := [name for name in new_names if name not in seen]:
        notes.append(f"{table.source}: no row has {list_names(unseen)}, which data.rename={data.rename} renames")
    n_left = int(counts_V[is_left_V].sum())
    if n_left:
        notes.append(f"{table.source}: {n_left:,} of {len(cells):,} rows left out, as data.rename={data.rename} says")
    require(
        not n_left or n_left < len(cells),
        f"data.rename={data.rename} leaves no row of {table.source}: give some label a name",
    )
    renamed, column_of = in_memory(list(cells.with_values(values))), table.column
    changed = replace(
        table,
        column=lambda name: renamed if name == column else column_of(name),
        classes={name: names for name, names in table.classes.items() if name != column},
        broken=cells.by_row(faults) | table.broken,
        notes=notes,
    )
    return select_rows(changed, np.flatnonzero(~is_left_V[cells.codes])) if n_left else changed
