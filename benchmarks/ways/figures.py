"""Means over seeds, their intervals, and what the difference of two ways to answer the same rows is worth.

S seeds . n rows . C labels
"""

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over seeds, their standard deviation (nan of one), and its 95 % interval."""

    value: float
    sd: float
    low: float
    high: float


def packed(bits: Bools) -> str:
    """A table of yes and no as text; `unpacked` needs its shape."""
    return base64.b64encode(zlib.compress(np.packbits(bits).tobytes(), 9)).decode()


def unpacked(text: str, shape: tuple[int, ...]) -> Bools:
    """What was packed."""
    bits = np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8), count=int(np.prod(shape)))
    return bits.astype(bool).reshape(shape)


def accuracy(right_Sn: Bools) -> Figure:
    """Of the seeds' runs; the interval draws both the test rows and the seeds."""
    value_S = right_Sn.mean(1)
    sd = float(value_S.std(ddof=1)) if len(value_S) > 1 else float("nan")
    return Figure(float(value_S.mean()), sd, *bounds(resampled_means(right_Sn)))


def advantage(right_Sn: Bools, other_Sn: Bools) -> Figure:
    """Accuracy less that of another way, to the same rows: the paired bootstrap, which draws rows and seeds.

    (Efron and Tibshirani, 1993, "An Introduction to the Bootstrap", section 8.3.) A resample takes the answers of both
    ways to each row it draws; the seeds of the two are drawn apart, for nothing pairs them.
    """
    difference_R = resampled_means(right_Sn) - resampled_means(other_Sn, seeds=1)
    return Figure(float(right_Sn.mean() - other_Sn.mean()), float("nan"), *bounds(difference_R))


def resampled_means(right_Sn: Bools, seeds: int = 0) -> Floats:
    """Means of `RESAMPLES` draws of rows, the same ones for every table of as many rows, and of seeds: `(R,)`."""
    rows, others = np.random.default_rng(0), np.random.default_rng([1, seeds])
    n_seeds, n = right_Sn.shape
    value_Sn = right_Sn.astype(np.float64)
    mean_R = np.empty(RESAMPLES)
    for at in range(RESAMPLES):
        times_n = np.bincount(rows.integers(n, size=n), minlength=n)
        share_S = np.bincount(others.integers(n_seeds, size=n_seeds), minlength=n_seeds) / n_seeds
        mean_R[at] = share_S @ (value_Sn @ times_n) / n
    return mean_R


def bounds(value_R: Floats) -> tuple[float, float]:
    """The middle 95 %."""
    low, high = np.percentile(value_R, (2.5, 97.5)).tolist()
    return low, high


def f1_of_labels(truth_nC: Bools, answer_SnC: list[Bools]) -> dict[str, Figure]:
    """Micro- and macro-F1 of labels of which a row has any number; the interval draws rows and seeds."""
    counts_S = [(truth_nC & one, truth_nC.astype(np.int64) + one) for one in answer_SnC]
    exact = [f1(both.sum(0), total.sum(0)) for both, total in counts_S]
    random, drawn = np.random.default_rng(0), []
    n = len(truth_nC)
    for _ in range(RESAMPLES // 2):
        times_n = np.bincount(random.integers(n, size=n), minlength=n).astype(np.float64)
        chosen = [counts_S[at] for at in random.integers(len(counts_S), size=len(counts_S))]
        drawn.append(np.mean([f1(times_n @ both, times_n @ total) for both, total in chosen], axis=0))
    found = {}
    for at, name in enumerate(("micro_f1", "macro_f1")):
        values = [one[at] for one in exact]
        sd = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
        found[name] = Figure(float(np.mean(values)), sd, *bounds(np.array([one[at] for one in drawn])))
    return found


def f1(both_C: Any, total_C: Any) -> tuple[float, float]:
    """Micro- and macro-F1 from the rows a label is true and given in, and the sum of those it is true or given in."""
    each_C = np.divide(2 * both_C, total_C, out=np.zeros(len(both_C)), where=total_C > 0)
    return float(2 * both_C.sum() / max(1, total_C.sum())), float(each_C.mean())
