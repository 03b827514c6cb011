"""What an evaluation found of a model that gives any number of labels: judged, written to a folder, shown."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.judge.label_answers import judge_labels, scores_of, write_labels_csv
from manyheads.judge.label_baselines import label_baselines
from manyheads.judge.label_report import WORDS, label_sections
from manyheads.judge.results import Found, interval_cells, publish
from manyheads.judge.task import Task
from manyheads.ship.deliverable import Deliverable
from manyheads.terminal import progress_bar


def evaluate_labels(
    task: Task, deliverable: Deliverable, config: EvaluateConfig, folder: Path, home: Path | None
) -> dict[str, Any]:
    """Judge the rows of `task`; write metrics.json, predictions.csv, pictures and report.html into `folder`.

    Returns:
        The content of metrics.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    with progress_bar(len(task.rows)) as progress:
        found = judge_labels(deliverable, task.rows, tokens=config.batch.tokens, progress=progress)
    draws: dict[str, Any] = {"n_resamples": config.bootstrap, "seed": config.seed}
    scores = scores_of(found, **draws)
    train = task.splits.train if task.splits else None
    baselines = label_baselines(train, found, deliverable.baseline(home), **draws)
    two = {one.name: {name: getattr(one.scores, name) for name in ("micro_f1", "macro_f1")} for one in baselines}
    of_baselines = {name: {key: asdict(figure) for key, figure in of.items()} for name, of in two.items()}
    rows = [
        [words, *interval_cells(getattr(scores, name)), *(cell(of.get(name)) for of in two.values())]
        for name, words in WORDS.items()
    ]
    tuned_here = task.splits is not None and task.split == "validation"
    judged = Found(
        figures={**asdict(scores), "baselines": of_baselines},
        size=f"{scores.n_rows:,} rows, {len(scores.labels)} labels",
        sections=label_sections(scores, found, baselines, tuned_here=tuned_here),
        write_csv=lambda path: write_labels_csv(path, found),
        columns=["model", "95 % interval", *two],
        rows=rows,
    )
    return publish(judged, task, config, deliverable.model, folder, home)


def cell(figure: Any) -> str:
    """A figure to four digits, if there is one."""
    return "" if figure is None else f"{figure.value:.4f}"
