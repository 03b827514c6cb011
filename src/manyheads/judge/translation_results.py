"""What is left of judging a model that answers by texts: after training, and after `evaluate`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig, GenerateConfig
from manyheads.config.plain import to_plain
from manyheads.data.rows import Splits
from manyheads.judge.curves import read_curves
from manyheads.judge.pictures import draw_curves
from manyheads.judge.report import installed_versions
from manyheads.judge.results import progress_bar, refuse_unwritable
from manyheads.judge.scores import Interval
from manyheads.judge.summary import Summary, facts
from manyheads.judge.task import Task
from manyheads.judge.translation_report import TranslationPage, write_translation_report
from manyheads.judge.translations import (
    Translations,
    TranslationScores,
    judge_texts,
    score_texts,
    text_baselines,
    write_translations_csv,
)
from manyheads.ship.translator import Translator
from manyheads.terminal import as_text, console
from manyheads.whole import replace_file


def judge_texts_run(
    splits: Splits, translator: Translator, training: dict[str, Any], config: dict[str, Any], folder: Path
) -> Summary:
    """What `verdict.judge_run` does, of a model that answers by texts, greedily."""
    named = {name: rows for name, rows in splits.by_name().items() if name != "train"}
    found = {name: judge_texts(translator, rows, GenerateConfig()) for name, rows in named.items()}
    scores = {name: score_texts(one) for name, one in found.items()}
    judged_on = "test" if "test" in scores else "validation"
    rows = named[judged_on]
    baselines = text_baselines(splits.train, rows)
    summary = Summary(
        output=str(folder),
        rows={name: len(one) for name, one in splits.by_name().items()},
        validation=scores["validation"].by_name(),
        test=scores["test"].by_name() if "test" in scores else {},
        judged_on=judged_on,
        baselines={name: {"exact_match": figure} for name, figure in baselines.items()},
        versions=installed_versions(),
        **training,
    )
    content = TranslationPage(
        title="A model that answers texts by texts, and what it is worth",
        subtitle=f"{rows.source}, {judged_on} split, {len(rows):,} rows",
        scores=scores[judged_on],
        translations=found[judged_on],
        baselines=baselines,
        curves=read_curves(folder / "metrics.csv"),
        facts=facts(summary),
        notes=splits.notes,
        config=config,
        versions=summary.versions,
    )
    write_translation_report(folder / "report.html", content)
    summary.write(folder / "summary.json")
    return summary


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
    baselines = text_baselines(task.splits.train if task.splits else None, task.rows, **draws)
    about = {"data": task.name, "split": task.split, "source": task.rows.source, "generate": to_plain(config.generate)}
    shown = {name: {"exact_match": asdict(figure)} for name, figure in baselines.items()}
    metrics = {**asdict(scores), **about, "baselines": shown}
    judged_as = {"model": to_plain(translator.model)} if task.run is None else {"run": to_plain(task.run)}
    content = TranslationPage(
        title=f"{task.name}: {'all rows' if task.split == 'all' else f'{task.split} split'}",
        subtitle=f"{task.rows.source}, {scores.n_rows:,} rows",
        scores=scores,
        translations=found,
        baselines=baselines,
        curves=read_curves(home / "metrics.csv") if home else [],
        notes=task.splits.notes if task.splits else [],
        config={"evaluate": to_plain(config), **judged_as},
        versions=installed_versions(),
    )
    with refuse_unwritable(folder):
        _write(folder, content, found, metrics)
    _show(task, scores, baselines, folder)
    return metrics


def _write(folder: Path, content: TranslationPage, found: Translations, metrics: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, png in draw_curves(content.curves).items():
        with replace_file(folder / f"{name}.png") as part:
            part.write_bytes(png)
    write_translations_csv(folder / "predictions.csv", found)
    write_translation_report(folder / "report.html", content)
    with replace_file(folder / "metrics.json") as part:
        part.write_text(json.dumps(metrics, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _show(task: Task, scores: TranslationScores, baselines: dict[str, Interval], folder: Path) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = f"{task.name}, {task.split}: {scores.n_rows:,} rows"
    table = Table(title=as_text(title), title_justify="left", box=SIMPLE_HEAD)
    for name in ("", "value", "95 % interval"):
        table.add_column(name, justify="right" if name else "left", no_wrap=bool(name))
    rows = scores.by_name() | {f"exact match of {name}": figure for name, figure in baselines.items()}
    for name, figure in rows.items():
        between = f"{figure.low:.4f} to {figure.high:.4f}"
        table.add_row(as_text(name.replace("_", " ")), f"{figure.value:.4f}", between)
    screen = console()
    screen.print(table)
    for name in ("metrics.json", "predictions.csv", "report.html"):
        screen.print(as_text(folder / name), soft_wrap=True)
