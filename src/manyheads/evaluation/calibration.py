"""How far probabilities may be believed, beyond the bins of a reliability diagram, and what is left of rows that come a
chunk at a time and are not kept.

The adaptive error has bins of equally many rows, so that confident rows are not all in one; the class-wise error is the
mean over classes of the error of each class's own probability, given or not: Nixon et al. (2019), "Measuring
Calibration in Deep Learning", and Kull et al. (2019), "Beyond temperature scaling".

Beyond `EXACT` rows they are counted by a key, such as class, answer and bin of confidence, and a resample draws such
counts in place of rows. Up to there a count is a row, and a resample draws rows.

n rows . C classes or labels . B bins . R resamples . P cells: rows, or counts of them . F figures of a row . V values
of a row
"""

import numpy as np

from manyheads.evaluation.intervals import Bools, Floats, Ints, interval, mean_interval, resamples
from manyheads.runs.summary import Figures, Interval

N_BINS = 15  # of confidence, equally wide or with equally many rows
EDGES = np.linspace(0, 1, N_BINS + 1)[1:-1]
FINE = 13  # bits of a float32 that a cell of confidence leaves out: what is wanting to 1 is known to a thousandth
EXACT = 2**16  # rows up to which each is drawn by itself
MOST_HELD = 2**23  # figures of rows of labels up to which, too


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
    """The bin of each cell, so that all have as many rows as cells allow; those of one confidence are in one bin,
    whatever their order."""
    _, value_P = np.unique(confidence_P, return_inverse=True)
    rows = np.bincount(value_P, weights=count_P)
    middle = rows.cumsum() - (rows + 1) / 2
    return (middle * N_BINS // max(1, int(count_P.sum()))).astype(np.int64)[value_P]


def error(n_CB: Floats, gap_CB: Floats, square_CB: Floats, random: np.random.Generator, n_resamples: int) -> Interval:
    """The mean over classes of the sum over bins of the absolute gap, as a share of all rows; a resample draws each
    bin's gap from the normal distribution that the gaps of its rows have."""
    gap_CB, square_CB = gap_CB.reshape(n_CB.shape), square_CB.reshape(n_CB.shape)
    spread_CB = np.sqrt(np.maximum(square_CB - gap_CB**2 / np.maximum(n_CB, 1), 0))
    n = n_CB.sum() or 1.0  # of all classes, as each has all rows
    drawn = [gap_CB + spread_CB * random.standard_normal(n_CB.shape) for _ in range(n_resamples)]
    return interval(np.array([np.abs(one).sum() / n for one in (gap_CB, *drawn)]))


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
    """Sums over rows of the figures of each. Of few rows they are kept and drawn, of more the sums of a resample are
    drawn from the normal distribution with the covariances of a row, which is what they tend to; of more than `most`
    in any case."""

    def __init__(self, most: int | None = None) -> None:
        self.n, self._rows, self._held, self._most = 0, list[Floats](), True, EXACT if most is None else most
        self._sum_F, self._square_FF = np.zeros(()), np.zeros(())

    def add(self, of_row_nF: Floats) -> None:
        self.n += len(of_row_nF)
        self._rows.append(of_row_nF)
        if not self._held or self.n > self._most or self.n * of_row_nF.shape[1] > MOST_HELD:
            self._held = False
            for one in self._rows:
                self._sum_F, self._square_FF = self._sum_F + one.sum(0), self._square_FF + one.T @ one
            self._rows = []

    def mean(self, at: int) -> Interval:
        """That of a figure which is never negative and decided by few rows, such as a loss."""
        if self._held:
            return mean_interval(np.concatenate(self._rows)[:, at], skewed=True)
        mean = np.array([self._sum_F[at] / self.n])
        return mean_interval(mean, np.array([self.n]), np.maximum(self._square_FF[at, at] / self.n - mean**2, 0.0))

    def resampled(self, n_resamples: int = 1000, seed: int = 0) -> Floats:
        """`(R, F)`."""
        if self._held:
            of_row_nF = np.concatenate(self._rows) if self._rows else np.empty((0, 1))
            return np.stack([times_n @ of_row_nF for times_n in resamples(len(of_row_nF), n_resamples, seed)])
        covariance_FF = self._square_FF - np.outer(self._sum_F, self._sum_F) / self.n
        size_F, axes_FF = np.linalg.eigh(covariance_FF)
        drawn_RF = np.random.default_rng(seed).standard_normal((n_resamples, len(size_F)))
        moved_RF = drawn_RF * np.sqrt(np.maximum(size_F, 0)) @ axes_FF.T
        return np.concatenate([self._sum_F[None], np.maximum(self._sum_F + moved_RF, 0)])
