"""The interval of a mean of weights, such as what answers cost.

P kinds of rows
"""

import math

import numpy as np

from manyheads.errors import UserError
from manyheads.evaluation.intervals import NO_ROWS, Floats, Ints, Z, clipped, find_root
from manyheads.runs.summary import Interval


def weighted_interval(weight_P: Floats, count_P: Ints, least: float, most: float) -> Interval:
    """The mean over all rows of a weight that each row has by its kind, such as what its answer costs.

    The mean is a sum of the shares of kinds times their weights, and has a score interval like that of
    `shares_interval`: an end is the mean of the likeliest shares of all with this mean, and lies `Z` of their standard
    deviations from the mean seen. So a rare weight is not taken as known from the few rows that have it, nor ruled out
    if no row has it: kinds of the weights `least` and `most` are always possible. Of these two kinds alone it is
    Wilson's interval.

    Assumes that rows are drawn independently.

    Source: as `shares_interval`, with the multinomial distribution for the binomial.

    Args:
        weight_P: the weight of each kind `(P,)`.
        count_P: how many rows are of each kind `(P,)`.
        least: the smallest weight that a row can have.
        most: the largest.

    Raises:
        UserError: there are no rows.
    """
    if not count_P.sum():
        raise UserError(NO_ROWS)
    mean = float(count_P @ weight_P) / int(count_P.sum())
    low = least + _least_gap(weight_P - least, count_P)
    high = most - _least_gap(most - weight_P, count_P)
    return clipped(mean, low, high, -math.inf, math.inf)


def _least_gap(gap_P: Floats, count_P: Ints) -> float:
    """The lower end of a mean of gaps, none of them negative, of which 0 is possible.

    The likeliest shares with a given mean are proportional to n / (gap + slope), with one slope for all (Lagrange). If
    no row has a gap of 0, next to none is assumed to.
    """
    largest = float(gap_P.max(initial=0.0))
    if not largest:
        return 0.0
    gap_P, n_P = np.append(gap_P / largest, 0.0), np.append(count_P, 1e-9)
    n = float(n_P.sum())
    seen = float(n_P @ gap_P) / n

    def mean_and_excess(log_slope: float) -> tuple[float, float]:
        """The mean of the likeliest shares, and by how much `Z` standard deviations are further, in squares."""
        share_P = n_P / (gap_P + math.exp(log_slope))
        share_P /= share_P.sum()
        mean = float(share_P @ gap_P)
        variance = float(share_P @ (gap_P - mean) ** 2)
        return mean, Z**2 * variance - n * (seen - mean) ** 2

    highest = 1.0
    while mean_and_excess(highest)[1] < 0:
        highest += 4.0
    end = find_root(lambda log_slope: mean_and_excess(log_slope)[1], -60.0, highest)
    return largest * mean_and_excess(end)[0]
