"""Figures of a split during training: added up where the batches are, computed once an epoch.

Nothing here is read back in a step, so a GPU is never waited for. torchmetrics' own classes do: they look for values
out of range and for NaN, and copy a weight to the device.

B rows . C classes
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from manyheads.linear.blend import Counts, best, count, no_counts


class Mean(Metric):
    """The mean of values, weighted if weights are given; of a training that diverged it is not a number.

    In double precision: single precision would no longer count one value beside 2^24.
    """

    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("total", "weight"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Tensor, weights: Tensor | None = None) -> None:
        """Values and weights of one shape."""
        self.total += (values if weights is None else values * weights).sum()
        self.weight += values.numel() if weights is None else weights.sum()

    def compute(self) -> Tensor:
        return (self.total / self.weight).float()


class ClassFigures(Metric):
    """Accuracy over rows; F1, precision and recall averaged over the classes that occur in labels or answers."""

    full_state_update = False
    rows_C: Tensor
    answers_C: Tensor
    right_C: Tensor

    def __init__(self, n_classes: int, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix
        for name in ("rows_C", "answers_C", "right_C"):
            self.add_state(name, torch.zeros(n_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits_BC: Tensor, labels_B: Tensor) -> None:
        """Logits and class ids."""
        answers_B = logits_BC.argmax(-1)
        one_B = torch.ones_like(labels_B)
        self.rows_C.index_add_(0, labels_B, one_B)
        self.answers_C.index_add_(0, answers_B, one_B)
        self.right_C.index_add_(0, labels_B, (answers_B == labels_B).long())

    def compute(self) -> dict[str, Tensor]:
        occurs_C = self.rows_C + self.answers_C > 0

        def macro(numerator_C: Tensor, denominator_C: Tensor) -> Tensor:
            """The mean over the classes that occur; 0 for one without a denominator."""
            return (numerator_C / denominator_C.clamp(min=1)).sum() / occurs_C.sum()

        figures = {
            "accuracy": self.right_C.sum() / self.rows_C.sum(),
            "macro_f1": macro(2 * self.right_C, self.rows_C + self.answers_C),
            "macro_precision": macro(self.right_C, self.answers_C),
            "macro_recall": macro(self.right_C, self.rows_C),
        }
        return {f"{self.prefix}{name}": figure for name, figure in figures.items()}


class LabelFigures(Metric):
    """Micro and macro F1 of rows with any number of labels, each given from the threshold on that is best on these
    very rows. So it says how well logits tell rows apart, not where thresholds were left."""

    full_state_update = False
    own_CT: Tensor
    all_CT: Tensor

    def __init__(self, n_classes: int, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix
        for name, counts in no_counts(n_classes)._asdict().items():
            self.add_state(name, counts, dist_reduce_fx="sum")

    def update(self, logits_BC: Tensor, marks_BC: Tensor) -> None:
        """Logits, and a 1 for each label of a row."""
        count(Counts(self.own_CT, self.all_CT), logits_BC, marks_BC)

    def compute(self) -> dict[str, Tensor]:
        found = best(Counts(self.own_CT, self.all_CT))
        return {f"{self.prefix}micro_f1": found.micro_f1, f"{self.prefix}macro_f1": found.macro_f1}


def make_shares(prefix: str, names: Sequence[str]) -> MetricCollection:
    """Shares of what is right, each told by itself of its rows or tokens."""
    return MetricCollection({name: Mean() for name in names}, prefix=prefix, compute_groups=False)
