"""Attention as the papers write it: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1.

B batch . L query positions . M key positions . H query heads . G key/value heads . K d_k . V d_v
"""

from collections.abc import Callable
from typing import Literal, overload

from torch import Tensor

from manyheads.nn.dropout import dropout as drop
from manyheads.nn.normalisers import Normaliser, softmax

Compare = Callable[[Tensor, Tensor], Tensor]  # q_BHLK, k_BHMK to scores_BHLM


@overload
def attend(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMV: Tensor,
    keep: Tensor | None = ...,
    *,
    score: Compare | None = ...,
    normalise: Normaliser = ...,
    bias: Tensor | None = ...,
    dropout: float = ...,
    return_weights: Literal[False] = ...,
) -> Tensor: ...
@overload
def attend(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMV: Tensor,
    keep: Tensor | None = ...,
    *,
    score: Compare | None = ...,
    normalise: Normaliser = ...,
    bias: Tensor | None = ...,
    dropout: float = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
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
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """normalise(g(q, k) + bias) v: the textbook formula and the oracle of every faster kernel.

    Args:
        q_BHLK, k_BGMK, v_BGMV: queries, keys and values; G divides H, each key/value head
            serves H / G neighbouring query heads (Ainslie et al., 2023, "GQA", section 2.2).
        keep: boolean, broadcastable to `(B, H, L, M)`; a query attends only where it is true.
        score: g, from queries and keys of H heads to scores `(B, H, L, M)`; default: q kᵀ / √d_k.
        normalise: scores and `keep` to weights.
        bias: added to the scores, broadcastable to `(B, H, L, M)`.
        dropout: probability with which a weight is dropped (the others are scaled up).

    Returns:
        The contexts `(B, H, L, V)`; with `return_weights` also the weights `(B, H, L, M)` before dropout,
        each row of which sums to one (with the sigmoid it need not). A query that may attend to nothing has
        weights and context zero.
    """
    k_BHMK, v_BHMV = (share_heads(x, q_BHLK.size(1)) for x in (k_BGMK, v_BGMV))
    scores_BHLM = (score or scaled_dot)(q_BHLK, k_BHMK)
    if bias is not None:
        scores_BHLM = scores_BHLM + bias
    weights_BHLM = normalise(scores_BHLM, keep)
    context_BHLV = drop(weights_BHLM, dropout) @ v_BHMV
    return (context_BHLV, weights_BHLM) if return_weights else context_BHLV


def scaled_dot(q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
    """q kᵀ / √d_k."""
    return q_BHLK @ k_BHMK.transpose(-2, -1) * q_BHLK.size(-1) ** -0.5


def share_heads(x_BGMK: Tensor, n_heads: int) -> Tensor:
    """Repeat each key/value head for its group of query heads: `(B, G, ...)` to `(B, H, ...)`."""
    n_kv_heads = x_BGMK.size(1)
    return x_BGMK if n_kv_heads == n_heads else x_BGMK.repeat_interleave(n_heads // n_kv_heads, dim=1)
