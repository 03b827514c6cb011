"""The whole classifier, ids in, logits out; how token vectors become one vector a document; and cross-attention between
two texts that are read apart.

... tokens in a layout (N packed, or B L padded) . B documents, or pairs of them . L positions . D d_model . C classes
P tokens of the single texts of all pairs
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
    """A module of a user's own in the place of a `Classifier`: `module(ids, layout)` gives logits `(B, C)`.

    Args:
        n_words: ids are below it.
    """

    def __init__(self, module: nn.Module, n_words: int) -> None:
        super().__init__()
        self.module = module
        self.words = SimpleNamespace(num_embeddings=n_words)

    def forward(self, ids: Tensor, layout: Layout | None = None, segments: Tensor | None = None) -> Tensor:
        """Logits `(B, C)`; of a text that is read as several documents their mean. Segments are not read."""
        layout = as_layout(ids, layout, n_axes=2)
        return layout.pooled(self.module(ids, layout))


class Classifier(nn.Module):
    """Embeddings -> encoder -> pooling -> logits.

    With `cross` a document is a pair of texts. Each is read by itself, then by `cross` beside the other; what is
    compared are the two pooled vectors.
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
        self.embeddings, self.encoder, self.cross, self.pooling = embeddings, encoder, cross, pooling
        self.dropout = Dropout(dropout)
        self.head = head

    @property
    def words(self) -> nn.Embedding:
        """The table of the words."""
        return self.embeddings.words

    def forward(self, ids: Tensor, layout: Layout | Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Logits `(B, C)` of ids `(...)`: the same whether a document is alone, packed or padded; of a text that is
        read as several documents their mean.

        Args:
            ids: a plain batch `(B, L)`, or ids `(...)` in `layout`.
            layout: of a plain batch a boolean mask `(B, L)`, true on real tokens, wherever they are; default: all are.
            segments: of pairs of texts, 0 on tokens of the first one and 1 on those of the second.
        """
        given, layout = layout, as_layout(ids, layout, n_axes=2)
        if isinstance(given, Tensor):  # as of a tokenizer that pads on the left
            segments = None if segments is None else _to_the_left(segments, given)[0]
            ids, given = _to_the_left(ids, given)
            layout = Padded(given)
        return layout.pooled(self.head(self.dropout(self.read(ids, layout, segments))))

    def read(self, ids: Tensor, layout: Layout, segments: Tensor | None = None, words: Tensor | None = None) -> Tensor:
        """One vector a document, which the head sees: `(B, D)`, or of a pair read apart `(B, 4D)`. `words` `(..., W)`
        are read in place of the vectors of the ids."""
        if self.cross is None:
            return self.pooling(self.encode(ids, layout, segments, words), layout)
        assert segments is not None, "a model that reads two texts apart is built for pairs"
        matched = None
        if self.embeddings.matches is not None:
            matched, _ = part_pairs(occurs_in_other(ids, layout, segments), layout, segments)
        words = None if words is None else part_pairs(words, layout, segments)[0]
        ids, pairs = part_pairs(ids, layout, segments)
        x = self.encoder(self.embeddings(ids, pairs.layout, matched=matched, words=words), pairs.layout)
        return compare(self.pooling(self.cross(x, pairs), pairs.layout))

    def encode(
        self, ids: Tensor, layout: Layout, segments: Tensor | None = None, words: Tensor | None = None
    ) -> Tensor:
        """The token vectors above the last layer: `(..., D)`."""
        return self.encoder(self.embeddings(ids, layout, segments, words=words), layout)


class Pooling(nn.Module):
    """A pooling that is a function, such as `mean`, `max` or the `first` token; a document without tokens becomes
    zeros."""

    def __init__(self, pool: str | Callable[[Tensor, Layout], Tensor]) -> None:
        super().__init__()
        self.pool = make_block("pooling", pool) if isinstance(pool, str) else pool

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)` to documents `(B, D)`."""
        return self.pool(x, layout)


class AttentionPooling(nn.Module):
    """A weighted mean whose weights are learned: Yang et al. (2016), "Hierarchical Attention Networks", section 2.2."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.score = nn.Linear(d_model, 1, bias=False)  # a bias would cancel in the softmax

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)` to documents `(B, D)`."""
        scores_B1L = layout.grid(self.score(x)).transpose(1, 2)
        weights_B1L = softmax(scores_B1L, layout.keep_BL[:, None])
        return (weights_B1L @ silence(layout.grid(x), layout.keep_BL)).squeeze(1)


class Pooler(nn.Module):
    """norm(f(W p + b)) of a pooled vector p.

    With tanh and the first token it is the pooler of Devlin et al. (2019), "BERT", as their code has it.
    """

    def __init__(self, pool: nn.Module, *, d_model: int, activation: str, norm: nn.Module, bias: bool = True) -> None:
        super().__init__()
        self.pool = pool
        self.dense = nn.Linear(d_model, d_model, bias=bias)
        self.activate = {"tanh": torch.tanh, "relu": F.relu, "gelu": F.gelu}[activation]
        self.norm = norm

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)` to documents `(B, D)`."""
        pooled_BD = self.norm(self.activate(self.dense(self.pool(x, layout))))
        return pooled_BD.masked_fill(layout.lengths_B[:, None] == 0, 0.0)


def mean(x: Tensor, layout: Layout) -> Tensor:
    return silence(layout.grid(x), layout.keep_BL).sum(1) / layout.lengths_B[:, None].clamp(min=1)


def maximum(x: Tensor, layout: Layout) -> Tensor:
    x_BLD, keep_BL = layout.grid(x), layout.keep_BL
    if x_BLD.size(1) == 0:
        return x_BLD.sum(1)
    lowest = torch.finfo(x_BLD.dtype).min
    highest_BD = x_BLD.masked_fill(~keep_BL[..., None], lowest).amax(1)
    return highest_BD.masked_fill(~keep_BL.any(1, keepdim=True), 0.0)


def first(x: Tensor, layout: Layout) -> Tensor:
    """Of packed tokens no others are touched."""
    if not isinstance(layout, Packed) or not x.size(0):
        return silence(layout.grid(x)[:, :1], layout.keep_BL[:, :1]).sum(1)
    at_B = layout.offsets[:-1].clamp(max=x.size(0) - 1)  # a document without tokens may begin behind the last
    return x.index_select(0, at_B).masked_fill(layout.lengths_B[:, None] == 0, 0.0)


def silence(x_BLD: Tensor, keep_BL: Tensor) -> Tensor:
    """Zero what lies behind the end of a document."""
    return x_BLD.masked_fill(~keep_BL[..., None], 0.0)


@dataclass(frozen=True, eq=False)
class Pairs:
    """2B texts as documents of their own, all first texts before all second ones.

    `layout` says where they begin and end, `other` the same with the halves exchanged: document i of `other` is the
    partner of document i. `n_first` is where the second texts begin: tokens packed, documents padded.
    """

    layout: Layout
    other: Layout
    n_first: int

    def exchange(self, x_PD: Tensor) -> Tensor:
        """Tokens in `layout` to the same tokens in `other`."""
        return torch.cat([x_PD[self.n_first :], x_PD[: self.n_first]])


def part_pairs(ids_N: Tensor, layout: Layout, segments_N: Tensor) -> tuple[Tensor, Pairs]:
    """Ids of joined pairs, [CLS] first [SEP] second [SEP], to ids of single texts and where they lie.

    The first text is what `in_second` says it is. The second is the rest, after the first token of the pair: so both
    begin with [CLS], and the same text is read alike on either side. Positions begin anew in each. The lengths
    are read back from the device: once a batch it is waited for.
    """
    second_N = in_second(segments_N) > 0
    firsts_N, seconds_N = ~second_N, second_N | (layout.positions == 0)
    if isinstance(layout, Padded):
        (first_ids, first_BL), (second_ids, second_BL) = (
            _to_the_left(ids_N, mask_BL & layout.keep_BL) for mask_BL in (firsts_N, seconds_N)
        )
        both, other = Padded(torch.cat([first_BL, second_BL])), Padded(torch.cat([second_BL, first_BL]))
        return torch.cat([first_ids, second_ids]), Pairs(both, other, layout.n_documents)
    first_B, second_B = (_lengths(mask_N, layout) for mask_N in (firsts_N, seconds_N))
    both, other = _packed(first_B, second_B), _packed(second_B, first_B)
    first_ids = ids_N[firsts_N]
    return torch.cat([first_ids, ids_N[seconds_N]]), Pairs(both, other, first_ids.numel())


def compare(text_2BD: Tensor) -> Tensor:
    """[a; b; |a - b|; a b] of each pair, `(B, 4D)`: Conneau et al. (2017), "InferSent", section 3.1."""
    n_pairs = text_2BD.size(0) // 2
    a_BD, b_BD = text_2BD[:n_pairs], text_2BD[n_pairs:]
    return torch.cat([a_BD, b_BD, (a_BD - b_BD).abs(), a_BD * b_BD], dim=-1)


class CrossLayer(nn.Module):
    """Tokens of each text look at those of the other one, then each is thought over alone. Both directions share
    their weights; a text whose partner has no tokens gets nothing from it."""

    def __init__(self, *, attention: Residual, feed_forward: Residual) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward

    def forward(self, x: Tensor, pairs: Pairs) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        here = self.attention.before(x)
        looked = self.attention.block(here, pairs.layout, pairs.exchange(here), pairs.other)
        return self.feed_forward(self.attention.join(x, looked))


class Cross(nn.Module):
    """Cross layers one after another, and the norm that pre-norm leaves to the end."""

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
    """What the mask holds, moved to the front of its row in the same order; and the mask of it."""
    every_L = torch.arange(mask_BL.size(1), device=mask_BL.device)
    order_BL = torch.where(mask_BL, every_L, every_L + mask_BL.size(1)).argsort(dim=1)  # no two keys are equal
    return ids_BL.gather(1, order_BL), every_L < mask_BL.sum(1, keepdim=True)


def _lengths(mask_N: Tensor, layout: Packed) -> Tensor:
    """How many tokens of each document the mask holds."""
    return F.pad(mask_N.cumsum(0), (1, 0))[layout.offsets].diff()


def _packed(*lengths: Tensor) -> Packed:
    lengths_2B = torch.cat(lengths)
    return Packed(F.pad(lengths_2B.cumsum(0), (1, 0)), int(lengths_2B.max()) if lengths_2B.numel() else 0)
