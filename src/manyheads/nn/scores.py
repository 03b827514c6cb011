"""How well a query matches a key: g(q, k) of every form, one contract.

`project` maps each token's queries and keys by itself (`(..., H, K)`, before any turning by position); calling the
score then compares all pairs. `dot_scale` is set where that is a plain product with this factor, so that the fast
kernels can serve it; None where it is not.

B documents . L query positions . M key positions . H query heads . G key/value heads . K d_k
"""

import math
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

CHUNK = 2**22  # numbers of a (B, H, l, M, K) chunk of pairs that are held at a time
FIRST_TEMPERATURE = 10.0  # of the cosine: from -10 to 10 the softmax can choose, and it learns from there


class Score(nn.Module):
    dot_scale: float | None = None

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k


class Dot(Score):
    """scale · q kᵀ: Luong et al. (2015), section 3.1, "dot"; with 1/√d_k Vaswani et al. (2017), section 3.2.1."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.dot_scale = scale

    def forward(self, q_BHLK: Tensor, k_BHMK: Tensor) -> Tensor:
        return q_BHLK @ k_BHMK.transpose(-2, -1) * self.scale


class Cosine(Dot):
    """τ cos(q, k) with a learned factor τ for each head: Henry et al. (2020), "Query-Key Normalization"."""

    def __init__(self, *, n_heads: int, scale: float | None) -> None:
        super().__init__(1.0)
        self.first = scale or FIRST_TEMPERATURE
        self.log_scale_H = nn.Parameter(torch.full((n_heads,), math.log(self.first)))

    def project(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        scaled = F.normalize(q, dim=-1) * self.log_scale_H.exp()[:, None]
        return scaled.to(q.dtype), F.normalize(k, dim=-1).to(k.dtype)


class General(Dot):
    """scale · q W k with one matrix W for each head: Luong et al. (2015), section 3.1, "general"."""

    def __init__(self, *, n_heads: int, d_k: int, scale: float) -> None:
        super().__init__(scale)
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

    def __init__(self, *, n_heads: int, n_kv_heads: int, d_k: int, scale: float) -> None:
        super().__init__(scale)
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

    def __init__(self, *, n_heads: int, d_k: int, scale: float) -> None:
        super().__init__(scale)
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


def make_score(kind: str, *, n_heads: int, n_kv_heads: int, d_k: int, scale: float | None = None) -> Score:
    """The score `kind` names; `scale` None is its own: 1/√d_k for scaled_dot, learned for cosine, 1 for the others."""
    factor = scale if scale is not None else d_k**-0.5 if kind == "scaled_dot" else 1.0
    match kind:
        case "scaled_dot" | "dot":
            return Dot(factor)
        case "cosine":
            return Cosine(n_heads=n_heads, scale=scale)
        case "general":
            return General(n_heads=n_heads, d_k=d_k, scale=factor)
        case "distance":
            return Distance(factor)
        case "additive":
            return Additive(n_heads=n_heads, n_kv_heads=n_kv_heads, d_k=d_k, scale=factor)
        case "concat":
            return Concat(n_heads=n_heads, d_k=d_k, scale=factor)
    raise AssertionError(f"{kind} is not a score")


def scores_of_sums(q_BHLK: Tensor, k_BHMK: Tensor, v_HK: Tensor) -> Tensor:
    """v tanh(q + k) of all pairs: `(B, H, L, M)`.

    The sums, `(B, H, L, M, K)`, are made for a few queries at a time and again in the backward pass, so memory
    grows with the pairs alone and not with their width.
    """
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
