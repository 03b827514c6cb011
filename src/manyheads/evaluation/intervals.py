"""95 % intervals of shares, of means over classes, of changes and of anything that resamples of rows give.

n rows . C classes or labels . R resamples, of which entry 0 is the data as it is . P cells: rows, or counts of them
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.runs.summary import Figures, Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NO_ROWS = "there are no rows to judge: give a split that holds at least one"
AT_ONCE = 2**16  # counts of resamples that are drawn and added up together
Z = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution


def plain(figures: Figures) -> dict[str, dict[str, float]]:
    """Figures as JSON has them."""
    return {name: asdict(one) for name, one in figures.items()}


def share_interval(n_some: int, n: int) -> Interval:
    """The share of rows that some are, with Wilson's interval: Wilson (1927), "Probable Inference, the Law of
    Succession, and Statistical Inference"."""
    if not n:
        raise ValueError(NO_ROWS)
    share, doubt = n_some / n, Z**2 / n
    middle, half = share + doubt / 2, math.sqrt(share * (1 - share) * doubt + doubt**2 / 4)
    low, high = (middle - half) / (1 + doubt), (middle + half) / (1 + doubt)
    return Interval(share, min(share, max(0.0, low)), max(share, min(1.0, high)))


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


def effective_rows(n_C: NDArray[Any]) -> float:
    """How many rows one share must have to be known as well as a mean over classes of `n_C` rows each: of classes of
    one size all their rows, else fewer."""
    n_C = n_C[n_C > 0]
    return float(len(n_C) ** 2 / (1 / n_C).sum()) if len(n_C) else 1.0


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


def mean_interval(
    values: ArrayLike, counts: Ints | None = None, variances: Floats | None = None, *, skewed: bool = False
) -> Interval:
    """The mean of a figure a row, such as a difference of paired rows, with Student's interval. That of a loss, which
    is `skewed`, never negative and decided by few rows, would end too low: Hall (1992), "On the Removal of Skewness by
    Transformation", takes the skewness out of t by a cubic, whose inverse gives the ends. Where a value is the mean of
    `counts` rows, with `variances` among them, their skewness counts for none."""
    from scipy.special import stdtrit  # which takes long to import

    value_P = np.asarray(values, dtype=np.float64)
    count_P = np.ones(len(value_P), dtype=np.int64) if counts is None else counts
    n = int(count_P.sum())
    if not n:
        raise ValueError(NO_ROWS)
    mean = float(count_P @ value_P) / n
    apart_P, inside_P = value_P - mean, 0.0 if variances is None else variances
    deviation = math.sqrt(float(count_P @ (apart_P**2 + inside_P)) / (n - 1)) if n > 1 else 0.0
    if not deviation > 0:
        return Interval(mean, mean, mean)
    ends_t = [sign * float(stdtrit(n - 1, 0.975)) for sign in (1, -1)]
    skew = float(count_P @ apart_P**3) / n / (deviation**3 * math.sqrt(n)) if skewed else 0.0
    for at, end in enumerate(ends_t):  # 3 / skew * (root - 1), in a form that holds at no skew, too
        root = math.cbrt(1 + skew * (end - skew / 6))
        ends_t[at] = 3 * (end - skew / 6) / (root**2 + root + 1)
    low, high = (mean - end * deviation / math.sqrt(n) for end in ends_t)
    return Interval(mean, min(mean, max(low, 0.0) if skewed else low), max(mean, high))


def fold_interval(values: ArrayLike, ratio: float, *, share: bool = True) -> Interval:
    """The mean of a figure over folds, each judged on `ratio` times the rows that its model learnt from; of a `share`
    between 0 and 1. The models share most of their rows, so that their spread says too little: Nadeau and Bengio
    (2003), "Inference for the Generalization Error", equation 11, add that ratio to one by the number of folds."""
    from scipy.special import stdtrit

    value_F = np.asarray(values, dtype=np.float64)
    mean, n_folds = float(value_F.mean()), len(value_F)
    half = math.sqrt((1 / n_folds + ratio) * value_F.var(ddof=1)) * float(stdtrit(n_folds - 1, 0.975))
    return Interval(mean, max(0.0, mean - half), min(mean + half, 1.0) if share else mean + half)


def gap_interval(
    bin_n: Ints,
    confidence_n: Floats,
    right_n: Bools | Floats,
    count_n: Ints | None = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """The calibration error over the bins `bin_n`: their gaps of confidence and share of right rows, weighted by rows;
    each entry stands for `count_n` rows, of which the others are means.

    Noise makes gaps where there are none, and resampled rows bring it in once more. So the interval holds the errors
    which could well have looked like the one seen: Carpenter (1999), "Test Inversion Bootstrap Confidence Intervals".
    The gaps are a multiple of those seen, each with two rows of the mean gap added; rows are drawn into the bins and
    right as often as confidence less gap says, as in Bröcker and Smith (2007), "Increasing the Reliability of
    Reliability Diagrams". At either end 2.5 % of the draws lie as far out as what is seen. K bins that hold rows
    """
    count_n = np.ones(len(bin_n), dtype=np.int64) if count_n is None else count_n
    _, bin_n = np.unique(bin_n, return_inverse=True)
    n, n_K = int(count_n.sum()), np.bincount(bin_n, weights=count_n)
    sure_K = np.bincount(bin_n, weights=count_n * confidence_n) / n_K
    gaps_K = np.bincount(bin_n, weights=count_n * (confidence_n - right_n))
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


def interval(value_R: Floats) -> Interval:
    """Of a figure as it is, entry 0, and of its resamples."""
    value = float(value_R[0])
    low, high = np.percentile(value_R[1:], (2.5, 97.5)).tolist() if len(value_R) > 1 else (value, value)
    return Interval(value, min(low, value), max(high, value))


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """One by the other; 0 without a denominator."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


def resamples(counts: int | Ints, n_resamples: int = 1000, seed: int = 0) -> Iterator[Ints]:
    """How often each row counts, of so many, or of cells of `counts` rows all of each: first the data as it is, then
    as it is drawn."""
    count_P = np.ones(counts, dtype=np.int64) if isinstance(counts, int) else counts
    n = int(count_P.sum())
    if not n:
        raise ValueError(NO_ROWS)
    random = np.random.default_rng(seed)
    yield count_P
    at_once = max(1, AT_ONCE // len(count_P))
    for start in range(0, n_resamples, at_once):
        size = min(at_once, n_resamples - start)
        if n > len(count_P):
            yield from random.multinomial(n, count_P / n, size)
        else:
            places = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
            yield from np.bincount(places.ravel(), minlength=n * size).reshape(size, n)
