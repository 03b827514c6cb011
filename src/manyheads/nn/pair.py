"""Two texts read apart and then beside each other: cross-attention between the texts of a pair.

B pairs . N tokens of all pairs . P tokens of all single texts, packed, or 2B L padded . D d_model
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.layout import Layout, Packed, Padded
from manyheads.nn.encoder import Residual
from manyheads.nn.matches import in_second


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
    a_BD, b_BD = text_2BD.chunk(2)
    return torch.cat([a_BD, b_BD, (a_BD - b_BD).abs(), a_BD * b_BD], dim=-1)


class CrossLayer(nn.Module):
    """Tokens of each text look at those of the other one, then each is thought over alone.

    Both directions share their weights, as both texts share the encoder. A text whose partner has no tokens gets
    nothing from it.
    """

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
    order_BL = (~mask_BL).to(torch.uint8).argsort(dim=1, stable=True)
    every_L = torch.arange(mask_BL.size(1), device=mask_BL.device)
    return ids_BL.gather(1, order_BL), every_L < mask_BL.sum(1, keepdim=True)


def _lengths(mask_N: Tensor, layout: Packed) -> Tensor:
    """How many tokens of each document the mask holds."""
    return F.pad(mask_N.cumsum(0), (1, 0))[layout.offsets].diff()


def _packed(*lengths: Tensor) -> Packed:
    lengths_2B = torch.cat(lengths)
    return Packed(F.pad(lengths_2B.cumsum(0), (1, 0)), int(lengths_2B.max()) if lengths_2B.numel() else 0)
