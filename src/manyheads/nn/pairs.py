"""Two texts that are read apart: each is encoded alone, then attends to the other in cross layers (`model.pair=cross`)
or not (`model.pair=compare`), and the head sees how their vectors compare.

... tokens in a layout (N packed, or B L padded) . B pairs of texts . L positions . D d_model
P tokens of the single texts of all pairs . 2B single texts: all first ones, then all second ones
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.layout import Layout, Packed, Padded
from manyheads.nn.embeddings import in_second, is_surplus
from manyheads.nn.transformer import Residual


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


def split_pairs(
    ids_N: Tensor, layout: Layout, segments_N: Tensor, surplus_N: Tensor | None = None
) -> tuple[Tensor, Pairs]:
    """Split joined pairs, [CLS] first [SEP] second [SEP], into single texts.

    The second text gets a copy of [CLS]: so both begin with it, and a text is read alike on either side. Positions
    count from 0 in each. The lengths are read back from the device, which makes the host wait once a batch.

    Args:
        surplus_N: tokens of first texts that are left out, see `embeddings.is_surplus`.

    Returns:
        Ids of the 2B texts, and their layout.
    """
    is_second_N = in_second(segments_N) > 0
    of_first_N = ~is_second_N if surplus_N is None else ~(is_second_N | surplus_N)
    of_second_N = is_second_N | (layout.positions == 0)  # with [CLS], the first token of the document
    if isinstance(layout, Padded):
        first_ids, first_BL = to_the_left(ids_N, of_first_N & layout.keep_BL)
        second_ids, second_BL = to_the_left(ids_N, of_second_N & layout.keep_BL)
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


def comparison(text_2BD: Tensor) -> Tensor:
    """[u·v; u v; u - v; |u - v|] of each pair, `(B, 3D + 1)`, where u and v are the vectors scaled to length
    D^(1/4). A vector of zeros, as a static model gives a text of unknown words, stays zero with a finite gradient.

    Encoders of sentences are trained to give texts of one meaning one direction (Reimers and Gurevych, 2019,
    "Sentence-BERT", section 3), so their cosine, which is u·v / √D, is a feature of its own.
    """
    n_pairs, dtype = text_2BD.size(0) // 2, text_2BD.dtype
    text_2BD = text_2BD.to(torch.promote_types(dtype, torch.float32))  # squares leave the range of fp16
    length_2B1 = text_2BD.norm(dim=-1, keepdim=True)
    text_2BD = text_2BD / length_2B1.masked_fill(length_2B1 == 0, 1.0) * text_2BD.size(-1) ** 0.25
    u_BD, v_BD = text_2BD[:n_pairs], text_2BD[n_pairs:]
    product_BD, difference_BD = u_BD * v_BD, u_BD - v_BD
    features = [product_BD.sum(-1, keepdim=True), product_BD, difference_BD, difference_BD.abs()]
    return torch.cat(features, dim=-1).to(dtype)


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
    """Cross layers in sequence, if any, and the final norm of pre-norm models.

    Args:
        compare: pooled vectors of both texts to what the head sees: `pair_features` or `comparison`.
    """

    def __init__(
        self, layers: Iterable[CrossLayer], *, norm: nn.Module, compare: Callable[[Tensor], Tensor] = pair_features
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.compare = compare

    def surplus(self, segments: Tensor) -> Tensor | None:
        """`is_surplus` if vectors are compared, so that each text is read as it is alone; else None."""
        return is_surplus(segments) if self.compare is comparison else None

    def forward(self, x: Tensor, pairs: Pairs) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        for layer in self.layers:
            x = layer(x, pairs)
        return self.norm(x)


def to_the_left(ids_BL: Tensor, mask_BL: Tensor) -> tuple[Tensor, Tensor]:
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
