"""Models whose answers are tokens: masked language models, and one text to another.

Masked language modelling (Devlin et al., 2019, "BERT", section 3.1): which tokens are hidden, drawn anew in training
and always the same in texts that are held out, and the model that predicts them.

One text to another: an encoder reads, a decoder writes (Sutskever et al., 2014; Vaswani et al., 2017, section 3).
Both are Transformers, or both recurrent with attention between them, by `model.encoder`. A greedy search works
with any model that starts from its source and then steps: ids of the last tokens in, logits of the next out. It should
be in eval mode. Ties are broken towards the lower id: the same model gives the same answer.

... tokens in a layout (N packed, or B L padded) . P hidden tokens . B documents . D d_model . E width of the word
embeddings . R rows, of documents whose answer has not ended . V vocabulary
"""

from dataclasses import replace
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import manyheads.plugin as plugin
from manyheads.config import ModelConfig, Placement
from manyheads.errors import UserError
from manyheads.layout import Layout, Padded
from manyheads.nn.assemble import (
    assemble,
    attention_block,
    embeddings,
    encoder,
    feed_forward,
    initialise,
    norm,
    residual,
)
from manyheads.nn.dropout import GOLDEN, Dropout, mixed
from manyheads.nn.embeddings import Embeddings, occurs_in_other
from manyheads.nn.parts import make_block
from manyheads.plugins.language.decoder import Decoder, DecoderLayer

HELD_OUT_SHARE = 0.15  # of held-out texts is hidden, whatever training hides, so that figures can be compared
MOST_PLACES = 2**20  # of a text, the limit of data.max_length
BITS = 24  # of a draw


class Hidden(NamedTuple):
    """Ids as the model sees them, the places in them that it predicts, and the ids that were there."""

    ids_N: Tensor
    places_P: Tensor
    words_P: Tensor


def choose_places(draws_N: Tensor, barred_N: Tensor, n: int) -> Tensor:
    """The `n` places with the smallest draws, in order; barred ones only where there are no others.

    A fixed number of places, in place of a threshold for the draws, means that the host need not wait for the GPU.
    """
    draws_N = draws_N.masked_fill(barred_N, 2.0)
    return draws_N.topk(min(n, draws_N.numel()), largest=False, sorted=False).indices.sort().values


def hide(ids_N: Tensor, places_P: Tensor, mask: int) -> Hidden:
    """Replace the ids at the places by `mask`."""
    return Hidden(ids_N.index_fill(0, places_P, mask), places_P, ids_N[places_P])


def settled_draws(rows_N: Tensor, positions_N: Tensor) -> Tensor:
    """Uniform draws that depend on row and position alone: the same in any batch, on any device."""
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
    """Embeddings and encoder as in a classifier, under the same names, and a word head instead of its classes."""

    masks_match = False  # two hidden words count as the same, as in models trained before

    def __init__(self, *, embeddings: Embeddings, encoder: nn.Module, head: WordHead) -> None:
        super().__init__()
        self.embeddings, self.encoder = embeddings, encoder
        self.head = head

    @property
    def words(self) -> nn.Embedding:
        """The table of the words."""
        return self.embeddings.words

    def forward(self, ids: Tensor, layout: Layout, segments: Tensor | None, places_P: Tensor) -> Tensor:
        """Logits `(P, V)` of the words at `places_P`, indices into the flattened ids. Only these reach the head. Hidden
        words match no word of the other text, although two masks are the same token."""
        matched = None
        if self.embeddings.matches is not None and segments is not None and not self.masks_match:
            matched = occurs_in_other(ids, layout, segments)
            matched = matched.flatten().index_fill(0, places_P, 0).view_as(matched)
        x = self.encoder(self.embeddings(ids, layout, segments, matched=matched), layout)
        return self.head(x.flatten(0, -2)[places_P], self.embeddings.words.weight)


def assemble_masked(
    model: ModelConfig, *, vocab_size: int, max_length: int, n_segments: int = 0, n_classes: int = 0
) -> MaskedLM:
    """Build what `model` describes up to its pooling, as `assemble` does: embeddings and encoder are the same."""
    classifier = assemble(model, vocab_size=vocab_size, n_classes=1, max_length=max_length, n_segments=n_segments)
    words = classifier.embeddings.words
    head = WordHead(
        d_model=model.d_model,
        d_words=words.embedding_dim,
        vocab_size=vocab_size,
        norm=make_block("norm", model.norm, model.options("norm"), d_model=words.embedding_dim, eps=model.norm_eps),
    )
    initialise(head)
    return MaskedLM(embeddings=classifier.embeddings, encoder=classifier.encoder, head=head)


class StepState(Protocol):
    """What a decoder remembers of each row between two steps."""

    def take(self, rows: Tensor) -> Self:
        """The state of `rows`, which may repeat, drop and reorder."""
        ...


Memory = TypeVar("Memory", bound=StepState)


class Stepwise(Protocol[Memory]):
    """A model that `greedy` can ask."""

    def start(self, source_ids: Tensor, source_layout: Layout) -> Memory: ...

    def step(self, ids_B: Tensor, state: Memory) -> tuple[Tensor, Memory]: ...


@torch.inference_mode()
def greedy(
    model: Stepwise[Memory], source_ids: Tensor, source_layout: Layout, *, start: int, end: int, max_length: int
) -> list[list[int]]:
    """The likeliest token at every step.

    Args:
        start, end: ids of the tokens before and after an answer; the answers hold neither.
        max_length: steps after which an answer without an end is cut.

    Returns:
        One answer a document. Documents whose answer has ended leave the batch.
    """
    n_documents = source_layout.n_documents
    answers: list[list[int]] = [[] for _ in range(n_documents)]
    state = model.start(source_ids, source_layout)
    ids = source_ids.new_full((n_documents,), start)
    documents = list(range(n_documents))
    for _ in range(max_length):
        if not documents:
            break
        logits_RV, state = model.step(ids, state)
        ids = logits_RV.argmax(-1)
        tokens = ids.tolist()
        unfinished = [row for row, token in enumerate(tokens) if token != end]
        for row in unfinished:
            answers[documents[row]].append(tokens[row])
        if len(unfinished) < len(documents):
            rows = torch.tensor(unfinished, dtype=torch.int64, device=ids.device)
            ids, state = ids[rows], state.take(rows)
            documents = [documents[row] for row in unfinished]
    return answers


class Seq2Seq(nn.Module):
    """Source ids and the target so far to logits of the target's next token."""

    def __init__(
        self,
        *,
        source: Embeddings,
        encoder: nn.Module,
        target: Embeddings,
        decoder: Any,
        dropout: float,
        head: nn.Linear,
    ) -> None:
        super().__init__()
        self.source, self.encoder = source, encoder
        self.target, self.decoder = target, decoder
        self.dropout = Dropout(dropout)
        self.head = head

    @property
    def words(self) -> nn.Embedding:
        """The table of the words of texts."""
        return self.source.words

    def forward(self, source_ids: Tensor, source_layout: Layout, target_ids: Tensor, target_layout: Layout) -> Tensor:
        """Logits `(..., V)` of the token after each target token `(...)`, in the layout of the target.

        A target begins with a start token. Later tokens of it never change earlier logits.
        """
        x = self.target(target_ids, target_layout)
        x = self.decoder(x, target_layout, self.encode(source_ids, source_layout), source_layout)
        return self.head(self.dropout(x))

    def encode(self, source_ids: Tensor, source_layout: Layout) -> Tensor:
        """The memory that the decoder attends to: `(..., D)` in the layout of the source."""
        return self.encoder(self.source(source_ids, source_layout), source_layout)

    def start(self, source_ids: Tensor, source_layout: Layout) -> Any:
        """Read the source; `step` is then given the start token of every document."""
        return self.decoder.start(self.encode(source_ids, source_layout), source_layout)

    def step(self, ids_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits `(B, V)` of the token after `ids_B`, the same as in `forward`, and the state after these ids."""
        here = Padded(torch.ones_like(ids_B[:, None], dtype=torch.bool), first=state.position)
        x_B1D = self.target(ids_B[:, None], here)
        x_B1D, state = self.decoder.step(x_B1D, here, state)  # type: ignore[arg-type]  # its own, from `start`
        return self.head(self.dropout(x_B1D.squeeze(1))), state


def assemble_seq2seq(
    model: ModelConfig, *, vocab_size: int, max_length: int, n_segments: int = 0, n_classes: int = 0
) -> Seq2Seq:
    """Build the model that `model` describes, `n_layers` on either side, freshly initialised from torch's generator.

    Args:
        vocab_size: entries of the one vocabulary of both texts.
        max_length: most tokens of a source, and most of a target.
    """
    model = replace(model, matches=False)
    seq2seq = Seq2Seq(
        source=embeddings(model, vocab_size=vocab_size, max_length=max_length),
        encoder=encoder(model, max_length),
        target=embeddings(model, vocab_size=vocab_size, max_length=max_length),
        decoder=make_decoder(model, max_length),
        dropout=model.dropout_at("classifier"),
        head=nn.Linear(model.d_model, vocab_size),
    )
    initialise(seq2seq, zero_output=model.zero_output)
    return seq2seq


def make_decoder(model: ModelConfig, max_length: int) -> nn.Module:
    """The decoder that goes with the encoder of `model`: of Transformer layers, or the one its fact `decoder` names.

    Raises:
        UserError: the encoder has none.
    """
    if not model.has_heads:
        own = model.facts("encoder").get("decoder")
        if own is None:
            raise UserError(f"model.encoder={model.encoder} has no decoder, which task=seq2seq needs: choose another")
        return plugin.resolve(own)(model)
    layers = []
    for layer in range(model.n_layers):
        layers.append(
            DecoderLayer(
                attention=residual(model, attention_block(model, layer, max_length=max_length, causal=True)),
                cross_attention=residual(model, attention_block(model, layer)),
                feed_forward=residual(model, feed_forward(model)),
            )
        )
    return Decoder(layers, norm=norm(model, Placement.pre))
