"""Figures of a classifier on one split with 95 % intervals, and its calibration.

n rows . C classes . R resamples . P pairs (class, answer) that occur
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Z = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution
N_BINS = 15  # of confidence
OF_ANSWERS = ("accuracy", "macro_f1", "micro_f1", "macro_precision", "macro_recall")  # figures without probabilities


@dataclass(slots=True)
class Interval:
    """A figure and its 95 % interval.

    Of a share of rows it is Wilson's, of a mean over classes `class_interval`: a bootstrap of rows that are all right
    knows of no doubt. Of losses and of the calibration error it holds the 2.5 % and 97.5 % points of the bootstrap,
    widened to hold the figure itself, since the calibration error is biased in a resample. Of a change it is
    `change_interval`.
    """

    value: float
    low: float
    high: float


@dataclass(slots=True)
class ClassScore:
    """One class: `support` is its number of rows; a ratio without a denominator is 0, as in scikit-learn."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(slots=True)
class Bin:
    """The rows whose confidence lies in `[low, high)`; the last bin holds 1 too."""

    low: float
    high: float
    n_rows: int
    confidence: float
    accuracy: float


@dataclass(slots=True)
class Scores:
    """All figures of one split. `confusion[i][j]` counts rows of class i answered j; `loss` is in nats.

    Macro figures are means over the classes that occur in labels or answers (scikit-learn's default), not over every
    class the model knows: a class that does not occur has no precision and no recall.

    The calibration error is the gap of confidence and accuracy, a mean over bins weighted by their rows: Guo et al.
    (2017), "On Calibration of Modern Neural Networks", equation 3.
    """

    accuracy: Interval
    macro_f1: Interval
    micro_f1: Interval
    macro_precision: Interval
    macro_recall: Interval
    loss: Interval
    calibration_error: Interval
    n_rows: int
    labels: list[str]
    per_class: list[ClassScore]
    confusion: list[list[int]]
    reliability: list[Bin]


def score(
    labels: ArrayLike, probabilities: ArrayLike, names: list[str], *, n_resamples: int = 1000, seed: int = 0
) -> Scores:
    """Judge `probabilities` `(n, C)` against class ids `labels` `(n,)`.

    The bootstrap draws whole rows, so all figures of a resample belong together; the same `seed` gives the same
    intervals.

    Raises:
        ValueError: there are no rows.
    """
    labels_n = np.asarray(labels, dtype=np.int64)
    probabilities_nC = np.asarray(probabilities, dtype=np.float64)
    check_rows(len(labels_n))
    assert probabilities_nC.shape == (len(labels_n), len(names)), "one row of probabilities a label"
    answers_n = probabilities_nC.argmax(1)
    confidence_n = probabilities_nC.max(1)
    right_n = answers_n == labels_n
    own_n = np.take_along_axis(probabilities_nC, labels_n[:, None], axis=1)[:, 0]
    rows = _Rows(
        cell_n=labels_n * len(names) + answers_n,
        loss_n=-np.log(np.maximum(own_n, np.finfo(np.float64).tiny)),
        bin_n=confidence_bins(confidence_n),
        gap_n=confidence_n - right_n,
        n_classes=len(names),
    )
    per_class, confusion = _by_class(rows.cell_n, names)
    return Scores(
        **_intervals(rows, n_resamples, seed),
        n_rows=len(labels_n),
        labels=list(names),
        per_class=per_class,
        confusion=confusion,
        reliability=reliability(confidence_n, right_n),
    )


def score_answers(
    labels: ArrayLike, answers: ArrayLike, n_classes: int, *, n_resamples: int = 1000, seed: int = 0
) -> dict[str, Interval]:
    """The figures `OF_ANSWERS` of class ids, such as a baseline's, on the resamples that `score` draws for `seed`."""
    labels_n, answers_n = (np.asarray(ids, dtype=np.int64) for ids in (labels, answers))
    check_rows(len(labels_n))
    intervals = _intervals(_bare_rows(labels_n, answers_n, n_classes), n_resamples, seed)
    return {name: intervals[name] for name in OF_ANSWERS}


def change_of_answers(
    labels: ArrayLike,
    answers: ArrayLike,
    others: Iterable[ArrayLike],
    n_classes: int,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[dict[str, Interval]]:
    """Each figure of every one of `others` less that of `answers`, on the same rows, with its `change_interval`.

    The bootstrap is paired: a resample draws rows, and takes both answers to each (Efron and Tibshirani, 1993,
    "An Introduction to the Bootstrap", section 8.3).
    """
    labels_n = np.asarray(labels, dtype=np.int64)
    check_rows(len(labels_n))
    before, *after = (
        _resampled(_bare_rows(labels_n, np.asarray(ids, dtype=np.int64), n_classes), n_resamples, seed)
        for ids in (answers, *others)
    )
    support_C = np.bincount(labels_n, minlength=n_classes)
    n_rows = {name: effective_rows(support_C) if name.startswith("macro") else len(labels_n) for name in before}
    return [{name: change_interval(one[name] - before[name], n_rows[name]) for name in OF_ANSWERS} for one in after]


def effective_rows(n_C: NDArray[Any]) -> float:
    """How many rows one share must have to be known as well as a mean over classes of `n_C` rows each: of classes of
    one size all their rows, else fewer."""
    n_C = n_C[n_C > 0]
    return float(len(n_C) ** 2 / (1 / n_C).sum()) if len(n_C) else 1.0


def class_interval(value_R: Floats, value_C: Floats, n_C: Floats) -> Interval:
    """Of the mean over classes of figures between 0 and 1, such as macro F1: as it is, entry 0, and of its resamples.

    It is Wilson's score interval, taken class by class as Yan and Su (2010), "Stratified Wilson and Newcombe Confidence
    Intervals for Multiple Binomial Proportions", do: each class shifts the middle by what its `n_C` rows leave in
    doubt, at its own figure `value_C`. The variance is that of the resamples, so that errors which lower two classes at
    once count as such. Of one class whose figure is a share it is Wilson's interval, and of classes of one size that
    are all right, that of all rows; without any it is 0 to 1. docs/lab-notes.md has its coverage.
    """
    seen_C = n_C > 0
    if not seen_C.any():
        return Interval(float(value_R[0]), 0.0, 1.0)
    value, weight_C = float(value_R[0]), (Z / seen_C.sum()) ** 2 / n_C[seen_C]
    doubt, shift = float(weight_C.sum()), float((weight_C * (0.5 - value_C[seen_C])).sum())
    half = math.sqrt(Z**2 * value_R[1:].var() + doubt**2 / 4) if len(value_R) > 1 else doubt / 2
    low, high = (value + (shift + sign * half) / (1 + doubt) for sign in (-1, 1))
    return Interval(value, min(value, max(0.0, low)), max(value, min(1.0, high)))


def change_interval(value_R: Floats, n_rows: float) -> Interval:
    """Of the difference of two figures of the same `n_rows` (effective) rows: as it is, entry 0, and of its resamples.

    Bonett and Price (2012), "Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on Paired
    Data": as if of two further rows each model alone had one right. So two models that answer every row alike are not
    known to be equally good. Of an accuracy it is theirs, but for the noise of the resamples, which give the variance.
    """
    value, shrunk = float(value_R[0]), n_rows / (n_rows + 2)
    added = 2 / (n_rows + 2) ** 2 * (1 + value**2 / (1 + 2 / n_rows))  # by the two rows
    half = Z * math.sqrt(value_R[1:].var() * shrunk**2 + added) if len(value_R) > 1 else 1.0
    low, high = (value * shrunk + sign * half for sign in (-1, 1))
    return Interval(value, min(value, max(-1.0, low)), max(value, min(1.0, high)))


def mean_interval(values: ArrayLike, *, n_resamples: int = 1000, seed: int = 0) -> Interval:
    """The mean of a figure a row, on the resamples that `score` draws for `seed`; of differences it is paired."""
    return ratio_interval(values, np.ones(np.shape(values)), n_resamples=n_resamples, seed=seed)


def share_interval(n_some: int, n: int) -> Interval:
    """The share of rows that some are, with Wilson's interval: Wilson (1927), "Probable Inference, the Law of
    Succession, and Statistical Inference"."""
    check_rows(n)
    share, doubt = n_some / n, Z**2 / n
    middle, half = share + doubt / 2, math.sqrt(share * (1 - share) * doubt + doubt**2 / 4)
    low, high = (middle - half) / (1 + doubt), (middle + half) / (1 + doubt)
    return Interval(share, min(share, max(0.0, low)), max(share, min(1.0, high)))


def ratio_interval(
    parts: ArrayLike, wholes: ArrayLike, *, share: bool = False, n_resamples: int = 1000, seed: int = 0
) -> Interval:
    """The sum of `parts` by that of `wholes`, a number a row each; with `share` a part of each whole, such as right
    tokens by tokens, of which as many as there are rows count as independent."""
    part_n, whole_n = (np.asarray(values, dtype=np.float64) for values in (parts, wholes))
    check_rows(len(part_n))
    ratio_R = np.array(
        [times_n @ part_n / (times_n @ whole_n) for times_n in resamples(len(part_n), n_resamples, seed)]
    )
    return class_interval(ratio_R, ratio_R[:1], np.array([float(len(part_n))])) if share else interval(ratio_R)


def confidence_bins(confidence_n: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which of equally wide bins of [0, 1] each confidence falls into: `(n,)`."""
    return np.digitize(confidence_n, np.linspace(0, 1, N_BINS + 1)[1:-1])


def reliability(confidence_n: NDArray[np.float64], right_n: NDArray[np.bool_]) -> list[Bin]:
    """The bins that hold rows, from the least to the most confident."""
    bin_n = confidence_bins(confidence_n)
    counts = np.bincount(bin_n, minlength=N_BINS)
    confidence = np.bincount(bin_n, weights=confidence_n, minlength=N_BINS)
    right = np.bincount(bin_n, weights=right_n, minlength=N_BINS)
    return [
        Bin(at / N_BINS, (at + 1) / N_BINS, count, confident / count, correct / count)
        for at, (count, confident, correct) in enumerate(
            zip(counts.tolist(), confidence.tolist(), right.tolist(), strict=True)
        )
        if count
    ]


@dataclass(slots=True)
class _Rows:
    """Per row: the cell of the confusion matrix, the loss, the confidence bin and confidence minus right."""

    cell_n: Ints
    loss_n: Floats
    bin_n: Ints
    gap_n: Floats
    n_classes: int


def check_rows(n_rows: int) -> None:
    """Raise ValueError if there are none."""
    if n_rows == 0:
        raise ValueError("there are no rows to judge: give a split that holds at least one")


def _bare_rows(labels_n: Ints, answers_n: Ints, n_classes: int) -> _Rows:
    """Rows of which the answers alone are known."""
    nothing = np.zeros(len(labels_n))
    return _Rows(labels_n * n_classes + answers_n, nothing, nothing.astype(np.int64), nothing, n_classes)


def _intervals(rows: _Rows, n_resamples: int, seed: int) -> dict[str, Interval]:
    """Every figure with its interval."""
    resampled = _resampled(rows, n_resamples, seed)
    classes_n, answers_n = np.divmod(rows.cell_n, rows.n_classes)
    is_right_n = classes_n == answers_n
    support_C, answered_C = (np.bincount(ids, minlength=rows.n_classes) for ids in (classes_n, answers_n))
    right_C = np.bincount(classes_n[is_right_n], minlength=rows.n_classes)
    right = share_interval(int(is_right_n.sum()), len(classes_n))
    macro = macro_intervals(resampled, right_C, support_C, answered_C, len(classes_n))
    found = {name: interval(value_R) for name, value_R in resampled.items() if name not in macro}
    return found | macro | {"accuracy": right, "micro_f1": right}  # one answer a row: micro-F1 is the accuracy


def macro_intervals(
    resampled: dict[str, Floats], right_C: NDArray[Any], support_C: NDArray[Any], answered_C: NDArray[Any], n_rows: int
) -> dict[str, Interval]:
    """Those of the macro figures. A class counts with the mean of the rows it has and those answered so: the whole of
    which its F1 is a share. Labels of one row are not independent, so all classes together count as no more than the
    `n_rows`."""
    n_C = (support_C + answered_C) / 2
    wholes = {"f1": n_C, "precision": answered_C, "recall": support_C}
    n_C = n_C * min(1.0, n_rows / effective_rows(n_C))
    return {
        f"macro_{name}": class_interval(resampled[f"macro_{name}"], ratio(right_C, whole_C), n_C)
        for name, whole_C in wholes.items()
    }


def resamples(n: int, n_resamples: int, seed: int) -> Iterator[Ints]:
    """How often each of `n` rows counts: first once each, the data as it is, then as they are drawn."""
    random = np.random.default_rng(seed)
    yield np.ones(n, dtype=np.int64)
    for _ in range(n_resamples):
        yield np.bincount(random.integers(n, size=n), minlength=n)


def _resampled(rows: _Rows, n_resamples: int, seed: int) -> dict[str, Floats]:
    """Every figure `(R,)`: entry 0 is of the data as it is, the rest are of resamples."""
    cells_P, pair_n = np.unique(rows.cell_n, return_inverse=True)
    n = len(pair_n)
    counts_RP = np.empty((n_resamples + 1, len(cells_P)))
    loss_R, gap_R = np.empty(n_resamples + 1), np.empty(n_resamples + 1)
    for at, times_n in enumerate(resamples(n, n_resamples, seed)):
        counts_RP[at] = np.bincount(pair_n, weights=times_n, minlength=len(cells_P))
        loss_R[at] = times_n @ rows.loss_n / n
        gap_R[at] = np.abs(np.bincount(rows.bin_n, weights=times_n * rows.gap_n, minlength=N_BINS)).sum() / n
    return _figures(counts_RP, cells_P, rows.n_classes) | {"loss": loss_R, "calibration_error": gap_R}


def _figures(counts_RP: Floats, cells_P: Ints, n_classes: int) -> dict[str, Floats]:
    """Accuracy and the averages over classes of R confusion matrices, given by their P occurring cells."""
    classes_P, answers_P = np.divmod(cells_P, n_classes)
    is_right_P = classes_P == answers_P
    support_RC = _summed(counts_RP, classes_P, n_classes)
    answered_RC = _summed(counts_RP, answers_P, n_classes)
    right_RC = _summed(counts_RP[:, is_right_P], classes_P[is_right_P], n_classes)
    occurs_RC = (support_RC + answered_RC) > 0

    def mean(figure_RC: Floats) -> Floats:
        return figure_RC.sum(1) / occurs_RC.sum(1)

    accuracy_R = right_RC.sum(1) / support_RC.sum(1)
    return {
        "accuracy": accuracy_R,
        "macro_f1": mean(ratio(2 * right_RC, support_RC + answered_RC)),
        "micro_f1": accuracy_R,  # one answer a row: micro precision, recall and F1 are all the accuracy
        "macro_precision": mean(ratio(right_RC, answered_RC)),
        "macro_recall": mean(ratio(right_RC, support_RC)),
    }


def _summed(counts_RP: Floats, classes_P: Ints, n_classes: int) -> Floats:
    """The counts of each class, without a matrix of cells by classes, of which there may be thousands each."""
    sums_RC = np.zeros((len(counts_RP), n_classes))
    if len(classes_P):
        order_P = classes_P.argsort(kind="stable")
        there, starts = np.unique(classes_P[order_P], return_index=True)
        sums_RC[:, there] = np.add.reduceat(counts_RP[:, order_P], starts, axis=1)
    return sums_RC


def _by_class(cell_n: Ints, names: list[str]) -> tuple[list[ClassScore], list[list[int]]]:
    n_classes = len(names)
    confusion_CC = np.bincount(cell_n, minlength=n_classes**2).reshape(n_classes, n_classes)
    right_C, support_C, answered_C = confusion_CC.diagonal(), confusion_CC.sum(1), confusion_CC.sum(0)
    precision_C = ratio(right_C, answered_C)
    recall_C = ratio(right_C, support_C)
    f1_C = ratio(2 * right_C, support_C + answered_C)
    rows = zip(names, precision_C.tolist(), recall_C.tolist(), f1_C.tolist(), support_C.tolist(), strict=True)
    return [ClassScore(*row) for row in rows], confusion_CC.tolist()


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """One by the other; 0 without a denominator."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


def interval(value_R: Floats) -> Interval:
    """Of a figure as it is, entry 0, and of its resamples."""
    value = float(value_R[0])
    low, high = np.percentile(value_R[1:], (2.5, 97.5)).tolist() if len(value_R) > 1 else (value, value)
    return Interval(value, min(low, value), max(high, value))
