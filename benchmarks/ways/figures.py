"""Means over runs, and how far they and their differences can be trusted.

A set's test rows are a sample of the rows there could be, and its two or three seeds (with few rows: draws of the
training rows) a sample of theirs. Both err, so an interval has both half-widths, added as squares: Student's t of the
runs, S - 1 degrees of freedom, and the normal one of the rows, whose answers are averaged over the runs. (Graybill and
Wang, 1980, "Confidence intervals on nonnegative linear combinations of variances".)

S runs . n rows . C labels . R resamples
"""

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
RESAMPLES = 1000
SURE = 0.975  # of a two-sided interval of 95 %


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over runs, their standard deviation (nan of one), and its 95 % interval (of one run: of its rows)."""

    value: float
    sd: float
    low: float
    high: float


def figure(value_S: Any, error_of_rows: float) -> Figure:
    """Of what each run reached, and the standard error that the test rows cause."""
    runs, n_runs = np.asarray(value_S, np.float64), len(value_S)
    mean, sd, half = float(runs.mean()), float("nan"), float(norm.ppf(SURE)) * error_of_rows
    if n_runs > 1:
        sd = float(runs.std(ddof=1))
        half = float(np.hypot(half, t.ppf(SURE, n_runs - 1) * sd / np.sqrt(n_runs)))
    return Figure(mean, sd, mean - half, mean + half)


def packed(bits: Bools) -> str:
    """A table of yes and no as text; `unpacked` needs its shape."""
    return base64.b64encode(zlib.compress(np.packbits(bits).tobytes(), 9)).decode()


def unpacked(text: str, shape: tuple[int, ...]) -> Bools:
    """What was packed."""
    bits = np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8), count=int(np.prod(shape)))
    return bits.astype(bool).reshape(shape)


def accuracy(right_Sn: Bools) -> Figure:
    """Of the runs."""
    return mean_of(right_Sn.astype(np.float64))


def advantage(right_Sn: Bools, other_Sn: Bools) -> Figure:
    """Accuracy less that of another way, paired: run by run (with few rows one draw taught both), row by row.

    A model without chance has one run, which is paired with each of the others.
    """
    assert len(other_Sn) in (1, len(right_Sn))
    return mean_of(right_Sn.astype(np.float64) - other_Sn)


def mean_of(value_Sn: Floats) -> Figure:
    """Over runs and rows."""
    return figure(value_Sn.mean(1), float(value_Sn.mean(0).std(ddof=1)) / np.sqrt(value_Sn.shape[1]))


def f1_of_labels(truth_nC: Bools, answer_SnC: list[Bools], other_SnC: list[Bools] | None = None) -> dict[str, Figure]:
    """Micro- and macro-F1 of labels of which a row has any number, or by how much another way's are passed, run by run;
    the error that the rows cause is that of `RESAMPLES` draws of them."""
    truth_nC = truth_nC.astype(np.float64)
    ways = [[(truth_nC * one, truth_nC + one) for one in way] for way in (answer_SnC, other_SnC or [])]
    random, n = np.random.default_rng(0), len(truth_nC)

    def both_f1(times_Rn: Floats) -> Floats:
        """Resamples by runs by micro and macro."""
        ours, others = ([f1(times_Rn @ both, times_Rn @ total) for both, total in way] for way in ways)
        return np.stack(ours, 1) - np.stack(others, 1) if others else np.stack(ours, 1)

    drawn_Rn = np.stack([np.bincount(random.integers(n, size=n), minlength=n) for _ in range(RESAMPLES)])
    value_S2, error_2 = both_f1(np.ones((1, n)))[0], both_f1(drawn_Rn.astype(np.float64)).mean(1).std(0, ddof=1)
    return {name: figure(value_S2[:, at], float(error_2[at])) for at, name in enumerate(("micro_f1", "macro_f1"))}


def f1(both_RC: Floats, total_RC: Floats) -> Floats:
    """Micro- and macro-F1 `(R, 2)` from the rows a label is true and given in, and the sum of those it is true or given
    in."""
    each_RC = np.divide(2 * both_RC, total_RC, out=np.zeros_like(both_RC), where=total_RC > 0)
    micro_R = 2 * both_RC.sum(1) / np.maximum(1, total_RC.sum(1))
    return np.stack([micro_R, each_RC.mean(1)], 1)
