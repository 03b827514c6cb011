"""How several columns of labels become one: a row has the labels of all its columns, `topic: sport` and so on."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from manyheads.config.data import MergeLabels
from manyheads.config.facts import require
from manyheads.config.sentences import format_list, format_value, list_names
from manyheads.data.class_names import (
    label_cells,
    label_names,
    label_sets,
    merge_spellings,
    natural_order,
    normalise_name,
    rename_answer,
)
from manyheads.data.column import in_memory
from manyheads.data.table import Coded, RawTable, coded
from manyheads.errors import UserError
from manyheads.runs.summary import JOINT


def join_labels(data: Any, tables: dict[str, Any]) -> dict[str, Any]:
    """The hook `Section.tables`: the columns `data.labels` are joined to that of the label."""
    if not data.labels:
        return tables
    typed, texts = f"data.labels={format_list(data.labels)}", data.text if isinstance(data.text, list) else [data.text]
    require(not data.streaming, f"{typed} cannot join what data.streaming=true reads: remove one of them")
    for name in data.labels:
        require(
            normalise_name(f"{name}:") == f"{name}:",
            f"{typed}: '{format_value(name)}' has several spaces, signs that cannot be seen, or letters in parts, and "
            "would not be known again: rename the column",
        )
    for name in (*texts, data.text_pair):
        require(name not in data.labels, f"{typed} names the column of the text, {format_value(name)}: remove it there")
    return {role: partial(_joined, read, data) for role, read in tables.items()}


def _joined(read: Any, data: Any) -> RawTable:
    table = read()
    for name in data.labels:
        if name not in table.names:
            raise UserError(
                f"{table.source} has no column '{format_value(name)}' (data.labels): its columns are "
                f"{list_names(table.names)}; let data.labels name those of the labels, or judge one column of a model "
                "by run=<run>/model/<column>"
            )
    notes, broken = [*table.notes], dict(table.broken)
    names_K: list[list[tuple[str, ...]]] = []  # of each column, by the code of a cell
    codes_K, declared = [], list[str]()
    for name in data.labels:
        cells, classes = coded(table.column(name)), table.classes.get(name)
        answers, faults = _names_in(cells.values, name, classes, is_set=name in data.label_sets)
        for row, fault in cells.by_row(faults).items():
            broken.setdefault(row, f"{fault}, in the column '{format_value(name)}'")
        if name not in data.label_sets and any("|" in one for answer in answers for one in answer):
            notes.append(
                f"{table.source}: classes of '{format_value(name)}' have a | in their names; if these are several "
                f"labels a row, add data.label_sets=[{format_value(name)}]"
            )
        any_case = data.merge_labels is MergeLabels.case
        new_names, found = merge_spellings(cells.with_values(answers), classes or [], table.source, any_case=any_case)
        notes += found
        answers = [rename_answer(answer, new_names) for answer in answers]
        known = natural_order({one for answer in answers for one in answer})
        if classes:
            known = [one for one in map(normalise_name, classes) if one in known]
        declared += [f"{name}{JOINT}{one}" for one in known]
        names_K.append([tuple(f"{name}{JOINT}{one}" for one in answer) for answer in answers])
        codes_K.append(cells.codes)
    codes_mK, code_n = np.unique(np.stack(codes_K, axis=1), axis=0, return_inverse=True)
    values = []
    for codes in codes_mK.tolist():
        values.append([one for names, code in zip(names_K, codes, strict=True) for one in names[code]])
    joined = Coded(code_n.reshape(-1).astype(np.int32), values)
    if not data.label_sets:
        for row in joined.by_row({code: True for code, names in enumerate(values) if not names}):
            broken.setdefault(row, f"there is no label in any of the columns {list_names(data.labels)}")
    cells_of, held = table.column, in_memory(list(joined))
    names = [name for name in table.names if name not in {*data.labels, "label", "labels", data.label}]
    return replace(
        table,
        names=[*names, data.label],
        column=lambda name: held if name == data.label else cells_of(name),
        classes=table.classes | {data.label: declared},
        broken=broken,
        notes=notes,
        multi=True,
    )


def _names_in(
    cells: list[Any], column: str, classes: list[str] | None, *, is_set: bool
) -> tuple[list[tuple[str, ...]], dict[int, str]]:
    """The names in each cell, none where the row lacks the column, and by index why a cell cannot be read."""
    if is_set:
        return label_sets(label_cells(cells, column, multi=True), classes)
    names, faults = label_names(cells, classes)
    for at, cell in enumerate(cells):
        is_unlabelled = classes is not None and isinstance(cell, int) and cell == -1
        if is_unlabelled or cell == [] or (not isinstance(cell, list) and not normalise_name(cell)):
            faults.pop(at, None)
    return [(name,) if name else () for name in names], faults
