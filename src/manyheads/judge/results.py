"""What an evaluation found: judged, written to a folder, shown on the screen."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.config.plain import to_plain
from manyheads.judge.baselines import MAJORITY, Baseline, judge_baselines, majority_baseline
from manyheads.judge.curves import Curve, read_curves
from manyheads.judge.pictures import draw_confusion, draw_curves, draw_reliability
from manyheads.judge.predictions import Predictions, judge_rows, worst_mistakes, write_predictions_csv
from manyheads.judge.report import ReportContent, installed_versions, write_report
from manyheads.judge.scores import Interval, Scores, score, score_answers
from manyheads.judge.sections import FIGURES
from manyheads.judge.task import Task
from manyheads.ship.deliverable import Deliverable
from manyheads.terminal import as_text, console
from manyheads.whole import replace_file


@dataclass(slots=True)
class Results:
    """One split, judged."""

    task: Task
    predictions: Predictions
    scores: Scores
    baselines: list[Baseline]
    settings: dict[str, Any]


def judge_task(task: Task, deliverable: Deliverable, config: EvaluateConfig) -> Results:
    """Answer every row and judge the answers, beside what cheap models make of the same rows."""
    predictions = _answer(deliverable, task, config.batch.tokens)
    names, seed, n = predictions.names, config.seed, config.bootstrap
    scores = score(predictions.labels, predictions.probabilities_nC.numpy(), names, n_resamples=n, seed=seed)
    if task.splits is None:  # nothing to fit a baseline on: the most frequent class of these rows themselves
        answers = majority_baseline(task.rows, task.rows)
        judged = score_answers(task.rows.labels, answers, len(names), n_resamples=n, seed=seed)
        baselines = [Baseline(MAJORITY, judged, 0.0)]
    else:
        baselines = judge_baselines(task.splits.train, task.rows, len(names), n_resamples=n, seed=seed)
    judged_as = {"model": to_plain(deliverable.model)} if task.run is None else {"run": to_plain(task.run)}
    settings = {"evaluate": to_plain(config), **judged_as}
    return Results(task, predictions, scores, baselines, settings)


def write_results(folder: Path, results: Results, home: Path | None) -> dict[str, Any]:
    """Write every file, each whole or not at all; `home` is the run folder, whose learning curves are shown.

    Raises:
        ValueError: the folder cannot be written to.
    """
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        metrics = as_metrics(results)
        pictures = {"confusion": draw_confusion(results.scores), "reliability": draw_reliability(results.scores)}
        curves = read_curves(home / "metrics.csv") if home else []
        for name, png in (pictures | draw_curves(curves)).items():
            with replace_file(folder / f"{name}.png") as part:
                part.write_bytes(png)
        write_predictions_csv(folder / "predictions.csv", results.predictions)
        write_report(folder / "report.html", _page(results, curves))
        with replace_file(folder / "metrics.json") as part:
            part.write_text(json.dumps(metrics, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return metrics


@contextmanager
def refuse_unwritable(folder: Path) -> Iterator[None]:
    """Turn what the disk refuses into one sentence."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to ({error.strerror}): name another folder by output=<folder>"
        ) from error


def as_metrics(results: Results) -> dict[str, Any]:
    """The content of metrics.json: figures at the top level, each as value, low, high."""
    baselines = {
        one.name: {"accuracy": asdict(one.scores.accuracy), "macro_f1": asdict(one.scores.macro_f1)}
        for one in results.baselines
    }
    about = {"data": results.task.name, "split": results.task.split, "source": results.task.rows.source}
    return {**results.scores.as_json(), **about, "baselines": baselines}


def show_results(results: Results, folder: Path) -> None:
    """Print the figures with their intervals, the cheap models beside them, and where the files are."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    scores = results.scores
    title = f"{results.task.name}, {results.task.split}: {scores.n_rows:,} rows"
    table = Table(title=as_text(title), title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for name in ("model", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in results.baselines:
        table.add_column(as_text(one.name), justify="right")
    for name, words in FIGURES.items():
        figure: Interval = getattr(scores, name)
        others = [getattr(one.scores, name, None) for one in results.baselines]
        table.add_row(
            words,
            f"{figure.value:.4f}",
            f"{figure.low:.4f} to {figure.high:.4f}",
            *("" if other is None else f"{other.value:.4f}" for other in others),
        )
    screen = console()
    screen.print(table)
    for name in ("metrics.json", "predictions.csv", "report.html"):
        screen.print(as_text(folder / name), soft_wrap=True)


def _answer(deliverable: Deliverable, task: Task, tokens: int) -> Predictions:
    """All answers, with a bar on a terminal."""
    with progress_bar(len(task.rows)) as progress:
        return judge_rows(deliverable, task.rows, tokens=tokens, progress=progress)


@contextmanager
def progress_bar(n_rows: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, which is told how many more rows are done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        rows = bar.add_task("rows", total=n_rows)
        yield lambda n_done: bar.advance(rows, n_done)


def _page(results: Results, curves: list[Curve]) -> ReportContent:
    task, scores = results.task, results.scores
    return ReportContent(
        title=f"{task.name}: {'all rows' if task.split == 'all' else f'{task.split} split'}",
        subtitle=f"{task.rows.source}, {scores.n_rows:,} rows, {len(scores.labels)} classes",
        scores=scores,
        baselines=results.baselines,
        mistakes=worst_mistakes(results.predictions),
        curves=curves,
        notes=task.splits.notes if task.splits else [],
        config=results.settings,
        versions=installed_versions(),
    )
