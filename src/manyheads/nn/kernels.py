"""Fast forms of `attend`, each tested equal to it, and the one place that chooses between them.

B documents . L query positions . M key positions . N tokens . H query heads . G key/value heads . K d_k . V d_v
"""

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.layout import Layout, Packed
from manyheads.nn.attention import attend, share_heads

SDPA_FROM = 384
"""Key positions from which torch's fused CPU kernel beats two plain matmuls in bf16, forward and backward:
8 against 37 ms at 64 positions, 16 against 46 at 128, 26 against 37 at 256, but 70 against 57 at 512."""


def attention(
    q_NHK: Tensor,
    k_NGK: Tensor,
    v_NGV: Tensor,
    queries: Layout,
    keys: Layout,
    *,
    bias_HLM: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of each document of `queries` to the same document of `keys`.

    Args:
        q_NHK, k_NGK, v_NGV: projected tokens in their layouts: `(N, H, K)` packed, `(B, L, H, K)` padded.
        bias_HLM: added to the scaled scores.
        dropout: probability with which an attention weight is dropped.

    Returns:
        The contexts in the layout of the queries: `(N, H, V)` packed, `(B, L, H, V)` padded.
    """
    if _flash_fits(q_NHK, v_NGV, queries, keys, bias_HLM, dropout):
        return _flash(q_NHK, k_NGK, v_NGV, cast(Packed, queries), cast(Packed, keys))
    q_BHLK, k_BGMK, v_BGMV = (
        layout.grid(x).transpose(1, 2) for x, layout in ((q_NHK, queries), (k_NGK, keys), (v_NGV, keys))
    )
    keep = None if keys.is_full else keys.keep_BL[:, None, None, :]
    if keys.longest >= (1 if q_NHK.is_cuda else SDPA_FROM):
        context_BHLV = fused(q_BHLK, k_BGMK, v_BGMV, keep, bias_HLM, dropout)
    else:
        context_BHLV = attend(q_BHLK, k_BGMK, v_BGMV, keep, bias=bias_HLM, dropout=dropout)
    return queries.flat(context_BHLV.transpose(1, 2))


def fused(
    q_BHLK: Tensor, k_BGMK: Tensor, v_BGMV: Tensor, keep: Tensor | None, bias: Tensor | None, dropout: float
) -> Tensor:
    """torch's scaled_dot_product_attention, with the same answer for a query that may attend to nothing."""
    if bias is None:
        mask = keep
    else:
        mask = bias.to(q_BHLK.dtype)
        mask = mask if keep is None else mask.masked_fill(~keep, torch.finfo(mask.dtype).min)
    context_BHLV = F.scaled_dot_product_attention(
        q_BHLK, k_BGMK, v_BGMV, mask, dropout, enable_gqa=q_BHLK.size(1) != k_BGMK.size(1)
    )
    if keep is None:
        return context_BHLV
    return context_BHLV.masked_fill(~keep.any(-1, keepdim=True), 0.0)


def _flash_fits(
    q_NHK: Tensor, v_NGV: Tensor, queries: Layout, keys: Layout, bias_HLM: Tensor | None, dropout: float
) -> bool:
    """Packed documents on a GPU in half precision, without what the variable-length kernel lacks."""
    return (
        q_NHK.is_cuda
        and isinstance(queries, Packed)
        and isinstance(keys, Packed)
        and min(queries.longest, keys.longest) > 0
        and q_NHK.dtype in (torch.bfloat16, torch.float16)
        and q_NHK.size(-1) == v_NGV.size(-1)
        and q_NHK.size(-1) % 8 == 0
        and q_NHK.size(-1) <= 256
        and torch.cuda.get_device_capability(q_NHK.device) >= (8, 0)
        and bias_HLM is None
        and dropout == 0.0
    )


def _flash(q_NHK: Tensor, k_NGK: Tensor, v_NGV: Tensor, queries: Packed, keys: Packed) -> Tensor:
    """Flash attention over documents end to end (Dao, 2023, "FlashAttention-2"); no padding is ever made."""
    from torch.nn.attention.varlen import varlen_attn  # not in every build of torch for the CPU

    k_NHK, v_NHV = (share_heads(x, q_NHK.size(1)) for x in (k_NGK, v_NGV))  # torch 2.11 cannot group heads here
    context_NHV = varlen_attn(
        q_NHK,
        k_NHK.contiguous(),
        v_NHV.contiguous(),
        queries.offsets.int(),
        keys.offsets.int(),
        queries.longest,
        keys.longest,
    )
    return cast(Tensor, context_NHV)
