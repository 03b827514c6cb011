"""From which probability on a label is given: what is best for micro and macro F1 on rows whose labels are known.

Torch alone. Rows are counted by logit, so that what is known of a split is small, and counts of several processes can
be added up.

n rows . C labels . T steps of the grid of logits
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

LARGEST, STEP = 8.0, 0.05  # thresholds are tried from a logit of -8, a probability of 0.0003, to 8
N_STEPS = 1 + round(2 * LARGEST / STEP)
NEIGHBOURS = 5  # steps to either side over which rows are counted on average
MOST_ROUNDS = 20
UNKNOWN = 0.5  # the threshold of a label that no row has


class Counts(NamedTuple):
    """Rows by the step of a label's logit: those that have the label, and all; `(C, T)` int64 each."""

    own_CT: Tensor
    all_CT: Tensor


class Best(NamedTuple):
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


def no_counts(n_labels: int) -> Counts:
    """Counts of no rows."""
    return Counts(*(torch.zeros(n_labels, N_STEPS, dtype=torch.int64) for _ in range(2)))


def count(counts: Counts, logits_nC: Tensor, marks_nC: Tensor) -> None:
    """Add rows to `counts`, in place and on their device; `marks_nC` has a 1 for each label of a row."""
    step_nC = ((logits_nC.double() + LARGEST) / STEP).nan_to_num(0.0).clamp(0, N_STEPS - 1).long()
    cells = (step_nC + N_STEPS * torch.arange(logits_nC.shape[1], device=step_nC.device)).flatten()
    counts.all_CT.view(-1).index_add_(0, cells, torch.ones_like(cells))
    counts.own_CT.view(-1).index_add_(0, cells, marks_nC.long().flatten())


def best(counts: Counts) -> Best:
    """The threshold of each label, such that micro F1 and macro F1 together are as high as can be.

    The best F1 of each label alone would give a label that cannot be told to every text there is, and the best micro F1
    would never give a rare one. So it begins with the former, and then each label in turn takes the threshold at which
    the sum of both is highest, until none changes.
    """
    n_labels = len(counts.own_CT)
    right_CT, given_CT = (counted.cpu().flip(1).cumsum(1).flip(1) for counted in counts)
    support_C = right_CT[:, 0]
    at_C = _climbed(_smoothed(right_CT), _smoothed(given_CT), support_C)
    thresholds_C = torch.sigmoid(at_C.double() * STEP - LARGEST).where(support_C > 0, UNKNOWN)
    found = Best(thresholds_C, given_CT[range(n_labels), at_C], right_CT[range(n_labels), at_C], support_C)
    return Best(*(one.to(counts.own_CT.device) for one in found))


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


def _middle_of_best(worth_T: Tensor) -> Tensor:
    """Which is the highest, of equal ones the middle: the furthest from where it gets worse."""
    highest = (worth_T >= worth_T.max() - 1e-9).nonzero().flatten()
    return highest[len(highest) // 2]
