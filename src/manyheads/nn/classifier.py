"""The whole classifier: ids in, logits out.

... tokens in a layout (N packed, or B L padded) . B documents . D d_model . C classes
"""

from torch import Tensor, nn

from manyheads.layout import Layout
from manyheads.nn.dropout import Dropout
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.encoder import Encoder


class Classifier(nn.Module):
    """Embeddings -> encoder -> pooling -> logits."""

    def __init__(
        self, *, embeddings: Embeddings, encoder: Encoder, pooling: nn.Module, dropout: float, head: nn.Linear
    ) -> None:
        super().__init__()
        self.embeddings, self.encoder, self.pooling = embeddings, encoder, pooling
        self.dropout = Dropout(dropout)
        self.head = head

    def forward(self, ids: Tensor, layout: Layout, segments: Tensor | None = None) -> Tensor:
        """Logits `(B, C)` of ids `(...)`: the same whether a document is alone, packed or padded."""
        return self.head(self.dropout(self.pooling(self.encode(ids, layout, segments), layout)))

    def encode(self, ids: Tensor, layout: Layout, segments: Tensor | None = None) -> Tensor:
        """The token vectors above the last layer: `(..., D)`."""
        return self.encoder(self.embeddings(ids, layout, segments), layout)
