"""Which column is the text, its pair and the answer, and the order of the classes. Standard library only."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from manyheads.config import DataConfig, Source, Task
from manyheads.config.plain import listed, show
from manyheads.data.rows import Table

ANSWER = {  # the setting that names its column
    Task.classify: "label",
    Task.seq2seq: "target",
    Task.pretrain: "text",  # which answers for itself
}
MULTI_LABEL = "labels"  # the column in which datasets keep any number of labels a row
ZERO_OR_ONE = {"0", "1", "0.0", "1.0", "False", "True"}
ALIKE = 0.8  # of the letters of two names, one of which may be mistyped
WORDS_OF_TEXT = 5  # names of columns seldom have so many
UNLABELLED = "; a test split without labels is left unread by test=false"


@dataclass(slots=True)
class Columns:
    """`answer` is the column of the label, or of the target text; `multi`: its rows have any number of labels."""

    text: str
    pair: str | None
    answer: str
    task: Task = Task.classify
    multi: bool = False

    def by_key(self) -> dict[str, str]:
        """The columns that are read, by the setting that names each."""
        named = {"text": self.text, "text_pair": self.pair, ANSWER[self.task]: self.answer}
        return {key: name for key, name in named.items() if name is not None}


def find_columns(table: Table, data: DataConfig, task: Task = Task.classify) -> Columns:
    """Columns of a table by the settings.

    A preset of a hub dataset names the hub's columns; a local copy (`data.path`) may use its names or ours, `text`,
    `text_pair`, `label` and `target`, which win. `text_pair` is optional unless a name is typed, and is never read
    where a text is answered by a text. A column called `labels` takes the place of a `label` that is missing, not of
    a column of another name.

    Raises:
        ValueError: a column is missing; lists those there are.
    """
    ours_win = data.source is Source.hub and bool(data.path)

    def find(key: str, typed: str) -> str:
        if ours_win and key in table.names:
            return key
        if typed in table.names:
            return typed
        if key == "label" and (ours_win or typed == key) and MULTI_LABEL in table.names:
            return MULTI_LABEL
        raise ValueError(
            f"{table.source} has no column '{typed}' (data.{key}): its columns are {listed(table.names)}; "
            f"{_remedy(table, key, typed)}"
        )

    _require_names(table)
    text, answer = find("text", data.text), find(ANSWER[task], getattr(data, ANSWER[task]))
    optional = data.text_pair == "text_pair" and "text_pair" not in table.names
    unread = not data.text_pair or optional or task is Task.seq2seq
    pair = None if unread else find("text_pair", data.text_pair)
    columns = Columns(text, pair, answer, task)
    named = columns.by_key()
    if len(set(named.values())) < len(named):
        typed = " and ".join(f"data.{key}={name}" for key, name in named.items())
        raise ValueError(f"{typed} name one column of {table.source} twice: each needs its own")
    return columns


def _remedy(table: Table, key: str, typed: str) -> str:
    """What to do about a column that is not there."""
    near = [name for name in table.names if name.casefold() == typed.casefold()]
    near += difflib.get_close_matches(typed, table.names, n=1, cutoff=ALIKE)
    if near:
        return f"did you mean data.{key}={near[0]}?"
    if key != "text" and table.source.endswith((".txt", ".txt.gz")):
        return "a .txt holds one text a line and nothing else: give a .csv or .tsv whose first line names the columns"
    remedy = f"name one by data.{key}=<column>"
    marks = _zero_or_one(table) if key == "label" else []
    if len(marks) > 1:
        return (
            f"{remedy}; or, if {listed(marks)}, which hold 0 and 1 alone, are labels, write a column labels that joins "
            f"the names of those that are 1 by |, such as {'|'.join(marks[:2])}"
        )
    if any(len(name.split()) >= WORDS_OF_TEXT or name.strip().isdigit() for name in table.names):
        remedy += ", or, if that is a row, put a first line that names the columns, such as label,text, on top"
    return remedy


def _zero_or_one(table: Table) -> list[str]:
    """The columns of nothing but 0 and 1, of the rows that can be read."""
    good = [at for at in range(len(table.numbers)) if at not in table.broken]
    cells = {name: table.column(name) for name in table.names}
    return [name for name, of_name in cells.items() if good and all(str(of_name[at]) in ZERO_OR_ONE for at in good)]


def require_columns(table: Table, columns: Columns) -> None:
    """Another split must have the columns the training split has."""
    _require_names(table)
    for key, name in columns.by_key().items():
        if name not in table.names:
            raise ValueError(
                f"{table.source} has no column '{name}' (data.{key}), which the training split has: "
                f"its columns are {listed(table.names)}{UNLABELLED if key in ('label', 'target') else ''}"
            )


def without_labels(table: Table, columns: Columns, known: list[str]) -> str:
    """That no row has a label: each is -1, which no class is called, or empty. Empty where some have one."""
    if columns.task is not Task.classify or "-1" in known or not table.numbers:
        return ""
    cells = [cell[0] if isinstance(cell, list) and len(cell) == 1 else cell for cell in table.column(columns.answer)]
    none = {"-1", "-1.0"} if columns.multi else {"-1", "-1.0", "None", ""}
    if not {str(cell).strip() for cell in cells} <= none:
        return ""
    first = "-1, which stands for none" if str(cells[0]).startswith("-1") else "empty"
    return f"{table.source} is without labels: '{show(columns.answer)}' of all its {len(cells):,} rows is {first}"


def _require_names(table: Table) -> None:
    """Raise ValueError if nothing in the file names a column: it is empty, or none of its rows can be read."""
    if table.names:
        return
    if not table.broken:
        raise ValueError(f"{table.source} holds no rows: give a file of texts and labels")
    first = min(table.broken)
    raise ValueError(
        f"{table.source} has no row that can be read: row {table.numbers[first]} {table.broken[first]}; write one "
        'object such as {"text": "...", "label": "..."} a line'
    )


def label_cells(table: Table, column: str) -> list[Any]:
    """Cells of the label column; in a column called `labels` a text may join several names by `|`, or none."""
    cells = table.column(column)
    if column != MULTI_LABEL:
        return cells
    return [_parts(cell) if cell is None or isinstance(cell, str) else cell for cell in cells]


def _parts(cell: str | None) -> list[str]:
    return [name for name in (cell or "").split("|") if name.strip()]


def class_names(features: dict[str, Any]) -> dict[str, list[str]]:
    """Names of the classes by column, from a dataset's features as `datasets` writes them; also of lists of classes."""
    inner = {name: one.get("feature", one) for name, one in features.items() if isinstance(one, dict)}
    return {
        name: [str(one) for one in feature["names"]]
        for name, feature in inner.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }


def natural_order(names: Iterable[str]) -> list[str]:
    """Sorted as a person would: 2 before 10, numbers by value."""

    def key(name: str) -> tuple[list[tuple[int, float, str]], str]:
        if re.fullmatch(r"[+-]?\d+(\.\d+)?", name):
            return [(0, float(name), "")], name
        parts = re.split(r"(\d+)", name)
        return [(0, float(part), "") if part.isdecimal() else (1, 0.0, part) for part in parts], name

    return sorted(names, key=key)
