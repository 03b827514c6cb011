"""The columns of a model, each a part of its labels, and their rows. Standard library and NumPy."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from manyheads.config.facts import require
from manyheads.config.sentences import format_value
from manyheads.data.rows import Rows, Splits
from manyheads.data.table import coded
from manyheads.errors import UserError
from manyheads.plugins.multitask.config import columns_in, kept_columns
from manyheads.runs.result_table import ResultTable, tables_of
from manyheads.runs.summary import JOINT


class LabelColumn(NamedTuple):
    """A column: the names of its labels, and where these are among the labels of the model. A row has any number of
    them if it `is_set`, else one, or it lacks the column."""

    name: str
    labels: list[str]
    ids: slice
    is_set: bool


def columns_of(labels: list[str], kept: dict[str, Any]) -> list[LabelColumn]:
    """The columns of a model with these labels, `topic: sport` and so on, of which `kept` has the names.

    Raises:
        UserError: they do not fit each other.
    """
    columns, first = list[LabelColumn](), 0
    for name, is_set in columns_in(kept).items():
        own = [label.removeprefix(f"{name}{JOINT}") for label in labels if label.startswith(f"{name}{JOINT}")]
        columns.append(LabelColumn(name, own, slice(first, first + len(own)), is_set))
        first += len(own)
    joint = [f"{column.name}{JOINT}{label}" for column in columns for label in column.labels]
    require(joint == labels, "the labels of the model are not those of kept.labels in config.json, in their order")
    return columns


def rows_of(column: LabelColumn, rows: Rows) -> tuple[Rows, Any]:
    """The rows that have a column, with its labels alone, and which of `rows` they are `(n,)`."""
    assert rows.sets is not None, "their labels are those of all columns"
    first, end = column.ids.start, column.ids.stop
    sets: Any = coded(rows.sets).mapped(lambda ids: tuple(id - first for id in ids if first <= id < end))
    labels_n = sets.numbers([ids[0] if ids else None for ids in sets.values])
    at_n = np.arange(len(rows)) if column.is_set else np.flatnonzero(labels_n >= 0)
    own = rows.pick(at_n)
    own.labels, own.sets = labels_n[at_n], sets if column.is_set else None
    return own, at_n


def check_labels(run: Any, splits: Splits) -> None:
    """The hook `Section.rows`, which gives no rows here: what is learnt and judged must be there.

    Raises:
        UserError: a column has one class alone in train, or no label in a split.
    """
    for column in columns_of(splits.labels, kept_columns(run.data)) if run.data.labels else ():
        own, n_rows = range(column.ids.start, column.ids.stop), list[str]()
        where = f"in the column '{format_value(column.name)}'"
        if len(column.labels) < (1 if column.is_set else 2):
            has = f"one class only, '{format_value(column.labels[0])}'," if column.labels else "no label"
            raise UserError(f"{splits.train.source} has {has} {where}: remove it from data.labels, or label more rows")
        for role, rows in splits.by_name().items():
            n = sum(coded(rows.sets or []).mapped(lambda ids, own=own: any(id in own for id in ids)))
            n_rows.append(f"{role} {n:,}")
            require(
                n > 0,
                f"no row of {rows.source} in {role} has a label {where}, which cannot be learnt or judged then: label "
                "some, or remove it from data.labels",
            )
        kind = "labels, any number a row" if column.is_set else "classes"
        splits.notes.append(f"{column.name}: {len(column.labels)} {kind}; with a label: {', '.join(n_rows)}")


def tables_of_columns(document: dict[str, Any]) -> list[ResultTable]:
    """The part of kind `record`: the tables of each column, called `topic.reliability`, of metrics.json."""
    found = []
    for name, scores in document["columns"].items():
        for table in tables_of(scores):
            found.append(replace(table, name=f"{name}.{table.name}", title=f"{name}: {table.title}"))
    return found
