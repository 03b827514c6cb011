"""Attention as the papers write it: normalise(g(q, k)) v.

`attend` is the textbook formula (Vaswani et al., 2017, "Attention Is All You Need", section 3.2.1). Its two choices are
the normaliser, which turns scores into weights (`softmax`, `sigmoid`, `sparsemax`, `entmax15`), and the score g, which
says how well a query matches a key (`ScaledDot`, `Dot`, `Cosine`, `General`, `Distance`, `Additive`, `Concat`).
kernels.py has faster forms of the same function.

B documents . L query positions . M key positions . H query heads . G key/value heads . K d_k . V d_v
l query positions of a chunk . P pairs of a query and a key . ... any leading axes
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
        n_support = (1 + counts * highest > sums).sum(-1, keepdim=True)
        return (sums.gather(-1, n_support - 1) - 1) / n_support
    # Σ (s - τ)² = 1 over the support, a quadratic equation for τ
    highest = scores.clamp(min=-2.0).sort(-1, descending=True).values  # squares of -1e9 would drown the others
    mean = highest.cumsum(-1) / counts
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


CHUNK = 2**22  # elements of a (B, H, l, M, K) tensor of pairs that are in memory at once
FIRST_TEMPERATURE = 10.0  # of the cosine, which is learned: scores from -10 to 10 can already single out a key


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


class Cosine(Dot):
    """τ cos(q, k) with a learned factor τ for each head: Henry et al. (2020), "Query-Key Normalization"."""

    def __init__(self, *, n_heads: int, scale: float | None = None) -> None:
        super().__init__()
        self.first_scale = scale or FIRST_TEMPERATURE
        self.log_scale_H = nn.Parameter(torch.full((n_heads,), math.log(self.first_scale)))

    def init_weights(self) -> None:
        self.log_scale_H.fill_(math.log(self.first_scale))

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        # In the logarithm τ stays positive. With τ in the queries, comparing is a plain product that kernels know.
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
    """-scale · ‖q - k‖²: the nearer the key, the better. Kim et al. (2021), "The Lipschitz Constant of
    Self-Attention"."""

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        """Computed in single precision: ‖q‖² + ‖k‖² - 2 q·k is a small difference of numbers as large as d_k."""
        device, dtype = q_BHLK.device.type, q_BHLK.dtype
        stays_single = torch.is_autocast_enabled(device)  # the softmax that follows would cast it back
        if dtype != torch.float64:
            q_BHLK, k_BHMK = q_BHLK.float(), k_BHMK.float()
        with torch.autocast(device, enabled=False):
            squares_BHL1 = q_BHLK.square().sum(-1, keepdim=True)
            squares_BHM1 = k_BHMK.square().sum(-1, keepdim=True)
            products_BHLM = q_BHLK @ k_BHMK.transpose(-2, -1)
            scores_BHLM = (2 * products_BHLM - squares_BHL1 - squares_BHM1.transpose(-2, -1)) * self.scale
        if stays_single:
            return scores_BHLM
        return scores_BHLM.to(dtype)


class Additive(Score):
    """scale · v tanh(W q + U k), with W, U and v for each head: Bahdanau et al. (2015), "Neural Machine Translation by
    Jointly Learning to Align and Translate", appendix A.1.2."""

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
        """W [q; k] = W₁ q + W₂ k, so either half is computed for each token and not for each pair."""
        query_weight_HKK, key_weight_HKK = self.weight_H2KK.chunk(2, dim=1)
        k = k.repeat_interleave(self.n_heads // k.size(-2), dim=-2)  # each query head has a W₂ of its own
        return (
            torch.einsum("...hi,hij->...hj", q, query_weight_HKK),
            torch.einsum("...hi,hij->...hj", k, key_weight_HKK),
        )

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        return scores_of_sums(q_BHLK, k_BHMK, self.v_HK) * self.scale


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


def scores_of_sums(q_BHLK: Tensor, k_BHMK: Tensor, v_HK: Tensor) -> Tensor:
    """v tanh(q + k) of all pairs: `(B, H, L, M)`.

    The sums `(B, H, L, M, K)` are made for a few queries at a time, and once more in the backward pass: so memory grows
    with L · M and not with L · M · K.
    """
    if torch.compiler.is_exporting():  # the number of chunks depends on the batch, which a graph cannot loop over
        return _scores_of_chunk(q_BHLK, k_BHMK, v_HK)
    B, H, _, K = q_BHLK.shape
    M = k_BHMK.size(2)
    chunks = q_BHLK.split(max(1, CHUNK // max(1, B * H * M * K)), dim=2)
    score: Callable[..., Any] = _scores_of_chunk
    if len(chunks) > 1 and torch.is_grad_enabled():
        score = partial(checkpoint, _scores_of_chunk, use_reentrant=False)  # recomputed in the backward pass
    return torch.cat([cast(Tensor, score(q_BHlK, k_BHMK, v_HK)) for q_BHlK in chunks], dim=2)


def _scores_of_chunk(q_BHlK: Tensor, k_BHMK: Tensor, v_HK: Tensor) -> Tensor:
    hidden_BHlMK = (q_BHlK[:, :, :, None] + k_BHMK[:, :, None]).tanh_()
    hidden_BHPK = hidden_BHlMK.flatten(2, 3)  # so that the product with v is a single matrix product
    scores_BHP1 = hidden_BHPK @ v_HK[:, :, None].to(hidden_BHPK.dtype)
    return scores_BHP1.squeeze(-1).unflatten(2, hidden_BHlMK.shape[2:4])
