"""The LightningModule of texts that are answered by texts: steps and hooks only.

B documents . N tokens of their targets . V vocabulary
"""

from itertools import pairwise
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import OptimConfig
from manyheads.data.batches import Batch
from manyheads.fit.metrics import log_epoch, make_loss_meter, make_shares
from manyheads.fit.optim import clip_gradients, stepwise
from manyheads.nn.generate import greedy
from manyheads.nn.seq2seq import Seq2Seq

IGNORED = -100


class LitTranslator(pl.LightningModule):
    """Cross-entropy of the next target token, all before it given: the mean over a row's tokens, then over rows.

    After each epoch the validation split is also answered greedily: `exact_match` is the share of rows whose answer
    has the very tokens of the target. A batch without rows adds zeros to the gradient and nothing to the figures.
    `diverged_in` is the first epoch, from 1, whose loss is not a finite number; training ends with it.

    Args:
        n_steps: optimiser steps of the whole run; the schedule ends there.
    """

    def __init__(self, seq2seq: Seq2Seq, *, optim: OptimConfig, n_steps: int) -> None:
        super().__init__()
        self.seq2seq = seq2seq
        self.optim = optim
        self.n_steps = n_steps
        self.diverged_in: int | None = None
        self.train_metrics = make_shares("train_", ["token_accuracy"])
        self.train_loss = make_loss_meter()
        self.validation_metrics = make_shares("validation_", ["token_accuracy", "exact_match"])
        self.validation_loss = make_loss_meter()

    def forward(self, batch: Batch) -> Tensor:
        """Logits `(N, V)` of the token behind each target token, in single precision."""
        assert batch.targets is not None
        targets = batch.targets
        return self.seq2seq(batch.ids_N, batch.layout, targets.ids_N, targets.layout).float()

    def training_step(self, batch: Batch, index: int) -> Tensor:
        logits_NV, next_N = self(batch), following(batch)
        losses_B = row_losses(batch, logits_NV, next_N, label_smoothing=self.optim.label_smoothing)
        if len(losses_B):
            self.train_metrics["token_accuracy"].update(*right(logits_NV.detach(), next_N))
            self.train_loss.update(losses_B.detach())
            self.log("loss", losses_B.detach().mean(), batch_size=len(losses_B), prog_bar=True)
        return losses_B.sum() * batch.scale

    def on_train_epoch_end(self) -> None:
        self._log_epoch("train_", self.train_metrics, self.train_loss)

    def validation_step(self, batch: Batch, index: int) -> None:
        if not len(batch.rows_B):
            return
        logits_NV, next_N = self(batch), following(batch)
        self.validation_loss.update(row_losses(batch, logits_NV, next_N))
        self.validation_metrics["token_accuracy"].update(*right(logits_NV, next_N))
        self.validation_metrics["exact_match"].update(exact_matches(self.seq2seq, batch))

    def on_validation_epoch_end(self) -> None:
        self._log_epoch("validation_", self.validation_metrics, self.validation_loss)

    def configure_optimizers(self) -> Any:
        return stepwise(self.seq2seq, self.optim, self.n_steps, loss_is_scaled=self.trainer.scaler is not None)

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        clip_gradients(self.seq2seq, gradient_clip_val, gradient_clip_algorithm)

    def _log_epoch(self, prefix: str, metrics: Any, loss: Any) -> None:
        if not log_epoch(self, prefix, metrics, loss) and self.diverged_in is None:
            self.diverged_in = self.current_epoch + 1


def following(batch: Batch) -> Tensor:
    """The token behind each target token `(N,)`; behind the last of a row there is none: `IGNORED`."""
    assert batch.targets is not None
    next_N = batch.targets.ids_N.roll(-1)
    next_N[batch.targets.layout.offsets[1:] - 1] = IGNORED
    return next_N


def row_losses(batch: Batch, logits_NV: Tensor, next_N: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy of each row's tokens `(B,)`."""
    assert batch.targets is not None
    losses_N = F.cross_entropy(
        logits_NV, next_N, ignore_index=IGNORED, label_smoothing=label_smoothing, reduction="none"
    )
    layout = batch.targets.layout
    return layout.grid(losses_N).sum(1) / (layout.lengths_B - 1)


def right(logits_NV: Tensor, next_N: Tensor) -> tuple[Tensor, Tensor]:
    """Whether the likeliest token is the next, and how much that counts: both `(N,)`."""
    return (logits_NV.argmax(-1) == next_N).float(), (next_N != IGNORED).float()


def exact_matches(seq2seq: Seq2Seq, batch: Batch) -> Tensor:
    """Whether the greedy answer has the tokens of the target `(B,)`; none is let to grow longer than all targets."""
    assert batch.targets is not None
    ids, bounds = batch.targets.ids_N.tolist(), batch.targets.layout.offsets.tolist()
    start, end, longest = ids[0], ids[-1], batch.targets.layout.longest
    answers = greedy(seq2seq, batch.ids_N, batch.layout, start=start, end=end, max_length=longest - 1)
    wanted = [ids[a + 1 : b - 1] for a, b in pairwise(bounds)]
    matches = [answer == target for answer, target in zip(answers, wanted, strict=True)]
    return torch.tensor(matches, dtype=torch.float32, device=batch.ids_N.device)
