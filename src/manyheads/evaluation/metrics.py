"""From labels, answers and probabilities to figures with 95 % intervals.

Labels and answers are class ids `(n,)`, or marks `(n, C)`, bool, where a row has any number of labels. The way of a
figure that follows from them, such as macro F1: they are counted (`Counts`); the figure is a mean of shares of these
counts (`figures.macro_f1`, a `MeanOfShares`); what each row adds to it, to first order, says how far it varies
(`covariances_of`), and so its interval (`interval_of`). Figures of probabilities follow from a few numbers of each row
(`Outcomes`): their means, and calibration.py.

n rows . C classes or labels . F = 3C + 1 counts: of right, answered and labelled classes, and of rows that are right
S shares . G figures . K bins
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import manyheads.plugin as plugin
from manyheads.config.figures import figures_of, figures_of_answers
from manyheads.errors import UserError
from manyheads.evaluation.calibration import EDGES, N_BINS, binned_error, equal_bins, error_interval
from manyheads.evaluation.intervals import (
    NO_ROWS,
    Bools,
    Floats,
    bootstrap,
    change_interval,
    effective_rows,
    mean_interval,
    ratio,
    share_interval,
    shares_interval,
)
from manyheads.evaluation.logits import join_chunks
from manyheads.runs.summary import Figures, Interval

CHUNK = 2**20  # numbers of rows that are in memory at once, where rows are taken a chunk at a time
TINY = float(np.finfo(np.float64).tiny)
HALF_STEP = float(np.finfo(np.float64).eps / 2)  # from 1 to the nearest number below it


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
    """The rows whose confidence lies in `[low, high)`, the last bin holds 1 too; their accuracy with its interval."""

    low: float
    high: float
    n_rows: int
    confidence: float
    accuracy: float
    least: float
    most: float


@dataclass(slots=True)
class Scores:
    """All of one split: its `figures`, of which the first is what models are compared by, and `confusion[i][j]`, the
    rows of class i answered j.

    Macro figures are means over the classes, or labels, that rows have or are given, not over every one that the model
    knows: one that does not occur has no precision and no recall. How many they are is `averaged`. So does
    scikit-learn with classes; with marks of labels it counts 0 for each that does not occur, unless `labels` names
    those that do. figures.py defines each figure.

    Where rows have any number of labels, there is no confusion and no reliability.
    """

    figures: Figures
    n_rows: int
    labels: list[str]
    per_class: Sequence[ClassScore]
    averaged: int
    confusion: list[list[int]] = field(default_factory=list)
    reliability: list[Bin] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The figures by name, then all else that there is."""
        found = asdict(self)
        return found.pop("figures") | {name: one for name, one in found.items() if one != []}


class MeanOfShares(NamedTuple):
    """A figure that is the mean of some shares, such as recall over classes.

    Attributes:
        shares_S: the shares.
        rows_S: how many rows each is a share of.
        slopes_F: by how much the figure grows with each of the counts, to first order.
        bias: by how much it is too low on average, to second order.
        of_rows: it is a single share of all rows, which are independent.
    """

    shares_S: Floats
    rows_S: Floats
    slopes_F: Floats
    bias: float = 0.0
    of_rows: bool = False

    @property
    def doubt(self) -> float:
        """The variance of the figure by one more row, right by one of two models alone and shared out evenly over the
        shares, half of it for either."""
        rows_S = np.maximum(self.rows_S, 1)
        return float((rows_S**-2.0).sum()) / (2 * max(1, len(rows_S)) ** 3)


@dataclass(slots=True)
class Counts:
    """How many rows have each class or label, are answered by it, and both, `(C,)`; and how many rows are answered
    right, of labels by all of them and no others."""

    labelled_C: Floats
    answered_C: Floats
    right_C: Floats
    n_right: int
    n_rows: int
    multi: bool

    @classmethod
    def of(cls, labels: NDArray[Any], answers: NDArray[Any], n_classes: int) -> "Counts":
        """Count them. A UserError where there are no rows."""
        if not len(labels):
            raise UserError(NO_ROWS)
        if labels.ndim == 1:
            right_n = labels == answers
            every = (labels, answers, labels[right_n])
            labelled_C, answered_C, right_C = (
                np.bincount(ids, minlength=n_classes).astype(np.float64) for ids in every
            )
            return cls(labelled_C, answered_C, right_C, int(right_n.sum()), len(labels), False)
        none_C = np.zeros(n_classes)
        found = cls(none_C.copy(), none_C.copy(), none_C.copy(), 0, len(labels), True)
        for rows in chunks(len(labels), n_classes):
            labels_nC, answers_nC = labels[rows], answers[rows]
            found.labelled_C += labels_nC.sum(0)
            found.answered_C += answers_nC.sum(0)
            found.right_C += (labels_nC & answers_nC).sum(0)
            found.n_right += int((labels_nC == answers_nC).all(1).sum())
        return found

    @property
    def occurs_C(self) -> Bools:
        """Which classes rows have or are answered by."""
        return self.labelled_C + self.answered_C > 0

    def of_rows(self) -> MeanOfShares:
        """The share of rows that are answered right."""
        n, slopes_F = float(self.n_rows), np.zeros(3 * len(self.right_C) + 1)
        slopes_F[-1] = 1 / n
        return MeanOfShares(np.array([self.n_right / n]), np.array([n]), slopes_F, of_rows=True)

    def macro(self, *, answered: float, labelled: float) -> MeanOfShares:
        """The mean, over the classes that occur, of the share that is right of a whole: `answered` times the rows that
        are answered by the class, and `labelled` times those that have it. Precision is (1, 0), recall (0, 1), and F1
        (0.5, 0.5).

        Labels of one row are not independent, so all labels together count as no more rows than there are.
        """
        occurs_C = self.occurs_C
        whole_C = answered * self.answered_C + labelled * self.labelled_C
        share_C = ratio(self.right_C, whole_C)
        by_right_C = ratio(np.full_like(whole_C, 1 / max(1, occurs_C.sum())), whole_C)
        rows_S = whole_C[occurs_C]
        if self.multi:
            rows_S = rows_S * min(1.0, self.n_rows / effective_rows(whole_C))
        grows = answered > 0 and labelled > 0  # a whole of both grows with the rows that are right
        bias = _bias(share_C[occurs_C], whole_C[occurs_C]) if grows else 0.0
        return MeanOfShares(share_C[occurs_C], rows_S, _slopes(by_right_C, share_C, answered, labelled), bias)

    def micro(self, *, answered: float, labelled: float) -> MeanOfShares:
        """The same share of all labels of all rows together; see `macro`."""
        whole_1 = (answered * self.answered_C + labelled * self.labelled_C).sum(keepdims=True)
        share_1 = ratio(self.right_C.sum(keepdims=True), whole_1)
        by_right_C = np.zeros_like(self.right_C) + ratio(np.ones(1), whole_1)
        slopes_F = _slopes(by_right_C, share_1, answered, labelled)
        return MeanOfShares(share_1, np.minimum(whole_1, float(self.n_rows)), slopes_F)

    def per_class(self, names: Sequence[str]) -> list[ClassScore]:
        """Precision, recall, F1 and support of each class."""
        precision = ratio(self.right_C, self.answered_C).tolist()
        recall = ratio(self.right_C, self.labelled_C).tolist()
        f1 = ratio(self.right_C, (self.answered_C + self.labelled_C) / 2).tolist()
        support = self.labelled_C.astype(np.int64).tolist()
        return [ClassScore(*row) for row in zip(names, precision, recall, f1, support, strict=True)]


def _slopes(by_right_C: Floats, share_C: Floats, answered: float, labelled: float) -> Floats:
    """Of right, answered and labelled classes, and of rows that are all right."""
    by_whole_C = -by_right_C * share_C
    return np.concatenate([by_right_C, answered * by_whole_C, labelled * by_whole_C, np.zeros(1)])


def _bias(f1_S: Floats, whole_S: Floats) -> float:
    """By how much macro F1 is too low, to second order: as its whole of m rows grows with the rows that are right, an
    F1 is on average F (1 - F) / (2 m) too low. That holds of each label by itself, whatever others its rows have. An F1
    of few rows is 0 or 1 by chance, so it is taken with one more row of the mean F1, as in `shares_interval`."""
    if not len(f1_S):
        return 0.0
    shrunk_S = (whole_S * f1_S + f1_S.mean()) / (whole_S + 1)
    return float((shrunk_S * (1 - shrunk_S) / (2 * whole_S)).mean())


def chunks(n: int, n_numbers: int) -> Iterator[slice]:
    """Rows, as many at once as have `CHUNK` numbers."""
    step = max(1, CHUNK // max(1, n_numbers))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def effects(labels: NDArray[Any], answers: NDArray[Any], slopes_FG: Floats) -> Floats:
    """What each row adds to each figure, to first order `(n, G)`."""
    n_classes = len(slopes_FG) // 3
    right_CG, answered_CG, labelled_CG = slopes_FG[:-1].reshape(3, n_classes, -1)
    if labels.ndim == 1:
        of_right_nG = (labels == answers)[:, None] * (right_CG[labels] + slopes_FG[-1])
        return of_right_nG + answered_CG[answers] + labelled_CG[labels]
    right_n1 = (labels == answers).all(1, keepdims=True)
    of_right_nG = (labels & answers) @ right_CG + right_n1 * slopes_FG[-1]
    return of_right_nG + answers @ answered_CG + labels @ labelled_CG


def covariances_of(labels: NDArray[Any], answers: Sequence[NDArray[Any]], slopes: Sequence[Floats]) -> Floats:
    """Covariances of the figures of one model after another, by their answers to the same rows and their slopes."""
    n_figures = sum(one.shape[1] for one in slopes)
    sum_G, squares_GG = np.zeros(n_figures), np.zeros((n_figures, n_figures))
    for rows in chunks(len(labels), len(slopes[0]) if labels.ndim == 2 else n_figures):
        of_models = [effects(labels[rows], one[rows], of) for one, of in zip(answers, slopes, strict=True)]
        effects_nG = np.concatenate(of_models, axis=1)
        sum_G += effects_nG.sum(0)
        squares_GG += effects_nG.T @ effects_nG
    return squares_GG - np.outer(sum_G, sum_G) / len(labels)


def interval_of(figure: MeanOfShares, variance: float) -> Interval:
    """A share of rows has Wilson's interval; a mean of shares that the same rows decide has the score interval for its
    `variance`."""
    if figure.of_rows:
        n = round(float(figure.rows_S[0]))
        return share_interval(round(float(figure.shares_S[0]) * n), n)
    return shares_interval(figure.shares_S, figure.rows_S, variance, figure.bias)


def _counted(labels: NDArray[Any], answers: NDArray[Any], n_classes: int) -> dict[str, MeanOfShares]:
    """All figures that follow from labels and answers."""
    counts, found = Counts.of(labels, answers, n_classes), {}
    for name in figures_of_answers("labels" if counts.multi else "classes"):
        found[name] = plugin.make("figure", name)(counts)
    return found


def _slopes_of(figures: dict[str, MeanOfShares]) -> Floats:
    """`(F, G)`."""
    return np.stack([one.slopes_F for one in figures.values()], axis=1)


def score_answers(labels: ArrayLike, answers: ArrayLike, n_classes: int) -> Figures:
    """The figures of answers alone, such as a baseline's. A UserError where there are no rows."""
    labels, answers = np.asarray(labels), np.asarray(answers)
    figures = _counted(labels, answers, n_classes)
    variances = covariances_of(labels, [answers], [_slopes_of(figures)]).diagonal().tolist()
    return {name: interval_of(one, of) for (name, one), of in zip(figures.items(), variances, strict=True)}


def change_of_answers(
    labels: ArrayLike, answers: ArrayLike, others: Iterable[ArrayLike], n_classes: int
) -> list[Figures]:
    """Each figure of every one of `others` less that of `answers`, on the same rows, with its `change_interval`."""
    labels, answers, changes = np.asarray(labels), np.asarray(answers), []
    for other in map(np.asarray, others):
        before, after = (_counted(labels, one, n_classes) for one in (answers, other))
        together_GG = covariances_of(labels, [answers, other], [_slopes_of(before), _slopes_of(after)])
        change = {}
        for at, name in enumerate(before):
            both = (at, len(before) + at)
            of_before, of_after = (
                interval_of(of[name], float(together_GG[it, it])) for of, it in zip((before, after), both, strict=True)
            )
            doubts_2 = np.array([before[name].doubt, after[name].doubt])
            change[name] = change_interval(of_before, of_after, together_GG[np.ix_(both, both)], doubts_2)
        changes.append(change)
    return changes


@dataclass
class Outcomes:
    """The answers of a model to all rows, and what figures of probabilities need of each of them.

    Attributes:
        labels, answers: class ids `(n,)`, or marks `(n, C)`.
        loss_n, brier_n: in nats; the squared distance of the probabilities from what is true, summed over classes.
        confidence_n: the largest probability.
        bins_3CK: of each class the rows by bins of its probability: how many they are, how many have the class, and the
            sum of its probabilities.
        probabilities_nC: None where no figure asks for all of them.
    """

    labels: NDArray[Any]
    answers: NDArray[Any]
    loss_n: Floats
    brier_n: Floats
    confidence_n: Floats
    bins_3CK: Floats
    probabilities_nC: Floats | None = None

    @classmethod
    def of(cls, labels: NDArray[Any], answers: NDArray[Any], probabilities_nC: Floats) -> "Outcomes":
        """Of probabilities that are in memory."""
        (n, n_classes), multi = probabilities_nC.shape, labels.ndim == 2
        assert len(labels) == len(answers) == n, "one row of probabilities a label"
        if multi:
            marks_nC = labels
            wrong_nC = np.maximum(1 - probabilities_nC, HALF_STEP)
            loss_n = -np.log(np.where(marks_nC, np.maximum(probabilities_nC, TINY), wrong_nC)).sum(1)
            brier_n = ((probabilities_nC - marks_nC) ** 2).sum(1)
        else:
            marks_nC = labels[:, None] == np.arange(n_classes)
            of_label_n = probabilities_nC[np.arange(n), labels]
            loss_n = -np.log(np.maximum(of_label_n, TINY))
            brier_n = (probabilities_nC**2).sum(1) - 2 * of_label_n + 1
        bin_n = (np.digitize(probabilities_nC, EDGES) + np.arange(n_classes) * N_BINS).ravel()
        weights = (None, marks_nC.ravel(), probabilities_nC.ravel())
        bins = [np.bincount(bin_n, one, n_classes * N_BINS).reshape(n_classes, N_BINS) for one in weights]
        confidence_n, bins_3CK = probabilities_nC.max(1, initial=0.0), np.stack(bins).astype(np.float64)
        figures = (plugin.find("figure", name) for name in figures_of("labels" if multi else "classes"))
        whole = probabilities_nC if any("of" not in one.facts for one in figures) else None
        return cls(labels, answers, loss_n, brier_n, confidence_n, bins_3CK, whole)

    @classmethod
    def joined(cls, n: int, chunks: "Iterable[Outcomes]") -> "Outcomes":
        """Of `n` rows, from some of them after others."""
        bins = []

        def columns() -> Iterator[list[NDArray[Any]]]:
            for one in chunks:
                bins.append(one.bins_3CK)
                whole = [] if one.probabilities_nC is None else [one.probabilities_nC]
                yield [one.labels, one.answers, one.loss_n, one.brier_n, one.confidence_n, *whole]

        of_rows = join_chunks(n, columns())
        if not of_rows:
            raise UserError(NO_ROWS)
        labels, answers, loss_n, brier_n, confidence_n, *whole = of_rows
        return cls(labels, answers, loss_n, brier_n, confidence_n, np.sum(bins, axis=0), *whole)

    @property
    def multi(self) -> bool:
        return self.labels.ndim == 2

    @property
    def n_classes(self) -> int:
        return self.bins_3CK.shape[1]

    @cached_property
    def right_n(self) -> Bools:
        """Whether a row with one class is answered by it."""
        assert not self.multi, "a row with labels has no confidence of one answer"
        return self.labels == self.answers

    def mean(self, values_n: Floats) -> Interval:
        """The mean of a loss."""
        return mean_interval(values_n, skewed=True)

    def calibration_error(self, *, equal_width: bool) -> Interval:
        """Of the confidence, by bins of equal width or of equally many rows."""
        bin_n = np.digitize(self.confidence_n, EDGES) if equal_width else equal_bins(self.confidence_n)
        return binned_error(bin_n, self.confidence_n, self.right_n)

    def classwise_calibration_error(self) -> Interval:
        """A row with one class that has too much of it in one class has too little in the others."""
        return error_interval(*self.bins_3CK.reshape(3, -1), shared=1 if self.multi else 2)

    def figures(self, names: Sequence[str] = ()) -> Figures:
        """The figures of these names, or all there are of such rows."""
        of_answers, found = score_answers(self.labels, self.answers, self.n_classes), {}
        for name in names or figures_of("labels" if self.multi else "classes"):
            of, make = plugin.find("figure", name).facts.get("of"), plugin.make("figure", name)
            if of == "counts":
                found[name] = of_answers[name]
            elif of == "rows":
                found[name] = make(self)
            else:
                assert self.probabilities_nC is not None, "`of` keeps them where a figure is registered that needs them"
                figure = make(self.labels, self.probabilities_nC)
                is_whole = isinstance(figure, Interval)
                found[name] = figure if is_whole else bootstrap(make, self.labels, self.probabilities_nC)
        return found

    def scores(self, names: list[str], thresholds: list[float] | None = None) -> Scores:
        """Everything that is measured; labels have `thresholds`."""
        counts, n_classes = Counts.of(self.labels, self.answers, self.n_classes), self.n_classes
        scores = Scores(self.figures(), counts.n_rows, list(names), counts.per_class(names), int(counts.occurs_C.sum()))
        if thresholds is not None:
            every = zip(scores.per_class, thresholds, strict=True)
            scores.per_class = [LabelScore(**asdict(one), threshold=threshold) for one, threshold in every]
            return scores
        pair_n = self.labels.astype(np.int64) * n_classes + self.answers
        scores.confusion = np.bincount(pair_n, minlength=n_classes**2).reshape(n_classes, n_classes).tolist()
        scores.reliability = reliability(self.confidence_n, self.right_n)
        return scores


def score(labels: ArrayLike, probabilities: ArrayLike, names: list[str]) -> Scores:
    """Judge `probabilities` `(n, C)` against class ids `labels` `(n,)`. A UserError where there are no rows."""
    probabilities_nC = np.asarray(probabilities, dtype=np.float64)
    outcomes = Outcomes.of(np.asarray(labels, dtype=np.int64), probabilities_nC.argmax(1), probabilities_nC)
    return outcomes.scores(names)


def score_labels(marks_nC: Bools, probabilities_nC: Floats, names: list[str], thresholds: list[float]) -> Scores:
    """Judge labels, given from their `thresholds` on, against those that rows have, their `marks`. A UserError
    where there are no rows."""
    outcomes = Outcomes.of(marks_nC, probabilities_nC >= np.array(thresholds), probabilities_nC)
    return outcomes.scores(names, thresholds)


def reliability(confidence_n: Floats, right_n: Bools) -> list[Bin]:
    """The bins that hold rows, from the least to the most confident."""
    bin_n, found = np.digitize(confidence_n, EDGES), []
    weights = (None, confidence_n, right_n)
    n_K, confidence_K, right_K = (np.bincount(bin_n, of, N_BINS).tolist() for of in weights)
    for at in range(N_BINS):
        if n_K[at]:
            share = share_interval(round(right_K[at]), round(n_K[at]))
            ends = at / N_BINS, (at + 1) / N_BINS
            confidence = confidence_K[at] / n_K[at]
            found.append(Bin(*ends, round(n_K[at]), confidence, share.value, share.low, share.high))
    return found
