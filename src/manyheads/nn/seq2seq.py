"""One text to another: an encoder reads, a decoder writes. Sutskever et al. (2014); Vaswani et al. (2017), section 3.

Both sides are Transformers, or both recurrent with attention between them, by `model.encoder`.

... tokens in a layout (N packed, or B L padded) . B documents (or beams) . D d_model . V vocabulary
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from manyheads.config import ModelConfig, Placement
from manyheads.layout import Layout, Padded
from manyheads.nn.assemble import (
    cross_attention,
    embeddings,
    encoder,
    feed_forward,
    norm,
    recurrent,
    residual,
    self_attention,
    state_attention,
)
from manyheads.nn.decoder import Decoder, DecoderLayer, DecoderState
from manyheads.nn.dropout import Dropout
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.encoder import Encoder
from manyheads.nn.recurrent import Recurrent, RecurrentDecoder, RecurrentState
from manyheads.nn.weights import initialise

State = DecoderState | RecurrentState


class Seq2Seq(nn.Module):
    """Source ids and the target so far to logits of what the target says next."""

    def __init__(
        self,
        *,
        source: Embeddings,
        encoder: Encoder | Recurrent,
        target: Embeddings,
        decoder: Decoder | RecurrentDecoder,
        dropout: float,
        head: nn.Linear,
    ) -> None:
        super().__init__()
        self.source, self.encoder = source, encoder
        self.target, self.decoder = target, decoder
        self.dropout = Dropout(dropout)
        self.head = head

    def forward(self, source_ids: Tensor, source_layout: Layout, target_ids: Tensor, target_layout: Layout) -> Tensor:
        """Logits `(..., V)` of the token behind each target token `(...)`, in the layout of the target.

        A target begins with a token that stands for the start. Later tokens of it never change earlier logits.
        """
        x = self.target(target_ids, target_layout)
        x = self.decoder(x, target_layout, self.encode(source_ids, source_layout), source_layout)
        return self.head(self.dropout(x))

    def encode(self, source_ids: Tensor, source_layout: Layout) -> Tensor:
        """The memory that the decoder attends to: `(..., D)` in the layout of the source."""
        return self.encoder(self.source(source_ids, source_layout), source_layout)

    def start(self, source_ids: Tensor, source_layout: Layout) -> State:
        """Read the source; `step` is then given the start token of every document."""
        return self.decoder.start(self.encode(source_ids, source_layout), source_layout)

    def step(self, ids_B: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits `(B, V)` of the token behind `ids_B`, the same as in `forward`, and the state that knows these ids."""
        here = Padded(torch.ones_like(ids_B[:, None], dtype=torch.bool), first=state.position)
        x_B1D = self.target(ids_B[:, None], here)
        x_B1D, state = self.decoder.step(x_B1D, here, state)  # type: ignore[arg-type]  # its own, from `start`
        return self.head(self.dropout(x_B1D.squeeze(1))), state


def assemble_seq2seq(model: ModelConfig, *, vocab_size: int, max_length: int) -> Seq2Seq:
    """Build the model that `model` describes, `n_layers` on either side, freshly initialised from torch's generator.

    Pairs of neighbours enter on the side of the source: the target is read one token at a time.

    Args:
        vocab_size: entries of the one vocabulary of both texts.
        max_length: most tokens of a source, and most of a target.
    """
    model = replace(model, matches=False)
    seq2seq = Seq2Seq(
        source=embeddings(model, vocab_size=vocab_size, max_length=max_length),
        encoder=encoder(model, max_length),
        target=embeddings(model, vocab_size=vocab_size, max_length=max_length),
        decoder=decoder(model, max_length),
        dropout=model.dropout_at("classifier"),
        head=nn.Linear(model.d_model, vocab_size),
    )
    initialise(seq2seq, zero_output=model.zero_output)
    return seq2seq


def decoder(model: ModelConfig, max_length: int) -> Decoder | RecurrentDecoder:
    if model.is_recurrent:
        return RecurrentDecoder(
            recurrent(model, bidirectional=False),
            attention=state_attention(model),
            bidirectional_memory=model.bidirectional,
        )
    return Decoder(
        [
            DecoderLayer(
                attention=residual(model, self_attention(model, layer, max_length, causal=True)),
                cross_attention=residual(model, cross_attention(model, layer)),
                feed_forward=residual(model, feed_forward(model)),
            )
            for layer in range(model.n_layers)
        ],
        norm=norm(model, Placement.pre),
    )
