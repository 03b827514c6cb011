"""The LightningModule of classification: steps and hooks only.

B documents . N tokens . C classes
"""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import OptimConfig
from manyheads.data.batches import Batch
from manyheads.fit.metrics import log_epoch, make_loss_meter, make_metrics
from manyheads.fit.optim import clip_gradients, stepwise
from manyheads.nn import Classifier


class LitClassifier(pl.LightningModule):
    """Cross-entropy over the rows of the global batch.

    A batch without rows, which a rank gets where there are too few, adds zeros to the gradient and nothing to the
    figures. `diverged_in` is the first epoch, from 1, whose loss is not a finite number; training ends with it.

    Args:
        class_weights_C: factor of each class in the training loss.
        n_steps: optimiser steps of the whole run; the schedule ends there.
    """

    class_weights_C: Tensor

    def __init__(self, classifier: Classifier, *, optim: OptimConfig, class_weights_C: Tensor, n_steps: int) -> None:
        super().__init__()
        self.classifier = classifier
        self.optim = optim
        self.n_steps = n_steps
        self.diverged_in: int | None = None
        self.register_buffer("class_weights_C", class_weights_C, persistent=False)
        n_classes = class_weights_C.numel()
        self.train_metrics = make_metrics(n_classes, "train_")
        self.train_loss = make_loss_meter()
        self.validation_metrics = make_metrics(n_classes, "validation_")
        self.validation_loss = make_loss_meter()

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(B, C)`, in single precision."""
        return self.classifier(batch.ids_N, batch.layout, batch.segments_N).float()

    def training_step(self, batch: Batch, index: int) -> Tensor:
        logits_BC = self(batch)
        losses_B = F.cross_entropy(
            logits_BC,
            batch.labels_B,
            weight=self.class_weights_C,
            label_smoothing=self.optim.label_smoothing,
            reduction="none",
        )
        if len(losses_B):
            self.train_metrics.update(logits_BC.detach(), batch.labels_B)
            self.train_loss.update(losses_B.detach())
            self.log("loss", losses_B.detach().mean(), batch_size=len(losses_B), prog_bar=True)
        return losses_B.sum() * batch.scale

    def on_train_epoch_end(self) -> None:
        self._log_epoch("train_", self.train_metrics, self.train_loss)

    def validation_step(self, batch: Batch, index: int) -> None:
        if not len(batch.labels_B):
            return
        logits_BC = self(batch)
        self.validation_metrics.update(logits_BC, batch.labels_B)
        self.validation_loss.update(F.cross_entropy(logits_BC, batch.labels_B, reduction="none"))

    def on_validation_epoch_end(self) -> None:
        self._log_epoch("validation_", self.validation_metrics, self.validation_loss)

    def configure_optimizers(self) -> Any:
        return stepwise(self.classifier, self.optim, self.n_steps, loss_is_scaled=self.trainer.scaler is not None)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        clip_gradients(self.classifier, gradient_clip_val, gradient_clip_algorithm)

    def _log_epoch(self, prefix: str, metrics: Any, loss: Any) -> None:
        if not log_epoch(self, prefix, metrics, loss) and self.diverged_in is None:
            self.diverged_in = self.current_epoch + 1


def class_weights(choice: Any, labels: Tensor, names: list[str]) -> Tensor:
    """One factor a class, scaled so that the mean over the training rows is one.

    Args:
        choice: `none`, `balanced` (rows / rows of the class), or factors by class name (others: 1).
        labels: class ids of the training rows.
    """
    rows_C = torch.bincount(labels, minlength=len(names)).double()
    if choice == "none":
        return torch.ones(len(names))
    if choice == "balanced":
        weights_C = rows_C.sum() / rows_C.clamp(min=1)
    else:
        assert set(choice) <= set(names), "checks.check_class_names comes first"
        weights_C = torch.tensor([float(choice.get(name, 1.0)) for name in names], dtype=torch.float64)
    return (weights_C * rows_C.sum() / (weights_C @ rows_C)).float()
