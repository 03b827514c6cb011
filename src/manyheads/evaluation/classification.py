"""Evaluation of a text classifier, whose rows have one class each or any number of labels: figures and baselines.
Plugins add what a report says of its mistakes.

n rows
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

import manyheads.plugin as plugin
from manyheads.config.figures import figures_of, figures_of_answers
from manyheads.config.sentences import count_rows
from manyheads.data.rows import Rows, class_counts
from manyheads.evaluation.answered import LogitStore, answer_rows, write_predictions
from manyheads.evaluation.evaluation import Evaluation, Finding, Judged, Setup, compared, figures_section
from manyheads.evaluation.metrics import LabelScore, Outcomes, Scores, change_of_answers, score_answers
from manyheads.evaluation.report import Picture, ReportSection, ReportTable, draw_reliability
from manyheads.inference.classifier import TextClassifier
from manyheads.runs.summary import LINEAR, Figures, lead_words, linear_words, strongest, with_baselines, words_of

MOST_CLASSES = 20  # of a square table
MOST_WORST = 12  # in the table of the worst, if there are more classes
N_TILES = 4  # figures at the top of a report: the first of its tables


class Kind(NamedTuple):
    """What is said of a classifier: of rows with one class each, or with any number of labels."""

    rows: str  # as figures name such rows
    title: str
    most_frequent: str


CLASSES = Kind("classes", "Evaluation of a text classifier", "most frequent class")
LABELS = Kind("labels", "Evaluation of a multi-label text classifier", "most frequent label")


def evaluate_classifier(
    classifier: TextClassifier, rows: Rows, setup: Setup, stored: LogitStore | None = None
) -> Evaluation:
    """Evaluate a classifier and each of its members alone, and compare it with models that need no training of a
    network: the linear model of the run, and the most frequent class or label.

    Args:
        stored: answers to `rows` that are known already.

    Raises:
        UserError: there are no rows, or they are pairs and the model takes single texts, or the other way round.
    """
    kind, n_classes = LABELS if classifier.multi else CLASSES, len(classifier.labels)
    if stored is None:
        stored = answer_rows(classifier, rows, setup)
    own_name, *other_names = stored.models
    table = figures_of(kind.rows, "table")
    own = outcomes_of(stored, own_name)
    scores = own.scores(classifier.labels, stored.models[own_name])

    # the figures of each member, and the answers of the models that it is compared with
    members = {own_name: {figure: scores.figures[figure] for figure in table}}
    baseline_answers = dict[str, np.ndarray]()
    if setup.compare:
        frequent = np.argmax(setup.label_counts or class_counts(setup.train or rows, n_classes))  # of equals the first
        answer = np.arange(n_classes) == frequent if classifier.multi else frequent
        baseline_answers[kind.most_frequent] = np.broadcast_to(answer, own.labels.shape)
    for name in other_names:
        outcomes = outcomes_of(stored, name)
        members[name] = outcomes.figures(table)
        if name == LINEAR and setup.compare:
            baseline_answers[name] = outcomes.answers

    # how far the classifier is ahead of each, by the two main figures of answers
    first, second = [figure for figure in table if figure in figures_of_answers(kind.rows)][:2]
    baselines, leads = {}, {}
    for name, answers in baseline_answers.items():
        figures = score_answers(own.labels, answers, n_classes)
        (lead,) = change_of_answers(own.labels, answers, [own.answers], n_classes)
        baselines[name] = {first: figures[first], second: figures[second]}
        leads[name] = {first: lead[first], second: lead[second]}

    note = ""
    if setup.baseline is not None:
        note = f"{LINEAR.capitalize()}: {linear_words(setup.baseline.linear.terms.value, classifier.share)}."
    models = with_baselines(members, baselines)
    models = {f"{own_name} (this model)": models.pop(own_name), **models}

    judged = Judged(classifier, stored, scores, own, setup.train, members, leads)
    return Evaluation(
        title=kind.title,
        size=f"{count_rows(scores.n_rows)}, {n_classes} {kind.rows}",
        scores=scores.as_json(),
        members=members,
        baselines=baselines,
        leads=leads,
        verdict=verdict(scores, baselines, leads),
        tiles=reported(scores, table[:N_TILES]),
        comparison=compared("Compared with simpler models, on the same rows", models, first, second, note=note),
        note=note,
        advise=lambda training: from_parts("advice", judged, training),
        mistakes=lambda: from_parts("chapter", judged),
        findings=findings(stored, setup, own),
        details=lambda: details(scores),
        write=lambda path: write_predictions(path, stored),
    )


def from_parts(kind: str, *given: Any) -> list[Any]:
    """What the parts of a kind make of what they are given, one after another."""
    found = []
    for name in plugin.names(kind):
        found += plugin.make(kind, name)(*given)
    return found


def outcomes_of(stored: LogitStore, name: str) -> Outcomes:
    """The answers of a model to all rows."""
    chunks = (Outcomes.of(chunk.labels, chunk.answers, chunk.probabilities_nC) for chunk in stored.answers(name))
    return Outcomes.joined(len(stored.rows), chunks)


def findings(stored: LogitStore, setup: Setup, outcomes: Outcomes) -> list[Finding]:
    """What the analyses and rules that the settings ask for find, then the parts of kind `finding`, such as the risk by
    coverage."""
    found = [analyse(stored) for analyse in setup.analyses]
    for rule, marks_n in zip(setup.rules, stored.marks, strict=True):
        if rule.judge is not None:
            found.append(plugin.resolve(rule.judge)(stored, rule.fitted, marks_n))
    for name in plugin.names("finding"):
        further = plugin.make("finding", name)(stored, outcomes)
        if further is not None:
            found.append(further)
    return found


def verdict(scores: Scores, baselines: dict[str, Figures], leads: dict[str, Figures]) -> str:
    """One sentence a hurried reader can repeat; it says so if a cheap model wins."""
    first, figure = next(iter(scores.figures.items()))
    if first == "accuracy":
        digits, where = ".1%", "on the same rows "
        are = "is" if scores.n_rows == 1 else "are"
        said = f"{figure.value:.1%} of {count_rows(scores.n_rows)} {are} answered right"
    else:
        digits, where = ".3f", ""
        said = f"micro F1 is {figure.value:.3f} on {count_rows(scores.n_rows)}"
    said = f"{said} (95 % interval {figure.low:{digits}} to {figure.high:{digits}})"
    rival = strongest(baselines, first)
    if not rival:
        return f"{said}."
    return f"{said}; {where}the model {lead_words(leads[rival][first], rival)}."


def reported(scores: Scores, names: Iterable[str] = ()) -> Figures:
    """Some figures, or all, by their names in a report."""
    kind = "classes" if scores.confusion else "labels"
    by_words = {}
    for name in names or scores.figures:
        words = plugin.find("figure", name).facts.get("words", {})
        by_words[words.get(kind, words_of(name))] = scores.figures[name]
    return by_words


def details(scores: Scores) -> list[ReportSection]:
    """Classes or labels, of many the worst; calibration; and, folded, all of them and all figures."""
    has_classes, n_classes = bool(scores.confusion), len(scores.labels)
    noun = "classes" if has_classes else "labels"
    columns, kinds = ["class" if has_classes else "label", "precision", "recall", "F1", "", "rows"], "wnnnbn"
    if not has_classes:
        columns, kinds = [*columns, "threshold"], kinds + "n"
    lines, worst_first = list[list[Any]](), sorted(scores.per_class, key=lambda one: (not one.support, one.f1))
    for one in worst_first if n_classes > MOST_CLASSES else scores.per_class:
        line = [one.name, f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.f1:.3f}", one.f1, f"{one.support:,}"]
        if isinstance(one, LabelScore):
            line.append(f"{one.threshold:.3f}")
        lines.append(line)
    notes = []
    if scores.averaged < n_classes:
        notes = [f"macro figures are means over the {scores.averaged:,} {noun} that are true of some row, or predicted"]
    title, sections = noun.capitalize(), list[ReportSection]()
    if n_classes > MOST_CLASSES:
        table = ReportTable(columns, lines[:MOST_WORST], kinds)
        sections.append(ReportSection(f"The {MOST_WORST} worst of {n_classes:,} {noun}", table))
        title = f"All {noun}"
    table = ReportTable(columns, lines, kinds)
    sections.append(ReportSection(title, table, notes, long=True, folded=bool(sections)))
    if has_classes:
        caption = "accuracy by confidence, with 95 % intervals; calibrated on the dashed line; pale: few rows"
        sections.append(ReportSection("", pictures=[Picture("reliability", draw_reliability(scores), caption)]))
    return [*sections, figures_section(reported(scores))]
