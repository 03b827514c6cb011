"""The LightningModule: what a step and an epoch are, whatever texts are answered with.

B documents
"""

from typing import Any

import lightning.pytorch as pl
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from manyheads.config import OptimConfig
from manyheads.data.batches import Batch
from manyheads.fit.classify import Classify
from manyheads.fit.metrics import Mean
from manyheads.fit.optim import clip_gradients, stepwise
from manyheads.fit.translate import Translate
from manyheads.nn import Classifier
from manyheads.nn.seq2seq import Seq2Seq

Network = Classifier | Seq2Seq


class LitModule(pl.LightningModule):
    """Trains `network` by what `task` makes of a batch: the loss of each row, and the figures of its split.

    The loss of a step is the mean over the rows of the global batch. A batch without rows, which a rank gets where
    there are too few, adds zeros to the gradient and nothing to the figures. `diverged_in` is the first epoch, from 1,
    whose loss is not a finite number; training ends with it.

    Args:
        n_steps: optimiser steps of the whole run; the schedule ends there.
    """

    def __init__(self, network: Network, task: Classify | Translate, *, optim: OptimConfig, n_steps: int) -> None:
        super().__init__()
        self.network = network
        self.task: Any = task  # that of `network`
        self.optim = optim
        self.n_steps = n_steps
        self.diverged_in: int | None = None
        self.train_loss = Mean()
        self.validation_loss = Mean()

    def training_step(self, batch: Batch, index: int) -> Tensor:
        losses_B = self.task.learn(self.network, batch)
        if len(losses_B):
            self.train_loss.update(losses_B.detach())
            self.log("loss", losses_B.detach().mean(), batch_size=len(losses_B), prog_bar=True)
        return losses_B.sum() * batch.scale

    def on_train_epoch_end(self) -> None:
        self._log_epoch("train_", self.task.train_metrics, self.train_loss)

    def validation_step(self, batch: Batch, index: int) -> None:
        if len(batch.rows_B):
            self.validation_loss.update(self.task.check(self.network, batch))

    def on_validation_epoch_end(self) -> None:
        self._log_epoch("validation_", self.task.validation_metrics, self.validation_loss)

    def configure_optimizers(self) -> Any:
        scaled, lazy = self.trainer.scaler is not None, self.trainer.world_size == 1 and self.device.type == "cpu"
        return stepwise(self.network, self.optim, self.n_steps, loss_is_scaled=scaled, lazy=lazy)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        clip_gradients(self.network, gradient_clip_val, gradient_clip_algorithm)

    def _log_epoch(self, prefix: str, metrics: Metric | MetricCollection, loss: Metric) -> None:
        """Log the figures and start afresh. They are of all ranks, torchmetrics adds them up: so where the loss is no
        finite number all ranks stop together."""
        mean = loss.compute()
        self.log_dict({f"{prefix}loss": mean, **metrics.compute()})
        if not mean.isfinite():
            self.trainer.should_stop = True
            self.diverged_in = self.diverged_in or self.current_epoch + 1
        metrics.reset()
        loss.reset()
