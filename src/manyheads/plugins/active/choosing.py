"""Which of many texts to label next: active learning in NumPy alone.

n texts . m known texts . N tokens . V vocabulary . C classes or labels . D width of the vectors
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import entr

FEWEST, FAR = 50, 1.5  # texts that have a fence, and its distance from their middle half, by the width of that
SMOOTH = 0.1  # added to how often a token occurs
AT_ONCE = 1024  # texts that are compared with all others together


def closeness(probabilities_nC: np.ndarray, thresholds_C: np.ndarray | None = None) -> np.ndarray:
    """How close an answer is to another one `(n,)`, at most 1: of classes 1 less the margin between the likeliest two
    (Scheffer, Decomain and Wrobel, 2001, "Active Hidden Markov Models for Information Extraction"); of labels that of
    the one closest to its threshold, by the room on that side of it."""
    if thresholds_C is None:
        top_n2 = np.sort(probabilities_nC, axis=1)[:, -2:]
        return 1 - (top_n2[:, 1] - top_n2[:, 0])
    return label_closeness(probabilities_nC, thresholds_C).max(1)


def label_closeness(probabilities_nC: np.ndarray, thresholds_C: np.ndarray) -> np.ndarray:
    """How close each label is to its threshold `(n, C)`, see `closeness`."""
    room_nC = np.where(probabilities_nC >= thresholds_C, 1 - thresholds_C, thresholds_C)
    return 1 - np.abs(probabilities_nC - thresholds_C) / np.maximum(room_nC, 1e-12)


def divergence(one_nC: np.ndarray, other_nC: np.ndarray, *, multi: bool) -> np.ndarray:
    """How much two models disagree `(n,)`, from 0 to 1: the Jensen-Shannon divergence of their answers in bits (Lin,
    1991, "Divergence Measures Based on the Shannon Entropy"); of any number of labels that of the label with most."""
    if multi:
        one_nC, other_nC = (np.stack([of_nC, 1 - of_nC], axis=-1) for of_nC in (one_nC, other_nC))
    apart = entr((one_nC + other_nC) / 2).sum(-1) - (entr(one_nC) + entr(other_nC)).sum(-1) / 2
    found = np.clip(apart / np.log(2), 0, 1)
    return found.max(1) if multi else found


def unit(vectors_nD: np.ndarray) -> np.ndarray:
    """The same directions, of length 1, in fp32; zeros stay zeros."""
    return (vectors_nD / np.maximum(np.linalg.norm(vectors_nD, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def plus_plus(
    vectors_nD: np.ndarray, n: int, seed: int, errors_nC: np.ndarray | None = None, known: Sequence[np.ndarray] = ()
) -> list[int]:
    """At most `n` texts that are unlike each other, as they are drawn: by the squared distance from the nearest of
    those before, the first by its own length. Arthur and Vassilvitskii (2007), "k-means++".

    Args:
        vectors_nD: of length 1.
        errors_nC: how far each answer is from a certain one. With them a text is the gradient of its loss by the
            weights of the head, their outer product with its vector: Ash et al. (2020), "Deep Batch Active Learning by
            Diverse, Uncertain Gradient Lower Bounds", algorithm 1.
        known: vectors `(m, D)` of texts that have labels, which count as drawn before.
    """
    drawn, chosen, is_left_n = np.random.default_rng(seed), list[int](), np.ones(len(vectors_nD), dtype=bool)
    errors_nC = np.ones((len(vectors_nD), 1), dtype=np.float32) if errors_nC is None else errors_nC
    squares_n = (vectors_nD**2).sum(1) * (errors_nC**2).sum(1)
    nearest_n = np.full(len(vectors_nD), np.inf)
    for known_mD in known:
        for part_mD in np.array_split(known_mD, -(-len(known_mD) // AT_ONCE)):
            nearest_n = np.minimum(nearest_n, 2 - 2 * (vectors_nD @ part_mD.T).max(1))
    while len(chosen) < min(n, len(vectors_nD)):
        weights_n = np.where(is_left_n, np.where(np.isinf(nearest_n), squares_n, nearest_n), 0).clip(min=0)
        if not weights_n.any():  # all that are left repeat one that is chosen
            weights_n = is_left_n.astype(np.float64)
        at = int(drawn.choice(len(weights_n), p=weights_n / weights_n.sum()))
        chosen.append(at)
        is_left_n[at] = False
        products_n = (vectors_nD @ vectors_nD[at]) * (errors_nC @ errors_nC[at])
        nearest_n = np.minimum(nearest_n, squares_n + squares_n[at] - 2 * products_n)
    return chosen


def strange(ids_N: np.ndarray, offsets: np.ndarray, known_V: np.ndarray) -> np.ndarray:
    """Which texts are of other words than the known ones, bool `(n,)`: the mean surprise of whose tokens is above the
    inner fence of Tukey (1977), "Exploratory Data Analysis", section 2D. None of fewer than `FEWEST`.

    Args:
        ids_N, offsets: tokens of all texts, end to end; text i has those from `offsets[i]` to `offsets[i + 1] - 1`.
        known_V: how often each token occurs in the known texts.
    """
    surprise_V = np.log((known_V + SMOOTH).sum()) - np.log(known_V + SMOOTH)
    sums = np.concatenate([[0.0], surprise_V[ids_N].cumsum()])[offsets]
    mean_n = np.diff(sums) / np.maximum(np.diff(offsets), 1)
    if len(mean_n) < FEWEST:
        return np.zeros(len(mean_n), dtype=bool)
    low, high = np.quantile(mean_n, (0.25, 0.75))
    return mean_n > high + FAR * (high - low)
