"""Scores other than the dot product: how well a query matches a key, see `manyheads.nn.attention.Score`.

B documents . L query positions . M key positions . H query heads . G key/value heads . K d_k
l query positions of a chunk . P pairs of a query and a key . ... any leading axes
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from manyheads.nn.attention import Dot, Score

CHUNK = 2**22  # elements of a (B, H, l, M, K) tensor of pairs that are in memory at once
FIRST_TEMPERATURE = 10.0  # of the cosine, which is learned: scores from -10 to 10 can already single out a key


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
