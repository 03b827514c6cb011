"""Normalisers that give low scores a weight of exactly zero: sparsemax and entmax.

M key positions . ... any leading axes
"""

from typing import Any, cast

import torch
from torch import Tensor


def sparsemax(scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """The point of the probability simplex nearest to the scores; low scores get a weight of exactly zero.

    Martins and Astudillo (2016), "From Softmax to Sparsemax", algorithm 1.
    """
    return _sparse(scores, keep, alpha=2.0)


def entmax15(scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """α-entmax with α = 1.5, between softmax (α = 1) and sparsemax (α = 2): Peters et al. (2019), "Sparse
    Sequence-to-Sequence Models"."""
    return _sparse(scores, keep, alpha=1.5)


def _sparse(scores: Tensor, keep: Tensor | None, *, alpha: float) -> Tensor:
    """α-entmax of the scores that `keep` leaves."""
    if scores.size(-1) == 0:
        return scores
    full = scores
    if scores.dtype in (torch.bfloat16, torch.float16):
        full = scores.float()  # the threshold is a difference of sums: in half precision it would be noise
    if keep is None:
        return cast(Tensor, _Entmax.apply(full, alpha)).to(scores.dtype)
    # A score more than 1 / (α - 1) below the largest one has a weight of exactly zero, as if it were not there: 1 for
    # sparsemax, 2 for entmax15. A masked key gets 4 below; that is precise, where a number like -1e9 would drown sums.
    largest = full.detach().masked_fill(~keep, torch.finfo(full.dtype).min).amax(-1, keepdim=True)
    masked = torch.where(keep, full - largest, -4.0)
    return cast(Tensor, _Entmax.apply(masked, alpha)).masked_fill(~keep, 0.0).to(scores.dtype)


class _Entmax(torch.autograd.Function):
    """[(α - 1) s - τ]₊^(1 / (α - 1)), where τ makes a row sum to one."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float) -> Tensor:
        shifted = (scores - scores.amax(-1, keepdim=True)) * (alpha - 1)  # a constant shift changes no weight
        weights = (shifted - _threshold(shifted, alpha)).clamp(min=0) ** (1 / (alpha - 1))
        ctx.save_for_backward(weights)
        ctx.alpha = alpha
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The Jacobian is diag(r) - r rᵀ / Σ r with r = w^(2 - α) on the support."""
        (weights,) = ctx.saved_tensors
        rates = torch.where(weights > 0, weights ** (2 - ctx.alpha), 0.0)
        scaled = grads[0] * rates
        return scaled - rates * scaled.sum(-1, keepdim=True) / rates.sum(-1, keepdim=True), None


def _threshold(scores: Tensor, alpha: float) -> Tensor:
    """τ of sparsemax (α = 2) or entmax (α = 1.5), `(..., 1)`, from the sorted scores.

    The support, the keys with a weight above zero, are the highest scores; for each possible size of it the sums give
    a candidate for τ, and the largest size whose lowest score is above its candidate is the right one.
    """
    counts = torch.arange(1, scores.size(-1) + 1, dtype=scores.dtype, device=scores.device)  # sizes of the support
    if alpha == 2:  # Σ (s - τ) = 1 over the support
        highest = scores.sort(-1, descending=True).values
        sums = highest.cumsum(-1)
        n_support = (1 + counts * highest > sums).sum(-1, keepdim=True).clamp(min=1)  # none of a row with NaN
        return (sums.gather(-1, n_support - 1) - 1) / n_support
    # Σ (s - τ)² = 1 over the support, a quadratic equation for τ
    highest = scores.clamp(min=-2.0).sort(-1, descending=True).values  # squares of -1e9 would drown the others
    mean = highest.cumsum(-1) / counts
    spread = highest.square().cumsum(-1) - counts * mean.square()
    thresholds = mean - ((1 - spread) / counts).clamp(min=0).sqrt()
    n_support = (thresholds <= highest).sum(-1, keepdim=True).clamp(min=1)
    return thresholds.gather(-1, n_support - 1)
