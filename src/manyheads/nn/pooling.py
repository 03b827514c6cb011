"""Token vectors to one vector a document. A document without tokens becomes zeros.

B documents . L positions . D d_model
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.layout import Layout, Packed
from manyheads.nn.normalisers import softmax


class Pooling(nn.Module):
    """`mean`, `max` or the `first` token."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.pool = {"mean": mean, "max": maximum, "first": first}[kind]

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
