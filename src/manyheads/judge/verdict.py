"""The end of a training run: every split judged, cheap models beside it, summary.json and report.html written."""

from pathlib import Path
from typing import Any

from manyheads.data.rows import Rows, Splits
from manyheads.judge.baselines import judge_baselines
from manyheads.judge.curves import read_curves
from manyheads.judge.predictions import Predictions, judge_rows, worst_mistakes
from manyheads.judge.report import ReportContent, installed_versions, write_report
from manyheads.judge.scores import Scores, score
from manyheads.judge.summary import Summary, baseline_figures, facts, headline
from manyheads.judge.translation_results import judge_texts_run
from manyheads.ship.deliverable import Deliverable
from manyheads.ship.translator import Translator


def judge_run(
    splits: Splits,
    deliverable: Deliverable | Translator,
    training: dict[str, Any],
    config: dict[str, Any],
    folder: Path,
) -> Summary:
    """Judge what a run shipped, as it was shipped, and write summary.json and report.html into `folder`.

    Args:
        training: the figures of Summary that only the training loop knows.
        config: the run's settings, for the report.
    """
    if isinstance(deliverable, Translator):
        return judge_texts_run(splits, deliverable, training, config, folder)
    predictions = {name: judge_rows(deliverable, rows) for name, rows in judged_splits(splits).items()}
    scores = {name: score_predictions(one) for name, one in predictions.items()}
    judged_on = "test" if "test" in scores else "validation"
    rows = judged_splits(splits)[judged_on]
    baselines = judge_baselines(splits.train, rows, len(splits.labels))
    summary = Summary(
        output=str(folder),
        rows={"train": len(splits.train), **{name: len(one.labels) for name, one in predictions.items()}},
        validation=headline(scores["validation"]),
        test=headline(scores["test"]) if "test" in scores else {},
        judged_on=judged_on,
        baselines=baseline_figures(baselines),
        versions=installed_versions(),
        **training,
    )
    content = ReportContent(
        title="A text classifier and what it is worth",
        subtitle=f"{rows.source}, {judged_on} split, {len(rows):,} rows, {len(splits.labels)} classes",
        scores=scores[judged_on],
        baselines=baselines,
        mistakes=worst_mistakes(predictions[judged_on]),
        curves=read_curves(folder / "metrics.csv"),
        facts=facts(summary),
        notes=splits.notes,
        config=config,
        versions=summary.versions,
    )
    write_report(folder / "report.html", content)
    summary.write(folder / "summary.json")
    return summary


def judged_splits(splits: Splits) -> dict[str, Rows]:
    return {"validation": splits.validation, **({} if splits.test is None else {"test": splits.test})}


def score_predictions(predictions: Predictions) -> Scores:
    return score(predictions.labels, predictions.probabilities_nC.numpy(), predictions.names)
