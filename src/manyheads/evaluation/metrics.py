"""Figures of a classifier on one split with 95 % intervals, and its calibration.

Labels are class ids `(n,)`, or marks `(n, C)`, bool, where a row has any number of labels; answers likewise.

n rows . C classes or labels . R resamples, of which entry 0 is the data as it is . P pairs (class, answer) that occur
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
OF_CLASSES = ("accuracy", "macro_f1", "micro_f1", "macro_precision", "macro_recall", "loss", "calibration_error")
OF_LABELS = (
    *("micro_f1", "macro_f1", "accuracy", "micro_precision", "micro_recall", "macro_precision", "macro_recall"),
    "loss",
)
NO_ROWS = "there are no rows to judge: give a split that holds at least one"
Z = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution
N_BINS = 15  # of confidence, equally wide
EDGES = np.linspace(0, 1, N_BINS + 1)[1:-1]


@dataclass(slots=True)
class Interval:
    """A figure and its 95 % interval: of a share of rows Wilson's, of a mean over classes `class_interval`, of a change
    `change_interval`, of a loss `mean_interval`, of the calibration error `gap_interval`. How often each holds the
    figure of all texts is in docs/evaluation.md. It always holds the figure itself."""

    value: float
    low: float
    high: float


Figures = dict[str, Interval]  # of one model, by name


def plain(figures: Figures) -> dict[str, dict[str, float]]:
    """Figures as JSON has them."""
    return {name: asdict(one) for name, one in figures.items()}


@dataclass(slots=True)
class ClassScore:
    """One class or label: `support` is the number of rows that have it; a ratio without a denominator is 0, as in
    scikit-learn."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(slots=True)
class LabelScore(ClassScore):
    """One label, which is given from the probability `threshold` on."""

    threshold: float


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
    """All of one split: its `figures`, of which the first is what models are compared by, and `confusion[i][j]`, the
    rows of class i answered j.

    Macro figures are means over the classes that occur in labels or answers (scikit-learn's default), not over every
    class the model knows: a class that does not occur has no precision and no recall. The loss is in nats. The
    calibration error is the gap of confidence and accuracy, a mean over bins weighted by their rows: Guo et al. (2017),
    "On Calibration of Modern Neural Networks", equation 3.

    Where rows have any number of labels, there is no confusion and no reliability. Micro figures are then of all labels
    of all rows together, accuracy is the share of rows whose labels are all right, and no others given, and the loss is
    the mean over rows of the sum over labels.
    """

    figures: Figures
    n_rows: int
    labels: list[str]
    per_class: Sequence[ClassScore]
    confusion: list[list[int]] = field(default_factory=list)
    reliability: list[Bin] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The figures by name, then all else that there is."""
        found = asdict(self)
        return found.pop("figures") | {name: one for name, one in found.items() if one != []}


def score(
    labels: ArrayLike, probabilities: ArrayLike, names: list[str], *, n_resamples: int = 1000, seed: int = 0
) -> Scores:
    """Judge `probabilities` `(n, C)` against class ids `labels` `(n,)`. The bootstrap draws whole rows, so all figures
    of a resample belong together; the same `seed` gives the same intervals. A ValueError where there are no rows."""
    labels_n = np.asarray(labels, dtype=np.int64)
    probabilities_nC = np.asarray(probabilities, dtype=np.float64)
    assert probabilities_nC.shape == (len(labels_n), len(names)), "one row of probabilities a label"
    answers_n, confidence_n = probabilities_nC.argmax(1), probabilities_nC.max(1)
    right_n, n_classes = answers_n == labels_n, len(names)
    own_n = probabilities_nC[np.arange(len(labels_n)), labels_n]
    loss_n = -np.log(np.maximum(own_n, np.finfo(np.float64).tiny))
    draws = {"n_resamples": n_resamples, "seed": seed}
    resampled = _of_classes(labels_n, answers_n, n_classes, **draws)
    found = resampled.intervals() | {"loss": mean_interval(loss_n, skewed=True)}
    found["calibration_error"] = gap_interval(np.digitize(confidence_n, EDGES), confidence_n, right_n, **draws)
    confusion_CC = np.bincount(labels_n * n_classes + answers_n, minlength=n_classes**2).reshape(n_classes, n_classes)
    return Scores(
        {name: found[name] for name in OF_CLASSES},
        n_rows=len(labels_n),
        labels=list(names),
        per_class=[ClassScore(*row) for row in zip(names, *resampled.by_class(), strict=True)],
        confusion=confusion_CC.tolist(),
        reliability=reliability(confidence_n, right_n),
    )


def score_labels(
    marks_nC: Bools, probabilities_nC: Floats, names: list[str], thresholds: list[float], **draws: int
) -> Scores:
    """Judge labels, given from their `thresholds` on, against those that rows have, their `marks`; the bootstrap, its
    settings and errors are those of `score`."""
    kind = np.finfo(np.float64)  # a probability next to one has no digits left for what is wanting to it
    own_nC = np.where(marks_nC, np.maximum(probabilities_nC, kind.tiny), np.maximum(1 - probabilities_nC, kind.eps / 2))
    loss_n, given_nC = -np.log(own_nC).sum(1), probabilities_nC >= np.array(thresholds)
    resampled = _of_labels(marks_nC, given_nC, **draws)
    found = resampled.intervals() | {"loss": mean_interval(loss_n, skewed=True)}
    per_class = [LabelScore(*row) for row in zip(names, *resampled.by_class(), thresholds, strict=True)]
    return Scores({name: found[name] for name in OF_LABELS}, len(marks_nC), list(names), per_class)


def score_answers(labels: ArrayLike, answers: ArrayLike, n_classes: int, **draws: int) -> Figures:
    """The figures of bare answers, such as a baseline's, on the resamples that `score` draws for these settings."""
    return _resampled(labels, answers, n_classes, **draws).intervals()


def change_of_answers(
    labels: ArrayLike, answers: ArrayLike, others: Iterable[ArrayLike], n_classes: int, **draws: int
) -> list[Figures]:
    """Each figure of every one of `others` less that of `answers`, on the same rows, with its `change_interval`. The
    bootstrap is paired: a resample draws rows, and takes both answers to each (Efron and Tibshirani, 1993, "An
    Introduction to the Bootstrap", section 8.3)."""
    before, *after = (_resampled(labels, one, n_classes, **draws) for one in (answers, *others))
    figures, n_macro = before.figures(), min(float(before.n_rows), effective_rows(before.support_RC[0]))
    n_rows = {name: n_macro if name.startswith("macro") else before.n_rows for name in figures}
    found = [one.figures() for one in after]
    return [{name: change_interval(one[name] - figures[name], n_rows[name]) for name in figures} for one in found]


@dataclass(slots=True)
class _Resampled:
    """Of each class or label the rows that have it, those answered by it, and those of them that are right, `(R, C)`;
    the rows whose answer is all right `(R,)`."""

    support_RC: Floats
    given_RC: Floats
    right_RC: Floats
    right_R: Floats
    n_rows: int
    multi: bool

    def figures(self) -> dict[str, Floats]:
        """Every figure `(R,)`: macro ones are means over the classes that rows have or are given."""
        accuracy_R, wholes = self.right_R / self.n_rows, self._wholes()
        occurs_R = np.maximum((wholes["f1"] > 0).sum(1), 1)
        macro = {f"macro_{name}": ratio(self.right_RC, whole_RC).sum(1) / occurs_R for name, whole_RC in wholes.items()}
        micro = {"micro_f1": accuracy_R}  # one answer a row: micro precision, recall and F1 are all the accuracy
        if self.multi:
            right_R = self.right_RC.sum(1)
            micro = {f"micro_{name}": ratio(right_R, whole_RC.sum(1)) for name, whole_RC in wholes.items()}
        return {"accuracy": accuracy_R, **macro, **micro}

    def intervals(self) -> Figures:
        """Every figure with its interval.

        In macro figures a class counts with the mean of the rows it has and those answered so: the whole of which its
        F1 is a share. Labels of one row are not independent, so all classes together count as no more than the rows, as
        does the whole of which a micro figure is a share.
        """
        figures, right = self.figures(), share_interval(int(self.right_R[0]), self.n_rows)
        found = {"accuracy": right}
        wholes = {name: whole_RC[0] for name, whole_RC in self._wholes().items()}
        n_C = wholes["f1"] * min(1.0, self.n_rows / effective_rows(wholes["f1"]))
        for name, whole_C in wholes.items():
            macro, micro = f"macro_{name}", f"micro_{name}"
            found[macro] = class_interval(figures[macro], ratio(self.right_RC[0], whole_C), n_C)
            if self.multi:
                n_1 = np.array([min(float(whole_C.sum()), self.n_rows)])
                found[micro] = class_interval(figures[micro], figures[micro][:1], n_1)
        return found if self.multi else found | {"micro_f1": right}

    def by_class(self) -> Iterator[list[Any]]:
        """Precision, recall, F1 and support, each of all classes."""
        right_C, given_C, support_C = self.right_RC[0], self.given_RC[0], self.support_RC[0]
        for part_C, whole_C in ((right_C, given_C), (right_C, support_C), (2 * right_C, given_C + support_C)):
            yield ratio(part_C, whole_C).tolist()
        yield support_C.astype(np.int64).tolist()

    def _wholes(self) -> dict[str, Floats]:
        """Of which each figure is a share `(R, C)`."""
        return {"f1": (self.given_RC + self.support_RC) / 2, "precision": self.given_RC, "recall": self.support_RC}


def _resampled(labels: ArrayLike, answers: ArrayLike, n_classes: int, **draws: int) -> _Resampled:
    """Of bare answers."""
    ids, given = np.asarray(labels), np.asarray(answers)
    if ids.ndim == 2:
        return _of_labels(ids, given, **draws)
    return _of_classes(ids.astype(np.int64), given.astype(np.int64), n_classes, **draws)


def _of_classes(labels_n: Ints, answers_n: Ints, n_classes: int, **draws: int) -> _Resampled:
    """Counted by the pairs of class and answer that occur: of thousands of classes there is no matrix."""
    cells_P, pair_n = np.unique(labels_n * n_classes + answers_n, return_inverse=True)
    classes_P, answers_P = np.divmod(cells_P, n_classes)
    right_P = classes_P == answers_P
    counts = []
    for times_n in resamples(len(labels_n), **draws):
        counts_P = np.bincount(pair_n, weights=times_n, minlength=len(cells_P))
        every = ((classes_P, counts_P), (answers_P, counts_P), (classes_P[right_P], counts_P[right_P]))
        counts.append([np.bincount(ids, weights=some, minlength=n_classes) for ids, some in every])
    support_RC, given_RC, right_RC = (np.stack(one) for one in zip(*counts, strict=True))
    return _Resampled(support_RC, given_RC, right_RC, right_RC.sum(1), len(labels_n), False)


def _of_labels(marks_nC: Bools, given_nC: Bools, **draws: int) -> _Resampled:
    n, n_labels = marks_nC.shape
    per_row = [marks_nC & given_nC, given_nC, marks_nC, (marks_nC == given_nC).all(1)[:, None]]
    of_rows = np.concatenate([np.asarray(one, dtype=np.float64) for one in per_row], axis=1)
    sums = np.stack([times_n @ of_rows for times_n in resamples(n, **draws)])
    right_RC, given_RC, support_RC = (sums[:, at * n_labels : (at + 1) * n_labels] for at in range(3))
    return _Resampled(support_RC, given_RC, right_RC, sums[:, -1], n, True)


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

    Agresti and Min (2005), "Simple Improved Confidence Intervals for Comparing Matched Proportions": as if two further
    rows were shared out evenly over both right, both wrong, and either alone right. So models that answer every row
    alike are not known to be equally good. Of an accuracy it is theirs, but for noise: the resamples give the variance.
    """
    value, shrunk = float(value_R[0]), n_rows / (n_rows + 2)
    added = (1 + 2 * value**2 / (1 + 2 / n_rows)) / (n_rows + 2) ** 2  # by the two rows
    half = Z * math.sqrt(value_R[1:].var() * shrunk**2 + added) if len(value_R) > 1 else 1.0
    low, high = (value * shrunk + sign * half for sign in (-1, 1))
    return Interval(value, min(value, max(-1.0, low)), max(value, min(1.0, high)))


def mean_interval(values: ArrayLike, *, skewed: bool = False) -> Interval:
    """The mean of a figure a row, such as a difference of paired rows, with Student's interval. That of a loss, which
    is `skewed`, never negative and decided by few rows, would end too low: Hall (1992), "On the Removal of Skewness by
    Transformation", takes the skewness out of t by a cubic, whose inverse gives the ends."""
    from scipy.special import stdtrit  # which takes long to import

    value_n = np.asarray(values, dtype=np.float64)
    n = len(value_n)
    if not n:
        raise ValueError(NO_ROWS)
    mean, deviation = float(value_n.mean()), float(value_n.std(ddof=1)) if n > 1 else 0.0
    if not deviation > 0:
        return Interval(mean, mean, mean)
    ends_t = [sign * float(stdtrit(n - 1, 0.975)) for sign in (1, -1)]
    skew = float(((value_n - mean) ** 3).mean()) / (deviation**3 * math.sqrt(n)) if skewed else 0.0
    if skew:
        ends_t = [3 / skew * (math.cbrt(1 + skew * (end - skew / 6)) - 1) for end in ends_t]
    low, high = (mean - end * deviation / math.sqrt(n) for end in ends_t)
    return Interval(mean, min(mean, max(low, 0.0) if skewed else low), max(mean, high))


def gap_interval(
    bin_n: Ints, confidence_n: Floats, right_n: Bools, *, n_resamples: int = 1000, seed: int = 0
) -> Interval:
    """The calibration error over the bins `bin_n`: their gaps of confidence and share of right rows, weighted by rows.

    Noise makes gaps where there are none, and resampled rows bring it in once more. So the interval holds the errors
    which could well have looked like the one seen: Carpenter (1999), "Test Inversion Bootstrap Confidence Intervals".
    The gaps are a multiple of those seen, each with two rows of the mean gap added; rows are drawn into the bins and
    right as often as confidence less gap says, as in Bröcker and Smith (2007), "Increasing the Reliability of
    Reliability Diagrams". At either end 2.5 % of the draws lie as far out as what is seen. K bins that hold rows
    """
    _, bin_n, n_K = np.unique(bin_n, return_inverse=True, return_counts=True)
    n = len(bin_n)
    sure_K = np.bincount(bin_n, weights=confidence_n) / n_K
    gaps_K = np.bincount(bin_n, weights=confidence_n - right_n)
    value, held_K = float(np.abs(gaps_K).sum()) / n, (gaps_K + 2 * gaps_K.sum() / n) / (n_K + 2)
    ones_K = np.ones_like(held_K)
    held_K = held_K / np.abs(held_K).max() if held_K.any() else ones_K

    def end(towards_K: Floats, reached: Callable[[Floats], bool]) -> tuple[float, float]:
        """The least multiple of the gaps `towards_K` whose draws are `reached`, by halving, 16 where none is; and its
        error."""
        below, above = 0.0, 16.0
        for step in range(16):
            middle = (below + above) / 2 if step else 0.0
            random = np.random.default_rng(seed)
            n_RK = random.multinomial(n, n_K / n, size=n_resamples)
            right_RK = random.binomial(n_RK, np.clip(sure_K - middle * towards_K, 0, 1))
            if reached(np.abs(n_RK * sure_K - right_RK).sum(1) / n):
                above = middle
            else:
                below = middle
        return above, float(n_K @ np.abs(sure_K - np.clip(sure_K - above * towards_K, 0, 1))) / n

    _, low = end(held_K, lambda value_R: float(np.mean(value_R >= value - 1e-12)) > 0.025)
    highs = (end(one, lambda value_R: float(np.mean(value_R <= value + 1e-12)) < 0.025) for one in (held_K, ones_K))
    high = next((error for multiple, error in highs if multiple < 16), 1.0)  # rows that are all right lead to no end
    return Interval(value, min(value, low), max(value, high))


def share_interval(n_some: int, n: int) -> Interval:
    """The share of rows that some are, with Wilson's interval: Wilson (1927), "Probable Inference, the Law of
    Succession, and Statistical Inference"."""
    if not n:
        raise ValueError(NO_ROWS)
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
    if not share:  # the mean of what each row moves it by, to first order
        total = part_n.sum() / whole_n.sum()
        return mean_interval(total + (part_n - total * whole_n) / whole_n.mean(), skewed=True)
    ratio_R = np.array(
        [times_n @ part_n / (times_n @ whole_n) for times_n in resamples(len(part_n), n_resamples, seed)]
    )
    return class_interval(ratio_R, ratio_R[:1], np.array([float(len(part_n))]))


def reliability(confidence_n: NDArray[np.float64], right_n: NDArray[np.bool_]) -> list[Bin]:
    """The bins that hold rows, from the least to the most confident."""
    bin_n = np.digitize(confidence_n, EDGES)
    of_rows = (np.ones(len(bin_n)), confidence_n, right_n)
    sums = [np.bincount(bin_n, weights=values, minlength=N_BINS).tolist() for values in of_rows]
    return [
        Bin(at / N_BINS, (at + 1) / N_BINS, int(count), confident / count, correct / count)
        for at, (count, confident, correct) in enumerate(zip(*sums, strict=True))
        if count
    ]


def resamples(n: int, n_resamples: int = 1000, seed: int = 0) -> Iterator[Ints]:
    """How often each of `n` rows counts: first once each, the data as it is, then as they are drawn."""
    if not n:
        raise ValueError(NO_ROWS)
    random = np.random.default_rng(seed)
    yield np.ones(n, dtype=np.int64)
    for _ in range(n_resamples):
        yield np.bincount(random.integers(n, size=n), minlength=n)


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """One by the other; 0 without a denominator."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)
