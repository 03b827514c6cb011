"""Rows with any number of labels: figures, answers, baselines.

Figures of a classifier that gives any number of labels, on one split, each with a 95 % interval.

n rows . C labels . R resamples

What needs no training of ours where rows have any number of labels: the bar to clear.

n rows . C labels

The labels a model gives to every row of a split, of which each may have any number.

n rows . C labels
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.data.rows import Rows
from manyheads.data.tokens import marks_of
from manyheads.evaluation.answers import LINEAR, NETWORK, Mistake, logits_by_model, write_answers_csv
from manyheads.evaluation.scores import (
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
from manyheads.inference.classifier import TextClassifier
from manyheads.linear.model import LinearBaseline

Bools = NDArray[np.bool_]


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
class LabelAnswers:
    """What can be said of bare answers. Micro figures are of all labels of all rows together; macro figures are means
    over the labels that rows have or are given; accuracy is the share of rows whose labels are all right, and no
    others given."""

    micro_f1: Interval
    macro_f1: Interval
    accuracy: Interval
    micro_precision: Interval
    micro_recall: Interval
    macro_precision: Interval
    macro_recall: Interval


FIGURES = tuple(LabelAnswers.__dataclass_fields__)


@dataclass(slots=True)
class LabelScores:
    """All figures of one split. `loss` is the mean over rows of the sum over labels, in nats."""

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


def score_given(marks_nC: Bools, given_nC: Bools, *, n_resamples: int = 1000, seed: int = 0) -> LabelAnswers:
    """Judge bare answers, such as a baseline's, on the resamples that `score_labels` draws for `seed`."""
    found = _resampled(marks_nC, given_nC, n_resamples, seed)
    return LabelAnswers(**_intervals(found, marks_nC, given_nC))


def _intervals(found: dict[str, Floats], marks_nC: Bools, given_nC: Bools) -> dict[str, Interval]:
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
) -> LabelAnswers:
    """Each figure of `given` less that of `others`, to the same rows: a paired bootstrap, as `change_of_answers`."""
    one, other = (_resampled(marks_nC, answers_nC, n_resamples, seed) for answers_nC in (given_nC, others_nC))
    n_macro = min(float(len(marks_nC)), effective_rows(marks_nC.sum(0)))
    n_rows = {name: n_macro if name.startswith("macro") else len(marks_nC) for name in FIGURES}
    return LabelAnswers(**{name: change_interval(one[name] - other[name], n_rows[name]) for name in FIGURES})


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


MOST_FREQUENT = "most frequent label"


@dataclass(slots=True)
class LabelBaseline:
    """One baseline's answers on one split, judged. `lead` is how much better the model answers the same rows, figure by
    figure, with paired intervals."""

    name: str
    scores: LabelAnswers
    lead: LabelAnswers


def label_baselines(
    marks_nC: Bools, answers: dict[str, Bools], model_nC: Bools, *, n_resamples: int = 1000, seed: int = 0
) -> list[LabelBaseline]:
    """The labels that cheap models give, by their names, judged beside those that a `model` gives to the same rows."""
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    return [
        LabelBaseline(
            name, score_given(marks_nC, given_nC, **draws), change_of_labels(marks_nC, model_nC, given_nC, **draws)
        )
        for name, given_nC in answers.items()
    ]


def always(label: int, n_rows: int, n_labels: int) -> Bools:
    """One label for every row."""
    given_nC = np.zeros((n_rows, n_labels), dtype=bool)
    given_nC[:, label] = True
    return given_nC


def most_frequent(counts: Sequence[int]) -> int:
    """Of the labels with so many rows each the one that has most, of equals the first."""
    return int(np.argmax(counts))


NONE = "no label"


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


def judge_labels(
    deliverable: TextClassifier,
    rows: Rows,
    baseline: LinearBaseline | None = None,
    *,
    tokens: int = 8192,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> dict[str, LabelAnswered]:
    """Answer every row by each model, as `logits_by_model` orders and names them; each gives labels from thresholds of
    its own on. `progress` hears how many more rows are done.

    Raises:
        ValueError: `rows` are pairs and the model takes single texts, or the other way round.
    """
    assert deliverable.thresholds is not None
    own = (
        {NETWORK: deliverable.member_thresholds.get("network"), LINEAR: deliverable.member_thresholds.get("linear")}
        if deliverable.share
        else {}
    )
    own |= {} if deliverable.share or baseline is None else {LINEAR: baseline.thresholds}
    marks_nC, found = marks_in(rows, len(deliverable.labels)), {}
    for name, logits_nC in logits_by_model(deliverable, rows, baseline, tokens=tokens, progress=progress).items():
        probabilities_nC = logits_nC.double().sigmoid().numpy()
        thresholds = own.get(name) or deliverable.thresholds
        given_nC = probabilities_nC >= np.array(thresholds)
        found[name] = LabelAnswered(rows, deliverable.labels, thresholds, probabilities_nC, marks_nC, given_nC)
    return found


def marks_in(rows: Rows, n_labels: int) -> Bools:
    """Which labels each row has: `(n, C)`."""
    assert rows.sets is not None, "read_splits and read_split give them where rows have any number of labels"
    return marks_of(rows.sets, n_labels).bool().numpy()


def scores_of(found: LabelAnswered, *, n_resamples: int = 1000, seed: int = 0) -> LabelScores:
    """The figures of the answers, with their intervals."""
    draws = {"n_resamples": n_resamples, "seed": seed}
    return score_labels(found.marks_nC, found.probabilities_nC, found.given_nC, found.names, found.thresholds, **draws)


def worst_labels(found: LabelAnswered, n: int = 20) -> list[Mistake]:
    """The `n` rows with the likeliest label that they are given and have not, likeliest first; it is the answer."""
    sure_nC = np.where(found.given_nC & ~found.marks_nC, found.probabilities_nC, -1.0)
    sure_n = sure_nC.max(1)
    rows = found.rows
    return [
        Mistake(
            number=rows.numbers[row],
            text=rows.texts[row],
            pair=None if rows.pairs is None else rows.pairs[row],
            label=found.words(found.marks_nC[row]) or NONE,
            answer=found.names[int(sure_nC[row].argmax())],
            confidence=float(sure_n[row]),
        )
        for row in np.argsort(-sure_n, kind="stable")[: min(n, int((sure_n >= 0).sum()))].tolist()
    ]


def write_labels_csv(path: Path, found: LabelAnswered) -> None:
    """One line a row, as of `write_answers_csv`: labels and prediction, joined by |, and `p_<label>` for every label. A
    probability has six decimals."""
    columns = ["labels", "prediction", *(f"p_{name}" for name in found.names)]
    said: list[list[Any]] = [
        [*(found.words(of[at], "|") for of in (found.marks_nC, found.given_nC)), *(round(one, 6) for one in of_row)]
        for at, of_row in enumerate(found.probabilities_nC.tolist())
    ]
    write_answers_csv(path, found.rows, columns, said)
