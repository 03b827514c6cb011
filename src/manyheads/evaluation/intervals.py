"""95 % intervals of shares, of means over classes, of changes, and of anything that resamples of rows give.

n rows . C classes or labels . R resamples, of which entry 0 is the data as it is . P cells: rows, or counts of them
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manyheads.errors import UserError
from manyheads.runs.summary import Figures, Interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NO_ROWS = "there are no rows to judge: give a split that holds at least one"
AT_ONCE = 2**16  # counts of resamples that are drawn and added up together
FLATTEST, STEEPEST, GRID, ROUNDS = 0.02, 2.0, 25, 4  # exponents of a power law, and how finely they are tried
Z = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution


def plain(figures: Figures) -> dict[str, dict[str, float]]:
    """Figures as JSON has them."""
    return {name: asdict(one) for name, one in figures.items()}


def share_interval(n_some: float, n: int) -> Interval:
    """The share of rows that some are, with Wilson's interval: Wilson (1927), "Probable Inference, the Law of
    Succession, and Statistical Inference"."""
    if not n:
        raise UserError(NO_ROWS)
    share, doubt = n_some / n, Z**2 / n
    middle, half = share + doubt / 2, math.sqrt(share * (1 - share) * doubt + doubt**2 / 4)
    low, high = (middle - half) / (1 + doubt), (middle + half) / (1 + doubt)
    return Interval(share, min(share, max(0.0, low)), max(share, min(1.0, high)))


def shares_interval(share_C: Floats, n_C: Floats, variance: float | None = None, shift: float = 0.0) -> Interval:
    """The mean of shares of `n_C` rows each, such as recall over classes, with the score interval of Martín Andrés,
    Álvarez Hernández and Herranz Tejedor (2011), "Inferences about a linear combination of proportions".

    An end is a mean that lies `Z` standard deviations from the one seen, at the likeliest shares that have this mean.
    A share without rows may be anything; without any share the interval is 0 to 1; of one share it is Wilson's.
    Where rows decide several shares at once, or one is no plain share (F1), the mean has another `variance` than that
    of independent shares: their ratio scales it, drawn towards 1 as if by `Z**2` further rows, since few mistakes say
    little of it. Both ends are moved up by `shift`, by which the mean seen is too low on average.
    """
    n_shares = len(share_C)
    if not n_shares:
        return Interval(0.0, 0.0, 1.0)
    value, alone_C = float(share_C.mean()), share_C * (1 - share_C)
    scale, independent = 1.0, float(ratio(alone_C, n_C).sum()) / n_shares**2
    if variance is not None and independent > 0:
        known = float((alone_C * n_C).sum())
        scale = (known * variance / independent + Z**2) / (known + Z**2)
    low, high = _least_mean(share_C, n_C, scale) + shift, 1 - _least_mean(1 - share_C, n_C, scale) + shift
    return Interval(value, min(value, max(0.0, low)), max(value, min(1.0, high)))


def _least_mean(share_C: Floats, n_C: Floats, scale: float) -> float:
    """The lower end. The likeliest shares p of a given mean have n (share - p) = slope p (1 - p), by one slope for all
    (Lagrange): the higher it is, the lower their mean and the further from the one seen. Shares of few rows lie apart
    by chance, which lowers the variance they seem to have: it is taken with one more row of the mean share each."""
    if not (share_C * n_C).any():
        return 0.0
    known_C = n_C > 0

    def at(slope: float) -> tuple[Floats, float]:
        sum_C = n_C + slope
        p_C = ratio(2 * n_C * share_C, sum_C + np.sqrt(np.maximum(sum_C**2 - 4 * slope * n_C * share_C, 0)))
        shrunk_C = (n_C * p_C + p_C[known_C].mean()) / (n_C + 1)
        away, variance = (float(ratio(of_C * (1 - of_C), n_C).sum()) for of_C in (p_C, shrunk_C))
        return p_C, (slope * away) ** 2 / (Z**2 * scale * variance) if variance > 0 else 0.0

    most = 1.0
    while at(most)[1] < 1:
        most *= 4
    return float(at(root(lambda slope: at(slope)[1] - 1, 0.0, most))[0].mean())


def weighted_interval(weight_P: Floats, count_P: Ints, least: float, most: float) -> Interval:
    """The mean over all rows of a weight from `least` to `most` that each row has by its kind, such as what its answer
    costs: a sum of the shares of kinds times their weights, with a score interval as that of `shares_interval`.

    An end is a mean that lies `Z` standard deviations from the one seen, at the likeliest shares that have this mean.
    Rare weights are then not known from the few rows that have one, nor ruled out where no row has: kinds of the
    weights `least` and `most` are possible. Of these two kinds alone it is Wilson's.
    """
    if not count_P.sum():
        raise UserError(NO_ROWS)
    value = float(count_P @ weight_P) / int(count_P.sum())
    low = least + _least_gap(weight_P - least, count_P)
    high = most - _least_gap(most - weight_P, count_P)
    return Interval(value, min(value, low), max(value, high))


def _least_gap(gap_P: Floats, count_P: Ints) -> float:
    """The lower end of a mean of gaps, of which 0 is possible. The likeliest shares of a given mean are proportional to
    n / (gap + slope), by one slope for all (Lagrange); where no row has a gap of 0, next to none does."""
    if not (largest := float(gap_P.max(initial=0.0))):
        return 0.0
    gap_P, n_P = np.append(gap_P / largest, 0.0), np.append(count_P, 1e-9)
    n, seen = float(n_P.sum()), float(n_P @ gap_P) / float(n_P.sum())

    def at(log_slope: float) -> tuple[float, float]:
        p_P = n_P / (gap_P + math.exp(log_slope))
        p_P /= p_P.sum()
        mean = float(p_P @ gap_P)
        return mean, Z**2 * float(p_P @ (gap_P - mean) ** 2) - n * (seen - mean) ** 2

    far = 1.0
    while at(far)[1] < 0:
        far += 4.0
    return largest * at(root(lambda log_slope: at(log_slope)[1], -60.0, far))[0]


def effective_rows(n_C: NDArray[Any]) -> float:
    """How many rows one share must have to be known as well as a mean over classes of `n_C` rows each: of classes of
    one size all their rows, else fewer."""
    n_C = n_C[n_C > 0]
    return float(len(n_C) ** 2 / (1 / n_C).sum()) if len(n_C) else 1.0


def change_interval(before: Interval, after: Interval, covariance_22: Floats, doubt_2: Floats) -> Interval:
    """Of `after` less `before`, two figures of the same rows with these covariances, from their own intervals.

    Zou and Donner (2008), "Construction of confidence limits about effect measures: A general approach", which for
    two shares is Newcombe (1998), "Improved confidence intervals for the difference between binomial proportions based
    on paired data", method 8: an end is as far away as the ends of both, added as two correlated errors are. Variances
    of the correlation have a `doubt` added, so that models which answer every row alike are not known to be equally
    good.
    """
    value, spread_2 = after.value - before.value, np.sqrt(np.diag(covariance_22) + doubt_2)
    together = float(covariance_22[0, 1] / spread_2.prod()) if spread_2.all() else 0.0

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * together * one * other + other**2))

    low = value - reach(after.value - after.low, before.high - before.value)
    high = value + reach(after.high - after.value, before.value - before.low)
    return Interval(value, min(value, max(-1.0, low)), max(value, min(1.0, high)))


def covariances(values_PG: Floats, count_P: Ints | None = None) -> Floats:
    """`(G, G)` of the sums over all rows of figures of a row; each entry stands for `count_P` rows that are alike."""
    times_P = np.ones(len(values_PG)) if count_P is None else count_P
    sum_G = times_P @ values_PG
    return (values_PG * times_P[:, None]).T @ values_PG - np.outer(sum_G, sum_G) / times_P.sum()


def mean_interval(
    values: ArrayLike, *, skewed: bool = False, share: bool | None = None, ratio: float = 0.0
) -> Interval:
    """The mean of a figure a row, such as a difference of paired rows, with Student's interval. That of a loss, which
    is `skewed`, never negative and decided by few rows, would end too low: Hall (1992), "On the Removal of Skewness by
    Transformation", takes the skewness out of t by a cubic, whose inverse gives the ends.

    Args:
        share: the figure lies between 0 and 1; False: it is a loss, 0 at the least; None: it may be any number.
        ratio: what is added to one by the number of values, by which their variance is multiplied.
    """
    from scipy.special import stdtrit  # which takes long to import

    value_n = np.asarray(values, dtype=np.float64)
    n = len(value_n)
    if not n:
        raise UserError(NO_ROWS)
    mean = float(value_n.sum()) / n
    apart_n = value_n - mean
    deviation = math.sqrt(float(apart_n @ apart_n) / (n - 1)) if n > 1 else 0.0
    if not deviation > 0:
        return Interval(mean, mean, mean)
    skew = 0.0
    if skewed:
        apart_n /= deviation
        skew = float((apart_n**3).sum()) / (n * math.sqrt(n))
    ends = []
    for sign in (1, -1):  # 3 / skew * (root - 1), in a form that holds at no skew, too
        t = sign * float(stdtrit(n - 1, 0.975)) - skew / 6
        root = math.cbrt(1 + skew * t)
        ends.append(mean - 3 * t / (root**2 + root + 1) * deviation * math.sqrt(1 / n + ratio))
    least, most = 0.0 if skewed or share is not None else -math.inf, 1.0 if share else math.inf
    return Interval(mean, min(mean, max(least, ends[0])), max(mean, min(most, ends[1])))


def fold_interval(values: Sequence[float | Interval], ratio: float, *, share: bool = True) -> Interval:
    """The mean of a figure over folds, each judged on `ratio` times the rows that its model learnt from; of a `share`
    between 0 and 1. The models share most of their rows, so that their spread says too little: Nadeau and Bengio
    (2003), "Inference for the Generalization Error", equation 11, add that ratio to one by the number of folds.

    Folds may agree by chance, and at the ceiling they do. So the ends are no closer than those of the folds themselves
    say, which are of other rows each: their distances add up as independent errors do, Zou and Donner (2008).
    """
    found = mean_interval([float_of(one) for one in values], share=share, ratio=ratio)
    each = _known(values, share=share)
    below = math.hypot(*(one.value - one.low for one in each)) / len(values)
    above = math.hypot(*(one.high - one.value for one in each)) / len(values)
    return Interval(found.value, min(found.low, found.value - below), max(found.high, found.value + above))


def seed_interval(values: Sequence[float | Interval], *, share: bool = True) -> Interval:
    """The mean of a figure over runs that differ by their seed, judged on the same rows: Student's. Of runs that are
    all alike the spread says nothing: the ends are then those of the runs themselves."""
    found = mean_interval([float_of(one) for one in values], share=share)
    if not _alike(values) or not (each := _known(values, share=share)):
        return found
    return Interval(found.value, min(one.low for one in each), max(one.high for one in each))


def float_of(figure: float | Interval) -> float:
    return figure.value if isinstance(figure, Interval) else figure


def _alike(values: Sequence[float | Interval]) -> bool:
    """Of values that are all alike the mean may round to another, which gives Student's interval a width."""
    return len({float_of(one) for one in values}) == 1


def _known(values: Sequence[float | Interval], *, share: bool) -> list[Interval]:
    """The intervals that figures have of their own; none where some lack one. A share without one is of a single row at
    least, which counts where all are alike, so that their spread says nothing."""
    if share and _alike(values):
        return [one if isinstance(one, Interval) else share_interval(one, 1) for one in values]
    each = [one for one in values if isinstance(one, Interval)]
    return each if len(each) == len(values) else []


def ratio_interval(parts: ArrayLike, wholes: ArrayLike, *, share: bool = False) -> Interval:
    """The sum of `parts` by that of `wholes`, a number a row each; with `share` a part of each whole, such as right
    tokens by tokens, of which as many as there are rows count as independent."""
    part_n, whole_n = (np.asarray(values, dtype=np.float64) for values in (parts, wholes))
    total = part_n.sum() / whole_n.sum()
    moves_n = (part_n - total * whole_n) / whole_n.mean()  # what each row moves the mean by, to first order
    if share:
        n = len(part_n)
        return shares_interval(np.array([total]), np.array([float(n)]), float(moves_n @ moves_n) / n**2)
    return mean_interval(total + moves_n, skewed=True)


def bootstrap(of: Callable[..., float], *arrays: NDArray[Any], n_resamples: int = 1000) -> Interval:
    """`of(*arrays)` with the percentile interval of rows that are drawn anew, each array by the same rows: Efron and
    Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13.

    Args:
        of: a figure of arrays whose first axis is rows, such as `of(labels, probabilities_nC)`.
    """
    counts = resamples(len(arrays[0]), n_resamples)
    return interval(np.array([of(*(np.repeat(one, count, axis=0) for one in arrays)) for count in counts]))


def interval(value_R: Floats) -> Interval:
    """Of a figure as it is, entry 0, and of its resamples."""
    value = float(value_R[0])
    low, high = np.percentile(value_R[1:], (2.5, 97.5)).tolist() if len(value_R) > 1 else (value, value)
    return Interval(value, min(low, value), max(high, value))


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """One by the other; 0 without a denominator."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


def resamples(n: int, n_resamples: int = 1000, seed: int = 0) -> Iterator[Ints]:
    """How often each of `n` rows counts: first once, then as often as it is drawn."""
    if not n:
        raise UserError(NO_ROWS)
    random = np.random.default_rng(seed)
    yield np.ones(n, dtype=np.int64)
    at_once = max(1, AT_ONCE // n)
    for start in range(0, n_resamples, at_once):
        size = min(at_once, n_resamples - start)
        places = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield from np.bincount(places.ravel(), minlength=n * size).reshape(size, n)


def root(of: Callable[[float], float], low: float, high: float) -> float:
    """Where it is 0 between two ends of which one is above and one below."""
    from scipy.optimize import brentq  # which takes long to import

    return float(brentq(of, low, high, xtol=1e-9 * high))  # pyright: ignore[reportArgumentType]


def holm(ps: Sequence[float]) -> list[float]:
    """p-values corrected for their number, in their order: Holm (1979), "A Simple Sequentially Rejective Multiple Test
    Procedure"."""
    found, least = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[at]))
        found[at] = least
    return found


def power_law(counts_S: np.ndarray, error_RS: np.ndarray) -> np.ndarray:
    """`(3, R)`: a, b and c of error = a + b n^-c, none of them negative, by least squares.

    Figueroa et al. (2012), "Predicting Sample Size Required for Classification Performance", whose weights rise with
    the size. For each c of a grid, which closes in on the best, a and b follow from a line.
    """
    weight_S, n_S = np.arange(1, len(counts_S) + 1) / len(counts_S), counts_S / counts_S.max()
    weight_S = weight_S / weight_S.sum()
    y_RGS, rows, found_3R = error_RS[:, None], np.arange(len(error_RS)), np.zeros((3, len(error_RS)))
    low_R, high_R = np.full((2, len(rows)), [[FLATTEST], [STEEPEST]])
    for _ in range(ROUNDS):
        c_RG = low_R[:, None] * (high_R / low_R)[:, None] ** np.linspace(0, 1, GRID)
        x_RGS = n_S ** -c_RG[..., None]
        x_RG, y_RG = x_RGS @ weight_S, y_RGS @ weight_S
        from_RGS = x_RGS - x_RG[..., None]
        b_RG = np.maximum((from_RGS * y_RGS) @ weight_S / (from_RGS**2 @ weight_S), 0.0)
        a_RG = y_RG - b_RG * x_RG
        b_RG = np.where(a_RG < 0, (x_RGS * y_RGS) @ weight_S / (x_RGS**2 @ weight_S), b_RG)
        a_RG = np.maximum(a_RG, 0.0)
        best_R = ((y_RGS - a_RG[..., None] - b_RG[..., None] * x_RGS) ** 2 @ weight_S).argmin(1)
        low_R, high_R = c_RG[rows, np.maximum(best_R - 1, 0)], c_RG[rows, np.minimum(best_R + 1, GRID - 1)]
        found_3R = np.stack([one[rows, best_R] for one in (a_RG, b_RG, c_RG)])
    found_3R[1] *= counts_S.max() ** found_3R[2]
    return found_3R


def error_at(law_3R: np.ndarray, n_rows: Any) -> np.ndarray:
    """The error of a power law for this number of training rows."""
    a_R, b_R, c_R = law_3R
    return a_R + b_R * n_rows**-c_R
