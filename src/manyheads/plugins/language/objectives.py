"""Objectives of models that answer by tokens: the loss of a row or of a hidden word, and the figures of a split.

B documents . N tokens (of targets, where texts are answered by texts) . P hidden tokens . V vocabulary
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric

from manyheads.config import RunConfig
from manyheads.data.batches import Batch
from manyheads.data.tokens import Tokens
from manyheads.layout import Packed
from manyheads.nn.cost import mean_flops
from manyheads.plugins.language.config import PretrainConfig
from manyheads.plugins.language.decoder import flops_per_answer
from manyheads.plugins.language.masks import Vocabulary
from manyheads.plugins.language.networks import Hidden, MaskedLM, Seq2Seq, choose_places, greedy, hide, hold_out
from manyheads.training.objectives import mean_metrics

IGNORED = -100


class Translate(nn.Module):
    """Cross-entropy of the next target token, all before it given: the mean over a row's tokens.

    Validation rows are also answered greedily: `exact_match` is the share of rows whose answer has the very tokens of
    the target.
    """

    def __init__(self, *, label_smoothing: float) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.train_metrics = mean_metrics("token_accuracy")
        self.validation_metrics = mean_metrics("token_accuracy", "exact_match")

    def training_loss(self, seq2seq: Seq2Seq, batch: Batch) -> Tensor:
        """The loss of each row `(B,)`, smoothed."""
        return self._losses(seq2seq, batch, self.train_metrics["token_accuracy"], self.label_smoothing)

    def validation_loss(self, seq2seq: Seq2Seq, batch: Batch) -> Tensor:
        """The plain loss of each row `(B,)`."""
        self.validation_metrics["exact_match"].update(exact_matches(seq2seq, batch))
        return self._losses(seq2seq, batch, self.validation_metrics["token_accuracy"], 0.0)

    def given(self, batch: Batch) -> tuple[Any, ...]:
        """What the network is called with."""
        assert batch.targets is not None
        return batch.ids_N, batch.layout, batch.targets.ids_N, batch.targets.layout

    def plan(self, run: RunConfig, tokens: Tokens, labels: list[str], n_words: int) -> dict[str, str]:
        """What a text of mean length costs."""
        assert tokens.targets is not None
        source, target = (float(one.offsets.diff().double().mean()) for one in (tokens, tokens.targets))
        forward = flops_per_answer(run.model, source, target, n_words)
        return {
            "tokens a target": f"{target:.1f} on average",
            "FLOPs a text": f"{forward:,.0f} forward with its target, {3 * forward:,.0f} with backward",
        }

    def _losses(self, seq2seq: Seq2Seq, batch: Batch, accuracy: Metric, smoothing: float) -> Tensor:
        assert batch.targets is not None
        logits_NV, next_N, layout = target_logits(seq2seq, batch), following(batch), batch.targets.layout
        if len(batch.rows_B):
            accuracy.update((logits_NV.detach().argmax(-1) == next_N).float(), (next_N != IGNORED).float())
        losses_N = F.cross_entropy(logits_NV, next_N, ignore_index=IGNORED, label_smoothing=smoothing, reduction="none")
        return layout.grid(losses_N).sum(1) / (layout.lengths_B - 1)


def translate(run: RunConfig, tokens: Tokens, labels: list[str]) -> Translate:
    """The objective of task=seq2seq."""
    return Translate(label_smoothing=run.optim.label_smoothing)


def target_logits(seq2seq: Seq2Seq, batch: Batch) -> Tensor:
    """Logits `(N, V)` of the token after each target token, in single precision."""
    assert batch.targets is not None
    return seq2seq(batch.ids_N, batch.layout, batch.targets.ids_N, batch.targets.layout).float()


def following(batch: Batch) -> Tensor:
    """The token after each target token `(N,)`; after the last of a row there is none: `IGNORED`."""
    assert batch.targets is not None
    next_N = batch.targets.ids_N.roll(-1)
    next_N[batch.targets.layout.offsets[1:] - 1] = IGNORED
    return next_N


def exact_matches(seq2seq: Seq2Seq, batch: Batch) -> Tensor:
    """Whether the greedy answer has the tokens of the target `(B,)`; answers end where the longest target does."""
    assert batch.targets is not None
    ids, bounds = batch.targets.ids_N.tolist(), batch.targets.layout.offsets.tolist()
    start, end, longest = ids[0], ids[-1], batch.targets.layout.longest
    answers = greedy(seq2seq, batch.ids_N, batch.layout, start=start, end=end, max_length=longest - 1)
    wanted = [ids[a + 1 : b - 1] for a, b in pairwise(bounds)]
    matches = [answer == target for answer, target in zip(answers, wanted, strict=True)]
    return torch.tensor(matches, dtype=torch.float32, device=batch.ids_N.device)


class Pretrain(nn.Module):
    """Cross-entropy of hidden words. In training they are drawn anew for each batch. In held-out texts they are always
    the same, so that runs can be compared.
    """

    special_V: Tensor

    def __init__(self, config: PretrainConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.mask, self.n_marks = config, vocabulary.mask, vocabulary.n_marks
        self.register_buffer("special_V", vocabulary.special_V, persistent=False)
        self.train_metrics = mean_metrics("masked_accuracy")
        self.validation_metrics = mean_metrics("masked_accuracy")

    def training_loss(self, network: MaskedLM, batch: Batch) -> Tensor:
        """The loss of each hidden word `(P,)`; the training figures are updated."""
        return guesses(network, batch, self.hidden(batch.ids_N, batch.layout), self.train_metrics["masked_accuracy"])

    def validation_loss(self, network: MaskedLM, batch: Batch) -> Tensor:
        """The loss of each word `(P,)` that is hidden in validation."""
        ids_N, layout = batch.ids_N, batch.layout
        rows_N = batch.rows_B.repeat_interleave(layout.lengths_B, output_size=layout.n_tokens)
        hidden = hold_out(ids_N, rows_N, layout.positions, self.special_V[ids_N], self.mask)
        return guesses(network, batch, hidden, self.validation_metrics["masked_accuracy"])

    def given(self, batch: Batch) -> tuple[Any, ...]:
        """What the network is called with: as many places as are hidden."""
        places_P = torch.arange(max(1, round(self.config.mask_share * batch.layout.n_tokens)))
        return batch.ids_N, batch.layout, batch.segments_N, places_P

    def plan(self, run: RunConfig, tokens: Tokens, labels: list[str], n_words: int) -> dict[str, str]:
        """What is hidden, and what a token costs on average."""
        share, width = self.config.mask_share, run.model.width_of_words
        forward = mean_flops(run.model, tokens.sizes(), pooled=False)
        words = float(tokens.counts.sum() / tokens.documents.sum())
        forward += words * share * 2 * width * (run.model.d_model + n_words)
        return {
            "hidden": f"{share:.1%} of the tokens",
            "FLOPs a token": f"{forward:,.0f} forward, {3 * forward:,.0f} with backward",
        }

    def hidden(self, ids_N: Tensor, layout: Packed) -> Hidden:
        """Hide `mask_share` of the words, drawn by torch's generator; no token after the last text."""
        draws_N, special_N = torch.rand(ids_N.shape, device=ids_N.device), self.special_V[ids_N]
        special_N[layout.n_tokens :] = True
        n = max(1, round(self.config.mask_share * (layout.n_tokens - layout.n_documents * self.n_marks)))
        return hide(ids_N, choose_places(draws_N, special_N, n), self.mask)


def pretrain(run: Any, tokens: Tokens, labels: list[str]) -> Pretrain:
    """The objective of task=pretrain; `tokens` are the training rows."""
    assert tokens.vocabulary is not None, "tokens_in_pieces reads it"
    return Pretrain(run.pretrain, tokens.vocabulary)


def guesses(network: MaskedLM, batch: Batch, hidden: Hidden, accuracy: Metric) -> Tensor:
    """The loss of each hidden word `(P,)`, in single precision."""
    logits_PV = network(hidden.ids_N, batch.layout, batch.segments_N, hidden.places_P).float()
    if hidden.words_P.numel():
        accuracy.update((logits_PV.detach().argmax(-1) == hidden.words_P).float())
    return F.cross_entropy(logits_PV, hidden.words_P, reduction="none")
