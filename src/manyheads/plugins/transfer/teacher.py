"""Rows whose classes a teacher says: a trained run, or a file of answers. Standard library and NumPy.

Hinton, Vinyals and Dean (2015), "Distilling the Knowledge in a Neural Network", section 2, at a temperature of 1.

n rows . C classes
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import manyheads.plugin as plugin
from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import ClassLookup
from manyheads.data.columns import text_rows
from manyheads.data.formats.fields import joined_columns
from manyheads.data.formats.votes import MOST, PREFIX, read_numbers
from manyheads.data.opening import further_table
from manyheads.data.rows import Rows, Splits
from manyheads.data.table import RawTable
from manyheads.errors import UserError
from manyheads.evaluation.further_rows import not_judged
from manyheads.evaluation.held_out import learnt_texts
from manyheads.inference.format import ModelFolder, open_folder

Run = Any  # the settings of a training, with those of this plugin
ANSWERS = "manyheads.plugins.transfer.answers:answers"  # imports torch
GIVEN = 0.5  # probability from which on a label counts as given


def taught_rows(run: Run, splits: Splits) -> Rows | None:
    """The texts that `run.teacher` answers, with its probabilities. No text of validation or test is among them.

    Raises:
        UserError: there is no such teacher, it has other classes, or a file is missing or broken.
    """
    if not run.teacher:
        return None
    if Path(run.teacher).is_file():
        rows = rows_of_answers(run, splits)
    else:
        rows = rows_of_run(run, splits)
    likeliest_n = rows.probabilities.argmax(1)
    rows.labels = likeliest_n.astype(np.int32)  # pyright: ignore[reportAttributeAccessIssue]
    if splits.multi:
        rows.sets = [tuple(np.flatnonzero(of_row >= GIVEN).tolist()) for of_row in rows.probabilities]
    kept = not_judged(run, splits, rows)
    if not len(kept):
        raise UserError(f"{rows.source} has no text that is not in validation or test: give others by data.unlabelled")
    note = f"teacher: {len(kept):,} of {len(rows):,} texts of {rows.source} are learnt from"
    if len(kept) < len(rows):
        note += f", as {len(rows) - len(kept):,} are also in validation or test"
    confidence = float(rows.probabilities[kept].max(1).mean())
    splits.notes.append(f"{note}; on average the likeliest class has a probability of {confidence:.2f}")
    return rows.pick(kept)


def rows_of_run(run: Run, splits: Splits) -> Rows:
    """The texts of `data.unlabelled`, answered by a trained run."""
    if not run.data.unlabelled:
        raise UserError(
            f"teacher={run.teacher} answers texts, but none are given: add data.unlabelled=<file>, or name a file of "
            "answers"
        )
    try:
        folder = open_folder(run.teacher, "classify")
    except ValueError as error:
        raise UserError(str(error).replace("run=", "teacher=")) from error
    data = replace(run.data, source="files", path=run.data.unlabelled)
    table = further_table(run.data.unlabelled, data, "data.unlabelled")
    if len(table.names) == 1 and not table.hint:  # such as that of a .txt, whatever the text is called in the data
        data = replace(data, text=table.names[0], text_pair="")
    rows = text_rows(table, data, splits.notes).sample(run.data.rows, run.seed)
    check_answers(run, folder, splits, rows)
    for role, judged in splits.by_name().items():
        if role != "train":
            _, sentence = learnt_texts(folder.path, judged, splits.labels, who="the teacher")
            splits.notes += [f"{role}: {sentence}"] * bool(sentence)
    found_nC, names = plugin.resolve(ANSWERS)(folder, rows, run), folder.labels()
    rows.probabilities = found_nC[:, [names.index(label) for label in splits.labels]]
    return rows


def check_answers(run: Run, folder: ModelFolder, splits: Splits, rows: Rows) -> None:
    """Raise UserError unless a trained run answers such texts with the classes of the data."""
    names = folder.labels()
    if sorted(names) != sorted(splits.labels):
        raise UserError(
            f"teacher={run.teacher} knows {list_names(names)}, but the labels of the data are "
            f"{list_names(splits.labels)}: name a run that was trained on the same classes"
        )
    if folder.settings.multi != splits.multi:
        gives = "any number of labels" if folder.settings.multi else "one class"
        raise UserError(
            f"teacher={run.teacher} gives {gives}, but a row of the data has "
            f"{'any number of labels' if splits.multi else 'one class'}: name another run"
        )
    if folder.settings.fields != joined_columns(run.data):
        read = [list_names(names) or "one column" for names in (folder.settings.fields, joined_columns(run.data))]
        raise UserError(
            f"teacher={run.teacher} reads {read[0]}, but the run {read[1]}: name another run, or a file of its answers"
        )
    for what, pairs in (("the data has", splits.train.pairs), (f"{rows.source} has", rows.pairs)):
        if folder.settings.pairs != (pairs is not None):
            raise UserError(
                f"teacher={run.teacher} reads {'pairs of texts' if folder.settings.pairs else 'single texts'}, but "
                f"{what} {'single texts' if pairs is None else 'pairs of texts'}: name another run, or other texts"
            )


def rows_of_answers(run: Run, splits: Splits) -> Rows:
    """The texts of a file, with its probabilities, or counts of votes, which are divided by their sum."""
    if run.data.unlabelled:
        raise UserError(
            f"teacher={run.teacher} is a file of texts and answers, so that nothing answers "
            f"data.unlabelled={run.data.unlabelled}: remove one of them"
        )
    data = replace(run.data, source="files", path=run.teacher)
    table = further_table(run.teacher, data, "teacher")
    found_nC, faults = read_probabilities(table, splits.labels, multi=splits.multi)
    rows = text_rows(replace(table, broken=table.broken | faults), data, splits.notes, found_nC)
    if (rows.pairs is None) != (splits.train.pairs is None):
        raise UserError(
            f"{rows.source} has {'single texts' if rows.pairs is None else 'pairs of texts'}, unlike the data: name "
            "another file by teacher="
        )
    return rows.sample(run.data.rows, run.seed)


def read_probabilities(table: RawTable, labels: list[str], *, multi: bool) -> tuple[Any, dict[int, str]]:
    """What the columns that are called as the classes say, with or without `p_` before the name.

    Returns:
        Probabilities `(n, C)`, float32; and by index why those of a row are none.

    Raises:
        UserError: a class has no column.
    """
    plain, written = ClassLookup(table.names), ClassLookup([name for name in table.names if name.startswith(PREFIX)])
    columns = [written.find(PREFIX + label) for label in labels]
    if not {*columns} <= {*table.names}:  # a class may be called as another column of what predict writes, such as text
        both = [(plain.find(label), written.find(PREFIX + label)) for label in labels]
        columns = [name if name in table.names else other for name, other in both]
    missing = [label for label, name in zip(labels, columns, strict=True) if name not in table.names]
    if missing:
        raise UserError(
            f"{table.source} has no column of probabilities for {list_names(missing)}: it needs one for each class, "
            f"called as the class; its columns are {list_names(table.names)}"
        )
    found_nC = np.zeros((len(table.numbers), len(labels)))
    faults: dict[int, str] = {}
    for at, name in enumerate(columns):
        found_nC[:, at], wrong = read_numbers(table.column(name), 1 if multi else MOST)
        for row, cell in wrong.items():
            faults[row] = f"'{format_value(cell)}' in the column '{format_value(name)}' is no probability"
    sums_n = found_nC.sum(1)
    if not multi:
        for row in np.flatnonzero(sums_n == 0).tolist():
            faults[row] = "the probability of each class is 0"
        with np.errstate(invalid="ignore", divide="ignore"):
            found_nC /= sums_n[:, None]
    return found_nC.astype(np.float32), faults
