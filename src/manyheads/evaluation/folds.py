"""Cross-validation: all rows, each answered by the model that did not learn from it, and the figures of the folds.

n rows . C classes or labels . F folds
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyheads.config import EvaluateConfig, Resume, RunConfig
from manyheads.config.data import data_name
from manyheads.config.figures import is_share
from manyheads.data.rows import Splits
from manyheads.data.splits import assign_folds
from manyheads.evaluation.answered import LogitStore, answer_rows
from manyheads.evaluation.classification import evaluate_classifier
from manyheads.evaluation.evaluation import Finding, Setup
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.evaluation.intervals import fold_interval
from manyheads.evaluation.logits import new_array
from manyheads.evaluation.report import ReportSection, ReportTable
from manyheads.evaluation.results import baseline_of, write_evaluation
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.runs.summary import BOTH, LINEAR, NETWORK, Figures, Summary, figures_to_plain, read_summary, words_of
from manyheads.terminal import Sheet, print_sheet, progress_bar

NOTE = (
    "Each fold is judged by a model of the others. The last lines are means over the folds with 95 % intervals by the "
    "variance of Nadeau and Bengio (2003), as the models share most of their rows, and no narrower than their rows "
    "alone leave them; the figures above are of all rows."
)
OF_LABELS = (
    "Thresholds differ from fold to fold: each row has the labels that its own model gives it, and what is shown of a "
    "label is the mean of its thresholds."
)
SHOWN = 4  # columns on the screen


def judge_folds(run: RunConfig, splits: Splits, folder: Path, parts: list[Path]) -> dict[str, Any]:
    """Write metrics.json, predictions.csv or .parquet and report.html of all rows, by the finished runs `parts`, one
    for each fold; returns the content of metrics.json."""
    rows, data = splits.train, run.data
    seed = run.seed if data.split_seed is None else data.split_seed
    classifier, stored = all_answers(splits, assign_folds(rows, data.folds, seed), parts)
    evaluation = evaluate_classifier(classifier, rows, Setup(), stored)
    summaries = [one for part in parts if (one := read_summary(part / "summary.json"))]
    found = over_folds(summaries, list(stored.models), multi=splits.multi)
    evaluation.comparison = [*evaluation.comparison, *found.sections]
    evaluation.findings.insert(0, replace(found, sections=[]))
    own = replace(run, output=str(folder), resume=Resume.never)  # which a command that resumes has as well
    judged = EvaluationData(rows, data_name(data), "all", run=own)
    asked = EvaluateConfig(run=str(folder), predictions=run.predictions)
    metrics = write_evaluation(folder, evaluation, judged, asked, classifier, None)
    table = found.sections[0].table
    assert table is not None
    lines = [
        [
            one if isinstance(one, str) else one.words if at >= len(summaries) else f"{one.value:.4f}"
            for one in row[:SHOWN]
        ]
        for at, row in enumerate(table.rows)
    ]
    also = f"Also in metrics.json: {', '.join(table.columns[SHOWN:])}."
    print_sheet(Sheet(found.sections[0].title, [*table.columns[:SHOWN]], lines, [NOTE, also]))
    return metrics


def all_answers(splits: Splits, fold_n: np.ndarray, parts: list[Path]) -> tuple[TextClassifier, LogitStore]:
    """The classifier of the last fold, and the answers to all rows in their order, each by those of its own."""
    rows, names = splits.train, splits.labels
    places = [np.flatnonzero(fold_n == at) for at in range(1, len(parts) + 1)]
    models: list[dict[str, list[float] | None]] = []  # of each fold, with their thresholds
    held = dict[str, np.ndarray]()
    classifier = None
    with progress_bar(len(rows)) as progress:
        for part, at_n in zip(parts, places, strict=True):
            classifier = load(part / "model", TextClassifier)
            assert classifier.labels == names, "all folds have the classes of all rows"
            setup = Setup(baseline=baseline_of(classifier, part), progress=progress)
            stored = answer_rows(classifier, rows.pick(at_n), setup)
            of_fold = {BOTH: stored.logits[NETWORK], **stored.logits}  # the linear model may not answer in a fold
            for name, logits_nC in of_fold.items():
                if name not in held:
                    held[name] = new_array((len(rows), len(names)))
                held[name][at_n] = logits_nC
            models.append(stored.models)
    assert classifier is not None, "there are two folds at least"
    kept = []
    for name in (BOTH, NETWORK, LINEAR):
        has_it = [name in of_fold for of_fold in models]
        if all(has_it) or (name == BOTH and any(has_it)):
            kept.append(name)
    every, by_fold = dict.fromkeys(kept), dict[str, torch.Tensor]()
    for name in kept if splits.multi else ():
        by_fold[name] = torch.tensor([of_fold.get(name) or of_fold[NETWORK] for of_fold in models], dtype=torch.float64)
        every[name] = by_fold[name].mean(0).tolist()
    logits = {name: held[name] for name in kept}
    return classifier, LogitStore(rows, names, every, logits, of_model_n=fold_n - 1, by_model=by_fold)


def over_folds(summaries: list[Summary], models: list[str], *, multi: bool) -> Finding:
    """The figures of every fold, and their means; `models` are who answers, and the members alone."""
    names = list(summaries[0].test)
    n_rows, ratios = sum(one.rows["test"] for one in summaries), list[float]()
    for one in summaries:
        n_train, n_both = one.rows["train"], one.rows["train"] + one.rows["validation"]
        is_carved = n_both <= n_rows - one.rows["test"]  # else validation is the training rows, or a split of its own
        ratios.append(one.rows["test"] / (n_both if is_carved else n_train))
    ratio = float(np.mean(ratios))
    each = [
        {models[0]: one.test} | {name: one.members["test"].get(name, one.test) for name in models[1:]}
        for one in summaries
    ]
    means: dict[str, Figures] = {
        model: {name: fold_interval([of[model][name] for of in each], ratio, share=is_share(name)) for name in names}
        for model in models
    }
    lines = [
        [f"fold {at}", f"{one.rows['test']:,}", *map(one.test.__getitem__, names)]
        for at, one in enumerate(summaries, start=1)
    ]
    lines += [[f"mean, {model}", "", *of.values()] for model, of in means.items()]
    table = ReportTable(["", "rows", *map(words_of, names)], lines, "wn" + "i" * len(names), own=len(summaries))
    content = {
        "n_folds": len(summaries),
        "mean": {model: figures_to_plain(of) for model, of in means.items()},
        "each": [
            {"rows": one.rows["test"], **{model: figures_to_plain(of[model]) for model in models}}
            for one, of in zip(summaries, each, strict=True)
        ],
    }
    said = f"mean {words_of(names[0])} over {len(summaries)} folds: {means[models[0]][names[0]].words}"
    section = ReportSection("Fold by fold", table, [NOTE, *([OF_LABELS] if multi else [])], long=True)
    return Finding("folds", content, [section], [said])
