"""The verb `compare`: two or more models, or predictions in files, on the same rows; is one better, and where?

This file opens and checks what is compared, without torch; predictions.py reads files of predictions, and
comparison.py asks the models, tests the differences and writes the results.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig, MergeLabels
from manyheads.config.required import bounds_of
from manyheads.config.sentences import format_value, list_names
from manyheads.data.class_names import ClassLookup
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import find_data
from manyheads.evaluation.held_out import learnt_texts
from manyheads.inference.format import ModelFolder, enclosing_run, open_folder
from manyheads.plugins.judge.config import CompareConfig, compared_figures
from manyheads.runs.folder import refuse_unwritable_output
from manyheads.runs.summary import names_of
from manyheads.runs.verb_output import VerbOutput, lock_output, refuse_occupied

FILES = (".csv", ".tsv", ".parquet", ".jsonl")  # of predictions
COMPARED = VerbOutput("compare", "compare.json", ('"models":', '"pairs":', '"n_rows":'), ("changed.csv", "report.html"))


def compare_models(config: CompareConfig) -> dict[str, Any]:
    """Compare every two of `runs` on the same rows; returns the content of compare.json.

    Writes compare.json, changed.csv and report.html to `output`, else outputs/compare-<data>.

    Raises:
        UserError: one sentence; a run, the data, or a file of predictions that is of other rows.
    """
    if len(config.runs) < 2:
        raise UserError(f"runs={format_value(config.runs)} is one model, but two or more are compared: add another")
    with errors_name_runs():
        folders = {run: open_folder(run, "classify", graph=True) for run in config.runs if not is_file(run)}
    if not folders:
        raise UserError(
            f"runs={format_value(config.runs)} are files alone, but one run at least says what to read: add it"
        )
    names = names_of(config.runs)
    first_name, first = next(iter(folders.items()))
    labels = first.labels()
    for name, folder in folders.items():
        require_alike(name, folder, first_name, first)
    bounds_of(config.require, compared_figures("labels" if first.settings.multi else "classes"))

    # The rows are those that evaluate would judge the first model on.
    asked = EvaluateConfig(run=first_name, split=config.split, data=config.data)
    with errors_name_runs():
        data = find_data(asked, enclosing_run(first.path), first.settings, labels)
    output = Path(config.output or Path("outputs", f"compare-{data.name}-{data.split}"))
    if config.output or config.overwrite:
        refuse_occupied(output, COMPARED, overwrite=config.overwrite)
    refuse_unwritable_output(str(output))
    warnings = []
    for name, folder in folders.items():
        n_learnt, note = learnt_texts(folder.path, data.rows, labels, who=name, also_hub=True)
        if 2 * n_learnt > len(data.rows):
            raise UserError(
                f"runs={name} learnt from {n_learnt:,} of the {len(data.rows):,} rows of {data.rows.source}, which "
                "cannot say which model is better: name rows that no model learnt from by data.path=<file>"
            )
        if note:
            warnings.append(note)

    from manyheads.plugins.judge.predictions import read_predictions  # NumPy, no torch

    merged = {config.data.merge_labels, first.settings.columns.merge_labels}
    known = ClassLookup(labels, any_case=MergeLabels.case in merged)
    answers = {run: read_predictions(Path(run), data.rows, known) for run in config.runs if is_file(run)}

    from manyheads.plugins.judge.comparison import ComparedModel, answers_of, write_comparison

    with lock_output(output):
        if config.output or config.overwrite:
            refuse_occupied(output, COMPARED, overwrite=config.overwrite)
        for run, folder in folders.items():
            answers[run] = answers_of(folder, data.rows, labels, config)
        models = []
        for name, run in zip(names, config.runs, strict=True):
            home = enclosing_run(folders[run].path) if run in folders else None
            models.append(ComparedModel(name, answers[run], home))
        return write_comparison(output, COMPARED, models, data, labels, warnings, config)


@contextmanager
def errors_name_runs() -> Iterator[None]:
    """Mistakes in one of `runs`, which other verbs call `run`, by the name that was typed."""
    try:
        yield
    except ValueError as error:
        raise UserError(re.sub(r"(?<![\w./])run=", "runs=", str(error), count=1)) from error


def is_file(run: str) -> bool:
    """Whether one of `runs` names a file of predictions."""
    return Path(run).suffix.lower() in FILES and not Path(run).is_dir()


def require_alike(name: str, folder: ModelFolder, first_name: str, first: ModelFolder) -> None:
    """Refuse a model that cannot answer the rows of the first one, or has other classes."""
    labels, first_labels = folder.labels(), first.labels()
    if sorted(labels) != sorted(first_labels):
        raise UserError(
            f"runs: {name} has the classes {list_names(labels)}, but {first_name} has {list_names(first_labels)}: "
            "models of the same classes are compared"
        )
    if folder.settings.fields != first.settings.fields:  # the rows are joined as those of the first
        read = [list_names(one.settings.fields) or "one column" for one in (folder, first)]
        raise UserError(
            f"runs: {name} reads {read[0]}, but {first_name} reads {read[1]}: models of the same columns are compared; "
            f"name what predict has written for {name} in its place"
        )
    kinds = (
        ("pairs of texts", folder.settings.pairs, first.settings.pairs),
        ("any number of labels", folder.settings.multi, first.settings.multi),
    )
    for what, has, first_has in kinds:
        if has == first_has:
            continue
        one, other = (name, first_name) if has else (first_name, name)
        raise UserError(f"runs: {one} takes or gives {what}, and {other} does not: models of one kind are compared")
