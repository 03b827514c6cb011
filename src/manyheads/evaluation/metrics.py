"""Figures of a classifier on one split with 95 % intervals, and its calibration.

Labels are class ids `(n,)`, or marks `(n, C)`, bool, where a row has any number of labels; answers likewise.

Rows come a chunk at a time and are not kept: `calibration.py`.

n rows . C classes or labels . R resamples, of which entry 0 is the data as it is . P cells: rows, or counts of them, or
pairs (class, answer) that occur . F figures of a row . V values of a row
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.evaluation.calibration import EDGES, N_BINS, Calibration, Cells, Sums
from manyheads.evaluation.intervals import (
    AT_ONCE,
    Bools,
    Floats,
    Ints,
    change_interval,
    class_interval,
    effective_rows,
    gap_interval,
    mean_interval,
    ratio,
    resamples,
    share_interval,
)
from manyheads.runs.summary import Figures

MOST_OF_SLICE = 4096  # rows of labels that are held where there are many tallies
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

    Macro figures are means over the classes that occur in labels or answers (scikit-learn's default), not over every
    class the model knows: a class that does not occur has no precision and no recall. The loss is in nats. The
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
    tally = ClassTally(len(names))
    tally.add(np.asarray(labels, dtype=np.int64), np.asarray(probabilities, dtype=np.float64))
    return tally.scores(names, n_resamples=n_resamples, seed=seed)


def score_labels(
    marks_nC: Bools, probabilities_nC: Floats, names: list[str], thresholds: list[float], **draws: int
) -> Scores:
    """Judge labels, given from their `thresholds` on, against those that rows have, their `marks`; the bootstrap, its
    settings and errors are those of `score`."""
    tally = LabelTally(thresholds)
    tally.add(marks_nC, probabilities_nC)
    return tally.scores(names, **draws)


class ClassTally:
    """Rows with one class each, judged a chunk at a time."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes, self.cells, self.calibration = n_classes, Cells(3), Calibration(n_classes)

    def add(self, labels_n: Ints, probabilities_nC: Floats) -> None:
        assert probabilities_nC.shape == (len(labels_n), self.n_classes), "one row of probabilities a label"
        answers_n, confidence_n = probabilities_nC.argmax(1), probabilities_nC.max(1)
        own_n = probabilities_nC[np.arange(len(labels_n)), labels_n]
        loss_n = -np.log(np.maximum(own_n, np.finfo(np.float64).tiny))
        brier_n = (probabilities_nC**2).sum(1) - 2 * own_n + 1
        key_n = (labels_n * self.n_classes + answers_n) * N_BINS + np.digitize(confidence_n, EDGES)
        self.cells.add(key_n, np.stack([loss_n, confidence_n, brier_n], 1))
        self.calibration.add(labels_n[:, None] == np.arange(self.n_classes), probabilities_nC)

    def scores(self, names: list[str], *, n_resamples: int = 1000, seed: int = 0) -> Scores:
        """The figures of all rows; as of `score`."""
        key_P, count_P, mean_PV, variance_PV = self.cells.get()
        pair_P, bin_P = np.divmod(key_P, N_BINS)
        labels_P, answers_P = np.divmod(pair_P, self.n_classes)
        right_P, n = labels_P == answers_P, int(count_P.sum())
        draws = {"n_resamples": n_resamples, "seed": seed}
        resampled = _of_classes(labels_P, answers_P, self.n_classes, count_P, **draws)
        found = resampled.intervals() | self.calibration.figures(multi=False, **draws)
        for name, at in (("loss", 0), ("brier", 2)):
            found[name] = mean_interval(mean_PV[:, at], count_P, variance_PV[:, at], skewed=True)
        found["calibration_error"] = gap_interval(bin_P, mean_PV[:, 1], right_P, count_P, **draws)
        confusion = np.bincount(pair_P, weights=count_P, minlength=self.n_classes**2).astype(np.int64)
        return Scores(
            {name: found[name] for name in (*OF_CLASSES, *(one for one in found if one not in OF_CLASSES))},
            n_rows=n,
            labels=list(names),
            per_class=[ClassScore(*row) for row in zip(names, *resampled.by_class(), strict=True)],
            confusion=confusion.reshape(self.n_classes, self.n_classes).tolist(),
            reliability=reliability(mean_PV[:, 1], right_P, count_P),
        )


class LabelTally:
    """Rows with any number of labels, given from their `thresholds` on, judged a chunk at a time."""

    def __init__(self, thresholds: list[float]) -> None:
        self.thresholds, self.sums, self.calibration = thresholds, Sums(), Calibration(len(thresholds))

    def add(self, marks_nC: Bools, probabilities_nC: Floats) -> None:
        kind = np.finfo(np.float64)  # a probability next to one has no digits left for what is wanting to it
        wrong_nC = np.maximum(1 - probabilities_nC, kind.eps / 2)
        loss_n = -np.log(np.where(marks_nC, np.maximum(probabilities_nC, kind.tiny), wrong_nC)).sum(1)
        brier_n = ((probabilities_nC - marks_nC) ** 2).sum(1)
        self.sums.add(_of_row(marks_nC, probabilities_nC >= np.array(self.thresholds), loss_n, brier_n))
        self.calibration.add(marks_nC, probabilities_nC)

    def scores(self, names: list[str], **draws: int) -> Scores:
        """The figures of all rows; as of `score_labels`."""
        resampled = _of_sums(self.sums.resampled(**draws), self.sums.n, len(names))
        found = resampled.intervals() | self.calibration.figures(multi=True, **draws)
        found |= {name: self.sums.mean(at) for name, at in (("loss", -2), ("brier", -1))}
        per_class = [LabelScore(*row) for row in zip(names, *resampled.by_class(), self.thresholds, strict=True)]
        figures = {name: found[name] for name in (*OF_LABELS, *(one for one in found if one not in OF_LABELS))}
        return Scores(figures, self.sums.n, list(names), per_class)


def score_answers(labels: ArrayLike, answers: ArrayLike, n_classes: int, **draws: int) -> Figures:
    """The figures of bare answers, such as a baseline's, on the resamples that `score` draws for these settings."""
    tally = AnswerTally(n_classes)
    tally.add(np.asarray(labels), np.asarray(answers))
    return tally.figures(**draws)[0]


def change_of_answers(
    labels: ArrayLike, answers: ArrayLike, others: Iterable[ArrayLike], n_classes: int, **draws: int
) -> list[Figures]:
    """Each figure of every one of `others` less that of `answers`, on the same rows, with its `change_interval`. The
    bootstrap is paired: a resample draws rows, and takes both answers to each (Efron and Tibshirani, 1993, "An
    Introduction to the Bootstrap", section 8.3)."""
    found = []
    for one in others:
        tally = AnswerTally(n_classes)
        tally.add(np.asarray(labels), np.asarray(answers), np.asarray(one))
        found.append(tally.figures(**draws)[1])
    return found


class AnswerTally:
    """Bare answers to rows, a chunk at a time, and maybe `others` to the same rows, to be compared with them. Rows of
    one class may be `counted` however few they are: that is far quicker, and draws as likely."""

    def __init__(self, n_classes: int, *, counted: bool = False) -> None:
        self.n_classes, self.sums, self.paired = n_classes, Sums(MOST_OF_SLICE if counted else None), False
        self.cells = Cells(most=0 if counted else None)

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

    def figures(self, **draws: int) -> tuple[Figures, Figures]:
        """Those of the answers; and those of the others less these, with their `change_interval`."""
        before, *after = self._resampled(**draws)
        if not after:
            return before.intervals(), {}
        figures, n_macro = before.figures(), min(float(before.n_rows), effective_rows(before.support_RC[0]))
        n_rows = {name: n_macro if name.startswith("macro") else before.n_rows for name in figures}
        others = after[0].figures()
        change = {name: change_interval(others[name] - figures[name], n_rows[name]) for name in figures}
        return before.intervals(), change

    def _resampled(self, **draws: int) -> list["_Resampled"]:
        if self.sums.n:
            sums_RF = self.sums.resampled(**draws)
            parts = np.split(sums_RF, 2 if self.paired else 1, axis=1)
            return [_of_sums(one, self.sums.n, self.n_classes) for one in parts]
        key_P, count_P, _, _ = self.cells.get()
        answers = []
        for _ in range(2 if self.paired else 1):
            key_P, one_P = np.divmod(key_P, self.n_classes)
            answers.append(one_P)
        labels_P = key_P
        return [_of_classes(labels_P, one_P, self.n_classes, count_P, **draws) for one_P in reversed(answers)]


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


def _of_classes(
    labels_P: Ints,
    answers_P: Ints,
    n_classes: int,
    count_P: Ints,
    **draws: int,
) -> _Resampled:
    """Counted by the pairs of class and answer that occur: of thousands of classes there is no matrix."""
    pairs, pair_P = np.unique(labels_P * n_classes + answers_P, return_inverse=True)
    classes, given = np.divmod(pairs, n_classes)
    right = classes == given
    drawn, at_once, counts = resamples(count_P, **draws), max(1, AT_ONCE // max(len(count_P), n_classes)), []
    while times_P := list(islice(drawn, at_once)):
        of_pair = _added(np.stack(times_P), pair_P, len(pairs))
        every = ((of_pair, classes), (of_pair, given), (of_pair[:, right], classes[right]))
        counts.append([_added(some, ids, n_classes) for some, ids in every])
    support_RC, given_RC, right_RC = (np.concatenate(one) for one in zip(*counts, strict=True))
    return _Resampled(support_RC, given_RC, right_RC, right_RC.sum(1), int(count_P.sum()), False)


def _added(times_RP: NDArray[Any], ids_P: Ints, n: int) -> NDArray[Any]:
    """How often each of `n` ids counts, `(R, n)`."""
    ids_RP = np.arange(len(times_RP))[:, None] * n + ids_P
    return np.bincount(ids_RP.ravel(), times_RP.ravel(), len(times_RP) * n).reshape(-1, n)


def _of_row(marks_nC: Bools, given_nC: Bools, *values: Floats) -> Floats:
    """Of each row its labels that are right, given and had, whether all are right, and `values`: `(n, F)`."""
    right_n = (marks_nC == given_nC).all(1)
    parts = [marks_nC & given_nC, given_nC, marks_nC, *(one[:, None] for one in (right_n, *values))]
    return np.concatenate([np.asarray(one, dtype=np.float64) for one in parts], axis=1)


def _of_sums(sums_RF: Floats, n: int, n_labels: int) -> _Resampled:
    """The inverse of `_of_row`, summed."""
    right_RC, given_RC, support_RC = (sums_RF[:, at * n_labels : (at + 1) * n_labels] for at in range(3))
    return _Resampled(support_RC, given_RC, np.minimum(right_RC, given_RC), sums_RF[:, 3 * n_labels], n, True)


def reliability(confidence_P: Floats, right_P: Bools, count_P: Ints | None = None) -> list[Bin]:
    """The bins that hold rows, from the least to the most confident; `count_P` rows at once, of which the confidence
    is the mean."""
    count_P = np.ones(len(confidence_P), dtype=np.int64) if count_P is None else count_P
    bin_P = np.digitize(confidence_P, EDGES)
    sums = [
        np.bincount(bin_P, weights=count_P * values, minlength=N_BINS).tolist() for values in (1, confidence_P, right_P)
    ]
    return [
        Bin(at / N_BINS, (at + 1) / N_BINS, int(count), confident / count, share.value, share.low, share.high)
        for at, (count, confident, correct) in enumerate(zip(*sums, strict=True))
        if count and (share := share_interval(round(correct), int(count)))
    ]
