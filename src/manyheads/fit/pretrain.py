"""Texts with words hidden: what a guess at one loses, and the figures of a split.

B documents . N tokens . P hidden ones . V vocabulary
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric

from manyheads.config import Hide, PretrainConfig
from manyheads.data.batches import Batch
from manyheads.data.tokens import Tokens
from manyheads.data.vocabulary import Vocabulary
from manyheads.fit.metrics import make_shares
from manyheads.layout import Packed
from manyheads.nn.masked import MaskedLM
from manyheads.nn.masks import Hidden, choose, choose_words, hide, hide_mixed, hold_out


class Pretrain(nn.Module):
    """Cross-entropy of hidden words. In training they are drawn anew for each batch; of texts that are held out they
    are always the same, and the mask stands for all of them, however training hides them: so runs can be compared.
    """

    special_V: Tensor
    begins_V: Tensor
    words_W: Tensor

    def __init__(self, config: PretrainConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.mask, self.n_marks = config, vocabulary.mask, vocabulary.n_marks
        self.register_buffer("special_V", vocabulary.special_V, persistent=False)
        self.register_buffer("begins_V", vocabulary.begins_V, persistent=False)
        self.register_buffer("words_W", (~vocabulary.special_V).nonzero().squeeze(1), persistent=False)
        self.train_metrics = make_shares("train_", ["masked_accuracy"])
        self.validation_metrics = make_shares("validation_", ["masked_accuracy"])

    def learn(self, network: MaskedLM, batch: Batch) -> Tensor:
        """The loss of each hidden word `(P,)`; how it is guessed counts in the training figures."""
        hidden = self.hidden(batch.ids_N, batch.layout)
        return guesses(network, batch, hidden, self.train_metrics["masked_accuracy"])

    def check(self, network: MaskedLM, batch: Batch) -> Tensor:
        """The loss of each hidden word `(P,)`; how it is guessed counts in the validation figures."""
        ids_N, layout = batch.ids_N, batch.layout
        rows_N = batch.rows_B.repeat_interleave(layout.lengths_B, output_size=layout.n_tokens)
        hidden = hold_out(ids_N, rows_N, layout.positions, self.special_V[ids_N], self.mask)
        return guesses(network, batch, hidden, self.validation_metrics["masked_accuracy"])

    def hidden(self, ids_N: Tensor, layout: Packed) -> Hidden:
        """Hide `mask_share` of the words, by torch's generator; none of what stands behind the last text."""
        draws_N, special_N = torch.rand(ids_N.shape, device=ids_N.device), self.special_V[ids_N]
        special_N[layout.n_tokens :] = True
        n = max(1, round(self.config.mask_share * (layout.n_tokens - layout.n_documents * self.n_marks)))
        if self.config.whole_words:
            places_P = choose_words(draws_N, self.begins_V[ids_N], special_N, n)
        else:
            places_P = choose(draws_N, special_N, n)
        if self.config.hide is Hide.mask:
            return hide(ids_N, places_P, self.mask)
        return hide_mixed(ids_N, places_P, self.mask, self.words_W, torch.rand(places_P.shape, device=ids_N.device))


def check_held_out(tokens: Tokens) -> None:
    """Words must be hidden in the validation `tokens`, or nothing is judged.

    Raises:
        ValueError: there are too few.
    """
    ids_N, lengths = tokens.ids_N.long(), tokens.offsets.diff()
    rows_N = torch.arange(len(tokens)).repeat_interleave(lengths)
    positions_N = torch.arange(ids_N.numel()) - tokens.offsets[:-1].repeat_interleave(lengths)
    vocabulary: Vocabulary = tokens.vocabulary
    if not hold_out(ids_N, rows_N, positions_N, vocabulary.special_V[ids_N], vocabulary.mask).words_P.numel():
        raise ValueError(
            f"the validation texts hold {ids_N.numel():,} tokens, marks included, too few to hide one and judge by it: "
            "give more texts, or a larger part of them by data.validation_share"
        )


def guesses(network: MaskedLM, batch: Batch, hidden: Hidden, accuracy: Metric) -> Tensor:
    """The loss of each hidden word `(P,)`, in single precision."""
    logits_PV = network(hidden.ids_N, batch.layout, batch.segments_N, hidden.places_P).float()
    if hidden.words_P.numel():
        accuracy.update((logits_PV.detach().argmax(-1) == hidden.words_P).float())
    return F.cross_entropy(logits_PV, hidden.words_P, reduction="none")
