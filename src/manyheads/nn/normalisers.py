"""Scores of a query to the weights of its keys. Zero where `keep` is false, also where nothing is kept.

... any leading axes . M key positions, the last axis
"""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

Normaliser = Callable[[Tensor, Tensor | None], Tensor]


def softmax(scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """exp(s) over their sum."""
    if keep is None:
        return scores.softmax(-1)
    lowest = torch.finfo(scores.dtype).min  # finite: a row without keys then has a gradient of zero, not NaN
    return scores.masked_fill(~keep, lowest).softmax(-1).masked_fill(~keep, 0.0)


def sigmoid(scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """1 / (1 + exp(log n - s)) for a query with n keys: each weight by itself, so a row need not sum to one.

    The shift by log n lets a row of equal scores start near a sum of one, whatever its length: Ramapuram et al.
    (2025), "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", section 3.
    """
    if keep is None:
        return (scores - math.log(max(1, scores.size(-1)))).sigmoid()
    keep = keep.expand(scores.shape)
    n_keys = keep.sum(-1, keepdim=True).clamp(min=1)
    return (scores - n_keys.to(scores.dtype).log()).sigmoid().masked_fill(~keep, 0.0)


def sparsemax(scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """The point of the simplex nearest to the scores: Martins and Astudillo (2016), algorithm 1."""
    return _sparse(scores, keep, alpha=2.0)


def entmax15(scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """Half way between softmax and sparsemax: Peters et al. (2019), "Sparse Sequence-to-Sequence Models"."""
    return _sparse(scores, keep, alpha=1.5)


NORMALISERS: dict[str, Normaliser] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
}


def _sparse(scores: Tensor, keep: Tensor | None, *, alpha: float) -> Tensor:
    if scores.size(-1) == 0:
        return scores
    full = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
    weights = cast(Tensor, _Entmax.apply(full if keep is None else _push_down(full, keep), alpha))
    return (weights if keep is None else weights.masked_fill(~keep, 0.0)).to(scores.dtype)


def _push_down(scores: Tensor, keep: Tensor) -> Tensor:
    """The highest score that is kept at zero and what is not kept far below it: its weight is then exactly zero."""
    lowest = torch.finfo(scores.dtype).min
    top = scores.detach().masked_fill(~keep, lowest).amax(-1, keepdim=True)
    return torch.where(keep, scores - top, -4.0)


class _Entmax(torch.autograd.Function):
    """[(α - 1) s - τ]₊ to the power of 1 / (α - 1), with τ such that a row sums to one."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float) -> Tensor:
        shifted = (scores - scores.amax(-1, keepdim=True)) * (alpha - 1)
        threshold = _sparsemax_threshold(shifted) if alpha == 2 else _entmax15_threshold(shifted)
        weights = (shifted - threshold).clamp(min=0) ** (1 / (alpha - 1))
        ctx.save_for_backward(weights)
        ctx.alpha = alpha
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The Jacobian is diag(r) - r rᵀ / Σ r with r = w^(2 - α) on the support."""
        (weights,) = ctx.saved_tensors
        rates = torch.where(weights > 0, weights ** (2 - ctx.alpha), 0.0)
        pulled = grads[0] * rates
        return pulled - rates * pulled.sum(-1, keepdim=True) / rates.sum(-1, keepdim=True), None


def _sparsemax_threshold(scores: Tensor) -> Tensor:
    highest = scores.sort(-1, descending=True).values
    counts = _counts(highest)
    sums = highest.cumsum(-1)
    n_support = (1 + counts * highest > sums).sum(-1, keepdim=True)
    return (sums.gather(-1, n_support - 1) - 1) / n_support


def _entmax15_threshold(scores: Tensor) -> Tensor:
    highest = scores.clamp(min=-2.0).sort(-1, descending=True).values  # below -1 a weight is zero: -2 changes nothing
    counts = _counts(highest)
    mean = highest.cumsum(-1) / counts
    spread = highest.square().cumsum(-1) - counts * mean.square()
    thresholds = mean - ((1 - spread) / counts).clamp(min=0).sqrt()
    n_support = (thresholds <= highest).sum(-1, keepdim=True)
    return thresholds.gather(-1, n_support - 1)


def _counts(scores: Tensor) -> Tensor:
    return torch.arange(1, scores.size(-1) + 1, dtype=scores.dtype, device=scores.device)
