"""The verb `next`: of texts without labels those to be labelled next, as a file to be filled in.

This file finds mistakes and reads the texts, without torch; selection.py asks the model, and choosing.py has the
formulas.
"""

from dataclasses import replace
from pathlib import Path

import manyheads.plugin as plugin
from manyheads.data.columns import text_rows
from manyheads.data.formats.fields import text_column
from manyheads.data.opening import add_further_rows, open_tables
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import with_columns
from manyheads.inference.answers import check_output
from manyheads.inference.format import ModelFolder, learnt_in, open_folder
from manyheads.plugins.active.config import NextConfig
from manyheads.runs.config_file import read_run

SELECT = "manyheads.plugins.active.selection:select"  # imports torch


def choose_next(config: NextConfig) -> dict[str, int]:
    """Choose texts, write them to `output`, and say how many were set aside and why.

    A row holds the columns of its file; the column of labels of the run, empty, if the file has none; then `guess`, the
    model's answer, its `probability`, and `why` the text was chosen. The most useful comes first.

    Returns:
        How many were `read`, set aside (`known`, `repeated`, `nearly`, `strange`), `considered` and `chosen`.

    Raises:
        UserError: one sentence; the run, the texts, or the output.
    """
    if not config.data.path and config.data.source == "run":
        raise UserError(
            "data.path is empty, but texts to choose from are needed: name their file, for example "
            "data.path=unlabelled.csv"
        )
    if rename := getattr(config.data, "rename", ""):
        raise UserError(
            f"data.rename={rename} does nothing here, as texts are chosen by what the model answers: remove it"
        )
    folder = open_folder(config.run, "classify")
    check_output(config.output, overwrite=False)
    rows, notes = read_pool(config, folder)
    return plugin.resolve(SELECT)(config, folder, rows, known_rows(learnt_in(folder.path), notes), notes)


def read_pool(config: NextConfig, folder: ModelFolder) -> tuple[Rows, list[str]]:
    """The texts of the named data, and what was noticed in them.

    Raises:
        UserError: no such file or column, no text, or single texts for a model of pairs.
    """
    settings = folder.settings
    data = with_columns(config.data, settings)
    tables, notes = open_tables(data)
    table = tables["all" if "all" in tables else "train"]()
    usual = table.names if len(table.names) == 1 else ["text"]  # such as that of a .txt
    is_missing = isinstance(data.text, str) and data.text not in table.names
    if is_missing and not config.data.text and usual[0] in table.names:
        data = replace(data, text=usual[0])
    notes += table.notes
    rows = text_rows(table, data, notes, with_unread=True)
    if isinstance(data.text, list) and rows.unread is not None:  # the column that joins them is none of the file
        names = [name for name in table.names if name != text_column(data.text)]
        rows.unread = replace(rows.unread, table=replace(table, names=names))
    if settings.pairs and rows.pairs is None:
        raise UserError(
            f"{rows.source} holds single texts, but the model of run takes pairs: name the column of the second text "
            "by data.text_pair=<column>"
        )
    return rows, notes


def known_rows(home: Path | None, notes: list[str]) -> list[Rows]:
    """The rows that a run has learnt from, first, those that it is judged on, and those whose label stands for several
    classes; a note says which of them are not there any more, and why."""
    why = "it lies in no folder of a run"
    for with_test in (True, False):  # a test split may be without labels
        if home is None:
            break
        try:
            run = read_run(home / "config.yaml")
            splits = read_rows(run, with_test=with_test)
        except UserError as error:
            why = str(error)
            continue
        try:
            if getattr(run.data, "descriptions", ""):  # texts with a label, which are learnt from, too
                if getattr(run, "teacher", ""):  # whose texts have no label yet
                    run = replace(run, teacher="", data=replace(run.data, unlabelled=""))
                add_further_rows(run, splits)
        except UserError as error:
            notes.append(f"texts of labels, which the run has learnt from, may be among these: {error}")
        return [*splits.by_name().values(), *([] if splits.coarse is None else [splits.coarse])]
    notes.append(f"the model comes without its data, so texts that it has learnt from may be among these: {why}")
    return []
