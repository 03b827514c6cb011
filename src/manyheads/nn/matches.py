"""Which tokens of a pair of texts occur in the other one: what a bag of words cannot see of a pair, and a small encoder
learns late. Chen et al. (2017), "Reading Wikipedia", section 3.2, "exact match".

... tokens in a layout (N packed, or B L padded)
"""

import torch
from torch import Tensor

from manyheads.layout import Layout, Padded


def occurs_in_other(ids: Tensor, layout: Layout, segments: Tensor) -> Tensor:
    """Ids and segments (as of `in_second`) `(...)` to 1 where a token occurs in the other text
    of its pair, else 0. Nothing is read back from the device."""
    width = ids.amax() + 1 if ids.numel() else 1
    names = (of_documents(layout, ids) * width + ids) * 2 + in_second(segments)
    if isinstance(layout, Padded):
        names = names.masked_fill(~layout.keep_BL, -2)  # whose partner -1 is nowhere
    known = names.flatten().sort().values
    asked = names ^ 1
    at = torch.searchsorted(known, asked).clamp(max=max(0, known.numel() - 1))
    return (known[at] == asked).long() if known.numel() else asked


def in_second(segments: Tensor) -> Tensor:
    """Segments `(...)` to 0 of the first text of a pair, 1 of the second.

    Segments are that number, plus 2 where the tokenizer's type id is the other one: see `segment_rows`.
    """
    return segments & 1


def segment_rows(segments: Tensor) -> Tensor:
    """Segments `(...)` to the tokenizer's type ids, by which the table of segments is read."""
    return (segments ^ segments >> 1) & 1


def of_documents(layout: Layout, ids: Tensor) -> Tensor:
    """The number of each token's document: `(...)`; in a tail that of none."""
    if isinstance(layout, Padded):
        return torch.arange(layout.n_documents, device=ids.device)[:, None].expand_as(ids)
    every_N = torch.arange(ids.size(0), device=ids.device)
    return torch.searchsorted(layout.offsets[1:].contiguous(), every_N, right=True)
