"""Token ids to token vectors: word, order and segment added up (Devlin et al., 2019, "BERT", figure 2).

... tokens in a layout (N packed, or B L padded) . D d_model
"""

import math

from torch import Tensor, nn

from manyheads.layout import Layout
from manyheads.nn.dropout import Dropout
from manyheads.nn.matches import occurs_in_other, segment_rows
from manyheads.nn.positions import LearnedPositions, SinusoidalPositions


class Embeddings(nn.Module):
    """√d_embedding word + position + segment + match, then norm and dropout.

    Tables narrower than d_model are widened by one projection behind that: Clark et al. (2020), "ELECTRA",
    section 3.1, after Lan et al. (2020), "ALBERT". `dropout_tokens` silences whole words: their position and segment
    stay.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        positions: SinusoidalPositions | LearnedPositions | None,
        n_segments: int,
        norm: nn.Module,
        dropout: float,
        dropout_tokens: float,
        d_embedding: int = 0,
        matches: bool = False,
    ) -> None:
        super().__init__()
        width = d_embedding or d_model
        self.words = nn.Embedding(vocab_size, width)
        self.positions = positions
        self.segments = nn.Embedding(n_segments, width) if n_segments else None
        self.matches = nn.Embedding(2, width) if matches else None
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.dropout_tokens = Dropout(dropout_tokens)
        self.widen = nn.Linear(width, d_model) if width != d_model else None
        self.scale = math.sqrt(width)

    def forward(
        self, ids: Tensor, layout: Layout, segments: Tensor | None = None, matched: Tensor | None = None
    ) -> Tensor:
        """Ids `(...)`, and segments `(...)` if the model has them, to vectors `(..., D)`; left out, all are 0.

        `matched` `(...)` is 1 where a token occurs in the other text of its pair; found by the segments if left out.
        """
        x = self.words(ids) * self.scale
        if self.training and self.dropout_tokens.p > 0:
            x = x * self.dropout_tokens(x.new_ones(*ids.shape, 1))
        if self.positions is not None:
            x = x + self.positions(layout.positions)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segment_rows(segments)))
        if self.matches is not None:
            if matched is None and segments is not None:
                matched = occurs_in_other(ids, layout, segments)
            x = x + (self.matches.weight[0] if matched is None else self.matches(matched))
        x = self.dropout(self.norm(x))
        return x if self.widen is None else self.widen(x)
