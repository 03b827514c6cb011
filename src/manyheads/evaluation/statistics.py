"""Statistics off the main road: intervals of any figure, corrected p-values, and power laws.

n rows . R resamples, of which entry 0 is the data itself, or curves . S sizes of the training split
G exponents of a grid
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.errors import UserError
from manyheads.evaluation.intervals import NO_ROWS, Floats, Ints, clipped
from manyheads.runs.summary import Interval

N_RESAMPLES = 1000
RESAMPLED_AT_ONCE = 2**16  # counts of resamples that are drawn together
FLATTEST, STEEPEST = 0.02, 2.0  # exponents of a power law that are tried
GRID, ROUNDS = 25, 4  # how many of them in a round, and rounds, each between the neighbours of the best


def bootstrap(of: Callable[..., float], *arrays: NDArray[np.generic]) -> Interval:
    """`of(*arrays)` with the percentile interval of the bootstrap: rows are drawn anew, the same for each array.

    Assumes independent rows, and enough of them: of few rows percentile intervals are too narrow.

    Source: Efron and Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13.

    Args:
        of: a figure of arrays whose first axis is rows, such as `of(labels, probabilities_nC)`.

    Raises:
        UserError: there are no rows.
    """
    values = []
    for count_n in resamples(len(arrays[0])):
        drawn = [np.repeat(one, count_n, axis=0) for one in arrays]
        values.append(of(*drawn))
    return percentile_interval(np.array(values))


def percentile_interval(value_R: Floats, least: float = -math.inf, most: float = math.inf) -> Interval:
    """The figure of the data itself, entry 0, from the 2.5th to the 97.5th percentile of its resamples, within what the
    figure can be, `least` to `most`. Resamples of which it is not finite, as where a class is not drawn, do not
    count."""
    value, known_R = float(value_R[0]), value_R[1:][np.isfinite(value_R[1:])]
    if not len(known_R):
        return Interval(value, value, value)
    low, high = np.percentile(known_R, (2.5, 97.5)).tolist()
    return clipped(value, low, high, least, most)


def resamples(n: int, seed: int = 0) -> Iterator[Ints]:
    """How often each of `n` rows counts `(n,)`: once in the data itself, which comes first, and in each resample as
    often as the row is drawn.

    Raises:
        UserError: there are no rows.
    """
    if not n:
        raise UserError(NO_ROWS)
    random = np.random.default_rng(seed)
    yield np.ones(n, dtype=np.int64)
    at_once = max(1, RESAMPLED_AT_ONCE // n)
    for start in range(0, N_RESAMPLES, at_once):
        size = min(at_once, N_RESAMPLES - start)
        places = random.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
        yield from np.bincount(places.ravel(), minlength=n * size).reshape(size, n)


def holm(ps: Sequence[float]) -> list[float]:
    """p-values corrected for how many they are, in their order.

    Source: Holm (1979), "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    corrected, least = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = max(least, min(1.0, (len(ps) - rank) * ps[at]))
        corrected[at] = least
    return corrected


def power_law(counts_S: np.ndarray, error_RS: np.ndarray) -> np.ndarray:
    """Fit error = a + b n^-c to each curve by least squares, with a, b and c not negative: `(3, R)`.

    For an exponent c, a and b follow from a straight line; c itself is searched on a grid that closes in on the best.

    Source: Figueroa et al. (2012), "Predicting Sample Size Required for Classification Performance", whose weights rise
    with the size.

    Args:
        counts_S: training rows of each size, ascending.
        error_RS: the error of each curve at each size.
    """
    weight_S = np.arange(1, len(counts_S) + 1) / len(counts_S)
    weight_S = weight_S / weight_S.sum()
    n_S = counts_S / counts_S.max()
    y_RGS, curves, found_3R = error_RS[:, None], np.arange(len(error_RS)), np.zeros((3, len(error_RS)))
    low_R, high_R = np.full((2, len(curves)), [[FLATTEST], [STEEPEST]])
    for _ in range(ROUNDS):
        c_RG = low_R[:, None] * (high_R / low_R)[:, None] ** np.linspace(0, 1, GRID)
        x_RGS = n_S ** -c_RG[..., None]
        # the weighted line y = a + b x, of which b is not negative
        x_RG, y_RG = x_RGS @ weight_S, y_RGS @ weight_S
        centred_RGS = x_RGS - x_RG[..., None]
        b_RG = np.maximum((centred_RGS * y_RGS) @ weight_S / (centred_RGS**2 @ weight_S), 0.0)
        a_RG = y_RG - b_RG * x_RG
        # if a were negative, the line through 0
        b_RG = np.where(a_RG < 0, (x_RGS * y_RGS) @ weight_S / (x_RGS**2 @ weight_S), b_RG)
        a_RG = np.maximum(a_RG, 0.0)
        best_R = ((y_RGS - a_RG[..., None] - b_RG[..., None] * x_RGS) ** 2 @ weight_S).argmin(1)
        low_R, high_R = c_RG[curves, np.maximum(best_R - 1, 0)], c_RG[curves, np.minimum(best_R + 1, GRID - 1)]
        found_3R = np.stack([one[curves, best_R] for one in (a_RG, b_RG, c_RG)])
    found_3R[1] *= counts_S.max() ** found_3R[2]  # sizes were divided by the largest
    return found_3R


def error_at(law_3R: np.ndarray, n_rows: Any) -> np.ndarray:
    """The error of a power law for this number of training rows."""
    a_R, b_R, c_R = law_3R
    return a_R + b_R * n_rows**-c_R
