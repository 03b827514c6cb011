"""The LightningModule: what a step and an epoch are, whatever texts are answered with.

B documents
"""

import math
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from manyheads.config import OptimConfig
from manyheads.data.batches import Batch
from manyheads.distributed.faults import fault
from manyheads.nn import Classifier
from manyheads.nn.masked_lm import MaskedLM
from manyheads.nn.seq2seq import Seq2Seq
from manyheads.training.metrics import Mean
from manyheads.training.objectives import Classify, Pretrain, Tag, Translate
from manyheads.training.optim import clip_gradients, freeze, stepwise

Network = Classifier | Seq2Seq | MaskedLM
Lesson = Classify | Tag | Translate | Pretrain


class LitModule(pl.LightningModule):
    """Trains `network` by what `task` makes of a batch: the losses of its rows, each as much as the others or, where
    words are hidden in them, of these; and the figures of its split.

    The loss of a step is the mean over the rows of the global batch. A batch without rows, which a rank gets where
    there are too few, adds zeros to the gradient and nothing to the figures.

    A loss that is no finite number makes a gradient that is none, and such a gradient changes nothing: the optimiser is
    told so on the device, so no step waits for it (guard.py). Nor do the steps `left_out`, from 1. Rows without a
    finite loss are left out of the mean of the epoch. `norm` is that of the last gradient, before it was clipped, and
    `n_rows` the size of the batch under way.

    Args:
        n_steps: optimiser steps of the whole run; the schedule ends there.
    """

    def __init__(self, network: Network, task: Lesson, *, optim: OptimConfig, n_steps: int) -> None:
        super().__init__()
        freeze(network, optim)
        self.network = network
        self.task: Any = task  # that of `network`
        self.optim = optim
        self.n_steps = n_steps
        self.left_out: frozenset[int] = frozenset()
        self.norm = torch.zeros(())
        self.n_rows = 0
        self.train_loss = Mean()
        self.validation_loss = Mean()

    def training_step(self, batch: Batch, index: int) -> Tensor:
        self.n_rows = len(batch.rows_B)
        fault("memory", batch.layout.n_tokens)
        losses = self.task.learn(self.network, batch)
        if fault("loss", self.global_step + 1):
            losses = losses * math.nan
        if len(losses):
            self.train_loss.update(losses.detach().nan_to_num(0.0, 0.0, 0.0), losses.isfinite())
            self.log("loss", losses.detach().mean(), batch_size=len(losses), prog_bar=True)
        total = losses.sum() * (self.n_rows / max(1, len(losses)))
        return total * (batch.scale + 0 * total.detach())

    def on_train_epoch_end(self) -> None:
        self._log_epoch("train_", self.task.train_metrics, self.train_loss)

    def validation_step(self, batch: Batch, index: int) -> None:
        if len(batch.rows_B):
            self.validation_loss.update(self.task.check(self.network, batch))

    def on_validation_epoch_end(self) -> None:
        self._log_epoch("validation_", self.task.validation_metrics, self.validation_loss)

    def configure_optimizers(self) -> Any:
        scaled = self.trainer.scaler is not None
        return stepwise(self.network, self.optim, self.n_steps, loss_is_scaled=scaled)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        self.norm = clip_gradients(self.network, gradient_clip_val, gradient_clip_algorithm)
        if optimizer.defaults["fused"]:  # with fp16 it is not: there the scaler of the losses does it
            is_out = self.global_step + 1 in self.left_out
            optimizer.found_inf = (torch.ones_like(self.norm) if is_out else ~self.norm.isfinite()).float()

    def _log_epoch(self, prefix: str, metrics: Metric | MetricCollection, loss: Metric) -> None:
        """Log the figures and start afresh. They are of all ranks, torchmetrics adds them up."""
        self.log_dict({f"{prefix}loss": loss.compute(), **metrics.compute()})
        metrics.reset()
        loss.reset()
