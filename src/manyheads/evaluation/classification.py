"""Evaluation of a classifier that gives each text one class.

n rows . C classes
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from manyheads.data.rows import Rows
from manyheads.evaluation.evaluation import (
    BOTH,
    LINEAR,
    NETWORK,
    Evaluation,
    Setup,
    compared,
    figures_section,
    lead_words,
    mistake,
    mistakes_section,
    rows_of_class,
    strongest,
    words_of,
    write_answers_csv,
)
from manyheads.evaluation.metrics import Interval, Scores, change_of_answers, score, score_answers
from manyheads.evaluation.report import (
    MOST_CELLS_LABELLED,
    Example,
    Figures,
    Picture,
    Section,
    Table,
    draw_confusion,
    draw_reliability,
)
from manyheads.inference.classifier import TextClassifier, in_chunks

MAJORITY = "most frequent class"
FIGURES = ("accuracy", "macro_f1", "loss", "calibration_error", "macro_precision", "macro_recall")  # of a table
COMPARED = ("accuracy", "macro_f1")  # of baselines
REPORTED = ("accuracy", "macro_f1", "micro_f1", "macro_precision", "macro_recall", "loss", "calibration_error")
LARGE = ("accuracy", "macro_f1", "loss", "calibration_error")  # above a report
TOKENS = 8192  # most of a batch


@dataclass(slots=True)
class Predictions:
    """Rows in their own order with the fp32 logits of a model; class ids count in `names`."""

    rows: Rows
    names: list[str]
    logits_nC: Tensor

    @property
    def probabilities_nC(self) -> Tensor:
        """Softmax in fp64, so that the loss of a confident mistake stays finite: `(n, C)`."""
        return self.logits_nC.double().softmax(-1)

    @property
    def answers(self) -> list[int]:
        return self.logits_nC.argmax(-1).tolist()


def evaluate_classes(classifier: TextClassifier, rows: Rows, setup: Setup) -> Evaluation:
    """The classifier, each of its members alone, the linear model of the run and the most frequent class.

    Raises:
        ValueError: there are no rows, or they are pairs and the model takes single texts, or the other way round.
    """
    names, draws, note = classifier.labels, setup.draws, linear_note(classifier, setup)
    logits = logits_by_model(classifier, rows, setup)
    found = {name: Predictions(rows, names, logits_nC) for name, logits_nC in logits.items()}
    answered = next(iter(found.values()))
    every = {name: score(rows.labels, one.probabilities_nC.numpy(), names, **draws) for name, one in found.items()}
    scores, answers = next(iter(every.values())), {}
    if setup.compare:
        answers[MAJORITY] = [frequent_label(rows, len(names), setup)] * len(rows)
        answers |= {LINEAR: found[LINEAR].answers} if LINEAR in found else {}
    baselines = {name: score_answers(rows.labels, given, len(names), **draws) for name, given in answers.items()}
    leads = {
        name: change_of_answers(rows.labels, given, [answered.answers], len(names), **draws)[0]
        for name, given in answers.items()
    }
    members = {name: figures_of(one, FIGURES) for name, one in every.items()}
    return Evaluation(
        title="A text classifier and what it is worth",
        size=f"{scores.n_rows:,} rows, {len(names)} classes",
        scores=asdict(scores),
        members=members,
        baselines=only(COMPARED, baselines),
        leads=only(COMPARED, leads),
        verdict=verdict(scores, baselines, leads),
        tiles=reported(scores, LARGE),
        comparison=compared(members, baselines, "accuracy", note),
        note=note,
        details=lambda: details(scores, worst_mistakes(answered)),
        write_csv=lambda path: write_predictions_csv(path, answered),
    )


def logits_by_model(classifier: TextClassifier, rows: Rows, setup: Setup) -> dict[str, Tensor]:
    """Logits of every row `(n, C)`, in fp32, by the name of the model: first of what answers, `both` or the `network`;
    then of each member alone; and of the `linear model`, where it does not answer but is the baseline of the run.

    Raises:
        ValueError: `rows` are pairs and the model takes single texts, or the other way round.
    """
    tokens = setup.tokens or TOKENS

    def answers(texts: list[str], pairs: list[str] | None) -> dict[str, Tensor]:
        if classifier.share:
            found = classifier.member_logits(texts, pairs, tokens=tokens)
            return {BOTH: found["both"], NETWORK: found["network"], LINEAR: found["linear"]}
        alone = {} if setup.baseline is None else {LINEAR: setup.baseline.logits(texts, pairs)}
        return {NETWORK: classifier.logits(texts, pairs, tokens=tokens), **alone}

    return in_chunks(answers, rows, len(classifier.labels), setup.progress)


def frequent_label(rows: Rows, n_classes: int, setup: Setup) -> int:
    """The class or label that most training rows have, of equals the first; that of `rows` where those are unknown."""
    if setup.most_frequent is not None:
        return setup.most_frequent
    return most_frequent(rows_of_class(setup.train or rows, n_classes))


def most_frequent(counts: list[int]) -> int:
    """The class or label with the highest count, of equals the first."""
    return int(np.argmax(counts))


def figures_of(scores: object, names: tuple[str, ...]) -> Figures:
    """Some figures by their names."""
    return {name: getattr(scores, name) for name in names}


def only(names: tuple[str, ...], models: dict[str, Figures]) -> dict[str, Figures]:
    """Some figures of each model."""
    return {model: {name: figures[name] for name in names} for model, figures in models.items()}


def linear_note(classifier: TextClassifier, setup: Setup) -> str:
    """What the linear model of the run is, in a sentence."""
    if setup.baseline is None:
        return ""
    return f"{LINEAR.capitalize()}: {linear_words(setup.baseline.linear.terms_name, classifier.share)}."


def linear_words(terms: str, share: float) -> str:
    """What the linear model counts, and its part in the answers."""
    part = f"it has {share:.0%} of each answer" if share else "it does not answer, the network does alone"
    return f"logistic regression on TF-IDF of {terms}; {part}"


def verdict(scores: Scores, baselines: dict[str, Figures], leads: dict[str, Figures]) -> str:
    """One sentence a hurried reader can repeat; it says so where a cheap model wins."""
    accuracy = scores.accuracy
    right = (
        f"{accuracy.value:.1%} of {scores.n_rows:,} rows are answered right "
        f"(95 % interval {accuracy.low:.1%} to {accuracy.high:.1%})"
    )
    if not (rival := strongest(baselines, "accuracy")):
        return f"{right}."
    return f"{right}; on the same rows the model {lead_words(leads[rival]['accuracy'], rival)}."


def reported(scores: Scores, names: tuple[str, ...]) -> dict[str, Interval]:
    """Some figures by their names in a report."""
    return {"cross-entropy loss" if name == "loss" else words_of(name): getattr(scores, name) for name in names}


def details(scores: Scores, mistakes: list[Example]) -> list[Section]:
    """Confusions, classes, all figures, calibration and the worst mistakes."""
    lines = [
        [one.name, f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.f1:.3f}", one.f1, f"{one.support:,}"]
        for one in scores.per_class
    ]
    caption = (
        "accuracy of the answers given with a confidence; on the dashed line the model knows how often it is right, "
        "pale bars hold few rows"
    )
    reliability = Picture("reliability", draw_reliability(scores), caption)
    return [
        confusion_section(scores),
        Section("Classes", Table(["class", "precision", "recall", "F1", "", "rows"], lines, "wnnnbn"), long=True),
        figures_section(reported(scores, REPORTED)),
        Section("Can its confidence be trusted?", pictures=[reliability]),
        *mistakes_section(mistakes),
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


def worst_mistakes(predictions: Predictions, n: int = 20) -> list[Example]:
    """The `n` wrong answers the model was surest of, surest first."""
    confidence_n, answer_n = predictions.probabilities_nC.max(-1)
    rows, names = predictions.rows, predictions.names
    wrong_n = answer_n != torch.tensor(rows.labels, dtype=torch.int64)
    by_confidence = confidence_n.where(wrong_n, -1.0).argsort(descending=True, stable=True)
    return [
        mistake(rows, row, names[rows.labels[row]], names[int(answer_n[row])], float(confidence_n[row]))
        for row in by_confidence[: min(n, int(wrong_n.sum()))].tolist()
    ]


def write_predictions_csv(path: Path, predictions: Predictions) -> None:
    """The columns of `write_answers_csv`, then label, prediction and `p_<class>` for every class, in six decimals."""
    names, probabilities_nC = predictions.names, predictions.probabilities_nC
    answers = [
        [names[label], names[answer], *(round(value, 6) for value in of_row)]
        for label, answer, of_row in zip(
            predictions.rows.labels, probabilities_nC.argmax(-1).tolist(), probabilities_nC.tolist(), strict=True
        )
    ]
    write_answers_csv(path, predictions.rows, ["label", "prediction", *(f"p_{name}" for name in names)], answers)
