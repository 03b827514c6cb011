"""From labels, answers and probabilities to figures with 95 % intervals.

Labels and answers are class ids `(n,)`, or marks `(n, C)`, bool, if a row has any number of labels.

A figure of answers alone, such as macro F1, takes four steps: rows are counted (`Counts`); the figure is a mean of
shares of these counts (`figures.macro_f1`, a `MeanOfShares`); its variance follows from what each row adds to it, to
first order (`covariances_of`, the delta method); and from that its interval (`interval_of`). A figure of probabilities
follows from a few numbers of each row (`Outcomes`): it is their mean, or a calibration error (calibration.py).

n rows . C classes or labels . F = 3C + 1 counts: right, answered and labelled rows of each class, and all right rows
S shares . G figures . K bins
"""

import math
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
    change_interval,
    divide,
    effective_rows,
    mean_interval,
    share_interval,
    shares_interval,
)
from manyheads.evaluation.logits import join_chunks
from manyheads.evaluation.statistics import bootstrap
from manyheads.runs.summary import Figures, Interval

CHUNK = 2**20  # numbers that are in memory at once where rows are taken a chunk at a time
TINY = float(np.finfo(np.float64).tiny)
HALF_STEP = float(np.finfo(np.float64).eps / 2)  # from 1 to the nearest number below it


@dataclass(slots=True)
class ClassScore:
    """One class or label: `support` is the number of rows that have it. A ratio without a denominator is 0, as in
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
    """The rows whose confidence lies in `[low, high)`, in the last bin in `[low, 1]`: their number, mean confidence,
    and accuracy with its interval, `least` to `most`."""

    low: float
    high: float
    n_rows: int
    confidence: float
    accuracy: float
    least: float
    most: float


@dataclass(slots=True)
class Scores:
    """All that is measured of one split.

    Macro figures are means over the classes, or labels, that some row has or is given: one that does not occur has no
    precision and no recall. scikit-learn does the same with classes; with marks of labels it counts 0 for each that
    does not occur, unless `labels` names those that do. figures.py defines each figure.

    Attributes:
        figures: by name; models are compared by the first.
        n_rows: how many rows were judged.
        labels: names of the classes or labels.
        per_class: of each class or label.
        averaged: how many classes macro figures are means over.
        confusion: `confusion[i][j]` rows of class i are answered j; empty if rows have any number of labels.
        reliability: accuracy by confidence; empty if rows have any number of labels.
    """

    figures: Figures
    n_rows: int
    labels: list[str]
    per_class: Sequence[ClassScore]
    averaged: int
    confusion: list[list[int]] = field(default_factory=list)
    reliability: list[Bin] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The figures by name, then everything else that is not empty."""
        plain = asdict(self)
        figures = plain.pop("figures")
        return figures | {name: value for name, value in plain.items() if value != []}


# Figures of labels and answers


class MeanOfShares(NamedTuple):
    """A figure that is the mean of some shares, such as recall over classes.

    Attributes:
        shares_S: the shares.
        rows_S: how many rows each is a share of.
        slopes_F: the derivative of the figure by each of the counts.
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
        """What `change_interval` adds to the variance: that of one more row, which only one of two models answers
        right, spread evenly over the shares; half of it for either model."""
        rows_S = np.maximum(self.rows_S, 1)
        return float((rows_S**-2.0).sum()) / (2 * max(1, len(rows_S)) ** 3)


@dataclass(slots=True)
class Counts:
    """Labels and answers, counted.

    Attributes:
        labelled_C: rows that have each class or label.
        answered_C: rows that are answered by it.
        right_C: rows of which both is true.
        n_right: rows that are answered right; of labels, by all of them and no others.
        n_rows: all rows.
        multi: rows have any number of labels.
    """

    labelled_C: Floats
    answered_C: Floats
    right_C: Floats
    n_right: int
    n_rows: int
    multi: bool

    @classmethod
    def of(cls, labels: NDArray[Any], answers: NDArray[Any], n_classes: int) -> "Counts":
        """Count them.

        Raises:
            UserError: there are no rows.
        """
        if not len(labels):
            raise UserError(NO_ROWS)
        if labels.ndim == 1:
            is_right_n = labels == answers
            counts_3C = np.empty((3, n_classes))
            for at, ids in enumerate((labels, answers, labels[is_right_n])):
                counts_3C[at] = np.bincount(ids, minlength=n_classes)
            return cls(*counts_3C, n_right=int(is_right_n.sum()), n_rows=len(labels), multi=False)
        counts = cls(*np.zeros((3, n_classes)), n_right=0, n_rows=len(labels), multi=True)
        for rows in chunks(len(labels), n_classes):
            labels_nC, answers_nC = labels[rows], answers[rows]
            counts.labelled_C += labels_nC.sum(0)
            counts.answered_C += answers_nC.sum(0)
            counts.right_C += (labels_nC & answers_nC).sum(0)
            counts.n_right += int((labels_nC == answers_nC).all(1).sum())
        return counts

    @property
    def occurs_C(self) -> Bools:
        """Which classes some row has or is answered by."""
        return self.labelled_C + self.answered_C > 0

    def of_rows(self) -> MeanOfShares:
        """The share of rows that are answered right."""
        n = float(self.n_rows)
        slopes_F = np.zeros(3 * len(self.right_C) + 1)
        slopes_F[-1] = 1 / n
        return MeanOfShares(np.array([self.n_right / n]), np.array([n]), slopes_F, of_rows=True)

    def macro(self, *, answered: float, labelled: float) -> MeanOfShares:
        """The mean, over the classes that occur, of right rows divided by a denominator: `answered` times the rows that
        are answered by the class, plus `labelled` times those that have it. Precision is (1, 0), recall (0, 1), and F1
        (0.5, 0.5).

        Labels of one row are not independent, so all labels together count as no more rows than there are.
        """
        occurs_C = self.occurs_C
        denominator_C = answered * self.answered_C + labelled * self.labelled_C
        share_C = divide(self.right_C, denominator_C)
        by_right_C = divide(np.full_like(denominator_C, 1 / max(1, occurs_C.sum())), denominator_C)
        rows_S = denominator_C[occurs_C]
        if self.multi:
            rows_S = rows_S * min(1.0, self.n_rows / effective_rows(denominator_C))
        bias = 0.0
        if answered > 0 and labelled > 0:
            bias = _bias_of_f1(share_C[occurs_C], denominator_C[occurs_C])
        return MeanOfShares(share_C[occurs_C], rows_S, _slopes(by_right_C, share_C, answered, labelled), bias)

    def micro(self, *, answered: float, labelled: float) -> MeanOfShares:
        """The same share of all labels of all rows together; see `macro`."""
        denominator_1 = (answered * self.answered_C + labelled * self.labelled_C).sum(keepdims=True)
        share_1 = divide(self.right_C.sum(keepdims=True), denominator_1)
        by_right_C = np.zeros_like(self.right_C) + divide(np.ones(1), denominator_1)
        rows_1 = np.minimum(denominator_1, float(self.n_rows))
        return MeanOfShares(share_1, rows_1, _slopes(by_right_C, share_1, answered, labelled))

    def per_class(self, names: Sequence[str]) -> list[ClassScore]:
        """Precision, recall, F1 and support of each class."""
        precision = divide(self.right_C, self.answered_C).tolist()
        recall = divide(self.right_C, self.labelled_C).tolist()
        f1 = divide(self.right_C, (self.answered_C + self.labelled_C) / 2).tolist()
        support = self.labelled_C.astype(np.int64).tolist()
        return [ClassScore(*row) for row in zip(names, precision, recall, f1, support, strict=True)]


def _slopes(by_right_C: Floats, share_C: Floats, answered: float, labelled: float) -> Floats:
    """Derivatives of a mean of quotients by all counts `(F,)`, from those by the right rows of each class."""
    by_denominator_C = -by_right_C * share_C
    return np.concatenate([by_right_C, answered * by_denominator_C, labelled * by_denominator_C, np.zeros(1)])


def _bias_of_f1(f1_S: Floats, denominator_S: Floats) -> float:
    """By how much macro F1 is too low on average, to second order.

    The denominator m of F1 grows with the right rows, so that an F1 is on average F (1 - F) / (2 m) too low. This holds
    for each label by itself, whatever other labels its rows have. F1 of few rows is 0 or 1 by chance, so it is taken
    with one more row of the mean F1, as in `shares_interval`.
    """
    if not len(f1_S):
        return 0.0
    shrunk_S = (denominator_S * f1_S + f1_S.mean()) / (denominator_S + 1)
    return float((shrunk_S * (1 - shrunk_S) / (2 * denominator_S)).mean())


def chunks(n: int, n_numbers: int) -> Iterator[slice]:
    """Slices of `n` rows, each of at most `CHUNK` numbers if a row has `n_numbers`."""
    step = max(1, CHUNK // max(1, n_numbers))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def influences(labels: NDArray[Any], answers: NDArray[Any], slopes_FG: Floats) -> Floats:
    """What each row adds to each figure, to first order `(n, G)`: the slopes of the counts that it adds 1 to."""
    n_classes = len(slopes_FG) // 3
    right_CG, answered_CG, labelled_CG = slopes_FG[:-1].reshape(3, n_classes, -1)
    if labels.ndim == 1:
        is_right_n1 = (labels == answers)[:, None]
        return is_right_n1 * (right_CG[labels] + slopes_FG[-1]) + answered_CG[answers] + labelled_CG[labels]
    is_right_n1 = (labels == answers).all(1, keepdims=True)
    of_right_nG = (labels & answers) @ right_CG + is_right_n1 * slopes_FG[-1]
    return of_right_nG + answers @ answered_CG + labels @ labelled_CG


def covariances_of(labels: NDArray[Any], answers: Sequence[NDArray[Any]], slopes: Sequence[Floats]) -> Floats:
    """Covariances of figures `(G, G)` by the delta method: of all figures of one model, then of the next.

    Args:
        answers: of each model, to the same rows.
        slopes: of the figures of each model `(F, its figures)`.
    """
    n_figures = sum(slopes_FG.shape[1] for slopes_FG in slopes)
    width = n_figures  # of what a row takes in memory
    if labels.ndim == 2:
        width = len(slopes[0])
    sum_G, squares_GG = np.zeros(n_figures), np.zeros((n_figures, n_figures))
    for rows in chunks(len(labels), width):
        of_models = []
        for of_model, slopes_FG in zip(answers, slopes, strict=True):
            of_models.append(influences(labels[rows], of_model[rows], slopes_FG))
        influence_nG = np.concatenate(of_models, axis=1)
        sum_G += influence_nG.sum(0)
        squares_GG += influence_nG.T @ influence_nG
    return squares_GG - np.outer(sum_G, sum_G) / len(labels)


def interval_of(figure: MeanOfShares, variance: float) -> Interval:
    """The interval of a figure with this variance; a share of all rows needs none."""
    if figure.of_rows:
        n = round(float(figure.rows_S[0]))
        return share_interval(round(float(figure.shares_S[0]) * n), n)
    return shares_interval(figure.shares_S, figure.rows_S, variance, figure.bias)


def _figures_of_answers(labels: NDArray[Any], answers: NDArray[Any], n_classes: int) -> dict[str, MeanOfShares]:
    """All figures that follow from labels and answers, by name."""
    counts = Counts.of(labels, answers, n_classes)
    figures = {}
    for name in figures_of_answers("labels" if counts.multi else "classes"):
        figures[name] = plugin.make("figure", name)(counts)
    return figures


def _slopes_of(figures: dict[str, MeanOfShares]) -> Floats:
    """`(F, G)`."""
    return np.stack([figure.slopes_F for figure in figures.values()], axis=1)


def score_answers(labels: ArrayLike, answers: ArrayLike, n_classes: int) -> Figures:
    """The figures of answers alone, such as those of a baseline.

    Raises:
        UserError: there are no rows.
    """
    labels, answers = np.asarray(labels), np.asarray(answers)
    figures = _figures_of_answers(labels, answers, n_classes)
    variance_G = covariances_of(labels, [answers], [_slopes_of(figures)]).diagonal()
    scored = {}
    for at, (name, figure) in enumerate(figures.items()):
        scored[name] = interval_of(figure, float(variance_G[at]))
    return scored


def change_of_answers(
    labels: ArrayLike, answers: ArrayLike, others: Iterable[ArrayLike], n_classes: int
) -> list[Figures]:
    """For each of `others`, its figures less those of `answers`, on the same rows, with their `change_interval`."""
    labels, answers = np.asarray(labels), np.asarray(answers)
    before = _figures_of_answers(labels, answers, n_classes)
    changes = []
    for other in others:
        other = np.asarray(other)
        after = _figures_of_answers(labels, other, n_classes)
        covariance_GG = covariances_of(labels, [answers, other], [_slopes_of(before), _slopes_of(after)])
        change = {}
        for at, name in enumerate(before):
            both = [at, len(before) + at]  # the rows of this figure, before and after
            covariance_22 = covariance_GG[np.ix_(both, both)]
            change[name] = change_interval(
                interval_of(before[name], float(covariance_22[0, 0])),
                interval_of(after[name], float(covariance_22[1, 1])),
                covariance_22,
                np.array([before[name].doubt, after[name].doubt]),
            )
        changes.append(change)
    return changes


# Figures of probabilities


@dataclass
class Outcomes:
    """The answers of a model to all rows, and what figures of probabilities need to know of each row.

    Attributes:
        labels, answers: class ids `(n,)`, or marks `(n, C)`.
        loss_n: cross-entropy in nats; of rows with labels the sum over all labels.
        brier_n: squared distance of the probabilities from 1 for what is true and 0 for the rest, summed over classes.
        confidence_n: the largest probability.
        bins_3CK: for each class, of the rows in each bin of its probability: how many they are, how many have the
            class, and the sum of its probabilities.
        probabilities_nC: None if no registered figure needs them all.
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
        n, n_classes = probabilities_nC.shape
        assert len(labels) == len(answers) == n, "one row of probabilities a label"
        if labels.ndim == 2:
            kind, marks_nC = "labels", labels
            likelihood_nC = np.where(
                marks_nC, np.maximum(probabilities_nC, TINY), np.maximum(1 - probabilities_nC, HALF_STEP)
            )
            loss_n = -np.log(likelihood_nC).sum(1)
            brier_n = ((probabilities_nC - marks_nC) ** 2).sum(1)
        else:
            kind, marks_nC = "classes", labels[:, None] == np.arange(n_classes)
            of_label_n = probabilities_nC[np.arange(n), labels]
            loss_n = -np.log(np.maximum(of_label_n, TINY))
            brier_n = (probabilities_nC**2).sum(1) - 2 * of_label_n + 1
        bin_n = (np.digitize(probabilities_nC, EDGES) + np.arange(n_classes) * N_BINS).ravel()
        bins_3CK = np.empty((3, n_classes, N_BINS))
        for at, weights in enumerate((None, marks_nC.ravel(), probabilities_nC.ravel())):
            bins_3CK[at] = np.bincount(bin_n, weights, n_classes * N_BINS).reshape(n_classes, N_BINS)
        outcomes = cls(labels, answers, loss_n, brier_n, probabilities_nC.max(1, initial=0.0), bins_3CK)
        if any("of" not in plugin.find("figure", name).facts for name in figures_of(kind)):
            outcomes.probabilities_nC = probabilities_nC
        return outcomes

    @classmethod
    def joined(cls, n: int, chunks: "Iterable[Outcomes]") -> "Outcomes":
        """Of `n` rows that come a chunk at a time.

        Raises:
            UserError: there are no rows.
        """
        bins = []

        def columns() -> Iterator[list[NDArray[Any]]]:
            for chunk in chunks:
                bins.append(chunk.bins_3CK)
                of_rows = [chunk.labels, chunk.answers, chunk.loss_n, chunk.brier_n, chunk.confidence_n]
                if chunk.probabilities_nC is not None:
                    of_rows.append(chunk.probabilities_nC)
                yield of_rows

        of_rows = join_chunks(n, columns())
        if not of_rows:
            raise UserError(NO_ROWS)
        labels, answers, loss_n, brier_n, confidence_n, *probabilities = of_rows
        return cls(labels, answers, loss_n, brier_n, confidence_n, np.sum(bins, axis=0), *probabilities)

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
        """Of the probability of each class, by bins of equal width. In a row with one class, what one class has too
        much the others have too little, so the variance counts twice."""
        n_K, right_K, confidence_K = self.bins_3CK.reshape(3, -1)
        return error_interval(n_K, right_K, confidence_K, shared=1 if self.multi else 2)

    def figures(self, names: Sequence[str] = ()) -> Figures:
        """The figures of these names, or all there are of such rows."""
        of_answers = score_answers(self.labels, self.answers, self.n_classes)
        figures = {}
        for name in names or figures_of("labels" if self.multi else "classes"):
            of, make = plugin.find("figure", name).facts.get("of"), plugin.make("figure", name)
            if of == "counts":
                figures[name] = of_answers[name]
            elif of == "rows":
                figures[name] = make(self)
            else:
                assert self.probabilities_nC is not None, "`of` keeps them if a registered figure needs them"
                found = make(self.labels, self.probabilities_nC)
                if not isinstance(found, Interval):
                    found = bootstrap(make, self.labels, self.probabilities_nC)
                if not math.isfinite(found.value):  # which no JSON holds
                    raise UserError(
                        f"figure {name} of plugin {plugin.owner('figure', name).name} is {found.value} on these rows: "
                        "return a finite number also where it is not defined"
                    )
                figures[name] = found
        return figures

    def scores(self, names: list[str], thresholds: list[float] | None = None) -> Scores:
        """Everything that is measured. Labels have `thresholds`."""
        counts = Counts.of(self.labels, self.answers, self.n_classes)
        per_class, averaged = counts.per_class(names), int(counts.occurs_C.sum())
        scores = Scores(self.figures(), counts.n_rows, list(names), per_class, averaged)
        if thresholds is not None:
            scores.per_class = []
            for one, threshold in zip(per_class, thresholds, strict=True):
                scores.per_class.append(LabelScore(**asdict(one), threshold=threshold))
            return scores
        n = self.n_classes
        cell_n = self.labels.astype(np.int64) * n + self.answers
        scores.confusion = np.bincount(cell_n, minlength=n**2).reshape(n, n).tolist()
        scores.reliability = reliability(self.confidence_n, self.right_n)
        return scores


def score(labels: ArrayLike, probabilities: ArrayLike, names: list[str]) -> Scores:
    """Judge `probabilities` `(n, C)` against class ids `labels` `(n,)`; the answer is the likeliest class.

    Raises:
        UserError: there are no rows.
    """
    probabilities_nC = np.asarray(probabilities, dtype=np.float64)
    outcomes = Outcomes.of(np.asarray(labels, dtype=np.int64), probabilities_nC.argmax(1), probabilities_nC)
    return outcomes.scores(names)


def score_labels(marks_nC: Bools, probabilities_nC: Floats, names: list[str], thresholds: list[float]) -> Scores:
    """Judge labels, each given from its threshold on, against those that rows have, their `marks`.

    Raises:
        UserError: there are no rows.
    """
    outcomes = Outcomes.of(marks_nC, probabilities_nC >= np.array(thresholds), probabilities_nC)
    return outcomes.scores(names, thresholds)


def reliability(confidence_n: Floats, right_n: Bools) -> list[Bin]:
    """Accuracy by confidence: the bins of equal width that hold rows, from the least to the most confident."""
    bin_n = np.digitize(confidence_n, EDGES)
    n_K = np.bincount(bin_n, minlength=N_BINS)
    right_K = np.bincount(bin_n, right_n, N_BINS)
    confidence_K = np.bincount(bin_n, confidence_n, N_BINS) / np.maximum(n_K, 1)
    bins = []
    for at in np.flatnonzero(n_K).tolist():
        n = int(n_K[at])
        accuracy = share_interval(round(float(right_K[at])), n)
        ends = at / N_BINS, (at + 1) / N_BINS
        bins.append(Bin(*ends, n, float(confidence_K[at]), accuracy.value, accuracy.low, accuracy.high))
    return bins
