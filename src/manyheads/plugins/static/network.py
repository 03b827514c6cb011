"""The blocks of `model=static`: no layers, and a pooling that keeps the direction of the mean alone.

... tokens in a layout (N packed, or B L padded) . B documents . D d_model
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import ModelConfig
from manyheads.layout import Layout, Packed
from manyheads.nn.classifier import zero_padding

LEAST = 1e-12  # of a mean square


class Static(nn.Module):
    """An encoder without layers: the vector of a token is that of its word, whatever its neighbours are."""

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Tokens `(..., D)`, as they are."""
        return x


def static() -> Static:
    return Static()


def direction(x: Tensor, layout: Layout) -> Tensor:
    """The sum of each document's tokens, scaled to the length √D: `(..., D)` to `(B, D)`, so that a long text does not
    weigh less than a short one. The weight of a token is the length of its vector. Zeros where the sum is zero."""
    if isinstance(layout, Packed) and layout.n_tokens and not x.is_cuda:  # without a grid, in one pass
        every_N = torch.arange(layout.n_tokens)
        sum_BD = F.embedding_bag(every_N, x[: layout.n_tokens], layout.offsets[:-1], mode="sum")
    else:
        sum_BD = zero_padding(layout.grid(x), layout.keep_BL).sum(1)
    wide_BD = sum_BD.to(torch.promote_types(x.dtype, torch.float32))  # squares leave the range of fp16
    return (wide_BD * (wide_BD.square().mean(-1, keepdim=True) + LEAST).rsqrt()).to(x.dtype)


def describe_static(model: ModelConfig) -> tuple[str, str]:
    """What such a model is, and its size, for the card of a model."""
    return "mean of word vectors", f"no layers, d_model={model.d_model}"


def flops_of_sum(model: ModelConfig, *, pooled: bool) -> int:
    """Operations for one token: its vector is added to the sum."""
    return model.d_model * pooled
