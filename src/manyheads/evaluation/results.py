"""What `evaluate` leaves of a classifier.

What an evaluation found: judged, written to a folder, shown on the screen.

What an evaluation found of a model that gives any number of labels: judged, written to a folder, shown.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.config import EvaluateConfig, ModelConfig
from manyheads.config.fields import to_plain
from manyheads.evaluation.answers import majority, worst_mistakes, write_predictions_csv
from manyheads.evaluation.evaluate import EvaluationData
from manyheads.evaluation.members import (
    Members,
    chosen_here,
    few_rows,
    judge_label_members,
    judge_members,
    learnt_here,
    rows_of_class,
    said_of,
)
from manyheads.evaluation.multilabel import most_frequent, write_labels_csv
from manyheads.evaluation.plots import draw_confusion, draw_curves, draw_reliability
from manyheads.evaluation.report import Report, Sections, class_sections, label_sections, write_report
from manyheads.evaluation.scores import Interval, Scores
from manyheads.evaluation.summary import (
    baseline_figures,
    beside,
    headline,
    label_headline,
    lead_line,
    leads,
    show_figures,
)
from manyheads.inference.classifier import TextClassifier
from manyheads.linear.model import LinearBaseline
from manyheads.runs.atomic import refuse_unwritable, replace_file
from manyheads.runs.folder import read_curves
from manyheads.terminal import as_text, console, progress_bar, show_files


@dataclass(slots=True)
class Results:
    """One split, judged."""

    task: EvaluationData
    members: Members
    settings: dict[str, Any]
    linear: str = ""  # what the linear model is
    warnings: list[str] = field(default_factory=list)

    @property
    def scores(self) -> Scores:
        """Of the model."""
        return next(iter(self.members.scores.values()))


def judge_task(
    task: EvaluationData, deliverable: TextClassifier, config: EvaluateConfig, baseline: LinearBaseline | None = None
) -> Results:
    """Answer every row and judge the answers, beside those of each member and what cheap models make of the same rows:
    the most frequent class, of the training rows where that is known, and the `baseline` fitted in training."""
    frequent = majority(task.splits.train) if task.splits else None
    if task.most_frequent:
        frequent = deliverable.labels.index(task.most_frequent)
    asked: dict[str, Any] = {"tokens": config.batch.tokens, "n_resamples": config.bootstrap, "seed": config.seed}
    with progress_bar(len(task.rows)) as progress:
        members = judge_members(deliverable, task.rows, baseline, frequent, progress=progress, **asked)
    settings, said = judged_settings(config, task, deliverable.model), said_of(deliverable, baseline)
    return Results(task, members, settings, said, warnings_of(task, deliverable))


def warnings_of(task: EvaluationData, classifier: TextClassifier) -> list[str]:
    """What the figures of `task` cannot say."""
    chosen = chosen_here(task.role, linear=classifier.share > 0, multi=classifier.multi) or learnt_here(task.role)
    split = "the file" if task.split == "all" else task.split
    validation = task.splits.validation if task.splits else None
    return [*([chosen] if chosen else []), *few_rows(task.rows, split, classifier.labels, validation)]


def judged_settings(config: EvaluateConfig, task: EvaluationData, model: ModelConfig) -> dict[str, Any]:
    """The settings of the evaluation, and those of the run, or all that is known of it."""
    judged_as = {"model": to_plain(model)} if task.run is None else {"run": to_plain(task.run)}
    return {"evaluate": to_plain(config), **judged_as}


def write_results(folder: Path, results: Results, home: Path | None) -> dict[str, Any]:
    """Write every file; `home` is the run folder, whose learning curves are shown.

    Returns:
        The content of metrics.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    task, scores, metrics = results.task, results.scores, as_metrics(results)
    answered, models, baselines = results.members
    sections = class_sections(models, baselines, worst_mistakes(answered), results.linear)
    size = f"{scores.n_rows:,} rows, {len(scores.labels)} classes"
    report = report_of(task, size, sections, results.settings, home, results.warnings)
    pictures = {"confusion": draw_confusion(scores), "reliability": draw_reliability(scores)}
    write_files(folder, metrics, report, pictures, lambda path: write_predictions_csv(path, answered))
    return metrics


class Found(NamedTuple):
    """What was found of another model than one that tells classes: the figures of metrics.json, how many rows there
    were, what report.html says, how predictions.csv is written, the rows of a table under `columns` or what shows
    another, and what the figures cannot say."""

    figures: dict[str, Any]
    size: str
    sections: Sections
    write_csv: Callable[[Path], None]
    columns: list[str] = []  # noqa: RUF012 - read alone
    rows: list[list[str]] = []  # noqa: RUF012
    warnings: list[str] = []  # noqa: RUF012
    show: Callable[[], None] | None = None


def publish(
    found: Found, task: EvaluationData, config: EvaluateConfig, model: ModelConfig, folder: Path, home: Path | None
) -> dict[str, Any]:
    """Write every file as `write_results` does, and print the table; returns the content of metrics.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    metrics = {**found.figures, **task.about}
    settings = judged_settings(config, task, model)
    report = report_of(task, found.size, found.sections, settings, home, found.warnings)
    write_files(folder, metrics, report, {}, found.write_csv)
    if found.show is None:
        show_table(task, found.columns, found.rows, folder)
    else:
        found.show()
    return metrics


def report_of(
    task: EvaluationData,
    size: str,
    sections: Sections,
    settings: dict[str, Any],
    home: Path | None,
    warnings: Sequence[str] = (),
) -> Report:
    """The page of an evaluation; `size` says how much was judged, `warnings` what the figures cannot say."""
    return Report(
        title=task.title,
        subtitle=f"{task.rows.source}, {size}",
        sections=sections,
        curves=read_curves(home / "metrics.csv") if home else [],
        notes=task.notes,
        config=settings,
        warnings=[*warnings],
    )


def write_files(
    folder: Path,
    metrics: dict[str, Any],
    report: Report,
    pictures: dict[str, bytes],
    write_csv: Callable[[Path], None],
) -> None:
    """Write metrics.json, predictions.csv, report.html and pictures, each whole or not at all.

    Raises:
        ValueError: the folder cannot be written to.
    """
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, png in (pictures | draw_curves(report.curves)).items():
            with replace_file(folder / f"{name}.png") as part:
                part.write_bytes(png)
        write_csv(folder / "predictions.csv")
        write_report(folder / "report.html", report)
        with replace_file(folder / "metrics.json") as part:
            part.write_text(json.dumps(metrics, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def as_metrics(results: Results) -> dict[str, Any]:
    """The content of metrics.json: figures of the model at the top level, each as value, low, high; those of its
    members and of cheap models by their names."""
    members, baselines = results.members.scores, results.members.baselines
    models = {
        "members": {name: headline(one) for name, one in members.items()},
        "baselines": baseline_figures(baselines),
        "leads": leads(baselines),
    }
    plain = {key: plain_figures(of_key) for key, of_key in models.items()}
    return {**asdict(results.scores), **results.task.about, **plain, "warnings": results.warnings}


def plain_figures(models: dict[str, dict[str, Interval]]) -> dict[str, dict[str, Any]]:
    """Figures by model as JSON has them."""
    return {name: {key: asdict(one) for key, one in figures.items()} for name, figures in models.items()}


def show_results(results: Results, folder: Path) -> None:
    """Print the figures of all models with their intervals, what they cannot say, and where the files are."""
    show_models(
        results.task,
        {name: headline(one) for name, one in results.members.scores.items()},
        baseline_figures(results.members.baselines),
        leads(results.members.baselines),
        [*(f"warning: {one}" for one in results.warnings), *([results.linear] if results.linear else [])],
        folder,
    )


def show_models(
    task: EvaluationData,
    models: dict[str, dict[str, Interval]],
    baselines: dict[str, dict[str, Interval]],
    ahead: dict[str, dict[str, Interval]],
    notes: Sequence[str],
    folder: Path,
) -> None:
    """Print the figures of models and cheap models, the lead over the strongest of these, `notes`, and where the files
    are."""
    block = f"{task.name}, {task.split}: {len(task.rows):,} rows"
    show_figures(console(), {block: beside(models, baselines)}, list(next(iter(models.values()))), "metrics.json")
    for line in [*(f"lead: {one}" for one in lead_line(ahead, baselines, task.split).values()), *notes]:
        console().print(as_text(line), soft_wrap=True)
    show_files(folder, ["metrics.json", "predictions.csv", "report.html"])


def interval_cells(figure: Interval) -> list[str]:
    """A figure and its interval."""
    return [f"{figure.value:.4f}", f"{figure.low:.4f} to {figure.high:.4f}"]


def show_table(task: EvaluationData, columns: list[str], rows: list[list[str]], folder: Path) -> None:
    """Print rows of figures, named in front, and where the files are."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = f"{task.name}, {task.split}: {len(task.rows):,} rows"
    table = Table(title=as_text(title), title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    for at, name in enumerate(columns):
        table.add_column(as_text(name), justify="right", no_wrap=at < 2)
    for row in rows:
        table.add_row(*map(as_text, row))
    console().print(table)
    show_files(folder, ["metrics.json", "predictions.csv", "report.html"])


def evaluate_labels(
    task: EvaluationData, deliverable: TextClassifier, config: EvaluateConfig, folder: Path, home: Path | None
) -> dict[str, Any]:
    """Judge the rows of `task`; write metrics.json, predictions.csv, pictures and report.html into `folder`.

    Returns:
        The content of metrics.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    baseline, names = deliverable.baseline(home), ("micro_f1", "macro_f1")
    frequent = most_frequent(rows_of_class(task.splits.train, len(deliverable.labels))) if task.splits else None
    if task.most_frequent:
        frequent = deliverable.labels.index(task.most_frequent)
    asked: dict[str, Any] = {"tokens": config.batch.tokens, "n_resamples": config.bootstrap, "seed": config.seed}
    with progress_bar(len(task.rows)) as progress:
        found = judge_label_members(deliverable, task.rows, baseline, frequent, progress=progress, **asked)
    scores = next(iter(found.scores.values()))
    said, warnings = said_of(deliverable, baseline), warnings_of(task, deliverable)
    members = {name: label_headline(one) for name, one in found.scores.items()}
    others, ahead = baseline_figures(found.baselines, names), leads(found.baselines, names)
    beside = {"members": members, "baselines": others, "leads": ahead}
    judged = Found(
        figures={
            **asdict(scores),
            **{key: plain_figures(models) for key, models in beside.items()},
            "warnings": warnings,
        },
        size=f"{scores.n_rows:,} rows, {len(scores.labels)} labels",
        sections=label_sections(found.scores, found.answered, found.baselines, said),
        write_csv=lambda path: write_labels_csv(path, found.answered),
        warnings=warnings,
        show=lambda: show_models(
            task, members, others, ahead, [*(f"warning: {one}" for one in warnings), *([said] if said else [])], folder
        ),
    )
    return publish(judged, task, config, deliverable.model, folder, home)
