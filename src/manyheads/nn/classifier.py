"""The whole classifier: embeddings -> encoder -> pooling -> logits.

A pooling makes one vector of the token vectors of a document. How two texts are read apart is in pairs.py.

... tokens in a layout (N packed, or B L padded) . B documents, or pairs of texts . L positions . D d_model . C classes
"""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.layout import Layout, Packed, Padded, as_layout
from manyheads.nn.attention import softmax
from manyheads.nn.dropout import Dropout
from manyheads.nn.embeddings import Embeddings, occurs_in_other
from manyheads.nn.pairs import Cross, split_pairs, to_the_left
from manyheads.nn.parts import make_block


class OwnNetwork(nn.Module):
    """A user's module in place of a `Classifier`.

    Args:
        module: `module(ids, layout)` returns logits `(B, C)`.
        n_words: size of the vocabulary; ids are below it.
    """

    def __init__(self, module: nn.Module, n_words: int) -> None:
        super().__init__()
        self.module = module
        self.words = SimpleNamespace(num_embeddings=n_words)

    def forward(self, ids: Tensor, layout: Layout | None = None, segments: Tensor | None = None) -> Tensor:
        """Logits `(B, C)`; a long text that is read as several documents has their mean. Segments are ignored."""
        layout = as_layout(ids, layout, n_axes=2)
        return layout.pooled(self.module(ids, layout))


class Classifier(nn.Module):
    """Embeddings -> encoder -> pooling -> logits.

    With `cross` a document is a pair of texts. Each text is encoded alone, then attends to the other one in the layers
    of `cross`, if it has any, and the head sees how the two pooled vectors compare.
    """

    def __init__(
        self,
        *,
        embeddings: Embeddings,
        encoder: nn.Module,
        pooling: nn.Module,
        dropout: float,
        head: nn.Linear,
        cross: Cross | None = None,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.encoder = encoder
        self.cross = cross
        self.pooling = pooling
        self.dropout = Dropout(dropout)
        self.head = head

    @property
    def words(self) -> nn.Embedding:
        """The table of word vectors."""
        return self.embeddings.words

    def forward(self, ids: Tensor, layout: Layout | Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Logits `(B, C)`. Those of a document are the same alone, packed with others, or padded.

        Args:
            ids: a padded batch `(B, L)`, or ids `(...)` in `layout`.
            layout: where the documents are. For a padded batch also a boolean mask `(B, L)`, true on real tokens, with
                padding on either side; or None if all are real.
            segments: `(...)`, for pairs of texts: 0 on tokens of the first, 1 on those of the second.

        Returns:
            Logits `(B, C)`; a long text that is read as several documents has their mean.
        """
        mask, layout = layout, as_layout(ids, layout, n_axes=2)
        if isinstance(mask, Tensor):  # some tokenizers pad on the left; positions count from the first real token
            if segments is not None:
                segments, _ = to_the_left(segments, mask)
            ids, mask = to_the_left(ids, mask)
            layout = Padded(mask)
        features = self.dropout(self.read(ids, layout, segments))
        return layout.pooled(self.head(features))

    def read(self, ids: Tensor, layout: Layout, segments: Tensor | None = None, words: Tensor | None = None) -> Tensor:
        """The vector of each document that the head sees: `(B, D)`, or with `cross` that of `cross.compare`.

        `words` `(..., d_embedding)` replace the word vectors of the ids.
        """
        if self.cross is None:
            x, layout = layout.unfilled(self.encode(ids, layout, segments, words))  # poolings know of no tail
            return self.pooling(x, layout)
        assert segments is not None, "two texts that are read apart need segments"
        matched, surplus = None, self.cross.surplus(segments)
        if self.embeddings.matches is not None:  # found before the texts are split, while they are in one document
            matched, _ = split_pairs(occurs_in_other(ids, layout, segments), layout, segments, surplus)
        if words is not None:
            words, _ = split_pairs(words, layout, segments, surplus)
        ids, pairs = split_pairs(ids, layout, segments, surplus)
        x = self.embeddings(ids, pairs.layout, matched=matched, words=words)
        x = self.encoder(x, pairs.layout)
        x = self.cross(x, pairs)
        return self.cross.compare(self.pooling(x, pairs.layout))

    def encode(
        self, ids: Tensor, layout: Layout, segments: Tensor | None = None, words: Tensor | None = None
    ) -> Tensor:
        """The token vectors after the last layer: `(..., D)`."""
        x = self.embeddings(ids, layout, segments, words=words)
        return self.encoder(x, layout)


class Pooling(nn.Module):
    """A pooling that is a function of tokens and layout, such as `mean`, `maximum` or `first`; an empty document has
    zeros."""

    def __init__(self, pool: str | Callable[[Tensor, Layout], Tensor]) -> None:
        super().__init__()
        self.pool = make_block("pooling", pool) if isinstance(pool, str) else pool

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)` to documents `(B, D)`."""
        return self.pool(x, layout)


class AttentionPooling(nn.Module):
    """A mean of the tokens with learned weights: Yang et al. (2016), "Hierarchical Attention Networks", section 2.2."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.score = nn.Linear(d_model, 1, bias=False)  # a bias would cancel in the softmax

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)` to documents `(B, D)`."""
        scores_B1L = layout.grid(self.score(x)).transpose(1, 2)
        weights_B1L = softmax(scores_B1L, layout.keep_BL[:, None])
        x_BLD = zero_padding(layout.grid(x), layout.keep_BL)  # undefined so far: 0 · NaN would be NaN
        return (weights_B1L @ x_BLD).squeeze(1)


class Pooler(nn.Module):
    """norm(f(W p + b)) of a pooled vector p; with tanh and the first token, the pooler of BERT's published code."""

    def __init__(self, pool: nn.Module, *, d_model: int, activation: str, norm: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.pool = pool
        self.dense = nn.Linear(d_model, d_model, bias=bias)
        self.activate = {"tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu}[activation]
        self.norm = norm

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)` to documents `(B, D)`."""
        pooled_BD = self.pool(x, layout)
        pooled_BD = self.norm(self.activate(self.dense(pooled_BD)))
        return pooled_BD.masked_fill(layout.lengths_B[:, None] == 0, 0.0)


def mean(x: Tensor, layout: Layout) -> Tensor:
    """The mean of each document's tokens: `(..., D)` to `(B, D)`."""
    total_BD = zero_padding(layout.grid(x), layout.keep_BL).sum(1)
    return total_BD / layout.lengths_B[:, None].clamp(min=1)


def maximum(x: Tensor, layout: Layout) -> Tensor:
    """The maximum of each dimension over a document's tokens: `(..., D)` to `(B, D)`."""
    x_BLD, keep_BL = layout.grid(x), layout.keep_BL
    if x_BLD.size(1) == 0:  # no tokens at all, of which torch has no maximum
        return x_BLD.sum(1)
    lowest = torch.finfo(x_BLD.dtype).min
    highest_BD = x_BLD.masked_fill(~keep_BL[..., None], lowest).amax(1)
    return highest_BD.masked_fill(~keep_BL.any(1, keepdim=True), 0.0)


def first(x: Tensor, layout: Layout) -> Tensor:
    """The first token of each document, such as [CLS]: `(..., D)` to `(B, D)`."""
    if not isinstance(layout, Packed) or not x.size(0):
        return zero_padding(layout.grid(x)[:, :1], layout.keep_BL[:, :1]).sum(1)
    first_B = layout.offsets[:-1].clamp(max=x.size(0) - 1)  # the offset of an empty last document is N
    return x.index_select(0, first_B).masked_fill(layout.lengths_B[:, None] == 0, 0.0)


def zero_padding(x_BLD: Tensor, keep_BL: Tensor) -> Tensor:
    """Tokens `(B, L, D)` with zeros where `keep_BL` is false."""
    return x_BLD.masked_fill(~keep_BL[..., None], 0.0)
