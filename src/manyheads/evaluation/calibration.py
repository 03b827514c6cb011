"""How far probabilities may be believed: calibration errors and their intervals.

n rows . K bins that hold rows
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from manyheads.evaluation.intervals import Bools, Floats, Ints, Z, find_root
from manyheads.runs.summary import Interval

N_BINS = 15  # of confidence, of equal width or with equally many rows
EDGES = np.linspace(0, 1, N_BINS + 1)[1:-1]
MOST_GAPS = 16.0  # times the largest gap that is searched for an end


def equal_bins(confidence_n: Floats) -> Ints:
    """The bin of each row, so that all bins have as many rows as can be; rows of one confidence are in one bin,
    whatever their order."""
    _, value_n, rows = np.unique(confidence_n, return_inverse=True, return_counts=True)
    middle = rows.cumsum() - (rows + 1) / 2
    return (middle * N_BINS // max(1, len(confidence_n))).astype(np.int64)[value_n]


def binned_error(bin_n: Ints, confidence_n: Floats, right_n: Bools) -> Interval:
    """The calibration error over the bins `bin_n` of the confidence of answers, and whether they are right."""
    return error_interval(*(np.bincount(bin_n, weights) for weights in (None, right_n, confidence_n)))


def error_interval(n_K: ArrayLike, right_K: ArrayLike, sure_K: ArrayLike, *, shared: float = 1.0) -> Interval:
    """The calibration error over bins that hold `n_K` rows, of which `right_K` are right and `sure_K` are expected.

    Noise makes gaps where there are none. So the interval holds the errors that could well have looked like the one
    seen: an inverted test, as in Carpenter (1999), "Test Inversion Bootstrap Confidence Intervals", with the mean and
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
    value, gap_moments = float(np.abs(gap_K).sum()) / n, _gap_moments(n_K, sure_K)

    def error(true_K: Floats) -> float:
        return float(n_K @ np.abs(chance_K - true_K)) / n

    def noise(true_K: Floats) -> tuple[float, float]:
        """Mean and standard deviation of the error that is seen."""
        mean_K, variance_K = gap_moments(true_K)
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
    return np.clip(chance_K - find_root(excess, 0.0, MOST_GAPS) * towards_K / largest, 0, 1)


def _gap_moments(n_K: Floats, sure_K: Floats) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Mean and variance, by the chance `true_K`, of the absolute gap of `sure_K` and a binomial number of `n_K` rows;
    its mean is De Moivre's, from the binomial distribution function."""
    from scipy.special import bdtr

    whole_K = np.floor(sure_K * (1 + 1e-12))
    some_K, below_K = (whole_K >= 1) * n_K, np.maximum(whole_K - 1, 0)
    rows_K, fewer_K = n_K.astype(np.int64), np.maximum(n_K - 1, 0).astype(np.int64)

    def of_chance(true_K: Floats) -> tuple[Floats, Floats]:
        expected_K = n_K * true_K
        away_K = sure_K - expected_K
        up_to_K, less_K = bdtr(whole_K, rows_K, true_K), bdtr(below_K, fewer_K, true_K)
        mean_K = 2 * (sure_K * up_to_K - some_K * true_K * less_K) - away_K
        return mean_K, np.maximum(expected_K * (1 - true_K) + away_K**2 - mean_K**2, 0)

    return of_chance


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
