"""From logits to labels: probabilities, and the threshold from which on each label is given.

Thresholds are chosen on validation rows, for micro and macro F1. Rows are counted by steps of a grid of probabilities,
so that little is kept of a split, and counts of several processes can be added up.

n rows . C classes or labels . T steps of the grid
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

DIGITS = 6  # of a threshold
LARGEST, STEP = 8.0, 0.05  # thresholds are tried from a logit of -8, a probability of 0.0003, to 8
N_STEPS = 1 + round(2 * LARGEST / STEP)
# As they are written to thresholds.json, so that rows are counted by the very numbers that labels are given by. The
# lowest gives a label to every text.
GRID = [0.0, *(round(1 / (1 + math.exp(LARGEST - at * STEP)), DIGITS) for at in range(1, N_STEPS))]
NEIGHBOURS = 5  # steps to either side over which rows are counted on average
MOST_ROUNDS = 20
UNKNOWN = 0.5  # the threshold of a label that no row has


def probabilities_of(logits_nC: Tensor, *, multi: bool) -> Tensor:
    """Of every class `(n, C)`, in fp64: promises are set in it, and the loss of a confident mistake stays finite. They
    add up to 1 where a text has one class."""
    return logits_nC.double().sigmoid() if multi else logits_nC.double().softmax(-1)


def given_of(probabilities_nC: Tensor, thresholds: list[float] | Tensor | None) -> Tensor:
    """Which labels a text is given, bool `(n, C)`: those from their `thresholds` on, of all texts, or of each `(n, C)`;
    None: the likeliest class."""
    if thresholds is None:
        return F.one_hot(probabilities_nC.argmax(-1), probabilities_nC.size(1)).bool()
    return probabilities_nC >= torch.as_tensor(thresholds, dtype=torch.float64)


def thresholds_of(logits_nC: Tensor, marks_nC: Tensor) -> list[float]:
    """From which probability on each label is best given."""
    counts = zero_counts(marks_nC.shape[1])
    add_counts(counts, logits_nC, marks_nC)
    return best_thresholds(counts).thresholds_C.tolist()


class ThresholdCounts(NamedTuple):
    """Rows by the last of `GRID` that a label's probability reaches: those that have the label, and all; `(C, T)` int64
    each."""

    own_CT: Tensor
    all_CT: Tensor


class BestThresholds(NamedTuple):
    """The threshold of each label `(C,)`, a probability, and with it, of each label, the rows it is given to, those of
    them that have it, and all that have it."""

    thresholds_C: Tensor
    given_C: Tensor
    right_C: Tensor
    support_C: Tensor

    @property
    def micro_f1(self) -> Tensor:
        """F1 of all labels of all rows."""
        return 2 * self.right_C.sum() / (self.given_C + self.support_C).sum().clamp(min=1)

    @property
    def macro_f1(self) -> Tensor:
        """The mean of the F1 of labels that rows have, or are given."""
        occurs_C = self.given_C + self.support_C
        return (2 * self.right_C / occurs_C.clamp(min=1)).sum() / (occurs_C > 0).sum().clamp(min=1)


def zero_counts(n_labels: int) -> ThresholdCounts:
    """Counts of no rows."""
    return ThresholdCounts(*(torch.zeros(n_labels, N_STEPS, dtype=torch.int64) for _ in range(2)))


def add_counts(counts: ThresholdCounts, logits_nC: Tensor, marks_nC: Tensor) -> None:
    """Add rows to `counts`, in place and on their device; `marks_nC` has a 1 for each label of a row."""
    likely_nC, grid_T = logits_nC.double().sigmoid(), torch.tensor(GRID, dtype=torch.float64, device=logits_nC.device)
    step_nC = torch.bucketize(likely_nC.nan_to_num(0.0), grid_T, right=True) - 1
    cells = (step_nC + N_STEPS * torch.arange(logits_nC.shape[1], device=step_nC.device)).flatten()
    counts.all_CT.view(-1).index_add_(0, cells, torch.ones_like(cells))
    counts.own_CT.view(-1).index_add_(0, cells, marks_nC.long().flatten())


def best_thresholds(counts: ThresholdCounts) -> BestThresholds:
    """The threshold of each label, such that micro F1 and macro F1 together are as high as can be.

    The best F1 of each label alone would give a label that cannot be predicted to every text there is, and the best
    micro F1 would never give a rare one. So it begins with the former, and then each label in turn takes the threshold
    at which the sum of both is highest, until none changes.
    """
    n_labels = len(counts.own_CT)
    right_CT, given_CT = (counted.cpu().flip(1).cumsum(1).flip(1) for counted in counts)
    support_C = right_CT[:, 0]
    at_C = _climbed(_smoothed(right_CT), _smoothed(given_CT), support_C)
    thresholds_C = torch.tensor(GRID, dtype=torch.float64)[at_C].where(support_C > 0, UNKNOWN)
    found = BestThresholds(thresholds_C, given_CT[range(n_labels), at_C], right_CT[range(n_labels), at_C], support_C)
    return BestThresholds(*(one.to(counts.own_CT.device) for one in found))


def _smoothed(counted_CT: Tensor) -> Tensor:
    """Means over neighbouring thresholds: of a label with few rows the very best one is an accident of these rows."""
    width = 2 * NEIGHBOURS + 1
    return F.avg_pool1d(counted_CT.double(), width, 1, NEIGHBOURS, count_include_pad=False)


def _climbed(right_CT: Tensor, given_CT: Tensor, support_C: Tensor) -> Tensor:
    """Which threshold each label takes, `(C,)`: coordinate ascent on the sum of micro and macro F1."""
    f1_CT = 2 * right_CT / (given_CT + support_C[:, None]).clamp(min=1)
    n_had, every = (support_C > 0).sum().clamp(min=1), range(len(f1_CT))
    at_C = torch.stack([_middle_of_best(f1_T) for f1_T in f1_CT]).where(support_C > 0, N_STEPS // 2)
    right, given = right_CT[every, at_C].sum(), given_CT[every, at_C].sum() + support_C.sum()
    for _ in range(MOST_ROUNDS):
        before_C = at_C.clone()
        for label in support_C.nonzero().flatten().tolist():
            right_T = right + right_CT[label] - right_CT[label, at_C[label]]
            given_T = given + given_CT[label] - given_CT[label, at_C[label]]
            at_C[label] = _middle_of_best(2 * right_T / given_T + f1_CT[label] / n_had)
            right, given = right_T[at_C[label]], given_T[at_C[label]]
        if torch.equal(at_C, before_C):
            break
    return at_C


def _middle_of_best(score_T: Tensor) -> Tensor:
    """Which is the highest, of equal ones the middle: the furthest from where it gets worse."""
    highest = (score_T >= score_T.max() - 1e-9).nonzero().flatten()
    return highest[len(highest) // 2]
