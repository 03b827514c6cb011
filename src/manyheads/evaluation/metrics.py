"""Figures of a classifier on one split with 95 % intervals, and its calibration.

Labels are class ids `(n,)`, or marks `(n, C)`, bool, where a row has any number of labels; answers likewise.
Rows come a chunk at a time and are not kept: `calibration.py`.

n rows . C classes or labels . P cells: rows, or counts of them . F numbers of a row . G figures . V values of a row
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.evaluation.calibration import EDGES, MOST_HELD, N_BINS, Calibration, Cells, Sums, binned_error
from manyheads.evaluation.intervals import (
    NO_ROWS,
    Bools,
    Floats,
    Ints,
    change_interval,
    covariances,
    effective_rows,
    mean_interval,
    ratio,
    share_interval,
    shares_interval,
)
from manyheads.runs.summary import Figures

OF_CLASSES = (
    *("accuracy", "macro_f1", "micro_f1", "macro_precision", "macro_recall", "loss", "calibration_error", "brier"),
)
OF_LABELS = (
    *("micro_f1", "macro_f1", "accuracy", "micro_precision", "micro_recall", "macro_precision", "macro_recall"),
    *("loss", "brier"),
)


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
    those that do. The loss is in nats. The
    calibration error is the gap of confidence and accuracy, a mean over bins weighted by their rows: Guo et al. (2017),
    "On Calibration of Modern Neural Networks", equation 3; the Brier score is the squared distance of all probabilities
    from what is true, summed over classes; `calibration.py` has two further errors.

    Where rows have any number of labels, there is no confusion and no reliability. Micro figures are then of all labels
    of all rows together, accuracy is the share of rows whose labels are all right, and no others given, and the loss is
    the mean over rows of the sum over labels.
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


def score(labels: ArrayLike, probabilities: ArrayLike, names: list[str]) -> Scores:
    """Judge `probabilities` `(n, C)` against class ids `labels` `(n,)`. A ValueError where there are no rows."""
    tally = ClassTally(len(names))
    tally.add(np.asarray(labels, dtype=np.int64), np.asarray(probabilities, dtype=np.float64))
    return tally.scores(names)


def score_labels(marks_nC: Bools, probabilities_nC: Floats, names: list[str], thresholds: list[float]) -> Scores:
    """Judge labels, given from their `thresholds` on, against those that rows have, their `marks`. A ValueError
    where there are no rows."""
    tally = LabelTally(thresholds)
    tally.add(marks_nC, probabilities_nC)
    return tally.scores(names)


class ClassTally:
    """Rows with one class each, judged a chunk at a time."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes, self.cells, self.calibration = n_classes, Cells(3), Calibration(n_classes)

    def add(self, labels_n: Ints, probabilities_nC: Floats, given_n: Ints | None = None) -> None:
        assert probabilities_nC.shape == (len(labels_n), self.n_classes), "one row of probabilities a label"
        confidence_n = probabilities_nC.max(1)
        answers_n = probabilities_nC.argmax(1) if given_n is None else given_n
        own_n = probabilities_nC[np.arange(len(labels_n)), labels_n]
        loss_n = -np.log(np.maximum(own_n, np.finfo(np.float64).tiny))
        brier_n = (probabilities_nC**2).sum(1) - 2 * own_n + 1
        key_n = (labels_n * self.n_classes + answers_n) * N_BINS + np.digitize(confidence_n, EDGES)
        self.cells.add(key_n, np.stack([loss_n, confidence_n, brier_n], 1))
        self.calibration.add(labels_n[:, None] == np.arange(self.n_classes), probabilities_nC)

    def scores(self, names: list[str]) -> Scores:
        """The figures of all rows; as of `score`."""
        key_P, count_P, mean_PV, variance_PV = self.cells.get()
        pair_P, bin_P = np.divmod(key_P, N_BINS)
        labels_P, answers_P = np.divmod(pair_P, self.n_classes)
        right_P, n = labels_P == answers_P, int(count_P.sum())
        counts = _of_classes(labels_P, answers_P, self.n_classes, count_P)
        moves_PG = counts.moves(labels_P, answers_P)
        found = counts.intervals(covariances(moves_PG, count_P)) | self.calibration.figures(multi=False)
        for name, at in (("loss", 0), ("brier", 2)):
            found[name] = mean_interval(mean_PV[:, at], count_P, variance_PV[:, at], skewed=True)
        found["calibration_error"] = binned_error(bin_P, mean_PV[:, 1], right_P, count_P)
        confusion = np.bincount(pair_P, weights=count_P, minlength=self.n_classes**2).astype(np.int64)
        return Scores(
            {name: found[name] for name in (*OF_CLASSES, *(one for one in found if one not in OF_CLASSES))},
            n_rows=n,
            labels=list(names),
            per_class=[ClassScore(*row) for row in zip(names, *counts.by_class(), strict=True)],
            averaged=counts.n_occur,
            confusion=confusion.reshape(self.n_classes, self.n_classes).tolist(),
            reliability=reliability(mean_PV[:, 1], right_P, count_P, bin_P),
        )


class LabelTally:
    """Rows with any number of labels, given from their `thresholds` on but where `add` is given others, judged a chunk
    at a time."""

    def __init__(self, thresholds: list[float]) -> None:
        self.thresholds, self.sums, self.calibration = thresholds, Sums(), Calibration(len(thresholds))

    def add(self, marks_nC: Bools, probabilities_nC: Floats, given_nC: Bools | None = None) -> None:
        given_nC = probabilities_nC >= np.array(self.thresholds) if given_nC is None else given_nC
        kind = np.finfo(np.float64)  # a probability next to one has no digits left for what is wanting to it
        wrong_nC = np.maximum(1 - probabilities_nC, kind.eps / 2)
        loss_n = -np.log(np.where(marks_nC, np.maximum(probabilities_nC, kind.tiny), wrong_nC)).sum(1)
        brier_n = ((probabilities_nC - marks_nC) ** 2).sum(1)
        self.sums.add(_of_row(marks_nC, given_nC, loss_n, brier_n))
        self.calibration.add(marks_nC, probabilities_nC)

    def scores(self, names: list[str]) -> Scores:
        """The figures of all rows; as of `score_labels`."""
        counts = _of_sums(self.sums.total(), self.sums.n, len(names))
        weights_FG = np.pad(counts.weights(), ((0, 2), (0, 0)))  # loss and Brier score move none of them
        found = counts.intervals(self.sums.covariances(weights_FG)) | self.calibration.figures(multi=True)
        found |= {name: self.sums.mean(at) for name, at in (("loss", -2), ("brier", -1))}
        per_class = [LabelScore(*row) for row in zip(names, *counts.by_class(), self.thresholds, strict=True)]
        figures = {name: found[name] for name in (*OF_LABELS, *(one for one in found if one not in OF_LABELS))}
        return Scores(figures, self.sums.n, list(names), per_class, counts.n_occur)


def score_answers(labels: ArrayLike, answers: ArrayLike, n_classes: int) -> Figures:
    """The figures of bare answers, such as a baseline's."""
    return _tallied(n_classes, labels, answers).figures()[0]


def change_of_answers(
    labels: ArrayLike, answers: ArrayLike, others: Iterable[ArrayLike], n_classes: int
) -> list[Figures]:
    """Each figure of every one of `others` less that of `answers`, on the same rows, with its `change_interval`."""
    return [_tallied(n_classes, labels, answers, one).figures()[1] for one in others]


def _tallied(n_classes: int, *columns: ArrayLike) -> "AnswerTally":
    """Labels and answers, and maybe others: as `AnswerTally.add` takes them, however many."""
    tally, held = AnswerTally(n_classes), [np.asarray(one) for one in columns]
    at_once = max(1, MOST_HELD // (4 * held[0].shape[-1] if held[0].ndim == 2 else 8))
    for start in range(0, len(held[0]), at_once):
        tally.add(*(one[start : start + at_once] for one in held))
    return tally


class AnswerTally:
    """Bare answers to rows, a chunk at a time, and maybe `others` to the same rows, to be compared with them."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes, self.sums, self.cells, self.paired = n_classes, Sums(), Cells(most=0), False

    def add(self, labels: NDArray[Any], answers: NDArray[Any], others: NDArray[Any] | None = None) -> None:
        self.paired = others is not None
        every = [answers] if others is None else [answers, others]
        if labels.ndim == 2:
            self.sums.add(np.concatenate([_of_row(labels, one) for one in every], axis=1))
            return
        key_n = labels.astype(np.int64)
        for one in every:
            key_n = key_n * self.n_classes + one
        self.cells.add(key_n)

    def figures(self) -> tuple[Figures, Figures]:
        """Those of the answers; and those of the others less these, with their `change_interval`."""
        counts, covariances_GG = self._counted()
        n = len(covariances_GG) // len(counts)
        every = [one.intervals(covariances_GG[at * n : (at + 1) * n, at * n : (at + 1) * n]) for at, one in
                 enumerate(counts)]  # fmt: skip
        if not self.paired:
            return every[0], {}
        (before, after), doubts_G2 = every, np.stack([one.doubts() for one in counts], axis=1)
        both = (covariances_GG[np.ix_((at, at + n), (at, at + n))] for at in range(n))
        changes = map(change_interval, before.values(), after.values(), both, doubts_G2)
        return before, dict(zip(before, changes, strict=True))

    def _counted(self) -> tuple[list["_Counts"], Floats]:
        """Of the answers and maybe the others, and the covariances of the figures of both."""
        n_models = 2 if self.paired else 1
        if self.sums.n:
            counts = [_of_sums(one, self.sums.n, self.n_classes) for one in np.split(self.sums.total(), n_models)]
            weights = [one.weights() for one in counts]
            weights_FG = np.zeros(np.sum([one.shape for one in weights], axis=0))
            for at, (one, (n_rows, n_figures)) in enumerate((one, one.shape) for one in weights):
                weights_FG[at * n_rows : (at + 1) * n_rows, at * n_figures : (at + 1) * n_figures] = one
            return counts, self.sums.covariances(weights_FG)
        labels_P, count_P, _, _ = self.cells.get()
        answers = []
        for _ in range(n_models):
            labels_P, one_P = np.divmod(labels_P, self.n_classes)
            answers.insert(0, one_P)
        counts = [_of_classes(labels_P, one_P, self.n_classes, count_P) for one_P in answers]
        moves = [one.moves(labels_P, one_P) for one, one_P in zip(counts, answers, strict=True)]
        return counts, covariances(np.concatenate(moves, axis=1), count_P)


class LabelPart:
    """Bare answers to one of many parts of rows with labels. They come twice, a chunk at a time: to be counted, and
    again for what each moves the figures by, so that no row and no squares of labels are held."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes, self.n, self.sum_F = n_classes, 0, np.zeros(3 * n_classes + 1)
        self._weights_FG, self._square_GG = np.zeros((0, 0)), np.zeros(())

    def add(self, marks_nC: Bools, given_nC: Bools) -> None:
        self.n, self.sum_F = self.n + len(marks_nC), self.sum_F + _of_row(marks_nC, given_nC).sum(0)

    def again(self, marks_nC: Bools, given_nC: Bools) -> None:
        if not self._weights_FG.size:
            self._weights_FG = _of_sums(self.sum_F, self.n, self.n_classes).weights()
        moves_nG = _of_row(marks_nC, given_nC) @ self._weights_FG
        self._square_GG = self._square_GG + moves_nG.T @ moves_nG

    def figures(self) -> tuple[Figures, Figures]:
        """As of `AnswerTally`, without others."""
        counts, sum_G = _of_sums(self.sum_F, self.n, self.n_classes), self.sum_F @ self._weights_FG
        return counts.intervals(self._square_GG - np.outer(sum_G, sum_G) / self.n), {}


_Figure = tuple[Floats, Floats, Floats]  # shares of which it is the mean, the rows of each, and its `weights`


@dataclass(slots=True)
class _Counts:
    """Of each class or label the rows that have it, those answered by it, and those of them that are right, `(C,)`; of
    all rows those whose answer is all right."""

    support_C: Floats
    given_C: Floats
    right_C: Floats
    n_right: float
    n_rows: int
    multi: bool

    def figures(self) -> dict[str, _Figure]:
        """Macro figures are of the classes that rows have or are given. F1 is a share of the mean of the rows that have
        a class and those answered so. Labels of one row are not independent, so all labels together count as no more
        than the rows."""
        none_C, n = np.zeros_like(self.right_C), float(self.n_rows)
        wholes = {  # of which each is a share, and how much a label that is given, and one that a row has, adds to them
            "f1": ((self.given_C + self.support_C) / 2, 0.5, 0.5),
            "precision": (self.given_C, 1.0, 0.0),
            "recall": (self.support_C, 0.0, 1.0),
        }
        right = np.array([self.n_right / n]), np.array([n]), np.concatenate([none_C, none_C, none_C, [1 / n]])
        occurs_C = wholes["f1"][0] > 0
        macro, micro = {}, {"micro_f1": right}  # one answer a row: micro precision, recall and F1 are all the accuracy
        for name, (whole_C, given, had) in wholes.items():
            by_right_C, share_C = ratio(1 / max(1, occurs_C.sum()) + none_C, whole_C), ratio(self.right_C, whole_C)
            weight_F = _weights(by_right_C, share_C, given, had)
            rows_C = whole_C[occurs_C] * min(1.0, n / effective_rows(whole_C) if self.multi else 1.0)
            macro[f"macro_{name}"] = share_C[occurs_C], rows_C, weight_F
            if self.multi:
                whole_1 = whole_C.sum(keepdims=True)
                share_1 = ratio(self.right_C.sum(keepdims=True), whole_1)
                weight_F = _weights(none_C + ratio(np.ones(1), whole_1), share_1, given, had)
                micro[f"micro_{name}"] = share_1, np.minimum(whole_1, n), weight_F
        return {"accuracy": right, **macro, **micro}

    @property
    def n_occur(self) -> int:
        """How many classes rows have or are given."""
        return int((self.given_C + self.support_C > 0).sum())

    def weights(self) -> Floats:
        """By what each figure grows with the numbers of `_of_row`, to first order: `(F, G)`."""
        return np.stack([weight_F for _, _, weight_F in self.figures().values()], axis=1)

    def moves(self, labels_P: Ints, answers_P: Ints) -> Floats:
        """By what a row of one class moves each figure `(P, G)`: `weights` times its `_of_row`."""
        weights_FG, n_classes, right_P1 = self.weights(), len(self.right_C), (labels_P == answers_P)[:, None]
        right_PG = right_P1 * (weights_FG[labels_P] + weights_FG[-1])
        return right_PG + weights_FG[n_classes + answers_P] + weights_FG[2 * n_classes + labels_P]

    def doubts(self) -> Floats:
        """The variance of each figure by one more row, right by one of two models alone and shared out evenly over the
        classes, half of it for either: `(G,)`."""
        rows = [rows_C for _, rows_C, _ in self.figures().values()]
        return np.array([float((np.maximum(one, 1) ** -2.0).sum()) / (2 * max(1, len(one)) ** 3) for one in rows])

    def intervals(self, covariances_GG: Floats) -> Figures:
        """Every figure with its interval, by the covariances of what rows move."""
        figures, variances = self.figures(), covariances_GG.diagonal().tolist()
        found, whole_C = Figures(), (self.given_C + self.support_C) / 2
        for (name, (share_C, rows_C, _)), variance in zip(figures.items(), variances, strict=True):
            shift = _f1_bias(share_C, whole_C[whole_C > 0]) if name == "macro_f1" else 0.0
            found[name] = shares_interval(share_C, rows_C, variance, shift)
        found["accuracy"] = share_interval(int(self.n_right), self.n_rows)
        return found if self.multi else found | {"micro_f1": found["accuracy"]}

    def by_class(self) -> Iterator[list[Any]]:
        """Precision, recall, F1 and support, each of all classes."""
        for whole_C in (self.given_C, self.support_C, (self.given_C + self.support_C) / 2):
            yield ratio(self.right_C, whole_C).tolist()
        yield self.support_C.astype(np.int64).tolist()


def _weights(by_right_C: Floats, share_C: Floats, given: float, had: float) -> Floats:
    """Of a share, by right, given and had labels, and by rows that are all right."""
    by_whole_C = -by_right_C * share_C
    return np.concatenate([by_right_C, given * by_whole_C, had * by_whole_C, np.zeros(1)])


def _f1_bias(f1_C: Floats, whole_C: Floats) -> float:
    """By what macro F1 is too low, to second order: as its whole of m rows goes with the rows that are right, an F1 is
    on average F (1 - F) / (2 m) less. That holds of each label by itself, whatever others its rows have. An F1 of few
    rows is 0 or 1 by chance, so it is taken with one more row of the mean F1, as in `shares_interval`."""
    if not len(f1_C):
        return 0.0
    shrunk_C = (whole_C * f1_C + f1_C.mean()) / (whole_C + 1)
    return float((shrunk_C * (1 - shrunk_C) / (2 * whole_C)).mean())


def _of_classes(labels_P: Ints, answers_P: Ints, n_classes: int, count_P: Ints) -> _Counts:
    n, right_P = int(count_P.sum()), labels_P == answers_P
    if not n:
        raise ValueError(NO_ROWS)
    every = ((labels_P, count_P), (answers_P, count_P), (labels_P, count_P * right_P))
    support_C, given_C, right_C = (np.bincount(ids, times, n_classes).astype(np.float64) for ids, times in every)
    return _Counts(support_C, given_C, right_C, float(right_C.sum()), n, False)


def _of_row(marks_nC: Bools, given_nC: Bools, *values: Floats) -> Floats:
    """Of each row its labels that are right, given and had, whether all are right, and `values`: `(n, F)`."""
    right_n = (marks_nC == given_nC).all(1)
    parts = [marks_nC & given_nC, given_nC, marks_nC, *(one[:, None] for one in (right_n, *values))]
    return np.concatenate([np.asarray(one, dtype=np.float64) for one in parts], axis=1)


def _of_sums(sum_F: Floats, n: int, n_labels: int) -> _Counts:
    """The inverse of `_of_row`, summed."""
    right_C, given_C, support_C = sum_F[: 3 * n_labels].reshape(3, -1)
    return _Counts(support_C, given_C, right_C, float(sum_F[3 * n_labels]), n, True)


def reliability(
    confidence_P: Floats, right_P: Bools, count_P: Ints | None = None, bin_P: Ints | None = None
) -> list[Bin]:
    """The bins that hold rows, from the least to the most confident; `count_P` rows at once, of which the confidence
    is the mean, and which lie in `bin_P`, as a mean of rows at an edge may be rounded below it."""
    count_P = np.ones(len(confidence_P), dtype=np.int64) if count_P is None else count_P
    bin_P = np.digitize(confidence_P, EDGES) if bin_P is None else bin_P
    sums = [
        np.bincount(bin_P, weights=count_P * values, minlength=N_BINS).tolist() for values in (1, confidence_P, right_P)
    ]
    return [
        Bin(at / N_BINS, (at + 1) / N_BINS, int(count), confident / count, share.value, share.low, share.high)
        for at, (count, confident, correct) in enumerate(zip(*sums, strict=True))
        if count and (share := share_interval(round(correct), int(count)))
    ]
