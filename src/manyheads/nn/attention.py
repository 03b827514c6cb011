"""Attention as the papers write it: normalise(g(q, k)) v.

`attend` is the textbook formula (Vaswani et al., 2017, "Attention Is All You Need", section 3.2.1). Its two choices are
the normaliser, which turns scores into weights (`softmax`, `sigmoid`, those of sparse.py), and the score g, which says
how well a query matches a key (`ScaledDot`, `Dot`, those of scores.py). kernels.py has faster forms of the same
function.

B documents . L query positions . M key positions . H query heads . G key/value heads . K d_k . V d_v
... any leading axes
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.nn.dropout import dropout as drop
from manyheads.nn.parts import make_block

Normaliser = Callable[[Tensor, Tensor | None], Tensor]  # (scores (..., M), mask or None) -> weights (..., M)
Compare = Callable[[Tensor, Tensor], Tensor]  # (q_BHLK, k_BHMK) -> scores_BHLM

# Normalisers: scores `(..., M)` to weights of the same shape. `keep` is a boolean mask that broadcasts to the scores. A
# weight is zero where it is false, and a query that may attend to no key at all has zeros for weights, not NaN.


def softmax(scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """exp(s_j) / Σ exp(s) over the keys that are kept."""
    if keep is None:
        return scores.softmax(-1)
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row without keys would have a gradient of NaN
    return scores.masked_fill(~keep, lowest).softmax(-1).masked_fill(~keep, 0.0)


def sigmoid(scores: Tensor, keep: Tensor | None = None) -> Tensor:
    """sigmoid(s - log n) for a query with n keys. Each weight depends on its own score alone: a row need not sum to 1.

    With the shift by log n a row of zeros sums to about one, whatever its length: Ramapuram et al. (2025), "Theory,
    Analysis, and Best Practices for Sigmoid Self-Attention", section 3.
    """
    if keep is None:
        return (scores - math.log(max(1, scores.size(-1)))).sigmoid()
    keep = keep.expand(scores.shape)
    n_keys = keep.sum(-1, keepdim=True).clamp(min=1)
    return (scores - n_keys.to(scores.dtype).log()).sigmoid().masked_fill(~keep, 0.0)


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
    """normalise(g(q, k) + bias) v: the textbook formula, and the reference that every faster kernel is tested against.

    Args:
        q_BHLK, k_BGMK, v_BGMV: queries, keys and values. G divides H: each key/value head serves H / G neighbouring
            query heads (Ainslie et al., 2023, "GQA", section 2.2).
        keep, score, normalise, bias: see `attention_weights`.
        dropout: probability of dropping a weight; the others are divided by 1 - dropout.

    Returns:
        Contexts `(B, H, L, V)`, zero for a query that may attend to no key.
    """
    weights_BHLM = attention_weights(q_BHLK, k_BGMK, keep, score=score, normalise=normalise, bias=bias)
    v_BHMV = share_heads(v_BGMV, q_BHLK.size(1))
    return drop(weights_BHLM, dropout) @ v_BHMV


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
        q_BHLK, k_BGMK: see `attend`.
        keep: boolean mask that broadcasts to `(B, H, L, M)`; a query attends to a key only where it is true.
        score: g, from queries and keys of H heads to scores `(B, H, L, M)`; default: q kᵀ / √d_k.
        normalise: from scores and mask to weights.
        bias: added to the scores, broadcasts to `(B, H, L, M)`.

    Returns:
        Weights `(B, H, L, M)`. A row sums to one (except for `sigmoid`), or is zero where `keep` has no key for it.
    """
    k_BHMK = share_heads(k_BGMK, q_BHLK.size(1))
    compare = score or scaled_dot
    scores_BHLM = compare(q_BHLK, k_BHMK)
    if bias is not None:
        scores_BHLM = scores_BHLM + bias
    return normalise(scores_BHLM, keep)


def scaled_dot(q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
    """q kᵀ / √d_k."""
    return q_BHLK @ k_BHMK.transpose(-2, -1) * q_BHLK.size(-1) ** -0.5


def share_heads(x_BGMK: Tensor, n_heads: int) -> Tensor:
    """Repeat each key/value head for its group of query heads: `(B, G, ...)` to `(B, H, ...)`."""
    n_kv_heads = x_BGMK.size(1)
    if n_kv_heads == n_heads:
        return x_BGMK
    return x_BGMK.repeat_interleave(n_heads // n_kv_heads, dim=1)


class Score(nn.Module):
    """g(q, k), how well a query matches a key: the base class of the scores.

    A score works in two steps. `project` maps queries and keys token by token, before rotary positions turn them;
    `forward` then compares every query with every key. What can move into `project` is computed L + M times in place of
    L · M times.

    Attributes:
        scale: factor of the score.
        dot_scale: set where `forward` is q kᵀ times this number, which torch's fused kernels can compute; else None.
    """

    dot_scale: float | None = None

    def __init__(self, *, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def init_weights(self) -> None:
        """Draw matrices `(H, K, K)` and vectors `(H, K)` from Xavier's uniform distribution, each head's by itself."""
        for parameter in self.parameters():
            if parameter.ndim == 3:
                for weight_KK in parameter:
                    nn.init.xavier_uniform_(weight_KK)
            else:
                bound = math.sqrt(6 / (parameter.size(1) + 1))
                nn.init.uniform_(parameter, -bound, bound)

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries `(..., H, K)` and keys `(..., G, K)`, mapped token by token; a score may return keys of H heads."""
        return q, k


class Dot(Score):
    """scale · q kᵀ: Luong et al. (2015), section 3.1, "dot"."""

    def __init__(self, *, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        self.dot_scale = scale

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        """Scores `(B, H, L, M)`."""
        return q_BHLK @ k_BHMK.transpose(-2, -1) * self.scale


class ScaledDot(Dot):
    """q kᵀ / √d_k, or another factor: Vaswani et al. (2017), section 3.2.1."""

    def __init__(self, *, d_k: int, scale: float | None = None) -> None:
        super().__init__(scale=d_k**-0.5 if scale is None else scale)


class UserScore(Score):
    """A user's function or module that compares all pairs; it may have a `project` method of its own."""

    def __init__(self, compare: Compare) -> None:
        super().__init__()
        self.compare = compare

    def init_weights(self) -> None:
        """Its constructor has initialised it."""

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        project = getattr(self.compare, "project", None)
        if project is None:
            return q, k
        return project(q, k)

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        return self.compare(q_BHLK, k_BHMK)


def make_score(
    kind: str,
    *,
    n_heads: int,
    n_kv_heads: int,
    d_k: int,
    scale: float | None = None,
    options: Mapping[str, Any] = plugin.NOTHING,
) -> Score:
    """The score that `kind` names. Without a `scale` it has its own: 1/√d_k for scaled_dot, a learned one for cosine, 1
    for the others."""
    score = make_block("score", kind, options, n_heads=n_heads, n_kv_heads=n_kv_heads, d_k=d_k, scale=scale)
    if not isinstance(score, Score):
        score = UserScore(score)
    return score
