"""Texts that are answered with a class: what a row's loss is, and the figures of a split.

B documents . N tokens . C classes
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.data.batches import Batch
from manyheads.fit.distil import UNTAUGHT, Teaching, of_classes
from manyheads.fit.metrics import ClassFigures
from manyheads.nn import Classifier


class Classify(nn.Module):
    """Cross-entropy of a text's class.

    Args:
        class_weights_C: how much a row of each class counts in the training loss, its teacher's part included.
        teaching: how much counts what a teacher answers, where a batch holds that.
    """

    class_weights_C: Tensor

    def __init__(self, class_weights_C: Tensor, *, label_smoothing: float, teaching: Teaching = UNTAUGHT) -> None:
        super().__init__()
        self.register_buffer("class_weights_C", class_weights_C, persistent=False)
        self.label_smoothing, self.teaching = label_smoothing, teaching
        self.train_metrics = ClassFigures(class_weights_C.numel(), "train_")
        self.validation_metrics = ClassFigures(class_weights_C.numel(), "validation_")

    def learn(self, classifier: Classifier, batch: Batch) -> Tensor:
        """The loss of each row `(B,)`, weighted and smoothed; its answer counts in the training figures."""
        logits_BC = logits(classifier, batch)
        if len(batch.labels_B):
            self.train_metrics.update(logits_BC.detach(), batch.labels_B)
        losses_B = F.cross_entropy(
            logits_BC, batch.labels_B, label_smoothing=self.label_smoothing, reduction="none"
        )  # without torch's `weight`, which also multiplies the mass that smoothing gives to the other classes
        losses_B = self.teaching.joined(losses_B, logits_BC, batch.teacher_BC, of_classes)
        return losses_B * self.class_weights_C[batch.labels_B]

    def check(self, classifier: Classifier, batch: Batch) -> Tensor:
        """The plain loss of each row `(B,)`; its answer counts in the validation figures."""
        logits_BC = logits(classifier, batch)
        self.validation_metrics.update(logits_BC, batch.labels_B)
        return F.cross_entropy(logits_BC, batch.labels_B, reduction="none")


def logits(classifier: Classifier, batch: Batch) -> Tensor:
    """Logits `(B, C)`, in single precision."""
    return classifier(batch.ids_N, batch.layout, batch.segments_N).float()


def class_weights(choice: Any, labels: Tensor, names: list[str]) -> Tensor:
    """One factor a class, scaled so that the mean over the training rows is one; 1 for a class without such a row.

    Args:
        choice: `none`, `balanced` (rows / rows of the class), or factors by class name (others: 1).
        labels: class ids of the training rows, or `(n, C)` a 1 for each of their labels: the mean is over these.
    """
    rows_C = torch.bincount(labels, minlength=len(names)).double() if labels.ndim == 1 else labels.double().sum(0)
    if choice == "none":
        return torch.ones(len(names))
    if choice == "balanced":
        weights_C = rows_C.sum() / rows_C.clamp(min=1)
    else:
        assert set(choice) <= set(names), "checks.check_class_names comes first"
        weights_C = torch.tensor([float(choice.get(name, 1.0)) for name in names], dtype=torch.float64)
    weights_C = weights_C * rows_C.sum() / (weights_C @ rows_C)
    return weights_C.where(rows_C > 0, 1.0).float()
