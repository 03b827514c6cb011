"""The whole classifier: ids in, logits out.

... tokens in a layout (N packed, or B L padded) . B documents . D d_model . C classes
"""

from torch import Tensor, nn

from manyheads.layout import Layout
from manyheads.nn.dropout import Dropout
from manyheads.nn.embeddings import Embeddings
from manyheads.nn.encoder import Encoder
from manyheads.nn.matches import occurs_in_other
from manyheads.nn.pair import Cross, compare, part_pairs
from manyheads.nn.recurrent import Recurrent


class Classifier(nn.Module):
    """Embeddings -> encoder -> pooling -> logits.

    With `cross` a document is a pair of texts. Each is read by itself, then by `cross` beside the other; what is
    compared are the two pooled vectors.
    """

    def __init__(
        self,
        *,
        embeddings: Embeddings,
        encoder: Encoder | Recurrent,
        pooling: nn.Module,
        dropout: float,
        head: nn.Linear,
        cross: Cross | None = None,
    ) -> None:
        super().__init__()
        self.embeddings, self.encoder, self.cross, self.pooling = embeddings, encoder, cross, pooling
        self.dropout = Dropout(dropout)
        self.head = head

    def forward(self, ids: Tensor, layout: Layout, segments: Tensor | None = None) -> Tensor:
        """Logits `(B, C)` of ids `(...)`: the same whether a document is alone, packed or padded.

        Of a text that is read as several documents they are the mean over these.
        """
        return layout.pooled(self.head(self.dropout(self.read(ids, layout, segments))))

    def read(self, ids: Tensor, layout: Layout, segments: Tensor | None = None) -> Tensor:
        """One vector a document, which the head sees: `(B, D)`, or of a pair read apart `(B, 4D)`."""
        if self.cross is None:
            return self.pooling(self.encode(ids, layout, segments), layout)
        assert segments is not None, "a model that reads two texts apart is built for pairs"
        matched = None
        if self.embeddings.matches is not None:
            matched, _ = part_pairs(occurs_in_other(ids, layout, segments), layout, segments)
        ids, pairs = part_pairs(ids, layout, segments)
        x = self.encoder(self.embeddings(ids, pairs.layout, matched=matched), pairs.layout)
        return compare(self.pooling(self.cross(x, pairs), pairs.layout))

    def encode(self, ids: Tensor, layout: Layout, segments: Tensor | None = None) -> Tensor:
        """The token vectors above the last layer: `(..., D)`."""
        return self.encoder(self.embeddings(ids, layout, segments), layout)
