"""95 % intervals: of a share, of a mean of shares, of a mean, and of a difference.

Each function says what it assumes and where it comes from. docs/results/intervals.md has how often each interval holds
the true value. statistics.py has what is needed more rarely, such as the bootstrap.

n rows . C classes or labels
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.errors import UserError
from manyheads.runs.summary import Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NO_ROWS = "there are no rows to judge: give a split that holds at least one"
Z = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution
SHARE = (0.0, 1.0)  # the least and the most that a share can be


def clipped(value: float, low: float, high: float, least: float = 0.0, most: float = 1.0) -> Interval:
    """The interval from `low` to `high`, within what the figure can be, `least` to `most`; it always holds `value`."""
    return Interval(value, min(value, max(least, low)), max(value, min(most, high)))


# Shares


def share_interval(n_some: float, n: float) -> Interval:
    """The share `n_some / n` of rows, with Wilson's score interval.

    Assumes that rows are drawn independently.

    Source: Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference".

    Raises:
        UserError: there are no rows.
    """
    if not n:
        raise UserError(NO_ROWS)
    share, z2 = n_some / n, Z**2 / n
    middle = share + z2 / 2
    half = math.sqrt(share * (1 - share) * z2 + z2**2 / 4)
    return clipped(share, (middle - half) / (1 + z2), (middle + half) / (1 + z2))


def shares_interval(share_C: Floats, n_C: Floats, variance: float | None = None, bias: float = 0.0) -> Interval:
    """The mean of shares of `n_C` rows each, such as recall over classes, with a score interval.

    An end is the mean of those shares that are the likeliest of all with this mean, and lies `Z` of their standard
    deviations from the mean seen. Of one share it is Wilson's interval. A share without rows may be anything; without
    any share the interval is 0 to 1.

    Assumes that shares are independent, unless the `variance` of their mean is given.

    Source: Martín Andrés, Álvarez Hernández and Herranz Tejedor (2011), "Inferences about a linear combination of
    proportions".

    Args:
        share_C: the shares `(C,)`.
        n_C: how many rows each is a share of `(C,)`.
        variance: of their mean, if the same rows decide several shares, or if one is no plain share (F1). Its ratio to
            the variance of independent shares scales the interval. The ratio is shrunk towards 1 as if by `Z**2`
            further rows, as few mistakes say little about it.
        bias: by how much the mean seen is too low on average; it is added to both ends.
    """
    n_shares = len(share_C)
    if not n_shares:
        return Interval(0.0, 0.0, 1.0)
    mean = float(share_C.mean())
    spread_C = share_C * (1 - share_C)
    independent = float(divide(spread_C, n_C).sum()) / n_shares**2
    scale = 1.0
    if variance is not None and independent > 0:
        known = float((spread_C * n_C).sum())
        scale = (known * variance / independent + Z**2) / (known + Z**2)
    low = _least_mean(share_C, n_C, scale) + bias
    high = 1 - _least_mean(1 - share_C, n_C, scale) + bias
    return clipped(mean, low, high)


def _least_mean(share_C: Floats, n_C: Floats, scale: float) -> float:
    """The lower end of `shares_interval`, whose variance is `scale` times that of independent shares.

    The likeliest shares p with a given mean have n (share - p) = slope p (1 - p), with one slope for all (Lagrange):
    the higher the slope, the lower their mean. Shares of few rows differ by chance, which makes their variance seem
    small. So each is shrunk by one more row of the mean share before the variance is taken.
    """
    if not (share_C * n_C).any():
        return 0.0
    n_shares, has_rows_C = len(n_C), n_C > 0
    share_C, n_C = share_C[has_rows_C], n_C[has_rows_C]  # the others are 0 at the least

    def likeliest(slope: float) -> Floats:
        sum_C = n_C + slope
        root_C = np.sqrt(np.maximum(sum_C**2 - 4 * slope * n_C * share_C, 0))
        return 2 * n_C * share_C / (sum_C + root_C)

    def excess(slope: float) -> float:
        """How much further than `Z` standard deviations the mean has moved, as a ratio of squares less 1."""
        p_C = likeliest(slope)
        shrunk_C = (n_C * p_C + p_C.mean()) / (n_C + 1)
        distance = slope * float((p_C * (1 - p_C) / n_C).sum())
        variance = float((shrunk_C * (1 - shrunk_C) / n_C).sum())
        if not variance > 0:
            return -1.0
        return distance**2 / (Z**2 * scale * variance) - 1

    highest = 1.0
    while excess(highest) < 0:
        highest *= 4
    return float(likeliest(find_root(excess, 0.0, highest)).sum()) / n_shares


def effective_rows(n_C: NDArray[np.float64]) -> float:
    """How many rows one share needs to be known as well as a mean over classes of `n_C` rows each: of classes of one
    size all their rows, else fewer. 1 without any class."""
    n_C = n_C[n_C > 0]
    if not len(n_C):
        return 1.0
    return float(len(n_C) ** 2 / (1 / n_C).sum())


# Means


def mean_interval(
    values: ArrayLike,
    *,
    skewed: bool = False,
    least: float = -math.inf,
    most: float = math.inf,
    added_variance: float = 0.0,
) -> Interval:
    """The mean of numbers that are drawn alike, with Student's interval: of losses of rows, of differences of paired
    rows, of figures of runs. All intervals of a mean come from here.

    Assumes independent values with a mean that is nearly normal, or `skewed` ones. Equal values have an interval
    without width.

    Source: Student (1908), "The Probable Error of a Mean". For `skewed` values Hall (1992), "On the Removal of Skewness
    by Transformation in the Presence of Nonparametric Components": a cubic takes the skewness out of t, and its inverse
    gives the ends.

    Args:
        values: one number a row or run `(n,)`.
        skewed: they are losses: never negative, with a mean that few of them decide, so that Student's interval would
            end too low.
        least: the smallest that the mean can be; 0 of `skewed` values.
        most: the largest.
        added_variance: what is added to 1 / n, by which the variance of a value becomes that of the mean; for values
            that are not independent.

    Raises:
        UserError: there are no values.
    """
    from scipy.special import stdtrit  # which takes long to import

    value_n = np.asarray(values, dtype=np.float64)
    n = len(value_n)
    if not n:
        raise UserError(NO_ROWS)
    mean = float(value_n.sum()) / n
    difference_n = value_n - mean
    deviation = 0.0
    if n > 1:
        deviation = math.sqrt(float(difference_n @ difference_n) / (n - 1))
    if not deviation > 0:
        return Interval(mean, mean, mean)
    skewness = 0.0  # by the square root of n, as t has it
    if skewed:
        difference_n /= deviation
        skewness = float((difference_n**3).sum()) / (n * math.sqrt(n))
        least = max(least, 0.0)
    ends = []
    for sign in (1, -1):
        # 3 / skewness * (root - 1) times the standard error, in a form that also holds without skewness
        t = sign * float(stdtrit(n - 1, 0.975)) - skewness / 6
        root = math.cbrt(1 + skewness * t)
        ends.append(mean - 3 * t / (root**2 + root + 1) * deviation * math.sqrt(1 / n + added_variance))
    return clipped(mean, ends[0], ends[1], least, most)


def fold_interval(
    values: Sequence[float | Interval], test_per_train: float, *, limits: tuple[float, float] = SHARE
) -> Interval:
    """The mean of a figure over the folds of a cross-validation.

    The models share most of their training rows, so that their spread says too little: the variance of the mean has
    `test_per_train` added. Folds may also agree by chance, and at the ceiling they do. So the ends are no closer than
    those of the folds say, which are of different rows: their distances add up as independent errors do.

    Source: Nadeau and Bengio (2003), "Inference for the Generalization Error", equation 11; Zou and Donner (2008),
    "Construction of confidence limits about effect measures: A general approach".

    Args:
        values: the figure of each fold, with its interval if it has one.
        test_per_train: rows that a fold is judged on, divided by the rows that its model learnt from.
        limits: the least and the most that the figure can be.
    """
    found = mean_interval(plain_values(values), least=limits[0], most=limits[1], added_variance=test_per_train)
    known = _known_intervals(values, share=limits == SHARE)
    below = math.hypot(*(one.value - one.low for one in known)) / len(values)
    above = math.hypot(*(one.high - one.value for one in known)) / len(values)
    return Interval(found.value, min(found.low, found.value - below), max(found.high, found.value + above))


def seed_interval(values: Sequence[float | Interval], *, limits: tuple[float, float] = SHARE) -> Interval:
    """The mean of a figure over runs that differ only in their seed, judged on the same rows: Student's interval. If
    all runs have the same figure, their spread says nothing, and the ends are those of the runs themselves.

    Args:
        values: the figure of each run, with its interval if it has one.
        limits: as in `fold_interval`.
    """
    found = mean_interval(plain_values(values), least=limits[0], most=limits[1])
    known = _known_intervals(values, share=limits == SHARE)
    if not _are_equal(values) or not known:
        return found
    return Interval(found.value, min(one.low for one in known), max(one.high for one in known))


def plain_values(values: Sequence[float | Interval]) -> list[float]:
    """The figures without their intervals."""
    return [one.value if isinstance(one, Interval) else one for one in values]


def _are_equal(values: Sequence[float | Interval]) -> bool:
    # not by the interval: the mean of equal values may round to another one, which gives Student's interval a width
    return len(set(plain_values(values))) == 1


def _known_intervals(values: Sequence[float | Interval], *, share: bool) -> list[Interval]:
    """The intervals that figures have of their own; none if some lack one. If all figures are equal, a share that lacks
    one has that of a single row, the widest."""
    known = []
    for one in values:
        if isinstance(one, Interval):
            known.append(one)
        elif share and _are_equal(values):
            known.append(share_interval(one, 1))
        else:
            return []
    return known


def ratio_interval(parts: ArrayLike, wholes: ArrayLike, *, share: bool = False) -> Interval:
    """The sum of `parts` divided by the sum of `wholes`, such as right tokens by tokens.

    Assumes independent rows; the ratio is linearised in them (the delta method).

    Args:
        parts: one number a row `(n,)`.
        wholes: one number a row `(n,)`.
        share: each part is a part of its whole. The ratio then has the interval of a share of as many rows as there
            are, scaled by its variance (`shares_interval`), else that of a loss.
    """
    part_n = np.asarray(parts, dtype=np.float64)
    whole_n = np.asarray(wholes, dtype=np.float64)
    n = len(part_n)
    total = part_n.sum() / whole_n.sum()
    effect_n = (part_n - total * whole_n) / whole_n.mean()  # what each row adds to the ratio, times n
    if share:
        return shares_interval(np.array([total]), np.array([float(n)]), float(effect_n @ effect_n) / n**2)
    return mean_interval(total + effect_n, skewed=True)


# Differences


def change_interval(before: Interval, after: Interval, covariance_22: Floats, doubt_2: Floats) -> Interval:
    """The difference `after` less `before` of two figures of the same rows, from their own intervals: an end is as far
    away as the ends of both, added as two correlated errors are.

    Assumes that the correlation of the two figures is the same at the ends of their intervals.

    Source: Zou and Donner (2008), "Construction of confidence limits about effect measures: A general approach". Of two
    shares it is Newcombe (1998), "Improved confidence intervals for the difference between binomial proportions based
    on paired data", method 8.

    Args:
        covariance_22: covariances of the two figures `(2, 2)`.
        doubt_2: what is added to both variances before the correlation is taken `(2,)`, so that two models which
            answer every row alike are not known to be equally good.
    """
    value = after.value - before.value
    deviation_2 = np.sqrt(np.diag(covariance_22) + doubt_2)
    correlation = 0.0
    if deviation_2.all():
        correlation = float(covariance_22[0, 1] / deviation_2.prod())

    def added(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * correlation * one * other + other**2))

    low = value - added(after.value - after.low, before.high - before.value)
    high = value + added(after.high - after.value, before.value - before.low)
    return clipped(value, low, high, -1.0, 1.0)


# Arithmetic


def divide(part: NDArray[np.float64], whole: NDArray[np.float64]) -> Floats:
    """`part / whole`, 0 where `whole` is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


def find_root(of: Callable[[float], float], low: float, high: float) -> float:
    """Where a function is 0 between two ends at which its signs differ."""
    from scipy.optimize import brentq  # which takes long to import

    return float(brentq(of, low, high, xtol=1e-9 * high))  # pyright: ignore[reportArgumentType]
