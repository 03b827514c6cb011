"""The whole classifier: embeddings -> encoder -> pooling -> logits.

A pooling makes one vector of the token vectors of a document. With `model.pair=cross` the two texts of a pair are
encoded separately, then attend to each other in cross layers.

... tokens in a layout (N packed, or B L padded) . B documents, or pairs of texts . L positions . D d_model . C classes
P tokens of the single texts of all pairs . 2B single texts: all first ones, then all second ones
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.layout import Layout, Packed, Padded, as_layout
from manyheads.nn.attention import softmax
from manyheads.nn.dropout import Dropout
from manyheads.nn.embeddings import Embeddings, in_second, occurs_in_other
from manyheads.nn.parts import make_block
from manyheads.nn.transformer import Residual


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

    With `cross` a document is a pair of texts. Each text is encoded alone, then attends to the other one in `cross`,
    and the head sees how the two pooled vectors compare.
    """

    def __init__(
        self,
        *,
        embeddings: Embeddings,
        encoder: nn.Module,
        pooling: nn.Module,
        dropout: float,
        head: nn.Linear,
        cross: "Cross | None" = None,
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
                segments, _ = _to_the_left(segments, mask)
            ids, mask = _to_the_left(ids, mask)
            layout = Padded(mask)
        features = self.dropout(self.read(ids, layout, segments))
        return layout.pooled(self.head(features))

    def read(self, ids: Tensor, layout: Layout, segments: Tensor | None = None, words: Tensor | None = None) -> Tensor:
        """The vector of each document that the head sees: `(B, D)`, or `(B, 4D)` with `cross`.

        `words` `(..., d_embedding)` replace the word vectors of the ids.
        """
        if self.cross is None:
            x = self.encode(ids, layout, segments, words)
            return self.pooling(x, layout)
        assert segments is not None, "model.pair=cross needs pairs of texts"
        matched = None
        if self.embeddings.matches is not None:  # found before the texts are split, while they are in one document
            matched, _ = split_pairs(occurs_in_other(ids, layout, segments), layout, segments)
        if words is not None:
            words, _ = split_pairs(words, layout, segments)
        ids, pairs = split_pairs(ids, layout, segments)
        x = self.embeddings(ids, pairs.layout, matched=matched, words=words)
        x = self.encoder(x, pairs.layout)
        x = self.cross(x, pairs)
        return pair_features(self.pooling(x, pairs.layout))

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


@dataclass(frozen=True, eq=False)
class Pairs:
    """The 2B texts of B pairs as documents of their own: all first texts, then all second ones.

    Attributes:
        layout: of these documents.
        other: the layout with the two halves exchanged: its document i is the partner of document i.
        n_first: where the second texts begin: a number of tokens if packed, of documents if padded.
    """

    layout: Layout
    other: Layout
    n_first: int

    def exchange(self, x_PD: Tensor) -> Tensor:
        """Tokens in `layout` to tokens in `other`: the two halves exchanged."""
        return torch.cat([x_PD[self.n_first :], x_PD[: self.n_first]])


def split_pairs(ids_N: Tensor, layout: Layout, segments_N: Tensor) -> tuple[Tensor, Pairs]:
    """Split joined pairs, [CLS] first [SEP] second [SEP], into single texts.

    The second text gets a copy of [CLS]: so both begin with it, and a text is read alike on either side. Positions
    count from 0 in each. The lengths are read back from the device, which makes the host wait once a batch.

    Returns:
        Ids of the 2B texts, and their layout.
    """
    is_second_N = in_second(segments_N) > 0
    of_first_N = ~is_second_N
    of_second_N = is_second_N | (layout.positions == 0)  # with [CLS], the first token of the document
    if isinstance(layout, Padded):
        first_ids, first_BL = _to_the_left(ids_N, of_first_N & layout.keep_BL)
        second_ids, second_BL = _to_the_left(ids_N, of_second_N & layout.keep_BL)
        both = Padded(torch.cat([first_BL, second_BL]))
        other = Padded(torch.cat([second_BL, first_BL]))
        n_first = layout.n_documents
    else:
        first_ids, second_ids = ids_N[of_first_N], ids_N[of_second_N]
        first_B, second_B = _count_by_document(of_first_N, layout), _count_by_document(of_second_N, layout)
        both = packed_of(torch.cat([first_B, second_B]))
        other = packed_of(torch.cat([second_B, first_B]))
        n_first = first_ids.numel()
    return torch.cat([first_ids, second_ids]), Pairs(both, other, n_first)


def pair_features(text_2BD: Tensor) -> Tensor:
    """[a; b; |a - b|; a b] of each pair, `(B, 4D)`: Conneau et al. (2017), "InferSent", section 3.1."""
    n_pairs = text_2BD.size(0) // 2
    a_BD, b_BD = text_2BD[:n_pairs], text_2BD[n_pairs:]
    return torch.cat([a_BD, b_BD, (a_BD - b_BD).abs(), a_BD * b_BD], dim=-1)


class CrossLayer(nn.Module):
    """Cross-attention of each text to the other one, then feed-forward, each a residual block.

    Both directions share their weights. A text whose partner is empty gets zeros from it.
    """

    def __init__(self, *, attention: Residual, feed_forward: Residual) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward

    def forward(self, x: Tensor, pairs: Pairs) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        normed = self.attention.before(x)
        partner = pairs.exchange(normed)  # document i of `pairs.other` is the partner of document i
        attended = self.attention.block(normed, pairs.layout, partner, pairs.other)
        return self.feed_forward(self.attention.join(x, attended))


class Cross(nn.Module):
    """Cross layers in sequence, and the final norm of pre-norm models."""

    def __init__(self, layers: Iterable[CrossLayer], *, norm: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, x: Tensor, pairs: Pairs) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        for layer in self.layers:
            x = layer(x, pairs)
        return self.norm(x)


def _to_the_left(ids_BL: Tensor, mask_BL: Tensor) -> tuple[Tensor, Tensor]:
    """The masked ids of each row moved to its front, their order kept; and the mask after that."""
    positions_L = torch.arange(mask_BL.size(1), device=mask_BL.device)
    keys_BL = torch.where(mask_BL, positions_L, positions_L + mask_BL.size(1))  # all differ: any sort is stable
    order_BL = keys_BL.argsort(dim=1)
    return ids_BL.gather(1, order_BL), positions_L < mask_BL.sum(1, keepdim=True)


def _count_by_document(mask_N: Tensor, layout: Packed) -> Tensor:
    """The number of masked tokens of each document: `(B,)`."""
    return F.pad(mask_N.cumsum(0), (1, 0))[layout.offsets].diff()


def packed_of(lengths_B: Tensor) -> Packed:
    """The layout of documents of these lengths; the longest is read back from the device."""
    longest = int(lengths_B.max()) if lengths_B.numel() else 0
    return Packed(F.pad(lengths_B.cumsum(0), (1, 0)), longest)
