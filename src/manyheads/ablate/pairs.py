"""Is a row of the table better than the first, or was it luck? Paired tests without assumptions on distributions.

n pairs . S seeds
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def sign_flip(differences: ArrayLike) -> float:
    """The exact two-sided p of whole-numbered paired differences `(n,)`: how often signs tossed by a fair coin give
    a sum at least as far from zero (Fisher, 1935, "The Design of Experiments", section 21).

    The distribution of the sum over all 2^n tosses is built by n convolutions, so nothing is sampled. With
    differences of -1, 0 and 1 this is the exact sign test.
    """
    given_n = np.asarray(differences)
    sizes_n = np.abs(given_n).astype(np.int64)
    assert np.array_equal(sizes_n, np.abs(given_n)), "the sums are counted, so differences are whole numbers"
    total = int(sizes_n.sum())
    if total == 0:
        return 1.0
    chance = np.zeros(2 * total + 1)  # of each sum, from -total to total
    chance[total] = 1.0
    for size in sizes_n[sizes_n > 0].tolist():
        chance = (np.roll(chance, size) + np.roll(chance, -size)) / 2  # what is rolled over the edge is zero
    reached = abs(int(given_n.sum()))
    tails = chance[total + reached :].sum() * (2 if reached else 1)
    return float(min(1.0, tails if reached else 1.0))


def rows_differ(right_Sn: NDArray[np.bool_], first_Sn: NDArray[np.bool_]) -> float:
    """p that models which are equally good on average over their S seeds answer n rows so differently.

    Each row counts once: in how many of the seeds it was answered right. Rows are the units that are drawn, the
    trained models are given: chance of training is not in this p (`runs_differ` has it).
    """
    assert right_Sn.shape == first_Sn.shape, "the same rows and seeds"
    return sign_flip(right_Sn.sum(0, dtype=np.int64) - first_Sn.sum(0, dtype=np.int64))


def runs_differ(accuracies: Sequence[float], first: Sequence[float]) -> float:
    """p of paired runs (the same data and seed), by their accuracies to a hundredth of a point.

    Runs are the units, so the chance of training is in it; of few pairs p cannot be small: 2 / 2^n at the least.
    """
    assert len(accuracies) == len(first)
    return sign_flip(np.rint((np.asarray(accuracies) - np.asarray(first)) * 10_000))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values adjusted for there being several.

    Holm (1979), "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for place, at in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[at]))
        adjusted[at] = highest
    return adjusted
