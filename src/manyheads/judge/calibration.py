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


def confidence_bins(confidence_n: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which of equally wide bins of [0, 1] each confidence falls into: `(n,)`."""
    return np.digitize(confidence_n, np.linspace(0, 1, N_BINS + 1)[1:-1])


def reliability(confidence_n: NDArray[np.float64], right_n: NDArray[np.bool_]) -> list[Bin]:
    """The bins that hold rows, from the least to the most confident."""
    bin_n = confidence_bins(confidence_n)
    counts = np.bincount(bin_n, minlength=N_BINS)
    confidence = np.bincount(bin_n, weights=confidence_n, minlength=N_BINS)
    right = np.bincount(bin_n, weights=right_n, minlength=N_BINS)
    return [
        Bin(at / N_BINS, (at + 1) / N_BINS, count, confident / count, correct / count)
        for at, (count, confident, correct) in enumerate(
            zip(counts.tolist(), confidence.tolist(), right.tolist(), strict=True)
        )
        if count
    ]
