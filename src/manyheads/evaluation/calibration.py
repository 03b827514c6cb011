"""How far probabilities may be believed, beyond the bins of a reliability diagram.

The adaptive error has bins of equally many rows, so that confident rows are not all in one; the class-wise error is the
mean over classes of the error of each class's own probability, given or not: Nixon et al. (2019), "Measuring
Calibration in Deep Learning", and Kull et al. (2019), "Beyond temperature scaling".

n rows . C classes or labels . B bins . R resamples . P cells of rows
"""

import numpy as np

from manyheads.evaluation.counts import Cells
from manyheads.evaluation.intervals import Bools, Figures, Floats, Interval, Ints, interval

N_BINS = 15  # of confidence, equally wide or with equally many rows
EDGES = np.linspace(0, 1, N_BINS + 1)[1:-1]
FINE = 13  # bits of a float32 that a cell of confidence leaves out: what is wanting to 1 is known to a thousandth


class Calibration:
    """Rows and their probabilities, a chunk at a time."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes, self.confidences = n_classes, Cells(2)
        self.sums = np.zeros((4, n_classes * N_BINS))  # rows, their gaps, the squares of those, and rows that have it

    def add(self, marks_nC: Bools, probabilities_nC: Floats) -> None:
        confidence_n = probabilities_nC.max(1)
        right_n = np.take_along_axis(marks_nC, probabilities_nC.argmax(1)[:, None], axis=1)[:, 0]
        fine_n = ((1 - confidence_n).astype(np.float32).view(np.int32) >> FINE).astype(np.int64)
        self.confidences.add(fine_n, np.stack([confidence_n, right_n.astype(np.float64)], 1))
        bins = (np.digitize(probabilities_nC, EDGES) + np.arange(self.n_classes) * N_BINS).ravel()
        gaps = (probabilities_nC - marks_nC).ravel()
        for sums, weights in zip(self.sums, (None, gaps, gaps**2, marks_nC.ravel()), strict=True):
            sums += np.bincount(bins, weights, self.n_classes * N_BINS)

    def figures(self, *, multi: bool, n_resamples: int = 1000, seed: int = 0) -> Figures:
        """The errors that have a meaning: a row with any number of labels has no confidence of its answer."""
        random = np.random.default_rng([seed, 2])
        n_1B, gap_1B, square_1B, _ = self.sums
        shape = (self.n_classes, N_BINS)
        found = {"classwise_calibration_error": error(n_1B.reshape(shape), gap_1B, square_1B, random, n_resamples)}
        if multi:
            return found
        return {"adaptive_calibration_error": self._adaptive(random, n_resamples)} | found

    def _adaptive(self, random: np.random.Generator, n_resamples: int) -> Interval:
        _, count_P, mean_PV, variance_PV = self.confidences.get()
        bin_P = equal_bins(mean_PV[:, 0], count_P)
        gap_P = mean_PV[:, 0] - mean_PV[:, 1]
        square_P = gap_P**2 + variance_PV.sum(1)
        sums_3B = np.zeros((3, N_BINS))
        for sums, one in zip(sums_3B, (np.ones(len(gap_P)), gap_P, square_P), strict=True):
            sums += np.bincount(bin_P, count_P * one, N_BINS)
        return error(sums_3B[:1], sums_3B[1], sums_3B[2], random, n_resamples)


def equal_bins(confidence_P: Floats, count_P: Ints) -> Ints:
    """The bin of each cell, so that all have as many rows as cells allow."""
    order = np.argsort(confidence_P, kind="stable")
    before_P = np.cumsum(count_P[order]) - count_P[order]
    bin_P = np.empty(len(order), dtype=np.int64)
    bin_P[order] = before_P * N_BINS // max(1, int(count_P.sum()))
    return bin_P


def error(n_CB: Floats, gap_CB: Floats, square_CB: Floats, random: np.random.Generator, n_resamples: int) -> Interval:
    """The mean over classes of the sum over bins of the absolute gap, as a share of all rows; a resample draws each
    bin's gap from the normal distribution that the gaps of its rows have."""
    gap_CB, square_CB = gap_CB.reshape(n_CB.shape), square_CB.reshape(n_CB.shape)
    spread_CB = np.sqrt(np.maximum(square_CB - gap_CB**2 / np.maximum(n_CB, 1), 0))
    n = n_CB.sum() or 1.0  # of all classes, as each has all rows
    drawn = [gap_CB + spread_CB * random.standard_normal(n_CB.shape) for _ in range(n_resamples)]
    return interval(np.array([np.abs(one).sum() / n for one in (gap_CB, *drawn)]))
