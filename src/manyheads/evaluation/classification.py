"""Evaluation of a text classifier, whose rows have one class each or any number of labels.

n rows . C classes or labels
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from manyheads.data.rows import Rows
from manyheads.data.tokens import marks_of
from manyheads.evaluation.evaluation import (
    BOTH,
    LINEAR,
    NETWORK,
    Evaluation,
    Setup,
    beside,
    compared,
    figures_section,
    lead_words,
    rows_of_class,
    strongest,
    words_of,
    write_answers_csv,
)
from manyheads.evaluation.metrics import (
    Bools,
    Figures,
    Floats,
    LabelScore,
    Scores,
    change_of_answers,
    score,
    score_answers,
    score_labels,
)
from manyheads.evaluation.report import (
    MOST_CELLS_LABELLED,
    Example,
    Picture,
    Section,
    Table,
    draw_confusion,
    draw_reliability,
)
from manyheads.inference.classifier import TextClassifier, in_chunks

TOKENS = 8192  # most of a batch
NONE = "no label"


class Kind(NamedTuple):
    """What is said of a classifier; its figures of a table and above a report, and what some are called there."""

    title: str
    noun: str
    most_frequent: str
    of_table: tuple[str, ...]
    large: tuple[str, ...]
    words: dict[str, str]


CLASSES = Kind(
    title="A text classifier and what it is worth",
    noun="classes",
    most_frequent="most frequent class",
    of_table=("accuracy", "macro_f1", "loss", "calibration_error", "macro_precision", "macro_recall"),
    large=("accuracy", "macro_f1", "loss", "calibration_error"),
    words={"loss": "cross-entropy loss"},
)
LABELS = Kind(
    title="A classifier of any number of labels and what it is worth",
    noun="labels",
    most_frequent="most frequent label",
    of_table=("micro_f1", "macro_f1", "accuracy", "loss", "micro_precision", "micro_recall"),
    large=("micro_f1", "macro_f1", "micro_precision", "micro_recall"),
    words={"accuracy": "rows with all labels right", "loss": "loss of a row, in nats"},
)


@dataclass(slots=True)
class Answered:
    """Rows in their own order, the probabilities of their classes, those that they have, `marks_nC`, and those that
    they are given: the likeliest, or where there are `thresholds` each from its own on."""

    rows: Rows
    names: list[str]
    probabilities_nC: Floats
    marks_nC: Bools
    given_nC: Bools
    thresholds: list[float] | None

    @classmethod
    def of(cls, rows: Rows, names: list[str], logits_nC: Tensor, thresholds: list[float] | None = None) -> "Answered":
        """Probabilities are in fp64, so that the loss of a confident mistake stays finite."""
        assert (rows.sets is None) == (thresholds is None), "rows are read as the model answers them"
        if rows.sets is None or thresholds is None:
            probabilities_nC = logits_nC.double().softmax(-1).numpy()
            marks_nC, given_nC = np.zeros((2, *probabilities_nC.shape), dtype=bool)
            np.put_along_axis(marks_nC, np.array(rows.labels, dtype=np.int64)[:, None], True, axis=1)
            np.put_along_axis(given_nC, probabilities_nC.argmax(1)[:, None], True, axis=1)
        else:
            probabilities_nC = logits_nC.double().sigmoid().numpy()
            marks_nC = marks_of(rows.sets, len(names)).bool().numpy()
            given_nC = probabilities_nC >= np.array(thresholds)
        return cls(rows, names, probabilities_nC, marks_nC, given_nC, thresholds)

    def judged(self, marks_nC: Bools) -> Any:
        """As figures take them: class ids `(n,)`, or marks."""
        return marks_nC.argmax(1) if self.thresholds is None else marks_nC

    def score(self, **draws: int) -> Scores:
        """The figures of the answers, with their intervals."""
        if self.thresholds is None:
            return score(self.judged(self.marks_nC), self.probabilities_nC, self.names, **draws)
        return score_labels(self.marks_nC, self.probabilities_nC, self.names, self.thresholds, **draws)

    def words(self, of_row: Bools, joint: str = ", ") -> str:
        """The names of a row's classes."""
        return joint.join(self.names[label] for label in np.flatnonzero(of_row).tolist())


def evaluate_classifier(classifier: TextClassifier, rows: Rows, setup: Setup) -> Evaluation:
    """The classifier, each of its members alone, the linear model of the run and the most frequent class or label.

    Raises:
        ValueError: there are no rows, or they are pairs and the model takes single texts, or the other way round.
    """
    kind, n_classes = LABELS if classifier.multi else CLASSES, len(classifier.labels)
    found = answers_by_model(classifier, rows, setup)
    every = {name: one.score(**setup.draws) for name, one in found.items()}
    own_name, scores = next(iter(every.items()))
    answered, judged, answers = found[own_name], found[own_name].judged, dict[str, Bools]()
    if setup.compare:
        answers[kind.most_frequent] = np.zeros_like(answered.marks_nC)
        answers[kind.most_frequent][:, frequent_label(rows, n_classes, setup)] = True
        answers |= {LINEAR: found[LINEAR].given_nC} if LINEAR in found else {}
    baselines, leads, first = {}, {}, next(iter(scores.figures))
    for name, given_nC in answers.items():
        labels, given, own = (judged(one) for one in (answered.marks_nC, given_nC, answered.given_nC))
        figures = score_answers(labels, given, n_classes, **setup.draws)
        (change,) = change_of_answers(labels, given, [own], n_classes, **setup.draws)
        baselines[name], leads[name] = ({one: of[one] for one in (first, "macro_f1")} for of in (figures, change))
    members = {name: {key: one.figures[key] for key in kind.of_table} for name, one in every.items()}
    note = "" if setup.baseline is None else linear_words(setup.baseline.linear.terms.value, classifier.share)
    note = f"{LINEAR.capitalize()}: {note}." if note else ""
    models = beside(members, baselines)
    models = {f"{own_name} (this model)": models.pop(own_name), **models}
    return Evaluation(
        title=kind.title,
        size=f"{scores.n_rows:,} rows, {n_classes} {kind.noun}",
        scores=scores.as_json(),
        members=members,
        baselines=baselines,
        leads=leads,
        verdict=verdict(scores, baselines, leads),
        tiles=reported(scores, kind.large),
        comparison=compared("Beside simpler models, on the same rows", models, first, "macro_f1", note=note),
        note=note,
        details=lambda: details(scores, worst_mistakes(answered)),
        write_csv=lambda path: write_predictions_csv(path, answered),
    )


def answers_by_model(classifier: TextClassifier, rows: Rows, setup: Setup) -> dict[str, Answered]:
    """By the name of the model: first of what answers, `both` or the `network`; then of each member alone; and of the
    `linear model`, where it does not answer but is the baseline of the run. Of labels each has thresholds of its own.

    Raises:
        ValueError: `rows` are pairs and the model takes single texts, or the other way round.
    """
    tokens, alone, baseline = setup.tokens or TOKENS, classifier.member_thresholds, setup.baseline
    own = {NETWORK: alone.get("network"), LINEAR: alone.get("linear")}
    if not classifier.share:
        own = {} if baseline is None else {LINEAR: baseline.thresholds}

    def answers(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        if classifier.share:
            found = classifier.member_logits(texts, pairs, tokens=tokens)
            return {BOTH: found["both"], NETWORK: found["network"], LINEAR: found["linear"]}
        logits_nC = {NETWORK: classifier.logits(texts, pairs, tokens=tokens)}
        return logits_nC | ({} if baseline is None else {LINEAR: baseline.logits(texts, pairs)})

    return {
        name: Answered.of(rows, classifier.labels, logits_nC, own.get(name) or classifier.thresholds)
        for name, logits_nC in in_chunks(answers, rows, len(classifier.labels), setup.progress).items()
    }


def frequent_label(rows: Rows, n_classes: int, setup: Setup) -> int:
    """The class or label that most training rows have, of equals the first; that of `rows` where those are unknown."""
    if setup.most_frequent is not None:
        return setup.most_frequent
    return int(np.argmax(rows_of_class(setup.train or rows, n_classes)))


def linear_words(terms: str, share: float) -> str:
    """What the linear model counts, and its part in the answers."""
    part = f"it has {share:.0%} of each answer" if share else "it does not answer, the network does alone"
    return f"logistic regression on TF-IDF of {terms}; {part}"


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
    words = CLASSES.words if scores.confusion else LABELS.words
    return {words.get(name, words_of(name)): scores.figures[name] for name in names or scores.figures}


def details(scores: Scores, mistakes: list[Example]) -> list[Section]:
    """Confusions, classes or labels, all figures, calibration and the worst mistakes."""
    lines = [
        [
            *(one.name, f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.f1:.3f}", one.f1, f"{one.support:,}"),
            *([f"{one.threshold:.3f}"] if isinstance(one, LabelScore) else []),
        ]
        for one in scores.per_class
    ]
    columns, worst = ["precision", "recall", "F1", "", "rows"], "Worst mistakes: wrong, and sure of it"
    wrong = [Section(worst, examples=mistakes, long=True)] if mistakes else []
    if not scores.confusion:
        table = Table(["label", *columns, "given from"], lines, "wnnnbnn")
        return [Section("Labels", table, long=True), figures_section(reported(scores)), *wrong]
    caption = (
        "accuracy of the answers given with a confidence; on the dashed line the model knows how often it is right, "
        "pale bars hold few rows"
    )
    return [
        confusion_section(scores),
        Section("Classes", Table(["class", *columns], lines, "wnnnbn"), long=True),
        figures_section(reported(scores)),
        Section("Can its confidence be trusted?", pictures=[Picture("reliability", draw_reliability(scores), caption)]),
        *wrong,
    ]


def confusion_section(scores: Scores) -> Section:
    """The confusion matrix; of many classes the most frequent confusions in a table, too."""
    small = len(scores.labels) <= MOST_CELLS_LABELLED
    caption = "rows are true classes, columns answers" + ("" if small else "; colour is the share of the class")
    drawn = [Picture("confusion", draw_confusion(scores), caption, "wide")]
    if small:
        return Section("Confusion", pictures=drawn)
    most = sorted(
        (
            (count, true, answer, count / sum(scores.confusion[true]))
            for true in range(len(scores.labels))
            for answer, count in enumerate(scores.confusion[true])
            if count and true != answer
        ),
        key=lambda one: -one[0],
    )[:MOST_CELLS_LABELLED]
    rows = [
        [scores.labels[true], scores.labels[answer], f"{count:,}", f"{share:.0%}", share]
        for count, true, answer, share in most
    ]
    table = Table(["true class", "answered as", "rows", "of the class", ""], rows, "wwnnb")
    return Section("Most frequent confusions", table, pictures=drawn, long=True)


def worst_mistakes(found: Answered, n: int = 20) -> list[Example]:
    """The `n` rows with the likeliest class that they are given and have not, likeliest first; it is the answer."""
    sure_nC = np.where(found.given_nC & ~found.marks_nC, found.probabilities_nC, -1.0)
    sure_n, rows, mistakes = sure_nC.max(1), found.rows, []
    for row in np.argsort(-sure_n, kind="stable")[: min(n, int((sure_n >= 0).sum()))].tolist():
        place = f"{float(sure_n[row]):.1%} sure, row {rows.numbers[row]:,}"
        texts = [rows.texts[row], *([] if rows.pairs is None else [rows.pairs[row]])]
        label, answer = found.words(found.marks_nC[row]) or NONE, found.names[int(sure_nC[row].argmax())]
        mistakes.append(Example(place, texts, label, answer))
    return mistakes


def write_predictions_csv(path: Path, found: Answered) -> None:
    """The columns of `write_answers_csv`, then label, or labels, and prediction, several joined by |, and `p_<class>`
    for every class, in six decimals."""
    columns = ["label" if found.thresholds is None else "labels", "prediction", *(f"p_{name}" for name in found.names)]
    answers = (
        [*(found.words(of[at], "|") for of in (found.marks_nC, found.given_nC)), *(round(one, 6) for one in of_row)]
        for at, of_row in enumerate(map(np.ndarray.tolist, found.probabilities_nC))
    )
    write_answers_csv(path, found.rows, columns, answers)
