"""The LightningModule: a training step, a validation step, the optimiser.

B documents
"""

import logging
import math
from typing import Any, Self

import lightning.pytorch as pl
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from manyheads.config import OptimConfig, Resume, RunConfig
from manyheads.data.batches import Batch
from manyheads.data.checks import check_rows
from manyheads.data.datamodule import TextData
from manyheads.distributed.faults import inject_fault
from manyheads.errors import UserError
from manyheads.inference.origin import with_rows
from manyheads.training.build import Network, assemble_network, make_objective, optim_of, prepare_weights
from manyheads.training.objectives import Mean
from manyheads.training.optim import clip_gradients, freeze, make_optimizer, make_schedule

log = logging.getLogger("manyheads")


class LitModule(pl.LightningModule):
    """Trains `network` with `objective`.

    The loss of a step is the mean over the rows of the global batch, whatever the number of devices and accumulated
    batches. A rank that gets a batch without rows, because there are too few, adds zeros to the gradient.

    Non-finite losses give non-finite gradients; the step is skipped. The optimiser gets a flag on the device for that,
    so the host does not wait for a GPU; guard.py decides what follows. The mean of the epoch omits rows with a
    non-finite loss.

    Args:
        network: gives logits, see `nn.Classifier`.
        objective: `training_loss(network, batch)` and `validation_loss(network, batch)` return the loss of each row,
            and count its figures in `train_metrics` and `validation_metrics`; see `manyheads.hooks.Task`.
        optim: the settings `optim`.
        n_steps: optimiser steps of the whole run, after which the learning rate is zero; default: the Trainer's.

    Attributes:
        skip_steps: steps, from 1, that change nothing: those that a run which restarts already knows to diverge.
        is_guarded: whether a `Guard` reacts to skipped steps; else a warning counts them at the end of an epoch.
        norm: the norm of the last gradient, before clipping.
        n_rows: rows of the batch under way.
    """

    def __init__(self, network: Network, objective: Any, *, optim: OptimConfig, n_steps: int | None = None) -> None:
        super().__init__()
        freeze(network, optim)
        self.network = network
        self.objective = objective
        self.optim = optim
        self._given_steps, self.n_steps = n_steps, n_steps or 0
        self.skip_steps: frozenset[int] = frozenset()
        self.is_guarded = False
        self.n_skipped = torch.zeros((), dtype=torch.int64)
        self.norm = torch.zeros(())
        self.n_rows = 0
        self.train_loss = Mean()
        self.validation_loss = Mean()

    @classmethod
    def from_run(cls, run: RunConfig, data: TextData) -> Self:
        """The module of a run, for a Trainer of your own: the network of `run.model` with the weights of
        `run.init_from`, its objective, optimiser and schedule.

        The sections trainer, hardware, checkpoint, guard and logger are not read: they are the Trainer's to decide.
        Averaging the weights (`optim.average`), a run folder and a saved model need `manyheads.train`.

        Args:
            data: `TextData.from_run(run)`.

        Raises:
            UserError: the settings do not fit the data, or need `manyheads.train`.
        """
        if data.splits is None or data.tokenizer is None:
            raise UserError("this TextData holds no rows to build a network for: make it by TextData.from_run(run)")
        needs_train = {"budget": run.budget, "resume": "" if run.resume is Resume.never else run.resume.name}
        for name, value in needs_train.items():
            if value:
                raise UserError(f"{name}={value} needs manyheads.train; under a Trainer of your own remove it")
        check_rows(run, data.splits)
        tokens, labels = data.tokens["train"], data.splits.labels
        run = with_rows(run, data.splits)
        network = assemble_network(run, data.splits, data.tokenizer)
        prepare_weights(run, network, tokens, labels, first=True)
        return cls(network, make_objective(run, tokens, labels), optim=optim_of(run))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.n_rows = len(batch.rows_B)
        inject_fault("memory", batch.layout.n_tokens)
        losses = self.objective.training_loss(self.network, batch)
        if inject_fault("loss", self.global_step + 1):
            losses = losses * math.nan
        if len(losses):
            self.train_loss.update(losses.detach().nan_to_num(0.0, 0.0, 0.0), losses.isfinite())
            self.log("loss", losses.detach().mean(), batch_size=len(losses), prog_bar=True)
        # An objective may return a loss for each word; a row counts as one all the same.
        total = losses.sum() * (self.n_rows / max(1, len(losses)))
        # batch.scale divides by the rows of the global batch. The second term is 0, or NaN for a non-finite loss: it
        # makes the whole gradient NaN also where the scale is 0.
        return total * (batch.scale + 0 * total.detach())

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if len(batch.rows_B):
            self.validation_loss.update(self.objective.validation_loss(self.network, batch))

    def on_train_epoch_end(self) -> None:
        self._log_epoch("train_", self.objective.train_metrics, self.train_loss)
        n_skipped, self.n_skipped = int(self.n_skipped), torch.zeros_like(self.n_skipped)
        if n_skipped and not self.is_guarded:
            log.warning(
                "epoch %d: %d steps changed nothing, as a loss or gradient in them was not finite",
                self.current_epoch + 1,
                n_skipped,
            )

    def on_validation_epoch_end(self) -> None:
        self._log_epoch("validation_", self.objective.validation_metrics, self.validation_loss)

    def configure_optimizers(self) -> Any:
        trainer: Any = self.trainer
        self.n_steps = total_steps(trainer) if self._given_steps is None else self._given_steps
        fused = trainer.scaler is None  # a fused step would unscale fp16's gradients only after they were clipped
        optimizer = make_optimizer(self.network, self.optim, fused=fused)
        schedule = make_schedule(optimizer, self.optim, self.n_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        self.norm = clip_gradients(self.network, gradient_clip_val, gradient_clip_algorithm)
        if optimizer.defaults["fused"]:  # without it the scaler of fp16's losses skips such steps
            skip_this = self.global_step + 1 in self.skip_steps
            skipped = torch.ones_like(self.norm) if skip_this else ~self.norm.isfinite()
            self.n_skipped = self.n_skipped.to(self.norm.device) + skipped.long()
            optimizer.found_inf = skipped.float()  # the fused AdamW changes nothing where this is 1

    def _log_epoch(self, prefix: str, metrics: Metric | MetricCollection, loss: Metric) -> None:
        """Log the figures of an epoch, which torchmetrics adds up over the ranks, and reset them."""
        figures = {"loss": loss.compute(), **metrics.compute()}
        self.log_dict({f"{prefix}{name}": figure for name, figure in figures.items()})
        metrics.reset()
        loss.reset()


def total_steps(trainer: pl.Trainer) -> int:
    """Optimiser steps of the whole run, as far as they can be known.

    Raises:
        UserError: the Trainer has no limit, and the schedule needs one.
    """
    if trainer.max_steps == -1 and trainer.max_epochs == -1:
        raise UserError(
            "max_epochs=-1 leaves training without an end, but the learning rate falls towards it: give the Trainer "
            "max_epochs or max_steps"
        )
    data, limit = getattr(trainer, "datamodule", None), trainer.limit_train_batches
    if isinstance(data, TextData) and isinstance(limit, float) and limit == 1.0:  # 1.0 is all batches, 1 is one batch
        return data.n_steps(trainer.max_epochs, trainer.max_steps)
    return int(trainer.estimated_stepping_batches)
