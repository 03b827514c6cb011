"""Cross-validation: all rows, each answered by the model that did not learn from it, and the figures of the folds.

n rows . m rows of a fold . C classes or labels
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyheads.config import EvaluateConfig, Resume, RunConfig
from manyheads.config.data import data_name
from manyheads.config.figures import limits_of
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
from manyheads.runs.summary import (
    BOTH,
    LINEAR,
    NETWORK,
    Figures,
    Interval,
    Summary,
    figures_to_plain,
    read_summary,
    words_of,
)
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
COLUMNS_ON_SCREEN = 4


def judge_folds(run: RunConfig, splits: Splits, folder: Path, parts: list[Path]) -> dict[str, Any]:
    """Write metrics.json, predictions.csv or .parquet and report.html of all rows, each answered by the model of its
    fold.

    Args:
        parts: the folders of the finished runs, one for each fold.

    Returns:
        The content of metrics.json.
    """
    rows, data = splits.train, run.data
    seed = run.seed if data.split_seed is None else data.split_seed
    classifier, stored = all_answers(splits, assign_folds(rows, data.folds, seed), parts)
    evaluation = evaluate_classifier(classifier, rows, Setup(), stored)
    summaries = []
    for part in parts:
        summary = read_summary(part / "summary.json")
        if summary is not None:
            summaries.append(summary)
    finding = over_folds(summaries, list(stored.models), multi=splits.multi)
    (section,) = finding.sections
    evaluation.comparison = [*evaluation.comparison, section]
    evaluation.findings.insert(0, replace(finding, sections=[]))
    own = replace(run, output=str(folder), resume=Resume.never)  # the same for a command that resumes
    judged = EvaluationData(rows, data_name(data), "all", run=own)
    config = EvaluateConfig(run=str(folder), predictions=run.predictions)
    metrics = write_evaluation(folder, evaluation, judged, config, classifier, None)
    assert section.table is not None
    print_sheet(_sheet(section.title, section.table, n_folds=len(summaries)))
    return metrics


def _sheet(title: str, table: ReportTable, n_folds: int) -> Sheet:
    """The first columns of the table for the screen: figures of folds without their intervals."""
    lines = []
    for at, row in enumerate(table.rows):
        line = []
        for cell in row[:COLUMNS_ON_SCREEN]:
            if isinstance(cell, Interval) and at < n_folds:
                line.append(f"{cell.value:.4f}")
            elif isinstance(cell, Interval):
                line.append(cell.words)
            else:
                line.append(cell)
        lines.append(line)
    more = f"Also in metrics.json: {', '.join(table.columns[COLUMNS_ON_SCREEN:])}."
    return Sheet(title, list(table.columns[:COLUMNS_ON_SCREEN]), lines, [NOTE, more])


def all_answers(splits: Splits, fold_n: np.ndarray, parts: list[Path]) -> tuple[TextClassifier, LogitStore]:
    """The classifier of the last fold, and the answers to all rows in their order, each by the models of its fold.

    Args:
        fold_n: the fold of each row, from 1.
    """
    rows, names = splits.train, splits.labels
    logits = dict[str, np.ndarray]()  # of all rows, by model
    thresholds: list[dict[str, list[float] | None]] = []  # of each fold, by model
    classifier = None
    with progress_bar(len(rows)) as progress:
        for fold, part in enumerate(parts, start=1):
            classifier = load(part / "model", TextClassifier)
            assert classifier.labels == names, "all folds have the classes of all rows"
            setup = Setup(baseline=baseline_of(classifier, part), progress=progress)
            at_m = np.flatnonzero(fold_n == fold)
            stored = answer_rows(classifier, rows.pick(at_m), setup)
            # in a fold without a linear model in its answers, the network answers for both
            of_fold = {BOTH: stored.logits[NETWORK], **stored.logits}
            for name, logits_mC in of_fold.items():
                if name not in logits:
                    logits[name] = new_array((len(rows), len(names)))
                logits[name][at_m] = logits_mC
            thresholds.append(stored.models)
    assert classifier is not None, "there are two folds at least"

    answering = []  # models that answered in every fold, and both if it answered in any
    for name in (BOTH, NETWORK, LINEAR):
        answers = [name in of_fold for of_fold in thresholds]
        if all(answers) or (name == BOTH and any(answers)):
            answering.append(name)
    models: dict[str, list[float] | None] = dict.fromkeys(answering)
    by_fold = dict[str, torch.Tensor]()
    if splits.multi:
        for name in answering:
            each = [of_fold.get(name) or of_fold[NETWORK] for of_fold in thresholds]
            by_fold[name] = torch.tensor(each, dtype=torch.float64)
            models[name] = by_fold[name].mean(0).tolist()
    logits = {name: logits[name] for name in answering}
    kept = classifier.settings.kept
    return classifier, LogitStore(rows, names, models, logits, of_model_n=fold_n - 1, by_model=by_fold, kept=kept)


def over_folds(summaries: list[Summary], models: list[str], *, multi: bool) -> Finding:
    """The figures of each fold, and their means.

    Args:
        models: the one that answers, then the members alone.
    """
    own, *members = models
    names = list(summaries[0].test)
    n_rows = sum(one.rows["test"] for one in summaries)
    test_per_train = []
    by_fold: list[dict[str, Figures]] = []
    for one in summaries:
        n_learnt = one.rows["train"]
        if n_learnt + one.rows["validation"] == n_rows - one.rows["test"]:
            # validation was carved out of what the fold learnt from; else it is these rows or a split of its own, or
            # data.train_share left rows out
            n_learnt += one.rows["validation"]
        test_per_train.append(one.rows["test"] / n_learnt)
        by_fold.append({own: one.test} | {name: one.members["test"].get(name, one.test) for name in members})
    ratio = float(np.mean(test_per_train))
    means: dict[str, Figures] = {}
    for model in models:
        means[model] = {}
        for name in names:
            values = [of_fold[model][name] for of_fold in by_fold]
            means[model][name] = fold_interval(values, ratio, limits=limits_of(name))

    lines: list[list[Any]] = []
    for fold, one in enumerate(summaries, start=1):
        lines.append([f"fold {fold}", f"{one.rows['test']:,}", *(one.test[name] for name in names)])
    for model, figures in means.items():
        lines.append([f"mean, {model}", "", *figures.values()])
    table = ReportTable(["", "rows", *map(words_of, names)], lines, "wn" + "i" * len(names), own=len(summaries))
    notes = [NOTE, OF_LABELS] if multi else [NOTE]
    section = ReportSection("Fold by fold", table, notes, long=True)

    each = []
    for one, of_fold in zip(summaries, by_fold, strict=True):
        plain = {model: figures_to_plain(of_fold[model]) for model in models}
        each.append({"rows": one.rows["test"], **plain})
    mean = {model: figures_to_plain(figures) for model, figures in means.items()}
    content = {"n_folds": len(summaries), "mean": mean, "each": each}
    line = f"mean {words_of(names[0])} over {len(summaries)} folds: {means[own][names[0]].words}"
    return Finding("folds", content, [section], [line])
