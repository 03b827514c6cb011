"""Evaluation of a classifier that gives each text any number of labels.

n rows . C labels . R resamples
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.data.rows import Rows
from manyheads.data.tokens import marks_of
from manyheads.evaluation.classification import figures_of, frequent_label, linear_note, logits_by_model, only
from manyheads.evaluation.evaluation import (
    LINEAR,
    NETWORK,
    Evaluation,
    Setup,
    compared,
    figures_section,
    lead_words,
    mistake,
    mistakes_section,
    strongest,
    words_of,
    write_answers_csv,
)
from manyheads.evaluation.metrics import (
    Floats,
    Interval,
    change_interval,
    check_rows,
    class_interval,
    effective_rows,
    interval,
    macro_intervals,
    ratio,
    resamples,
    share_interval,
)
from manyheads.evaluation.report import Example, Figures, Section, Table
from manyheads.inference.classifier import TextClassifier

Bools = NDArray[np.bool_]
MOST_FREQUENT = "most frequent label"
NONE = "no label"
FIGURES = ("micro_f1", "macro_f1", "accuracy", "loss", "micro_precision", "micro_recall")  # of a table
COMPARED = ("micro_f1", "macro_f1")  # of baselines
LARGE = ("micro_f1", "macro_f1", "micro_precision", "micro_recall")  # above a report
REPORTED = (
    *("micro_f1", "macro_f1", "accuracy", "micro_precision", "micro_recall"),
    *("macro_precision", "macro_recall", "loss"),
)
WORDS = {"accuracy": "rows with all labels right", "loss": "loss of a row, in nats"}


@dataclass(slots=True)
class LabelAnswered:
    """Rows in their own order; `marks_nC` are the labels they have, `given_nC` those from their `thresholds` on."""

    rows: Rows
    names: list[str]
    thresholds: list[float]
    probabilities_nC: Floats
    marks_nC: Bools
    given_nC: Bools

    def words(self, of_row: Bools, joint: str = ", ") -> str:
        """The names of a row's labels."""
        return joint.join(self.names[label] for label in np.flatnonzero(of_row).tolist())


def evaluate_labels(classifier: TextClassifier, rows: Rows, setup: Setup) -> Evaluation:
    """The classifier, each of its members alone, the linear model of the run and the most frequent label.

    Raises:
        ValueError: there are no rows, or they are pairs and the model takes single texts, or the other way round.
    """
    found, note = labels_by_model(classifier, rows, setup), linear_note(classifier, setup)
    answered, n_labels, draws = next(iter(found.values())), len(classifier.labels), setup.draws
    every = {name: scores_of(one, setup) for name, one in found.items()}
    scores, marks_nC = next(iter(every.values())), answered.marks_nC
    answers: dict[str, Bools] = {}
    if setup.compare:
        answers[MOST_FREQUENT] = np.zeros_like(marks_nC)
        answers[MOST_FREQUENT][:, frequent_label(rows, n_labels, setup)] = True
        answers |= {LINEAR: found[LINEAR].given_nC} if LINEAR in found else {}
    baselines = {name: score_given(marks_nC, given_nC, **draws) for name, given_nC in answers.items()}
    leads = {
        name: change_of_labels(marks_nC, answered.given_nC, given_nC, **draws) for name, given_nC in answers.items()
    }
    members = {name: figures_of(one, FIGURES) for name, one in every.items()}
    return Evaluation(
        title="A classifier of any number of labels and what it is worth",
        size=f"{scores.n_rows:,} rows, {n_labels} labels",
        scores=asdict(scores),
        members=members,
        baselines=only(COMPARED, baselines),
        leads=only(COMPARED, leads),
        verdict=verdict(scores, baselines, leads),
        tiles=reported(scores, LARGE),
        comparison=compared(members, baselines, "micro_f1", note),
        note=note,
        details=lambda: details(scores, worst_labels(answered)),
        write_csv=lambda path: write_labels_csv(path, answered),
    )


def labels_by_model(classifier: TextClassifier, rows: Rows, setup: Setup) -> dict[str, LabelAnswered]:
    """The answers of each model, as `logits_by_model` orders and names them; each has thresholds of its own."""
    assert classifier.thresholds is not None
    baseline, alone = setup.baseline, classifier.member_thresholds
    own = {NETWORK: alone.get("network"), LINEAR: alone.get("linear")} if classifier.share else {}
    own |= {} if classifier.share or baseline is None else {LINEAR: baseline.thresholds}
    assert rows.sets is not None, "read_splits and read_split give them where rows have any number of labels"
    marks_nC, found = marks_of(rows.sets, len(classifier.labels)).bool().numpy(), {}
    for name, logits_nC in logits_by_model(classifier, rows, setup).items():
        probabilities_nC = logits_nC.double().sigmoid().numpy()
        thresholds = own.get(name) or classifier.thresholds
        given_nC = probabilities_nC >= np.array(thresholds)
        found[name] = LabelAnswered(rows, classifier.labels, thresholds, probabilities_nC, marks_nC, given_nC)
    return found


@dataclass(slots=True)
class LabelScore:
    """One label: `support` is the number of rows that have it; a ratio without a denominator is 0, as in scikit-learn.
    It is given from the probability `threshold` on."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    threshold: float


@dataclass(slots=True)
class LabelScores:
    """All figures of one split. Micro figures are of all labels of all rows together; macro figures are means over the
    labels that rows have or are given; `accuracy` is the share of rows whose labels are all right, and no others given;
    `loss` is the mean over rows of the sum over labels, in nats."""

    micro_f1: Interval
    macro_f1: Interval
    accuracy: Interval
    micro_precision: Interval
    micro_recall: Interval
    macro_precision: Interval
    macro_recall: Interval
    loss: Interval
    n_rows: int
    labels: list[str]
    per_class: list[LabelScore]


def score_labels(
    marks_nC: Bools,
    probabilities_nC: Floats,
    given_nC: Bools,
    names: list[str],
    thresholds: list[float],
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> LabelScores:
    """Judge labels that are `given` for their `probabilities` against those that rows have, their `marks`.

    The bootstrap draws whole rows, so all figures of a resample belong together; the same `seed` gives the same
    intervals.

    Raises:
        ValueError: there are no rows.
    """
    kind = np.finfo(np.float64)  # a probability next to one has no digits left for what is wanting to it
    own_nC = np.where(marks_nC, np.maximum(probabilities_nC, kind.tiny), np.maximum(1 - probabilities_nC, kind.eps / 2))
    loss_n = -np.log(own_nC).sum(1)
    found = _resampled(marks_nC, given_nC, n_resamples, seed, loss_n)
    right_C, given_C, support_C = (one.sum(0) for one in (marks_nC & given_nC, given_nC, marks_nC))
    columns = (
        *(ratio(right_C, whole_C).tolist() for whole_C in (given_C, support_C)),
        ratio(2 * right_C, given_C + support_C).tolist(),
        support_C.tolist(),
    )
    return LabelScores(
        **_intervals(found, marks_nC, given_nC),
        n_rows=len(marks_nC),
        labels=list(names),
        per_class=[LabelScore(*row) for row in zip(names, *columns, thresholds, strict=True)],
    )


def score_given(marks_nC: Bools, given_nC: Bools, *, n_resamples: int = 1000, seed: int = 0) -> Figures:
    """All figures but the loss, of bare answers such as a baseline's, on the resamples that `score_labels` draws."""
    return _intervals(_resampled(marks_nC, given_nC, n_resamples, seed), marks_nC, given_nC)


def _intervals(found: dict[str, Floats], marks_nC: Bools, given_nC: Bools) -> Figures:
    """Of the figures that were resampled. Labels of one row are not independent, so the whole of which a micro figure
    is a share counts as no more than the rows."""
    right_n = (marks_nC == given_nC).all(1)
    right_C, given_C, support_C = (one.sum(0) for one in (marks_nC & given_nC, given_nC, marks_nC))
    wholes = {"f1": (given_C + support_C).sum() / 2, "precision": given_C.sum(), "recall": support_C.sum()}
    micro = {
        f"micro_{name}": class_interval(
            found[f"micro_{name}"], found[f"micro_{name}"][:1], np.array([min(float(whole), len(right_n))])
        )
        for name, whole in wholes.items()
    }
    shares = micro | macro_intervals(found, right_C, support_C, given_C, len(right_n))
    others = {name: interval(value_R) for name, value_R in found.items() if name not in shares}
    return others | shares | {"accuracy": share_interval(int(right_n.sum()), len(right_n))}


def change_of_labels(
    marks_nC: Bools, given_nC: Bools, others_nC: Bools, *, n_resamples: int = 1000, seed: int = 0
) -> Figures:
    """Each figure of `given` less that of `others`, on the same rows: a paired bootstrap, as `change_of_answers`."""
    one, other = (_resampled(marks_nC, answers_nC, n_resamples, seed) for answers_nC in (given_nC, others_nC))
    n_macro = min(float(len(marks_nC)), effective_rows(marks_nC.sum(0)))
    n_rows = {name: n_macro if name.startswith("macro") else len(marks_nC) for name in one}
    return {name: change_interval(one[name] - other[name], n_rows[name]) for name in one}


def _resampled(
    marks_nC: Bools, given_nC: Bools, n_resamples: int, seed: int, loss_n: Floats | None = None
) -> dict[str, Floats]:
    """Every figure `(R,)`: entry 0 is of the data as it is, the rest are of resamples."""
    n, n_labels = marks_nC.shape
    check_rows(n)
    per_row = [marks_nC & given_nC, given_nC, marks_nC, (marks_nC == given_nC).all(1)[:, None]]
    per_row += [] if loss_n is None else [loss_n[:, None]]
    of_rows = np.concatenate([np.asarray(one, dtype=np.float64) for one in per_row], axis=1)
    sums = np.stack([times_n @ of_rows for times_n in resamples(n, n_resamples, seed)])
    right_RC, given_RC, support_RC = (sums[:, at * n_labels : (at + 1) * n_labels] for at in range(3))
    figures = _figures(right_RC, given_RC, support_RC) | {"accuracy": sums[:, 3 * n_labels] / n}
    return figures if loss_n is None else figures | {"loss": sums[:, -1] / n}


def _figures(right_RC: Floats, given_RC: Floats, support_RC: Floats) -> dict[str, Floats]:
    wholes = {"f1": (given_RC + support_RC) / 2, "precision": given_RC, "recall": support_RC}
    occurs_R = np.maximum((wholes["f1"] > 0).sum(1), 1)
    macro = {f"macro_{name}": ratio(right_RC, whole).sum(1) / occurs_R for name, whole in wholes.items()}
    return macro | {f"micro_{name}": ratio(right_RC.sum(1), whole.sum(1)) for name, whole in wholes.items()}


def scores_of(found: LabelAnswered, setup: Setup) -> LabelScores:
    """The figures of the answers, with their intervals."""
    judged = found.marks_nC, found.probabilities_nC, found.given_nC
    return score_labels(*judged, found.names, found.thresholds, **setup.draws)


def verdict(scores: LabelScores, baselines: dict[str, Figures], leads: dict[str, Figures]) -> str:
    """One sentence a hurried reader can repeat; it says so where a cheap model wins."""
    f1 = scores.micro_f1
    said = f"micro F1 is {f1.value:.3f} on {scores.n_rows:,} rows (95 % interval {f1.low:.3f} to {f1.high:.3f})"
    if not (rival := strongest(baselines, "micro_f1")):
        return f"{said}."
    return f"{said}; the model {lead_words(leads[rival]['micro_f1'], rival)}."


def reported(scores: LabelScores, names: tuple[str, ...]) -> dict[str, Interval]:
    """Some figures by their names in a report."""
    return {WORDS.get(name, words_of(name)): getattr(scores, name) for name in names}


def details(scores: LabelScores, mistakes: list[Example]) -> list[Section]:
    """Labels, all figures and the worst mistakes."""
    lines = [
        [
            one.name,
            *(f"{value:.3f}" for value in (one.precision, one.recall, one.f1)),
            one.f1,
            f"{one.support:,}",
            f"{one.threshold:.3f}",
        ]
        for one in scores.per_class
    ]
    table = Table(["label", "precision", "recall", "F1", "", "rows", "given from"], lines, "wnnnbnn")
    figures = figures_section(reported(scores, REPORTED))
    return [Section("Labels", table, long=True), figures, *mistakes_section(mistakes)]


def worst_labels(found: LabelAnswered, n: int = 20) -> list[Example]:
    """The `n` rows with the likeliest label that they are given and have not, likeliest first; it is the answer."""
    sure_nC = np.where(found.given_nC & ~found.marks_nC, found.probabilities_nC, -1.0)
    sure_n = sure_nC.max(1)
    rows = found.rows
    return [
        mistake(
            rows,
            row,
            found.words(found.marks_nC[row]) or NONE,
            found.names[int(sure_nC[row].argmax())],
            float(sure_n[row]),
        )
        for row in np.argsort(-sure_n, kind="stable")[: min(n, int((sure_n >= 0).sum()))].tolist()
    ]


def write_labels_csv(path: Path, found: LabelAnswered) -> None:
    """The columns of `write_answers_csv`, then labels and prediction, joined by |, and `p_<label>` for every label, in
    six decimals."""
    columns = ["labels", "prediction", *(f"p_{name}" for name in found.names)]
    answers: list[list[Any]] = [
        [*(found.words(of[at], "|") for of in (found.marks_nC, found.given_nC)), *(round(one, 6) for one in of_row)]
        for at, of_row in enumerate(found.probabilities_nC.tolist())
    ]
    write_answers_csv(path, found.rows, columns, answers)
