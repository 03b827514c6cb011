"""Evaluation of a text classifier, whose rows have one class each or any number of labels: figures, confusions, and the
worst mistakes with the words that carry them.

n rows
"""

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

import manyheads.plugin as plugin
from manyheads.config.figures import figures_of, figures_of_answers
from manyheads.data.rows import Rows, class_counts
from manyheads.evaluation.answered import LogitStore, answer_rows, write_predictions
from manyheads.evaluation.evaluation import Evaluation, Finding, Setup, compared, figures_section
from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.metrics import LabelScore, Outcomes, Scores, change_of_answers, score_answers
from manyheads.evaluation.mistakes import cell_groups, cell_key, with_words, worst_mistakes
from manyheads.evaluation.report import (
    BLUE,
    PALE,
    Example,
    Link,
    Picture,
    ReportSection,
    ReportTable,
    draw,
    draw_reliability,
)
from manyheads.inference.classifier import TextClassifier
from manyheads.runs.summary import LINEAR, Figures, lead_words, linear_words, strongest, with_baselines, words_of

MOST_CLASSES = 20  # of a square table
MOST_CONFUSIONS = 20  # in a list of them, where there are more classes
MOST_LINKED, MOST_OF_CELL = 40, 5  # cells whose texts are shown, and texts of each
WORDS = (
    "underlined words support the answer, words with a dotted underline oppose it: by how much its probability changes "
    "if they are removed from the text"
)
SHARES = [at / 20 for at in range(1, 21)]  # of the rows, that are answered


class Kind(NamedTuple):
    """What is said of a classifier: of rows with one class each, or with any number of labels."""

    rows: str  # as figures name such rows
    title: str
    most_frequent: str


CLASSES = Kind("classes", "Evaluation of a text classifier", "most frequent class")
LABELS = Kind("labels", "Evaluation of a multi-label text classifier", "most frequent label")
N_LARGE = 4  # figures above a report: the first of its tables


def evaluate_classifier(
    classifier: TextClassifier, rows: Rows, setup: Setup, stored: LogitStore | None = None
) -> Evaluation:
    """The classifier, each of its members alone, the linear model of the run and the most frequent class or label; of
    what is `stored` where several of its kind have answered, each some of the rows.

    Raises:
        UserError: there are no rows, or they are pairs and the model takes single texts, or the other way round.
    """
    kind, n_classes = LABELS if classifier.multi else CLASSES, len(classifier.labels)
    explained = with_words if stored is None else lambda _, examples: examples
    stored = stored or answer_rows(classifier, rows, setup)
    own_name, table = next(iter(stored.models)), figures_of(kind.rows, "table")
    own = outcomes_of(stored, own_name)
    scores = own.scores(classifier.labels, stored.models[own_name])
    members = {own_name: {figure: scores.figures[figure] for figure in table}}
    rivals = dict[str, np.ndarray]()  # answers of models that need no training of ours
    if setup.compare:
        frequent = frequent_label(rows, n_classes, setup)
        answer = np.arange(n_classes) == frequent if classifier.multi else np.array(frequent)
        rivals[kind.most_frequent] = np.broadcast_to(answer, own.labels.shape)
    for name in [*stored.models][1:]:
        outcomes = outcomes_of(stored, name)
        members[name] = outcomes.figures(table)
        if name == LINEAR and setup.compare:
            rivals[name] = outcomes.answers

    baselines, leads = {}, {}
    first, second = [one for one in table if one in figures_of_answers(kind.rows)][:2]
    for name, answers in rivals.items():
        figures = score_answers(own.labels, answers, n_classes)
        (lead,) = change_of_answers(own.labels, answers, [own.answers], n_classes)
        baselines[name] = {figure: figures[figure] for figure in (first, second)}
        leads[name] = {figure: lead[figure] for figure in (first, second)}

    note = ""
    if setup.baseline is not None:
        note = f"{LINEAR.capitalize()}: {linear_words(setup.baseline.linear.terms.value, classifier.share)}."
    models = with_baselines(members, baselines)
    models = {f"{own_name} (this model)": models.pop(own_name), **models}
    return Evaluation(
        title=kind.title,
        size=f"{scores.n_rows:,} rows, {n_classes} {kind.rows}",
        scores=scores.as_json(),
        members=members,
        baselines=baselines,
        leads=leads,
        verdict=verdict(scores, baselines, leads),
        tiles=reported(scores, table[:N_LARGE]),
        comparison=compared("Compared with simpler models, on the same rows", models, first, second, note=note),
        note=note,
        figures=lambda: sections_of_figures(scores, stored),
        findings=findings(stored, setup, own),
        details=lambda: details(scores, explained(classifier, worst_mistakes(stored))),
        write=lambda path: write_predictions(path, stored),
    )


def outcomes_of(stored: LogitStore, name: str) -> Outcomes:
    """The answers of a model to all rows."""
    chunks = (Outcomes.of(one.labels, one.answers, one.probabilities_nC) for one in stored.answers(name))
    return Outcomes.joined(len(stored.rows), chunks)


def findings(stored: LogitStore, setup: Setup, outcomes: Outcomes) -> list[Finding]:
    """Those of the analyses and rules that the settings ask for, and of rows with one class the risk by coverage."""
    found = [analyse(stored) for analyse in setup.analyses]
    for rule, marks_n in zip(setup.rules, stored.marks, strict=True):
        if rule.judge is not None:
            found.append(plugin.resolve(rule.judge)(stored, rule.fitted, marks_n))
    if not outcomes.multi:
        found.append(risk_by_coverage(outcomes))
    return found


def risk_by_coverage(outcomes: Outcomes) -> Finding:
    """The share of wrong answers where only the surest texts are answered, by how many are, with all that are as sure:
    El-Yaniv and Wiener (2010), "On the Foundations of Noise-free Selective Classification"."""
    order_n, n = np.argsort(-outcomes.confidence_n, kind="stable"), len(outcomes.labels)
    sure_n, wrong_n = outcomes.confidence_n[order_n], np.cumsum(~outcomes.right_n[order_n])
    points = []
    for share in SHARES:
        least = float(sure_n[max(0, math.ceil(share * n - 1e-9) - 1)])
        n_answered = int(np.searchsorted(-sure_n, -least, side="right"))
        risk = share_interval(int(wrong_n[n_answered - 1]), n_answered)
        points.append({"answered": n_answered / n, "confidence": least, "risk": asdict(risk)})
    figure, ((axes,),) = draw(1, 1, width=5.2, height=3.4)
    shares = [one["answered"] for one in points]
    axes.fill_between(
        shares, [one["risk"]["low"] for one in points], [one["risk"]["high"] for one in points], color=PALE
    )
    axes.plot(shares, [one["risk"]["value"] for one in points], color=BLUE, marker=".", markersize=4)
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel="share of texts that are answered", ylabel="wrong among them")
    caption = (
        "share of wrong answers by the share of texts that are answered, most confident first, with 95 % intervals"
    )
    picture = Picture("risk", figure, caption)
    return Finding(
        "risk_coverage",
        points,
        [ReportSection("Wrong answers if only the most confident are given", pictures=[picture])],
    )


def frequent_label(rows: Rows, n_classes: int, setup: Setup) -> int:
    """The class or label that most training rows have, of equals the first; that of `rows` where those are unknown."""
    if setup.most_frequent is not None:
        return setup.most_frequent
    return int(np.argmax(class_counts(setup.train or rows, n_classes)))


def verdict(scores: Scores, baselines: dict[str, Figures], leads: dict[str, Figures]) -> str:
    """One sentence a hurried reader can repeat; it says so where a cheap model wins."""
    first, of = next(iter(scores.figures.items()))
    if first == "accuracy":
        share, same, said = ".1%", "on the same rows ", f"{of.value:.1%} of {scores.n_rows:,} rows are answered right"
    else:
        share, same, said = ".3f", "", f"micro F1 is {of.value:.3f} on {scores.n_rows:,} rows"
    said = f"{said} (95 % interval {of.low:{share}} to {of.high:{share}})"
    if not (rival := strongest(baselines, first)):
        return f"{said}."
    return f"{said}; {same}the model {lead_words(leads[rival][first], rival)}."


def reported(scores: Scores, names: Iterable[str] = ()) -> Figures:
    """Some figures, or all, by their names in a report."""
    rows, found = "classes" if scores.confusion else "labels", {}
    for name in names or scores.figures:
        words = plugin.find("figure", name).facts.get("words", {})
        found[words.get(rows, words_of(name))] = scores.figures[name]
    return found


def sections_of_figures(scores: Scores, stored: LogitStore) -> list[ReportSection]:
    """Confusions, classes or labels, and all figures."""
    lines = [
        [
            *(one.name, f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.f1:.3f}", one.f1, f"{one.support:,}"),
            *([f"{one.threshold:.3f}"] if isinstance(one, LabelScore) else []),
        ]
        for one in scores.per_class
    ]
    columns = ["precision", "recall", "F1", "", "rows"]
    notes, noun = list[str](), "classes" if scores.confusion else "labels"
    if scores.averaged < len(scores.labels):
        notes = [f"macro figures are means over the {scores.averaged:,} {noun} that are true of some row, or predicted"]
    if not scores.confusion:
        table = ReportTable(["label", *columns, "threshold"], lines, "wnnnbnn")
        return [ReportSection("Labels", table, notes, long=True), figures_section(reported(scores))]
    return [
        confusion_section(scores, stored),
        ReportSection("Classes", ReportTable(["class", *columns], lines, "wnnnbn"), notes, long=True),
        figures_section(reported(scores)),
    ]


def details(scores: Scores, mistakes: list[Example]) -> list[ReportSection]:
    """Calibration and the worst mistakes."""
    worst, trust = "Most confident mistakes", "Calibration: is its confidence right?"
    wrong = [ReportSection(worst, notes=[WORDS], examples=mistakes, long=True)] if mistakes else []
    if not scores.confusion:
        return wrong
    caption = (
        "accuracy by confidence, with 95 % intervals; a calibrated model is on the dashed line; pale bars have few rows"
    )
    return [ReportSection(trust, pictures=[Picture("reliability", draw_reliability(scores), caption)]), *wrong]


def confusion_section(scores: Scores, stored: LogitStore) -> ReportSection:
    """Counts of classes and answers, the rows of wrong ones a click away; of many classes the largest confusions."""
    wrong = [
        (count, label, answer)
        for label, of_class in enumerate(scores.confusion)
        for answer, count in enumerate(of_class)
        if count and label != answer
    ]
    wrong.sort(key=lambda one: -one[0])
    small = len(scores.labels) <= MOST_CLASSES
    cells = {(label, answer): count for count, label, answer in wrong[: MOST_LINKED if small else MOST_CONFUSIONS]}
    groups = cell_groups(stored, cells, MOST_OF_CELL)

    def link(label: int, answer: int) -> Link:
        count, shown = scores.confusion[label][answer], (label, answer) in cells
        title = f"{count:,} rows of {scores.labels[label]} answered as {scores.labels[answer]}: show them"
        to, share = cell_key(label, answer) if shown else "", count / max(sum(scores.confusion[label]), 1)
        return Link(f"{count:,}", to, title if shown else "", share)

    if small:
        ids = range(len(scores.labels))
        rows = [[name, *(link(label, answer) for answer in ids)] for label, name in enumerate(scores.labels)]
        table = ReportTable(["true class", *scores.labels], rows, "w" + "s" * len(ids))
        note = "rows are true classes, columns answers, shaded by the share of the class; a number shows its texts"
        return ReportSection("Confusion", table, [note], groups=groups, long=True)
    rows = [
        [scores.labels[label], scores.labels[answer], one, f"{one.share:.0%}", one.share]
        for label, answer in cells
        for one in [link(label, answer)]
    ]
    table = ReportTable(["true class", "answered as", "rows", "of the class", ""], rows, "wwlnb")
    return ReportSection("Most frequent confusions", table, ["a number shows its texts"], groups=groups, long=True)
