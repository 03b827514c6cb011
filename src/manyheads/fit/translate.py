"""Texts that are answered by texts: what a row's loss is, and the figures of a split.

B documents . N tokens of their targets . V vocabulary
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.data.batches import Batch
from manyheads.fit.metrics import make_shares
from manyheads.nn.generate import greedy
from manyheads.nn.seq2seq import Seq2Seq

IGNORED = -100


class Translate(nn.Module):
    """Cross-entropy of the next target token, all before it given: the mean over a row's tokens.

    Validation rows are also answered greedily: `exact_match` is the share of rows whose answer has the very tokens of
    the target.
    """

    def __init__(self, *, label_smoothing: float) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.train_metrics = make_shares("train_", ["token_accuracy"])
        self.validation_metrics = make_shares("validation_", ["token_accuracy", "exact_match"])

    def learn(self, seq2seq: Seq2Seq, batch: Batch) -> Tensor:
        """The loss of each row `(B,)`, smoothed; its tokens count in the training figures."""
        logits_NV, next_N = logits(seq2seq, batch), following(batch)
        if len(batch.rows_B):
            self.train_metrics["token_accuracy"].update(*right(logits_NV.detach(), next_N))
        return row_losses(batch, logits_NV, next_N, label_smoothing=self.label_smoothing)

    def check(self, seq2seq: Seq2Seq, batch: Batch) -> Tensor:
        """The plain loss of each row `(B,)`; its tokens and its answer count in the validation figures."""
        logits_NV, next_N = logits(seq2seq, batch), following(batch)
        self.validation_metrics["token_accuracy"].update(*right(logits_NV, next_N))
        self.validation_metrics["exact_match"].update(exact_matches(seq2seq, batch))
        return row_losses(batch, logits_NV, next_N)


def logits(seq2seq: Seq2Seq, batch: Batch) -> Tensor:
    """Logits `(N, V)` of the token behind each target token, in single precision."""
    assert batch.targets is not None
    return seq2seq(batch.ids_N, batch.layout, batch.targets.ids_N, batch.targets.layout).float()


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
