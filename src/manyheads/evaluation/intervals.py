"""95 % intervals of shares, of means over classes, of changes and of anything that resamples of rows give.

n rows . C classes or labels . R resamples, of which entry 0 is the data as it is . P cells: rows, or counts of them
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NO_ROWS = "there are no rows to judge: give a split that holds at least one"
Z = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution


@dataclass(slots=True)
class Interval:
    """A figure and its 95 % interval: of a share of rows Wilson's, of a mean over classes `class_interval`, as a
    bootstrap of rows that are all right knows of no doubt, of a change `change_interval`. Of losses and the calibration
    error it holds the 2.5 % and 97.5 % points of the bootstrap, and the figure itself, since the calibration error is
    biased in a resample."""

    value: float
    low: float
    high: float


Figures = dict[str, Interval]  # of one model, by name  # of one model, by name


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

    Bonett and Price (2012), "Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on Paired
    Data": as if of two further rows each model alone had one right. So two models that answer every row alike are not
    known to be equally good. Of an accuracy it is theirs, but for the noise of the resamples, which give the variance.
    """
    value, shrunk = float(value_R[0]), n_rows / (n_rows + 2)
    added = 2 / (n_rows + 2) ** 2 * (1 + value**2 / (1 + 2 / n_rows))  # by the two rows
    half = Z * math.sqrt(value_R[1:].var() * shrunk**2 + added) if len(value_R) > 1 else 1.0
    low, high = (value * shrunk + sign * half for sign in (-1, 1))
    return Interval(value, min(value, max(-1.0, low)), max(value, min(1.0, high)))


def mean_interval(values: ArrayLike, *, n_resamples: int = 1000, seed: int = 0) -> Interval:
    """The mean of a figure a row, on the resamples that `score` draws for `seed`; of differences it is paired."""
    return ratio_interval(values, np.ones(np.shape(values)), n_resamples=n_resamples, seed=seed)


def ratio_interval(
    parts: ArrayLike, wholes: ArrayLike, *, share: bool = False, n_resamples: int = 1000, seed: int = 0
) -> Interval:
    """The sum of `parts` by that of `wholes`, a number a row each; with `share` a part of each whole, such as right
    tokens by tokens, of which as many as there are rows count as independent."""
    part_n, whole_n = (np.asarray(values, dtype=np.float64) for values in (parts, wholes))
    ratio_R = np.array(
        [times_n @ part_n / (times_n @ whole_n) for times_n in resamples(len(part_n), n_resamples, seed)]
    )
    return class_interval(ratio_R, ratio_R[:1], np.array([float(len(part_n))])) if share else interval(ratio_R)


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
    for _ in range(n_resamples):
        yield (
            random.multinomial(n, count_P / n)
            if n > len(count_P)
            else np.bincount(random.integers(n, size=n), minlength=n)
        )
