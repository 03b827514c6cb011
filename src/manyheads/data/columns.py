"""Which column is the text, its pair and the answer; what a column of labels, of sets of labels or of groups says.

Standard library at first.
"""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from manyheads.config import DataConfig, OnBadRow
from manyheads.config.facts import hooks
from manyheads.config.sentences import format_value, list_names
from manyheads.data.audit import good_rows
from manyheads.data.class_names import (
    MULTI_LABEL,
    ClassLookup,
    drop_zero_fraction,
    label_cells,
    names_in_list,
    natural_order,
    normalise_name,
)
from manyheads.data.formats.dialect import MOST_ABOVE, are_names, title_rule
from manyheads.data.formats.fields import joined_columns, name_columns, text_column
from manyheads.data.rows import Rows, row_hashes, zero_labels
from manyheads.data.table import Coded, RawTable, Unread, coded
from manyheads.data.texts import hash_texts
from manyheads.errors import UserError

ZERO_OR_ONE = {"0", "1", "0.0", "1.0", "False", "True"}
ALIKE = 0.8  # of the letters of two names, one of which may be mistyped
MOST_TITLED = 100  # columns
MOST_LOOKED_AT = 100  # columns, for a remedy: each is read whole
WORDS_OF_TEXT = 5  # names of columns seldom have as many
UNLABELLED = "; a test split without labels is left unread by test=false"
SIGNS = ",;|"  # that join names
# a list as NumPy shows it, a tuple or a set
SHOWN = re.compile(r"""[\[({]\s*["'].*["'],?\s*[\])}]|\[[\d\s]+\]|set\(\)""", re.DOTALL)
NAMES = 3  # of labels in a sentence
MOST_NUMBERS = 2**30  # of probabilities that rows are learnt from
LARGEST_GROUP = 0.2  # share of the rows; with a larger group splits and folds cannot have the sizes they should


@dataclass(slots=True)
class ColumnRoles:
    """Which column is which.

    Attributes:
        text, pair: of the text, and of the second text; None: rows have one text.
        answer: of what a row is answered with: the label, the target text, or the text, its own answer.
        key: the setting that names it: label, votes, label_columns, target or text.
        multi: rows have any number of labels.
        label_columns: of the votes for each class, `answer` among them; empty: it is the only one.
        weight: of the weights of rows; empty: they have none.
    """

    text: str
    pair: str | None
    answer: str
    key: str = "label"
    multi: bool = False
    weight: str = ""
    label_columns: list[str] = field(default_factory=list)

    @property
    def has_votes(self) -> bool:
        return self.key in ("votes", "label_columns")

    @property
    def has_classes(self) -> bool:
        return self.key == "label" or self.has_votes

    def read(self) -> list[tuple[str, str]]:
        """The columns that are read, each after the setting that names it."""
        answers = [(self.key, name) for name in self.label_columns or [self.answer]]
        named = dict.fromkeys([("text", self.text), ("text_pair", self.pair), *answers])  # a text may answer for itself
        return [(key, name) for key, name in named if name is not None]

    @property
    def names(self) -> list[str]:
        """Of the columns that are read."""
        return [name for _, name in self.read()]


def find_columns(table: RawTable, data: DataConfig, answer: str = "label") -> ColumnRoles:
    """Which column of a table is which, by the settings.

    A preset of a hub dataset names the hub's columns; a local copy (`data.path`) may use its names or ours, `text`,
    `text_pair`, `label` and `target`, which win. `text_pair` is optional unless a name is typed, and is never read
    where a text is answered by a text. A column called `labels` takes the place of a `label` that is missing, not of
    a column of another name.

    Raises:
        UserError: a column is missing; lists those there are.
    """
    ours_win = data.source == "hub" and bool(data.path)

    def find(key: str, typed: str, *, is_one: bool = True) -> str:
        if is_one and ours_win and key in table.names:
            return key
        if typed in table.names:
            return typed
        if key == "label" and (ours_win or typed == key) and MULTI_LABEL in table.names:
            return MULTI_LABEL
        remedy = _remedy(table, key, typed)
        if not is_one and key == "text" and isinstance(data.text, list):
            remedy = remedy.replace(f"name one by data.{key}=<column>", name_columns(data.text, table.names))
        if not is_one:
            remedy = remedy.replace(f" by data.{key}=<column>", " of these").replace(f"mean data.{key}=", "mean ")
        names = [name for name in table.names if name != text_column(joined)]  # which is none of the file
        raise UserError(
            f"{table.source} has no column '{typed}' (data.{key}): its columns are {list_names(names)}; {remedy}"
        )

    _require_names(table)
    of_class: list[str] = []
    joined = joined_columns(data)
    if joined:
        texts = data.text if isinstance(data.text, list) else [data.text]
        parts = [find("text" if name in texts else "columns", name, is_one=False) for name in joined]
        text = text_column(parts)
    else:
        text, parts = find("text", data.text), []
    if answer == "label" and (data.votes or data.label_columns):
        answer = "votes" if data.votes else "label_columns"
        of_class = [find(answer, name) for name in data.label_columns]
    answers = of_class or [text if answer == "text" else find(answer, getattr(data, answer))]
    columns = ColumnRoles(text, None, answers[0], answer, label_columns=of_class)
    is_missing = data.text_pair == "text_pair" and "text_pair" not in table.names  # and nobody typed it
    if data.text_pair and not is_missing and answer != "target":
        columns.pair = find("text_pair", data.text_pair)
    if data.weight and columns.has_classes:
        columns.weight = find("weight", data.weight)
    if len({*columns.names}) < len(columns.names) or not {*parts}.isdisjoint(columns.names):
        typed = " and ".join(f"data.{key}={name}" for key, name in columns.read())
        raise UserError(f"{typed} name one column of {table.source} twice: each needs its own")
    return columns


def text_rows(
    table: RawTable, data: DataConfig, notes: list[str], probabilities: Any = None, *, with_unread: bool = False
) -> Rows:
    """The good rows of a table, without labels: their class ids are 0.

    Args:
        probabilities: of each class, of all rows `(n, C)`.
        with_unread: rows can give the columns that are not read.

    Raises:
        UserError: a column is missing; or a row is bad and `data.on_bad_row` says so.
    """
    columns = find_columns(table, data, "text")
    texts = table.column(columns.text)
    pairs = None if columns.pair is None else table.column(columns.pair)
    hashes, text_faults = hash_texts(texts, pairs)
    good = good_rows(table, text_faults | table.broken, data.on_bad_row, notes)
    rows = Rows(texts, pairs, zero_labels(texts), table.source, table.numbers, hashes=hashes)
    rows.probabilities = probabilities
    if with_unread:
        names = [name for name in table.names if name not in columns.names]
        rows.unread = Unread(table, names, range(len(texts)))
    return rows if len(good) == len(rows) else rows.pick(good)


def _remedy(table: RawTable, key: str, typed: str) -> str:
    """What to do about a column that is not there."""
    near = [name for name in table.names if name.casefold() == typed.casefold()]
    names = {name.casefold(): name for name in table.names}
    near += [names[one] for one in difflib.get_close_matches(typed.casefold(), names, n=1, cutoff=ALIKE)]
    if near:
        return f"did you mean data.{key}={near[0]}?"
    if table.hint:
        return table.hint
    if key == "text" and (found := _first_rows(table).get(typed)) and are_names(found[1]):
        return title_rule(*found)
    if key != "text" and table.source.endswith((".txt", ".txt.gz")):
        return "a .txt holds one text a line and nothing else: give a .csv or .tsv whose first line names the columns"
    if len(table.names) == 1 and len(cells := re.split(r"[,;\t]", table.names[0])) > 1 and typed in cells:
        return "each of its lines is quoted as a whole: remove these quotes"
    if key == "label" and len(table.names) == 1 and not isinstance(typed, list):
        return "add a column of labels; texts without labels are answered by manyheads predict"
    remedy = f"name one by data.{key}=<column>"
    for name in table.names[:MOST_LOOKED_AT] if len(table.numbers) else ():
        cell = table.column(name)[0]
        if isinstance(cell, list) and cell and isinstance(cell[0], dict) and typed in cell[0]:
            return f"{format_value(name)} holds a list of objects with one: save that list alone"
        if isinstance(cell, dict) and typed.split(".")[-1] in cell:
            return f"{format_value(name)} holds objects with one: give each of their fields a column of its own"
    marks = _zero_or_one(table) if key == "label" else []
    if len(marks) > 1:
        return (
            f"{remedy}; or, if {list_names(marks)}, which hold 0 and 1 alone, are labels, write a column labels that "
            f"joins the names of those that are 1 by |, such as {'|'.join(marks[:2])}"
        )
    if table.names == [str(at) for at in range(len(table.names))]:  # as pandas counts them
        return f"{remedy}, such as data.{key}={table.names[-1]}"
    if any(len(name.split()) >= WORDS_OF_TEXT or name.strip().isdigit() for name in table.names):
        first, last = (len(name.split()) for name in (table.names[0], table.names[-1]))
        names_line = "text,label" if first > last else "label,text"
        remedy += f", or, if that is a row, put a first line that names the columns, such as {names_line}, on top"
    return remedy


def _first_rows(table: RawTable) -> dict[Any, tuple[int, list[str]]]:
    """The number of each of the first rows, and the row, by its cells; of rows that share a cell the first."""
    columns = [table.column(name) for name in table.names[:MOST_TITLED]]  # a title above more is not looked for
    found: dict[Any, tuple[int, list[str]]] = {}
    for at in range(min(MOST_ABOVE, len(table.numbers))):
        row = [str(cells[at]) for cells in columns]
        for cell in row:
            found.setdefault(cell, (int(table.numbers[at]), row))
    return found


def _zero_or_one(table: RawTable) -> list[str]:
    """The columns of nothing but 0 and 1, of the rows that can be read."""
    good = [at for at in range(len(table.numbers)) if at not in table.broken]
    if not good:
        return []
    found = []
    for name in table.names:
        cells = table.column(name)
        if all(str(cells[at]) in ZERO_OR_ONE for at in good):
            found.append(name)
    return found


def require_columns(table: RawTable, columns: ColumnRoles) -> None:
    """Raise UserError if another split lacks a column that the training split has."""
    _require_names(table)
    for key, name in columns.read():
        if name in table.names:
            continue
        remedy = ""
        if table.hint:
            remedy = f"; {table.hint}"
        elif key not in ("text", "text_pair"):
            remedy = UNLABELLED
        raise UserError(
            f"{table.source} has no column '{name}' (data.{key}), which the training split has: its columns are "
            f"{list_names(table.names)}{remedy}"
        )


def why_unlabelled(table: RawTable, columns: ColumnRoles, known: list[str]) -> str:
    """That no row has a label: each is -1, which no class is called, or empty. Empty where some have one."""
    if columns.key != "label" or "-1" in known or not len(table.numbers):
        return ""
    cells = []
    for cell in coded(table.column(columns.answer)).values:
        if isinstance(cell, list) and len(cell) == 1:
            cell = cell[0]
        cells.append(cell)
    no_label = {"-1", "-1.0"}
    if not columns.multi:  # else an empty cell says that a row has no label, which is an answer
        no_label |= {"None", ""}
    if not {*map(normalise_name, cells)} <= no_label:
        return ""
    is_minus_one = str(cells[0]).startswith("-1")
    how = "-1, which stands for none" if is_minus_one else "empty"
    return (
        f"{table.source} is without labels: '{format_value(columns.answer)}' of all its {len(table.numbers):,} rows "
        f"is {how}"
    )


def _require_names(table: RawTable) -> None:
    """Raise UserError if nothing in the file names a column: it is empty, or none of its rows can be read."""
    if table.names:
        return
    if not table.broken:
        raise UserError(f"{table.source} holds no rows: give a file of texts and labels")
    first = min(table.broken)
    raise UserError(
        f"{table.source} has no row that can be read: row {table.numbers[first]} {table.broken[first]}; write one "
        'object such as {"text": "...", "label": "..."} a line'
    )


def as_found(table: RawTable, columns: ColumnRoles) -> ColumnRoles:
    """`columns` of the training split, which says whether a row of the data has any number of labels: where each has
    just one it is a class like any other, as it is in a column of another name than `labels` that is not all lists."""
    every = coded(table.column(columns.answer))
    values = every.values
    if table.broken:  # rows whose cells are missing
        values = every.take([at for at in range(len(every)) if at not in table.broken]).used()
    cells = label_cells(values, columns.answer)
    lists = [cell for cell in cells if isinstance(cell, list)]
    in_lists = columns.answer == MULTI_LABEL or len(lists) == len(cells)
    has_several = any(len({*map(normalise_name, names)}) != 1 for names in lists)
    return replace(columns, multi=table.multi or (in_lists and has_several))


def joined_otherwise(table: RawTable, columns: ColumnRoles) -> list[str]:
    """A note on names of labels that are joined in one cell, and are a class of their own together.

    Raises:
        UserError: they are in the column `labels`, where | joins them, or a list in JSON; or cells are lists of zeros
            and ones.
    """
    _refuse_zeros_and_ones(table, columns)
    in_labels = columns.answer == MULTI_LABEL
    cells: list[str] = []
    for cell in coded(table.column(columns.answer)).values:
        is_list = in_labels and isinstance(cell, str) and names_in_list(cell) is not None
        if isinstance(cell, str) and not is_list:
            cells.append(cell)
    for cell in cells:
        if in_labels and SHOWN.fullmatch(cell.strip()):
            raise UserError(
                f"{table.source}: '{format_value(cell)}' in the column 'labels' is no list that can be read: join "
                'names by |, or write a list in JSON, such as ["joy", "anger"]'
            )
    sign = _joining_sign({*cells})
    if not sign or (in_labels and any("|" in cell for cell in cells)):
        return []
    first = next(cell for cell in cells if sign in cell)
    found = (
        f"{table.source}: the column '{format_value(columns.answer)}' joins names by '{sign}', as in "
        f"'{format_value(first)}', so that each combination is a class of its own"
    )
    if in_labels:
        raise UserError(f"{found}: join them by |, or, if these are names of classes, call the column label")
    return [f"{found}; if these are several labels, call the column labels and join them by |"]


def _refuse_zeros_and_ones(table: RawTable, columns: ColumnRoles) -> None:
    """Raise UserError if each cell is a list of zeros and ones, all of one length."""
    every = coded(table.column(columns.answer))
    if columns.answer == MULTI_LABEL:
        values = [names_in_list(cell) if isinstance(cell, str) else cell for cell in every.values]
        every = every.with_values(values)
    if not any(isinstance(cell, list) for cell in every.values) or columns.answer in table.classes:
        return
    cells = every.take([at for at in range(len(every)) if at not in table.broken]).used()
    if not cells or not all(isinstance(cell, list) for cell in cells):
        return
    length = len(cells[0])
    if length < 2 or any(len(cell) != length for cell in cells):
        return
    if all(one in (0, 1, "0", "1") for cell in cells for one in cell):
        raise UserError(
            f"{table.source}: each cell of '{format_value(columns.answer)}' is a list of {length} zeros and ones, "
            "which name no label: list the names of the labels that are 1, such as "
            '["joy", "anger"], or none'
        )


def _joining_sign(cells: set[str]) -> str:
    """The sign between names of which most are also in other cells; empty: there is none."""
    for sign in SIGNS:
        counts = Counter[str]()  # cells with each name
        joined: set[str] = set()
        for cell in cells:
            names = {part.strip(" []'\"") for part in cell.split(sign)}
            counts.update(names)
            if sign in cell:
                joined |= names
        n_in_others = sum(counts[name] > 1 for name in joined)
        if 2 * n_in_others > len(joined):
            return sign
    return ""


def named_twice(table: RawTable, cells: Coded, answers: list[Any], faults: Collection[int]) -> list[str]:
    """A note on the rows that name a label more than once, if any do: `answers` are what was read of each different
    cell, `faults` those that could not be read."""
    twice: dict[int, bool] = {}
    for code, (cell, answer) in enumerate(zip(cells.values, answers, strict=True)):
        if not isinstance(cell, list) or len(cell) < 2 or code in faults:
            continue
        if len(parts_of(answer)) < len(cell):
            twice[code] = True
    found = cells.by_row(twice)
    if not found:
        return []
    rows = "1 row names" if len(found) == 1 else f"{len(found):,} rows name"
    return [f"{table.source}: {rows} a label twice, which counts once (first: row {table.numbers[min(found)]})"]


def give_sets(rows: Rows, names: Coded, labels: list[str]) -> None:
    """Give each row the ids of its labels, and the rarest of them in these rows, by which splits are carved."""
    id_of = {name: index for index, name in enumerate(labels)}

    def ids(of_row: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(sorted(id_of[name] for name in of_row))

    sets: Any = names.mapped(ids)
    counts = Counter[int]()
    for of_row in sets:
        counts.update(of_row)

    def rarest(of_row: tuple[int, ...]) -> int:
        return min(of_row, key=lambda label: (counts[label], label), default=len(labels))

    rows.sets, rarest_ids = sets, sets.mapped(rarest)
    rows.labels = rarest_ids.numbers(rarest_ids.values)


def names_in(answers: Coded) -> list[str]:
    """The names in answers, of which those of sets are taken apart."""
    return [name for answer in answers.used() for name in parts_of(answer)]


def parts_of(answer: Any) -> Sequence[str]:
    """The name of a class, or those of all labels of a row."""
    if isinstance(answer, str):
        return (answer,)
    return answer


def rows_of_known_labels(
    rows: Rows, answers: Any, labels: list[str], on_bad_row: OnBadRow, notes: list[str]
) -> tuple[Rows, Any]:
    """The rows whose labels a model has.

    Raises:
        UserError: there are others under `raise`, or no row is left.
    """
    import numpy as np

    found, known = natural_order({*names_in(answers)}), {*labels}
    strange = [name for name in found if name not in known]
    if not strange:
        return rows, answers
    is_known = np.array([known.issuperset(parts_of(answer)) for answer in answers.values], dtype=bool)[answers.codes]
    good = np.flatnonzero(is_known)
    if not len(good) or on_bad_row is OnBadRow["raise"]:
        first = int(np.flatnonzero(~is_known)[0])
        drop = ", or leave such rows out by data.on_bad_row=drop" if len(good) else ""
        remedy = "rename the data's labels, or choose another column by data.label"
        of_any_case = ClassLookup(labels, any_case=True)
        if all(of_any_case.find(name) in known for name in strange):
            remedy = "they differ by case only: merge them by data.merge_labels=case"
        raise UserError(
            f"{rows.source} has labels the model does not know: the data's labels are {list_names(found)}, the "
            f"model's are {list_names(labels)}; the first is in row {rows.numbers[first]:,}; {remedy}{drop}"
        )
    notes.append(
        f"{rows.source}: {len(rows) - len(good):,} of {len(rows):,} rows left out, as the model does not know their "
        f"labels: {list_names(strange)}"
    )
    return rows.pick(good), answers.take(good)


def coarse_finders(data: DataConfig) -> list[Any]:
    """What plugins find labels by that are no classes of their own: see `Section.coarse`."""
    return [find for make in hooks(data, "coarse") if (find := make(data)) is not None]


def set_apart(
    rows: Rows, answers: Any, coarse: dict[str, list[str]], labels: list[str], notes: list[str]
) -> tuple[Rows, Any, Rows | None]:
    """The rows that have a class, with their answers, and the rows whose label stands for several, if there are any.

    Raises:
        UserError: no row has a class, or the probabilities of the others are too many.
    """
    import numpy as np

    if not coarse:
        return rows, answers, None
    is_coarse_n = np.array([name in coarse for name in answers.values])[answers.codes]
    if not is_coarse_n.any():
        return rows, answers, None
    of_class, others = np.flatnonzero(~is_coarse_n), np.flatnonzero(is_coarse_n)
    notes.append(f"{rows.source}: {len(others):,} of {len(rows):,} rows have a label that stands for several classes")
    if not len(of_class):
        raise UserError(f"{rows.source} has no row with one of the classes {list_names(labels)}: give some")
    if len(rows) * len(labels) > MOST_NUMBERS:
        raise UserError(
            f"{rows.source} has {len(rows):,} rows of {len(labels):,} classes: to learn those with a label for several "
            "of them takes more memory than is sensible; leave these rows out"
        )
    apart, id_of = rows.pick(others), {name: id for id, name in enumerate(labels)}
    apart.probabilities = np.zeros((len(others), len(labels)), dtype=np.float32)
    for code in np.unique(answers.codes[others]).tolist():
        names = coarse[answers.values[code]]
        has_it_n1 = (answers.codes[others] == code)[:, None]
        apart.probabilities[:, [id_of[name] for name in names]] += has_it_n1 / np.float32(len(names))
    return rows.pick(of_class), answers.take(of_class), apart


def describe_label_sets(rows: Rows, labels: list[str]) -> str:
    """What a reader of the log should know: that, and where, a row has not just one label.

    Raises:
        UserError: no row has any.
    """
    assert rows.sets is not None
    if not labels:
        raise UserError(f"{rows.source} has no row with a label: a classifier needs at least one; check data.label")
    n_several, n_none, first = 0, 0, -1
    for at, ids in enumerate(rows.sets):
        n_several += len(ids) > 1
        n_none += not ids
        if first < 0 and len(ids) != 1:
            first = at
    if first < 0:
        return f"{rows.source}: only rows that are left out have not just one label, yet each is answered by itself"
    counts = []
    if n_several:
        counts.append(f"{n_several:,} with several")
    if n_none:
        counts.append(f"{n_none:,} with none")
    known = "1 label" if len(labels) == 1 else f"{len(labels)} labels"
    names = list_names([labels[id] for id in rows.sets[first][:NAMES]]) or "none"
    return (
        f"{rows.source}: {' and '.join(counts)} of the {known} among {len(rows):,} rows (first: row "
        f"{rows.numbers[first]}: {names}), so each label is answered by itself"
    )


def read_groups(rows: Rows, column: str, notes: list[str]) -> Any:
    """A number a row, int64, by what it has in a further column of its file. Rows that have nothing there are groups of
    their own, of which those of one text stay together."""
    import numpy as np

    further = rows.unread.names if rows.unread is not None else []
    if rows.unread is None or column not in further:
        raise UserError(
            f"data.group={format_value(column)} is no further column of {rows.source}: it has "
            f"{list_names(further) or 'none'}"
        )
    cells = coded(list(rows.unread.columns()[column]))
    names = coded([drop_zero_fraction(normalise_name(value)) for value in cells.values])
    groups = names.codes[cells.codes].astype(np.int64)
    is_alone = np.array([not name for name in names])[cells.codes]
    if is_alone.any():
        _, text_ids = np.unique(row_hashes(rows)[is_alone], return_inverse=True)
        groups[is_alone] = len(names) + text_ids
        notes.append(
            f"{rows.source}: {int(is_alone.sum()):,} of {len(rows):,} rows have nothing in {format_value(column)} "
            "(data.group): each is a group of its own"
        )
    counts = np.bincount(groups[~is_alone], minlength=1)
    largest = int(counts.argmax())
    if counts[largest] > LARGEST_GROUP * len(rows):
        notes.append(
            f"{rows.source}: {counts[largest]:,} of {len(rows):,} rows have '{format_value(names.values[largest])}' in "
            f"{format_value(column)} (data.group), and stay together in one split"
        )
    return groups
