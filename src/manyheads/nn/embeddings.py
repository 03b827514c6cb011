"""Token ids to token vectors: word, order and segment added up (Devlin et al., 2019, "BERT", figure 2).

... tokens in a layout (N packed, or B L padded) . D d_model
"""

import math

from torch import Tensor, nn

from manyheads.layout import Layout
from manyheads.nn.bigrams import Bigrams
from manyheads.nn.dropout import Dropout
from manyheads.nn.positions import LearnedPositions, SinusoidalPositions


class Embeddings(nn.Module):
    """√d_model (word + pair of neighbours, if any) + position + segment, then norm and dropout.

    `dropout_tokens` silences whole words: their position and segment stay.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        n_bigrams: int = 0,
        positions: SinusoidalPositions | LearnedPositions | None,
        n_segments: int,
        norm: nn.Module,
        dropout: float,
        dropout_tokens: float,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, d_model)
        self.bigrams = Bigrams(n_rows=n_bigrams, d_model=d_model) if n_bigrams else None
        self.positions = positions
        self.segments = nn.Embedding(n_segments, d_model) if n_segments else None
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.dropout_tokens = Dropout(dropout_tokens)
        self.scale = math.sqrt(d_model)

    def forward(self, ids: Tensor, layout: Layout, segments: Tensor | None = None) -> Tensor:
        """Ids `(...)`, and segments `(...)` if the model has them, to vectors `(..., D)`; left out, all are 0."""
        x = self.words(ids)
        if self.bigrams is not None:
            x = x + self.bigrams(ids, layout)
        x = x * self.scale
        if self.training and self.dropout_tokens.p > 0:
            x = x * self.dropout_tokens(x.new_ones(*ids.shape, 1))
        if self.positions is not None:
            x = x + self.positions(layout.positions)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        return self.dropout(self.norm(x))
