"""Masked language modelling (Devlin et al., 2019, "BERT", section 3.1): which tokens are hidden, drawn anew in training
and always the same in texts that are held out, and the model that predicts them.

... tokens in a layout (N packed, or B L padded) . P hidden tokens . D d_model . E width of the word embeddings
V vocabulary
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import ModelConfig
from manyheads.layout import Layout
from manyheads.nn.assemble import assemble
from manyheads.nn.dropout import GOLDEN, mixed
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.init import initialise
from manyheads.nn.recurrent import Recurrent
from manyheads.nn.transformer import Encoder, make_norm

HELD_OUT_SHARE = 0.15  # hidden of texts that are held out, whatever training hides, so that figures can be compared
MOST_PLACES = 2**20  # of a text, as of data.max_length
BITS = 24  # of a draw


class Hidden(NamedTuple):
    """Ids as the model sees them, the places in them that it guesses, and what stood there."""

    ids_N: Tensor
    places_P: Tensor
    words_P: Tensor


def choose(draws_N: Tensor, barred_N: Tensor, n: int) -> Tensor:
    """The `n` places with the smallest draws, in order; of barred ones none, but where there are no others.

    How many there are is known to the host, so that no GPU is waited for.
    """
    draws_N = draws_N.masked_fill(barred_N, 2.0)
    return draws_N.topk(min(n, draws_N.numel()), largest=False, sorted=False).indices.sort().values


def choose_words(draws_N: Tensor, begins_N: Tensor, barred_N: Tensor, n: int) -> Tensor:
    """At least `n` places, in order, and with each of them all places of its word: a word has the draw of the token
    that begins it. The host waits for their number."""
    every_N = torch.arange(draws_N.numel(), device=draws_N.device)
    if not draws_N.numel():
        return every_N
    draws_N = draws_N[every_N.mul(begins_N).cummax(0).values].masked_fill(barred_N, 2.0)
    last = draws_N.topk(min(n, draws_N.numel()), largest=False).values.max()
    return (draws_N <= last).nonzero().squeeze(1)


def hide(ids_N: Tensor, places_P: Tensor, mask: int) -> Hidden:
    """`mask` stands at the places."""
    return Hidden(ids_N.index_fill(0, places_P, mask), places_P, ids_N[places_P])


def hide_mixed(ids_N: Tensor, places_P: Tensor, mask: int, words_W: Tensor, draws_P: Tensor) -> Hidden:
    """At 80 % of the places stands `mask`, at 10 % any of `words_W`; 10 % are left as they are. Draws are uniform."""
    others_P = words_W[torch.randint(words_W.numel(), places_P.shape, device=ids_N.device)]
    kept_P = ids_N[places_P]
    seen_P = torch.where(draws_P < 0.8, mask, torch.where(draws_P < 0.9, others_P, kept_P))
    return Hidden(ids_N.index_copy(0, places_P, seen_P), places_P, kept_P)


def settled_draws(rows_N: Tensor, positions_N: Tensor) -> Tensor:
    """Uniform draws that hang on the row and the position alone: the same in any batch, on any device."""
    bits_N = mixed((rows_N * MOST_PLACES + positions_N + 1) * GOLDEN)
    return (bits_N.bitwise_right_shift(64 - BITS) % 2**BITS).double() / 2**BITS


def hold_out(ids_N: Tensor, rows_N: Tensor, positions_N: Tensor, barred_N: Tensor, mask: int) -> Hidden:
    """`HELD_OUT_SHARE` of the tokens that are not barred."""
    is_chosen_N = (settled_draws(rows_N, positions_N) < HELD_OUT_SHARE) & ~barred_N
    return hide(ids_N, is_chosen_N.nonzero().squeeze(1), mask)


class WordHead(nn.Module):
    """Token vectors to a score for every word: one more layer, then the words' own vectors.

    The table of the words is that of the embeddings (Press and Wolf, 2017, "Using the Output Embedding to Improve
    Language Models"); only a bias a word is added.
    """

    def __init__(self, *, d_model: int, d_words: int, vocab_size: int, norm: nn.Module) -> None:
        super().__init__()
        self.project = nn.Linear(d_model, d_words)
        self.norm = norm
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, x_PD: Tensor, words_VE: Tensor) -> Tensor:
        """Logits `(P, V)`."""
        return F.linear(self.norm(F.gelu(self.project(x_PD))), words_VE, self.bias)


class MaskedLM(nn.Module):
    """Embeddings and encoder as of a classifier, by the same names, and the words in place of its classes."""

    def __init__(self, *, embeddings: Embeddings, encoder: Encoder | Recurrent, head: WordHead) -> None:
        super().__init__()
        self.embeddings, self.encoder = embeddings, encoder
        self.head = head

    def forward(self, ids: Tensor, layout: Layout, segments: Tensor | None, places_P: Tensor) -> Tensor:
        """Logits `(P, V)` of the words at `places_P`, counted in the flattened ids: the head sees these alone."""
        x = self.encoder(self.embeddings(ids, layout, segments), layout)
        return self.head(x.flatten(0, -2)[places_P], self.embeddings.words.weight)


def assemble_masked(model: ModelConfig, *, vocab_size: int, max_length: int, n_segments: int = 0) -> MaskedLM:
    """Build what `model` describes up to its pooling, as `assemble` does: embeddings and encoder are the same."""
    classifier = assemble(model, vocab_size=vocab_size, n_classes=1, max_length=max_length, n_segments=n_segments)
    words = classifier.embeddings.words
    head = WordHead(
        d_model=model.d_model,
        d_words=words.embedding_dim,
        vocab_size=vocab_size,
        norm=make_norm(model.norm.name, words.embedding_dim, model.norm_eps),
    )
    initialise(head)
    return MaskedLM(embeddings=classifier.embeddings, encoder=classifier.encoder, head=head)
