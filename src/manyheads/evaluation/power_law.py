"""How the error falls as training rows are added: a power law, fitted to learning curves.

S sizes of the training split . R curves . G exponents of a grid
"""

from typing import Any

import numpy as np

FLATTEST, STEEPEST = 0.02, 2.0  # exponents that are tried
GRID, ROUNDS = 25, 4  # how many of them in a round, and rounds, each between the neighbours of the best


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
