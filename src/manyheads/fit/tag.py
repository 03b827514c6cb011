"""Texts that are answered with any number of labels: what a row's loss is, and the figures of a split.

B documents . N tokens . C labels
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.data.batches import Batch
from manyheads.fit.classify import logits
from manyheads.fit.distil import UNTAUGHT, Teaching, of_labels
from manyheads.fit.metrics import LabelFigures
from manyheads.nn import Classifier


class Tag(nn.Module):
    """Binary cross-entropy of each label, added up over labels: the negative log-likelihood of a row's labels, if each
    were given on its own (binary relevance: Tsoumakas and Katakis, 2007, "Multi-Label Classification", section 2.2).

    Args:
        class_weights_C: how much each label counts in the training loss of the rows that have it, its teacher's part
            included.
        label_smoothing: mass that a label's own probability gives away, shared among all labels.
        teaching: how much counts what a teacher answers, where a batch holds that.
    """

    class_weights_C: Tensor

    def __init__(self, class_weights_C: Tensor, *, label_smoothing: float, teaching: Teaching = UNTAUGHT) -> None:
        super().__init__()
        self.register_buffer("class_weights_C", class_weights_C, persistent=False)
        self.label_smoothing, self.teaching = label_smoothing, teaching
        n_labels = class_weights_C.numel()
        self.train_metrics = LabelFigures(n_labels, "train_")
        self.validation_metrics = LabelFigures(n_labels, "validation_")

    def learn(self, classifier: Classifier, batch: Batch) -> Tensor:
        """The loss of each row `(B,)`, weighted and smoothed; its answer counts in the training figures."""
        logits_BC = logits(classifier, batch)
        if len(batch.rows_B):
            self.train_metrics.update(logits_BC.detach(), batch.labels_B)
        spread = self.label_smoothing / max(2, logits_BC.shape[1])  # of one label: to having and not having it
        wanted_BC = batch.labels_B * (1 - self.label_smoothing) + spread
        losses_BC = F.binary_cross_entropy_with_logits(logits_BC, wanted_BC, reduction="none")
        losses_BC = self.teaching.joined(losses_BC, logits_BC, batch.teacher_BC, of_labels)
        return (losses_BC * torch.where(batch.labels_B > 0, self.class_weights_C, 1.0)).sum(1)

    def check(self, classifier: Classifier, batch: Batch) -> Tensor:
        """The plain loss of each row `(B,)`; its answer counts in the validation figures."""
        logits_BC = logits(classifier, batch)
        self.validation_metrics.update(logits_BC, batch.labels_B)
        return row_losses(logits_BC, batch.labels_B.float())


def row_losses(logits_BC: Tensor, marks_BC: Tensor) -> Tensor:
    """Binary cross-entropy of each row `(B,)`, the sum over its labels."""
    return F.binary_cross_entropy_with_logits(logits_BC, marks_BC, reduction="none").sum(1)
