"""Attention as the papers write it (Vaswani et al., 2017, "Attention Is All You Need", section 3.2.1), the normalisers
that make weights of scores, and the scores: how well a query matches a key, g(q, k) of every form, one contract.

A normaliser's weights are zero where `keep` is false, also where nothing is kept. A score's `project` maps each token's
queries and keys by itself (`(..., H, K)`, before any turning by position); calling the score then compares all pairs.
`dot_scale` is set where that is a plain product with this factor, so that the fast kernels can serve it; None where it
is not.

B batch . L query positions . M key positions . H query heads . G key/value heads . K d_k . V d_v
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import manyheads.plugin as plugin
from manyheads.nn.dropout import dropout as drop
from manyheads.nn.parts import make_block

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


CHUNK = 2**22  # numbers of a (B, H, l, M, K) chunk of pairs that are held at a time
FIRST_TEMPERATURE = 10.0  # of the cosine: from -10 to 10 the softmax can choose, and it learns from there


class Score(nn.Module):
    dot_scale: float | None = None

    def __init__(self, *, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def draw(self) -> None:
        """Matrices `(heads, K, K)` and vectors `(heads, K)` anew."""
        for parameter in self.parameters():
            if parameter.ndim == 3:
                for weight_KK in parameter:
                    nn.init.xavier_uniform_(weight_KK)
            else:
                bound = math.sqrt(6 / (parameter.size(1) + 1))
                nn.init.uniform_(parameter, -bound, bound)

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


class Dot(Score):
    """scale · q kᵀ: Luong et al. (2015), section 3.1, "dot"."""

    def __init__(self, *, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        self.dot_scale = scale

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        return q_BHLK @ k_BHMK.transpose(-2, -1) * self.scale


class ScaledDot(Dot):
    """q kᵀ / √d_k, or another factor: Vaswani et al. (2017), section 3.2.1."""

    def __init__(self, *, d_k: int, scale: float | None = None) -> None:
        super().__init__(scale=d_k**-0.5 if scale is None else scale)


class Cosine(Dot):
    """τ cos(q, k) with a learned factor τ for each head: Henry et al. (2020), "Query-Key Normalization"."""

    def __init__(self, *, n_heads: int, scale: float | None = None) -> None:
        super().__init__()
        self.first = scale or FIRST_TEMPERATURE
        self.log_scale_H = nn.Parameter(torch.full((n_heads,), math.log(self.first)))

    def draw(self) -> None:
        self.log_scale_H.fill_(math.log(self.first))

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        scaled = F.normalize(q, dim=-1) * self.log_scale_H.exp()[:, None]
        return scaled.to(q.dtype), F.normalize(k, dim=-1).to(k.dtype)


class General(Dot):
    """scale · q W k with one matrix W for each head: Luong et al. (2015), section 3.1, "general"."""

    def __init__(self, *, n_heads: int, d_k: int, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        self.weight_HKK = nn.Parameter(torch.eye(d_k).repeat(n_heads, 1, 1))

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return torch.einsum("...hi,hij->...hj", q, self.weight_HKK), k


class Distance(Score):
    """-scale · ‖q - k‖²: the nearer the key, the better. Kim et al. (2021), "The Lipschitz Constant of Attention"."""

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        """In single precision: the difference of numbers as large as d_k is what counts."""
        kept = torch.is_autocast_enabled(q_BHLK.device.type)  # so does autocast with the softmax that follows
        with torch.autocast(q_BHLK.device.type, enabled=False):
            q, k = (x if x.dtype == torch.float64 else x.float() for x in (q_BHLK, k_BHMK))
            squares_BHL1, squares_BHM1 = (x.square().sum(-1, keepdim=True) for x in (q, k))
            scores_BHLM = 2 * (q @ k.transpose(-2, -1)) - squares_BHL1 - squares_BHM1.transpose(-2, -1)
            return scores_BHLM * self.scale if kept else (scores_BHLM * self.scale).to(q_BHLK.dtype)


class Additive(Score):
    """scale · v tanh(W q + U k), with W, U and v for each head: Bahdanau et al. (2015), appendix A.1.2."""

    def __init__(self, *, n_heads: int, n_kv_heads: int, d_k: int, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        self.query_weight_HKK = nn.Parameter(torch.eye(d_k).repeat(n_heads, 1, 1))
        self.key_weight_GKK = nn.Parameter(torch.eye(d_k).repeat(n_kv_heads, 1, 1))
        self.v_HK = nn.Parameter(torch.full((n_heads, d_k), d_k**-0.5))

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return (
            torch.einsum("...hi,hij->...hj", q, self.query_weight_HKK),
            torch.einsum("...gi,gij->...gj", k, self.key_weight_GKK),
        )

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        return scores_of_sums(q_BHLK, k_BHMK, self.v_HK) * self.scale


class Concat(Score):
    """scale · v tanh(W [q; k]), with W and v for each head: Luong et al. (2015), section 3.1, "concat"."""

    def __init__(self, *, n_heads: int, d_k: int, scale: float = 1.0) -> None:
        super().__init__(scale=scale)
        self.n_heads = n_heads
        self.weight_H2KK = nn.Parameter(torch.eye(d_k).repeat(n_heads, 2, 1))
        self.v_HK = nn.Parameter(torch.full((n_heads, d_k), d_k**-0.5))

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """W [q; k] is a sum of two products, one of the query alone and one of the key alone."""
        of_query_HKK, of_key_HKK = self.weight_H2KK.chunk(2, dim=1)
        k = k.repeat_interleave(self.n_heads // k.size(-2), dim=-2)
        return torch.einsum("...hi,hij->...hj", q, of_query_HKK), torch.einsum("...hi,hij->...hj", k, of_key_HKK)

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        return scores_of_sums(q_BHLK, k_BHMK, self.v_HK) * self.scale


class Own(Score):
    """A score of a user's, a function or a module that compares all pairs, and may have a `project` of its own."""

    def __init__(self, compare: Compare) -> None:
        super().__init__()
        self.compare = compare

    def draw(self) -> None:
        """It begins as its own constructor made it."""

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        project = getattr(self.compare, "project", None)
        return project(q, k) if project else (q, k)

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
    """The score `kind` names; `scale` None is its own: 1/√d_k for scaled_dot, learned for cosine, 1 for the others."""
    score = make_block("score", kind, options, n_heads=n_heads, n_kv_heads=n_kv_heads, d_k=d_k, scale=scale)
    return score if isinstance(score, Score) else Own(score)


def scores_of_sums(q_BHLK: Tensor, k_BHMK: Tensor, v_HK: Tensor) -> Tensor:
    """v tanh(q + k) of all pairs: `(B, H, L, M)`.

    The sums, `(B, H, L, M, K)`, are made for a few queries at a time and again in the backward pass, so memory
    grows with the pairs alone and not with their width.
    """
    if torch.compiler.is_exporting():  # a graph has no loop over as many chunks as a batch needs
        return _scores_of_chunk(q_BHLK, k_BHMK, v_HK)
    n_documents, n_heads, _, width = q_BHLK.shape
    per_query = max(1, n_documents * n_heads * k_BHMK.size(2) * width)
    chunks = q_BHLK.split(max(1, CHUNK // per_query), dim=2)
    again = len(chunks) > 1 and torch.is_grad_enabled()
    score = partial(checkpoint, _scores_of_chunk, use_reentrant=False) if again else _scores_of_chunk
    return torch.cat([cast(Tensor, score(chunk, k_BHMK, v_HK)) for chunk in chunks], dim=2)


def _scores_of_chunk(q_BHlK: Tensor, k_BHMK: Tensor, v_HK: Tensor) -> Tensor:
    angles_BHlMK = (q_BHlK[:, :, :, None] + k_BHMK[:, :, None]).tanh_()
    scores_BHP1 = angles_BHlMK.flatten(2, 3) @ v_HK[:, :, None].to(angles_BHlMK.dtype)  # P all pairs
    return scores_BHP1.squeeze(-1).unflatten(2, angles_BHlMK.shape[2:4])
