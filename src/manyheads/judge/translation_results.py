"""What an evaluation found of a model that answers by texts: judged, written to a folder, shown on the screen."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.config.plain import to_plain
from manyheads.judge.results import Found, interval_cells, publish
from manyheads.judge.task import Task
from manyheads.judge.translation_report import translation_sections
from manyheads.judge.translations import judge_texts, score_texts, text_baselines, write_translations_csv
from manyheads.ship.translator import Translator
from manyheads.terminal import progress_bar


def evaluate_texts(
    task: Task, translator: Translator, config: EvaluateConfig, folder: Path, home: Path | None
) -> dict[str, Any]:
    """Judge the rows of `task`; write metrics.json, predictions.csv, pictures and report.html into `folder`.

    Returns:
        The content of metrics.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    with progress_bar(len(task.rows)) as progress:
        found = judge_texts(translator, task.rows, config.generate, tokens=config.batch.tokens, progress=progress)
    draws: dict[str, Any] = {"n_resamples": config.bootstrap, "seed": config.seed}
    scores = score_texts(found, **draws)
    baselines = text_baselines(task.splits.train if task.splits else None, task.rows)
    shown = {name: {"exact_match": asdict(figure)} for name, figure in baselines.items()}
    figures = scores.by_name() | {f"exact match of {name}": figure for name, figure in baselines.items()}
    judged = Found(
        figures={**asdict(scores), "generate": to_plain(config.generate), "baselines": shown},
        size=f"{scores.n_rows:,} rows",
        sections=translation_sections(scores, found, baselines),
        write_csv=lambda path: write_translations_csv(path, found),
        columns=["value", "95 % interval"],
        rows=[[name.replace("_", " "), *interval_cells(figure)] for name, figure in figures.items()],
    )
    return publish(judged, task, config, translator.model, folder, home)
