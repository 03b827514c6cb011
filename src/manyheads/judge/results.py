"""What an evaluation found: judged, written to a folder, shown on the screen."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.config import EvaluateConfig, ModelConfig
from manyheads.config.plain import to_plain
from manyheads.judge.baselines import Baseline, judge_baselines
from manyheads.judge.class_report import class_sections
from manyheads.judge.curves import read_curves
from manyheads.judge.pictures import draw_confusion, draw_curves, draw_reliability
from manyheads.judge.predictions import Predictions, judge_rows, worst_mistakes, write_predictions_csv
from manyheads.judge.report import Report, Sections, write_report
from manyheads.judge.scores import Interval, Scores, score
from manyheads.judge.sections import FIGURES
from manyheads.judge.summary import leads
from manyheads.judge.task import Task
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.linear import LinearBaseline
from manyheads.terminal import as_text, console, progress_bar, show_files
from manyheads.whole import refuse_unwritable, replace_file


@dataclass(slots=True)
class Results:
    """One split, judged."""

    task: Task
    predictions: Predictions
    scores: Scores
    baselines: list[Baseline]
    settings: dict[str, Any]


def judge_task(
    task: Task, deliverable: Deliverable, config: EvaluateConfig, baseline: LinearBaseline | None = None
) -> Results:
    """Answer every row and judge the answers, beside what cheap models make of the same rows: the most frequent class,
    of the training rows where they are known, and the `baseline` fitted in training."""
    with progress_bar(len(task.rows)) as progress:
        predictions = judge_rows(deliverable, task.rows, tokens=config.batch.tokens, progress=progress)
    names, seed, n = predictions.names, config.seed, config.bootstrap
    scores = score(task.rows.labels, predictions.probabilities_nC.numpy(), names, n_resamples=n, seed=seed)
    train = task.splits.train if task.splits else task.rows
    baselines = judge_baselines(train, task.rows, len(names), predictions.answers, baseline, n_resamples=n, seed=seed)
    return Results(task, predictions, scores, baselines, judged_settings(config, task, deliverable.model))


def judged_settings(config: EvaluateConfig, task: Task, model: ModelConfig) -> dict[str, Any]:
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
    sections = class_sections(scores, results.baselines, worst_mistakes(results.predictions))
    size = f"{scores.n_rows:,} rows, {len(scores.labels)} classes"
    report = report_of(task, size, sections, results.settings, home)
    pictures = {"confusion": draw_confusion(scores), "reliability": draw_reliability(scores)}
    write_files(folder, metrics, report, pictures, lambda path: write_predictions_csv(path, results.predictions))
    return metrics


class Found(NamedTuple):
    """What was found of another model than one that tells classes: the figures of metrics.json, how many rows there
    were, what report.html says, how predictions.csv is written, and the rows of a table under `columns`."""

    figures: dict[str, Any]
    size: str
    sections: Sections
    write_csv: Callable[[Path], None]
    columns: list[str]
    rows: list[list[str]]


def publish(
    found: Found, task: Task, config: EvaluateConfig, model: ModelConfig, folder: Path, home: Path | None
) -> dict[str, Any]:
    """Write every file as `write_results` does, and print the table; returns the content of metrics.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    metrics = {**found.figures, **task.about}
    report = report_of(task, found.size, found.sections, judged_settings(config, task, model), home)
    write_files(folder, metrics, report, {}, found.write_csv)
    show_table(task, found.columns, found.rows, folder)
    return metrics


def report_of(task: Task, size: str, sections: Sections, settings: dict[str, Any], home: Path | None) -> Report:
    """The page of an evaluation; `size` says how much was judged."""
    return Report(
        title=task.title,
        subtitle=f"{task.rows.source}, {size}",
        sections=sections,
        curves=read_curves(home / "metrics.csv") if home else [],
        notes=task.notes,
        config=settings,
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
    """The content of metrics.json: figures at the top level, each as value, low, high."""
    baselines = {
        one.name: {"accuracy": asdict(one.scores.accuracy), "macro_f1": asdict(one.scores.macro_f1)}
        for one in results.baselines
    }
    ahead = {name: {key: asdict(one) for key, one in lead.items()} for name, lead in leads(results.baselines).items()}
    return {**asdict(results.scores), **results.task.about, "baselines": baselines, "leads": ahead}


def show_results(results: Results, folder: Path) -> None:
    """Print the figures with their intervals, the cheap models beside them, and where the files are."""
    rows = []
    for name, words in FIGURES.items():
        others = [getattr(one.scores, name, None) for one in results.baselines]
        cells = ["" if other is None else f"{other.value:.4f}" for other in others]
        rows.append([words, *interval_cells(getattr(results.scores, name)), *cells])
    show_table(results.task, ["model", "95 % interval", *(one.name for one in results.baselines)], rows, folder)


def interval_cells(figure: Interval) -> list[str]:
    """A figure and its interval."""
    return [f"{figure.value:.4f}", f"{figure.low:.4f} to {figure.high:.4f}"]


def show_table(task: Task, columns: list[str], rows: list[list[str]], folder: Path) -> None:
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
