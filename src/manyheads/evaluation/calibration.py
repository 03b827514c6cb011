"""How far probabilities may be believed, beyond the bins of a reliability diagram, and what is left of rows that come a
chunk at a time and are not kept.

The adaptive error has bins of equally many rows, so that confident rows are not all in one; the class-wise error is the
mean over classes of the error of each class's own probability, given or not: Nixon et al. (2019), "Measuring
Calibration in Deep Learning", and Kull et al. (2019), "Beyond temperature scaling".

Beyond `EXACT` rows they are counted by a key, such as class, answer and bin of confidence; up to there a count is a
row.

n rows . C classes or labels . K bins that hold rows . P cells: rows, or counts of them . F numbers of a row .
G figures . V values of a row
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from manyheads.evaluation.intervals import NO_ROWS, Bools, Floats, Ints, Z, covariances, mean_interval, root
from manyheads.runs.summary import Figures, Interval

N_BINS = 15  # of confidence, equally wide or with equally many rows
EDGES = np.linspace(0, 1, N_BINS + 1)[1:-1]
FINE = 13  # bits of a float32 that a cell of confidence leaves out: what is wanting to 1 is known to a thousandth
MOST_GAPS = 16.0  # times the largest gap that is searched for an end
EXACT = 2**16  # rows up to which each is kept by itself
MOST_HELD = 2**23  # numbers of rows of labels up to which, too


class Calibration:
    """Rows and their probabilities, a chunk at a time."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes, self.confidences = n_classes, Cells(2)
        self.sums = np.zeros((3, n_classes * N_BINS))  # rows, those that have it, and the sum of its probabilities

    def add(self, marks_nC: Bools, probabilities_nC: Floats) -> None:
        confidence_n = probabilities_nC.max(1)
        right_n = np.take_along_axis(marks_nC, probabilities_nC.argmax(1)[:, None], axis=1)[:, 0]
        fine_n = ((1 - confidence_n).astype(np.float32).view(np.int32) >> FINE).astype(np.int64)
        self.confidences.add(fine_n, np.stack([confidence_n, right_n.astype(np.float64)], 1))
        bins = (np.digitize(probabilities_nC, EDGES) + np.arange(self.n_classes) * N_BINS).ravel()
        for sums, weights in zip(self.sums, (None, marks_nC.ravel(), probabilities_nC.ravel()), strict=True):
            sums += np.bincount(bins, weights, self.n_classes * N_BINS)

    def figures(self, *, multi: bool) -> Figures:
        """The errors that have a meaning: a row with any number of labels has no confidence of its answer. One with one
        class that has too much of it in one class has too little in the others."""
        found = {"classwise_calibration_error": error_interval(*self.sums, shared=1 if multi else 2)}
        if multi:
            return found
        _, count_P, mean_PV, _ = self.confidences.get()
        bin_P = equal_bins(mean_PV[:, 0], count_P)
        return {"adaptive_calibration_error": binned_error(bin_P, mean_PV[:, 0], mean_PV[:, 1], count_P)} | found


def binned_error(bin_P: Ints, confidence_P: Floats, right_P: Floats | Bools, count_P: Ints) -> Interval:
    """Over the bins `bin_P` of the answers' confidence and the share that is right, of `count_P` rows each."""
    every = (count_P, count_P * right_P, count_P * confidence_P)
    return error_interval(*(np.bincount(bin_P, weights) for weights in every))


def error_interval(n_K: ArrayLike, right_K: ArrayLike, sure_K: ArrayLike, *, shared: float = 1.0) -> Interval:
    """The calibration error over bins that hold `n_K` rows, of which `right_K` are right and `sure_K` are expected.

    Noise makes gaps where there are none. So the interval holds the errors that could well have looked like the one
    seen, a test turned round as in Carpenter (1999), "Test Inversion Bootstrap Confidence Intervals", with the mean and
    the variance of binomial draws in place of draws: at an end the error seen is `Z` standard deviations from its mean.
    The variance is `shared` times that of independent bins. How gaps are spread over bins is not known, so the ends are
    the outer ones of three ways: as seen, each with two rows of the mean gap added; the same in all; by a line through
    the logits, Cox (1958), "Two Further Applications of a Model for Binary Regression". An error far below what noise
    alone makes, as where rows are dealt evenly to classes, proves no smaller one than one deviation below it does:
    Cowan, Cranmer, Gross and Vitells (2011), "Power-Constrained Limits".
    """
    n_K, right_K, sure_K = (np.asarray(one, dtype=np.float64) for one in (n_K, right_K, sure_K))
    n_K, right_K, sure_K = (one[n_K > 0] for one in (n_K, right_K, sure_K))
    n, gap_K, chance_K = float(n_K.sum()), sure_K - right_K, np.clip(sure_K / n_K, 0, 1)
    value = float(np.abs(gap_K).sum()) / n

    def error(true_K: Floats) -> float:
        return float(n_K @ np.abs(chance_K - true_K)) / n

    def noise(true_K: Floats) -> tuple[float, float]:
        """Mean and standard deviation of the error that is seen."""
        mean_K, variance_K = _gap_moments(n_K, sure_K, true_K)
        bins = float(n_K @ (chance_K - true_K) ** 2) - n * error(true_K) ** 2  # by rows that fall into other bins
        return float(mean_K.sum()) / n, math.sqrt(max(shared * (float(variance_K.sum()) + bins), 1e-18)) / n

    def apart(true_K: Floats, seen: float) -> float:
        """How many standard deviations an error lies above its mean."""
        mean, deviation = noise(true_K)
        return (seen - mean) / deviation

    mean, deviation = noise(chance_K)
    lows, highs, least = [value], [value], max(value, mean - deviation)
    as_seen_K = (gap_K + 2 * gap_K.sum() / n) / (n_K + 2)
    for towards_K in (as_seen_K, np.ones_like(chance_K), chance_K - _line(n_K, right_K, chance_K)):
        ends = ((value, Z), (least, -Z))
        low_K, high_K = (_end(partial(apart, seen=seen), end, chance_K, towards_K) for seen, end in ends)
        lows += [] if low_K is None else [error(low_K)]
        highs += [] if high_K is None else [error(high_K)]
    return Interval(value, min(lows), max(highs) if len(highs) > 1 else 1.0)


def _end(apart: Callable[[Floats], float], end: float, chance_K: Floats, towards_K: Floats) -> Floats | None:
    """The true shares nearest to `chance_K` in the direction `towards_K` no more than `end` `apart`; None where
    there are none."""
    largest = float(np.abs(towards_K).max())
    if not largest > 1e-9:
        return None

    def excess(multiple: float) -> float:
        return apart(np.clip(chance_K - multiple * towards_K / largest, 0, 1)) - end

    if excess(0.0) <= 0:
        return chance_K
    if excess(MOST_GAPS) > 0:
        return None
    return np.clip(chance_K - root(excess, 0.0, MOST_GAPS) * towards_K / largest, 0, 1)


def _gap_moments(n_K: Floats, sure_K: Floats, true_K: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the absolute gap of `sure_K` and a binomial number of `n_K` rows with chance `true_K`; its
    mean is De Moivre's, from the binomial distribution function."""
    from scipy.special import bdtr

    whole_K = np.floor(sure_K * (1 + 1e-12))
    up_to_K = bdtr(whole_K, n_K.astype(np.int64), true_K)
    less_K = np.where(
        whole_K >= 1, bdtr(np.maximum(whole_K - 1, 0), np.maximum(n_K - 1, 0).astype(np.int64), true_K), 0
    )
    away_K = sure_K - n_K * true_K
    mean_K = 2 * (sure_K * up_to_K - n_K * true_K * less_K) - away_K
    return mean_K, np.maximum(n_K * true_K * (1 - true_K) + away_K**2 - mean_K**2, 0)


def _line(n_K: Floats, right_K: Floats, chance_K: Floats) -> Floats:
    """The shares that are right, by a logistic regression on the logits of `chance_K`, whose two numbers are drawn
    towards those that change nothing, with a standard deviation of one."""
    inside_K = np.clip(chance_K, 1e-6, 1 - 1e-6)
    logit_K = np.log(inside_K) - np.log1p(-inside_K)
    inputs_K2, nothing_2 = np.stack([np.ones_like(logit_K), logit_K], axis=1), np.array([0.0, 1.0])
    line_2 = nothing_2
    for _ in range(20):
        share_K = 1 / (1 + np.exp(-inputs_K2 @ line_2))
        slope_2 = inputs_K2.T @ (right_K - n_K * share_K) - (line_2 - nothing_2)
        curve_22 = (inputs_K2 * (n_K * share_K * (1 - share_K))[:, None]).T @ inputs_K2 + np.eye(2)
        step_2 = np.linalg.solve(curve_22, slope_2)
        line_2 = line_2 + step_2 / max(1.0, float(np.abs(step_2).max()))
    return 1 / (1 + np.exp(-inputs_K2 @ line_2))


def equal_bins(confidence_P: Floats, count_P: Ints) -> Ints:
    """The bin of each cell, so that all have as many rows as cells allow; those of one confidence are in one bin,
    whatever their order."""
    _, value_P = np.unique(confidence_P, return_inverse=True)
    rows = np.bincount(value_P, weights=count_P)
    middle = rows.cumsum() - (rows + 1) / 2
    return (middle * N_BINS // max(1, int(count_P.sum()))).astype(np.int64)[value_P]


class Cells:
    """Rows by a key, with `V` values each; beyond `EXACT` rows, or `most`, those of one key are counted together."""

    def __init__(self, n_values: int = 0, most: int | None = None) -> None:
        empty = np.empty((0, n_values))
        self._parts = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), empty, empty)]
        self._held, self._most = 0, EXACT if most is None else most

    def add(self, key_n: Ints, values_nV: Floats | None = None) -> None:
        values_nV = np.empty((len(key_n), 0)) if values_nV is None else values_nV
        self._parts.append((key_n, np.ones(len(key_n), dtype=np.int64), values_nV, values_nV**2))
        self._held += len(key_n)
        if self._held > self._most:
            keys, counts, sums, squares = self._joined()
            key_P, cell = np.unique(keys, return_inverse=True)
            count_P = np.zeros(len(key_P), dtype=np.int64)
            np.add.at(count_P, cell, counts)
            summed = (
                np.stack([np.bincount(cell, of, len(key_P)) for of in one.T], 1) if one.size else one[: len(key_P)]
                for one in (sums, squares)
            )
            self._parts = [(key_P, count_P, *summed)]
            self._held, self._most = len(key_P), max(self._most, 2 * len(key_P))

    def get(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Of each cell its key and rows `(P,)`, the mean of its values and their variance inside it `(P, V)`."""
        key_P, count_P, sums, squares = self._joined()
        mean_PV = sums / count_P[:, None]
        return key_P, count_P, mean_PV, np.maximum(squares / count_P[:, None] - mean_PV**2, 0.0)

    def _joined(self) -> tuple[Ints, Ints, Floats, Floats]:
        keys, counts, sums, squares = zip(*self._parts, strict=True)
        return np.concatenate(keys), np.concatenate(counts), np.concatenate(sums), np.concatenate(squares)


class Sums:
    """Sums over rows of the numbers of each, and their covariances. Few rows are kept, of more than `EXACT` the
    squares, where these are fewer."""

    def __init__(self) -> None:
        self.n, self._rows, self._held = 0, list[Floats](), True
        self._sum_F, self._square_FF = np.zeros(()), np.zeros(())

    def add(self, of_row_nF: Floats) -> None:
        self.n += len(of_row_nF)
        self._rows.append(of_row_nF)
        n_numbers = of_row_nF.shape[1]
        many = self.n > EXACT or self.n * n_numbers > MOST_HELD
        if not self._held or (many and self.n > n_numbers):
            self._held = False
            for one in self._rows:
                self._sum_F, self._square_FF = self._sum_F + one.sum(0), self._square_FF + one.T @ one
            self._rows = []

    def mean(self, at: int) -> Interval:
        """That of a figure which is never negative and decided by few rows, such as a loss."""
        if self._held:
            return mean_interval(np.concatenate(self._rows)[:, at], skewed=True)
        mean = np.array([self._sum_F[at] / self.n])
        variance = np.maximum(self._square_FF[at, at] / self.n - mean**2, 0.0)
        return mean_interval(mean, np.array([self.n]), variance, share=False)

    def total(self) -> Floats:
        """`(F,)`."""
        if not self.n:
            raise ValueError(NO_ROWS)
        return np.concatenate(self._rows).sum(0) if self._held else self._sum_F

    def covariances(self, weights_FG: Floats) -> Floats:
        """`(G, G)` of the sums of what rows weigh."""
        if self._held:
            return covariances(np.concatenate(self._rows) @ weights_FG)
        sum_G = self._sum_F @ weights_FG
        return weights_FG.T @ self._square_FF @ weights_FG - np.outer(sum_G, sum_G) / self.n
