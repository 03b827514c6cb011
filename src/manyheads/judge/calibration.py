"""Does the model know when it is right? Confidence beside accuracy.

n rows . C classes
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_BINS = 15


@dataclass(slots=True)
class Bin:
    """The rows whose confidence lies in `[low, high)`; the last bin holds 1 too."""

    low: float
    high: float
    n_rows: int
    confidence: float
    accuracy: float


def confidence_bins(confidence_n: NDArray[np.float64], n_bins: int = N_BINS) -> NDArray[np.int64]:
    """Which of `n_bins` equally wide bins of [0, 1] each confidence falls into: `(n,)`."""
    inner_edges = np.linspace(0, 1, n_bins + 1)[1:-1]
    return np.digitize(confidence_n, inner_edges)


def calibration_error(confidence_n: NDArray[np.float64], right_n: NDArray[np.bool_], n_bins: int = N_BINS) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over bins, weighted by their rows.

    Guo et al. (2017), "On Calibration of Modern Neural Networks", equation 3.
    """
    gaps = np.bincount(confidence_bins(confidence_n, n_bins), weights=confidence_n - right_n, minlength=n_bins)
    return float(np.abs(gaps).sum() / len(confidence_n))


def reliability(confidence_n: NDArray[np.float64], right_n: NDArray[np.bool_], n_bins: int = N_BINS) -> list[Bin]:
    """The bins that hold rows, from the least to the most confident."""
    bin_n = confidence_bins(confidence_n, n_bins)
    counts = np.bincount(bin_n, minlength=n_bins)
    confidence = np.bincount(bin_n, weights=confidence_n, minlength=n_bins)
    right = np.bincount(bin_n, weights=right_n, minlength=n_bins)
    return [
        Bin(at / n_bins, (at + 1) / n_bins, count, confident / count, correct / count)
        for at, (count, confident, correct) in enumerate(
            zip(counts.tolist(), confidence.tolist(), right.tolist(), strict=True)
        )
        if count
    ]
