"""What an evaluation found of a model that gives any number of labels: judged, written to a folder, shown."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.judge.label_answers import write_labels_csv
from manyheads.judge.label_baselines import most_frequent
from manyheads.judge.label_report import label_sections
from manyheads.judge.members import judge_label_members, said_of
from manyheads.judge.results import Found, plain_figures, publish, show_models, warnings_of
from manyheads.judge.summary import baseline_figures, label_headline, leads
from manyheads.judge.task import Task
from manyheads.judge.warn import rows_of_class
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
