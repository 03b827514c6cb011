"""What is left of rows that come a chunk at a time and are not kept.

Beyond `EXACT` rows they are counted by a key, such as class, answer and bin of confidence, and a resample draws such
counts in place of rows. Up to there a count is a row, and a resample draws rows.

n rows . P cells: rows, or counts of them . F figures of a row . V values of a row . R resamples
"""

import numpy as np

from manyheads.evaluation.intervals import Floats, Interval, Ints, mean_interval, resamples

EXACT = 2**16  # rows up to which each is drawn by itself
MOST_HELD = 2**23  # figures of rows of labels up to which, too


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
        return mean_interval(mean, np.array([self.n]), self._square_FF[at, at] / self.n - mean**2)

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
