"""Attention as the papers write it (Vaswani et al., 2017, "Attention Is All You Need", section 3.2.1), and the
normalisers that make weights of scores: zero where `keep` is false, also where nothing is kept.

B batch . L query positions . M key positions . H query heads . G key/value heads . K d_k . V d_v
"""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from manyheads.nn.dropout import dropout as drop

Normaliser = Callable[[Tensor, Tensor | None], Tensor]  # scores (..., M) and what is kept, to weights (..., M)
Compare = Callable[[Tensor, Tensor], Tensor]  # q_BHLK, k_BHMK to scores_BHLM


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
    if keep is None:
        return cast(Tensor, _Entmax.apply(full, alpha)).to(scores.dtype)
    top = full.detach().masked_fill(~keep, torch.finfo(full.dtype).min).amax(-1, keepdim=True)
    pushed_down = torch.where(keep, full - top, -4.0)  # far below the highest that is kept: a weight of exactly zero
    return cast(Tensor, _Entmax.apply(pushed_down, alpha)).masked_fill(~keep, 0.0).to(scores.dtype)


class _Entmax(torch.autograd.Function):
    """[(α - 1) s - τ]₊ to the power of 1 / (α - 1), with τ such that a row sums to one."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float) -> Tensor:
        shifted = (scores - scores.amax(-1, keepdim=True)) * (alpha - 1)
        weights = (shifted - _threshold(shifted, alpha)).clamp(min=0) ** (1 / (alpha - 1))
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


def _threshold(scores: Tensor, alpha: float) -> Tensor:
    """τ of sparsemax (α 2) or entmax (α 1.5), `(..., 1)`, from the scores in falling order."""
    bounded = scores if alpha == 2 else scores.clamp(min=-2.0)  # below -1 a weight is zero: -2 changes nothing
    highest = bounded.sort(-1, descending=True).values
    counts = torch.arange(1, scores.size(-1) + 1, dtype=scores.dtype, device=scores.device)
    sums = highest.cumsum(-1)
    if alpha == 2:
        n_support = (1 + counts * highest > sums).sum(-1, keepdim=True)
        return (sums.gather(-1, n_support - 1) - 1) / n_support
    mean = sums / counts
    spread = highest.square().cumsum(-1) - counts * mean.square()
    thresholds = mean - ((1 - spread) / counts).clamp(min=0).sqrt()
    n_support = (thresholds <= highest).sum(-1, keepdim=True)
    return thresholds.gather(-1, n_support - 1)


def attend(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMV: Tensor,
    keep: Tensor | None = None,
    *,
    score: Compare | None = None,
    normalise: Normaliser = softmax,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """normalise(g(q, k) + bias) v: the textbook formula and the oracle of every faster kernel.

    Args:
        q_BHLK, k_BGMK, v_BGMV: queries, keys and values; G divides H, each key/value head
            serves H / G neighbouring query heads (Ainslie et al., 2023, "GQA", section 2.2).
        keep, score, normalise, bias: as of `attention_weights`.
        dropout: probability with which a weight is dropped (the others are scaled up).

    Returns:
        The contexts `(B, H, L, V)`, zero where a query may attend to nothing.
    """
    weights_BHLM = attention_weights(q_BHLK, k_BGMK, keep, score=score, normalise=normalise, bias=bias)
    return drop(weights_BHLM, dropout) @ share_heads(v_BGMV, q_BHLK.size(1))


def attention_weights(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    keep: Tensor | None = None,
    *,
    score: Compare | None = None,
    normalise: Normaliser = softmax,
    bias: Tensor | None = None,
) -> Tensor:
    """normalise(g(q, k) + bias): how much each query attends to each key.

    Args:
        keep: boolean, broadcastable to `(B, H, L, M)`; a query attends only where it is true.
        score: g, from queries and keys of H heads to scores `(B, H, L, M)`; default: q kᵀ / √d_k.
        bias: added to the scores, broadcastable to `(B, H, L, M)`.

    Returns:
        The weights `(B, H, L, M)`, each row of which sums to one (with the sigmoid it need not), or is zero where a
        query may attend to nothing.
    """
    scores_BHLM = (score or scaled_dot)(q_BHLK, share_heads(k_BGMK, q_BHLK.size(1)))
    return normalise(scores_BHLM if bias is None else scores_BHLM + bias, keep)


def scaled_dot(q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
    """q kᵀ / √d_k."""
    return q_BHLK @ k_BHMK.transpose(-2, -1) * q_BHLK.size(-1) ** -0.5


def share_heads(x_BGMK: Tensor, n_heads: int) -> Tensor:
    """Repeat each key/value head for its group of query heads: `(B, G, ...)` to `(B, H, ...)`."""
    n_kv_heads = x_BGMK.size(1)
    return x_BGMK if n_kv_heads == n_heads else x_BGMK.repeat_interleave(n_heads // n_kv_heads, dim=1)
