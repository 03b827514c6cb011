"""Fast forms of `attend`, each tested to be equal to it, and `attention`, the one place that chooses between them.

    flash     packed documents on a GPU in half precision, no padding at all
    banded    a window much shorter than the text: blocks of one window
    fused     torch's scaled_dot_product_attention
    chunked   training on a CPU with texts too short for `fused`: a few documents at a time, written-out backward pass
    attend    everything else: the textbook formula

B documents . L query positions . M key positions . N packed tokens . H query heads . G key/value heads . K d_k . V d_v
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from manyheads.layout import Layout, Packed
from manyheads.nn.attention import Normaliser, ScaledDot, Score, attend, share_heads, softmax
from manyheads.nn.dropout import kept

SDPA_FROM, SDPA_FROM_CHUNKED = 384, 1024
"""Key positions from which torch's fused CPU kernel is faster, forward and backward in bf16: than the textbook's two
matrix products (those take 8 against 37 ms at 64 positions, 16 against 46 at 128, 26 against 37 at 256, but 70 against
57 at 512), and than `chunked` (113 against 139 ms at 512, 233 against 216 at 1024). With dropout the kernel has no
fused form on a CPU and never wins: 113 against 490 ms at 512, 863 against 1794 at 2048.
Forward alone it never loses by much: 0.12 against 0.33 ms for one text of 50, 10.3 against 9.1 for 80 such, 15 against
31 for 16 of 256. So without gradients it is always used."""

BAND_FROM = 4
"""Length of a text, in windows, from which `banded` is faster than a masked map: a block is compared with three."""

CHUNK_BYTES = 2**22
"""Size of the attention weights that `chunked` makes at a time, so that they stay in the processor's cache while they
are masked, normalised and dropped. Forward and backward of 8192 tokens, 4 heads, two cores: 92 ms at 512 positions
instead of 128, 200 instead of 282 at 1024, 52 instead of 68 at 256."""

GPU_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's: its gradients are NaN on an H100 where scores are very negative, with a mask at 64, 192, 320 ...
positions (github.com/pytorch/pytorch/issues/196678), without one for a single query
(github.com/NVIDIA/cudnn-frontend/issues/1072)."""


def attention(
    q_NHK: Tensor,
    k_NGK: Tensor,
    v_NGV: Tensor,
    queries: Layout,
    keys: Layout,
    *,
    score: Score | None = None,
    normalise: Normaliser = softmax,
    bias_HLM: Tensor | None = None,
    window: int = 0,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of each document's queries to its own keys, by the fastest kernel for the case.

    Args:
        q_NHK, k_NGK, v_NGV: projected tokens in their layouts: `(N, H, K)` packed, `(B, L, H, K)` padded.
        queries, keys: their layouts; the same object in self-attention.
        score, normalise: see `attend`; default: softmax(q kᵀ / √d_k).
        bias_HLM: added to the scores.
        window: a query attends to keys at most this many positions away; 0: no limit.
        causal: a query attends only to keys at its own position and before it.
        dropout: probability of dropping an attention weight.

    Returns:
        Contexts in the layout of the queries: `(N, H, V)` packed, `(B, L, H, V)` padded.
    """
    score = score or ScaledDot(d_k=q_NHK.size(-1))
    plain = score.dot_scale if normalise is softmax else None  # the only form that torch's own kernels compute
    # In cross-attention the flash kernel counts the positions of windows and causal masks differently.
    is_placed = bias_HLM is None and (queries is keys or not (window or causal))
    if plain is not None and is_placed and dropout == 0.0 and _flash_fits(q_NHK, k_NGK, v_NGV, queries, keys):
        reach = (window or -1, 0 if causal else window or -1)
        return _flash(q_NHK, k_NGK, v_NGV, cast(Packed, queries), cast(Packed, keys), plain, reach)
    textbook = partial(attend, score=score, normalise=normalise, dropout=dropout)
    q, k, v = (layout.grid(x).transpose(1, 2) for x, layout in ((q_NHK, queries), (k_NGK, keys), (v_NGV, keys)))
    if (
        window
        and bias_HLM is None
        and queries is keys
        and not torch.compiler.is_exporting()  # a graph serves all lengths
        and keys.longest >= BAND_FROM * window
    ):
        return queries.flat(banded(q, k, v, keys.keep_BL, window, causal, textbook).transpose(1, 2))
    is_read_whole = isinstance(keys, Packed) or keys.is_full  # no row of a grid without keys is ever looked at
    is_whole = queries is keys and is_read_whole and bias_HLM is None and not (window or causal)
    keep = attention_mask(queries, keys, window, causal)
    least = SDPA_FROM_CHUNKED if is_whole else SDPA_FROM
    learns_on_cpu = torch.is_grad_enabled() and not _is_on_gpu(q)
    if plain is not None and (not learns_on_cpu or (dropout == 0.0 and keys.longest >= least)):
        context_BHLV = fused(q, k, v, keep, bias_HLM, dropout, plain)
    elif plain is not None and is_whole:
        context_BHLV = chunked(q, k, v, keep, scale=plain, dropout=dropout)
    else:
        context_BHLV = textbook(q, k, v, keep, bias=bias_HLM)
    return queries.flat(context_BHLV.transpose(1, 2))


def attention_mask(queries: Layout, keys: Layout, window: int = 0, causal: bool = False) -> Tensor | None:
    """A boolean mask, true where a query may attend, that broadcasts to `(B, H, L, M)`; None if it may everywhere."""
    keep = None if keys.is_full else keys.keep_BL[:, None, None, :]
    if not window and not causal:
        return keep
    device = keys.keep_BL.device
    at_L1, at_M = torch.arange(queries.longest, device=device)[:, None], torch.arange(keys.longest, device=device)
    near_LM = near(at_L1, at_M, window, causal)
    return near_LM if keep is None else keep & near_LM


def near(query_at: Tensor, key_at: Tensor, window: int, causal: bool) -> Tensor:
    """Whether a query may attend to a key, by their positions (any shapes that broadcast).

    The sliding window of Beltagy et al. (2020), "Longformer", section 3.1.
    """
    ahead = key_at - query_at
    inside = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    return inside & (ahead.abs() <= window) if window else inside


def banded(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMV: Tensor,
    keep_BM: Tensor,
    window: int,
    causal: bool,
    textbook: Callable[..., Tensor],
) -> Tensor:
    """Attention within a window, in blocks of one window: time and memory grow with L · window instead of L · M.

    The queries of block i attend to keys of blocks i - 1, i and i + 1 only; `textbook` is called as if each block
    were a document.
    """
    n_documents, _, length, _ = q_BHLK.shape
    n_blocks = -(-length // window)  # rounded up
    behind = n_blocks * window - length  # padding of the last block
    q_blocks = F.pad(q_BHLK, (0, 0, 0, behind)).unflatten(2, (n_blocks, window))
    k_blocks, v_blocks = (
        F.pad(x, (0, 0, window, behind + window)).unfold(2, 3 * window, window).transpose(-2, -1)
        for x in (k_BGMK, v_BGMV)
    )
    keep_blocks = F.pad(keep_BM, (window, behind + window)).unfold(1, 3 * window, window)
    at_L1 = torch.arange(window, 2 * window, device=keep_BM.device)[:, None]
    near_LM = near(at_L1, torch.arange(3 * window, device=keep_BM.device), window, causal)
    keep = (keep_blocks[:, :, None] & near_LM).flatten(0, 1)[:, None]
    folded = (x.transpose(1, 2).flatten(0, 1) for x in (q_blocks, k_blocks, v_blocks))
    context = textbook(*folded, keep).unflatten(0, (n_documents, n_blocks))
    return context.transpose(1, 2).flatten(2, 3)[:, :, :length]


def fused(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMV: Tensor,
    keep: Tensor | None,
    bias: Tensor | None,
    dropout: float,
    scale: float | None = None,
) -> Tensor:
    """torch's scaled_dot_product_attention; as in `attend`, a query that may attend to no key has a context of zeros.

    Some kernels return NaN for such a query. So it attends to every key, and its context is set to zero afterwards.
    """
    mask, sees_none = keep, None
    # An exported graph is only given texts with [CLS], so no query is without keys; onnxruntime does not broadcast L.
    if keep is not None and torch.compiler.is_exporting() and keep.size(-2) == 1:
        mask = keep.expand(-1, -1, q_BHLK.size(2), -1)
    elif keep is not None:
        sees_none = ~keep.any(-1, keepdim=True)
        mask = keep | sees_none
    if bias is not None:
        bias = bias.to(q_BHLK.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
    with sdpa_kernel(GPU_KERNELS) if _is_on_gpu(q_BHLK) else nullcontext():
        context_BHLV = F.scaled_dot_product_attention(
            q_BHLK, k_BGMK, v_BGMV, mask, dropout, scale=scale, enable_gqa=q_BHLK.size(1) != k_BGMK.size(1)
        )
    return context_BHLV if sees_none is None else context_BHLV.masked_fill(sees_none, 0.0)


def _is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _flash_fits(q_NHK: Tensor, k_NGK: Tensor, v_NGV: Tensor, queries: Layout, keys: Layout) -> bool:
    """Whether the inputs are packed documents on a GPU, in half precision and of a width that the kernel supports."""
    return (
        q_NHK.is_cuda
        and isinstance(queries, Packed)
        and isinstance(keys, Packed)
        and min(queries.longest, keys.longest) > 0
        and q_NHK.dtype in (torch.bfloat16, torch.float16)
        and q_NHK.dtype == k_NGK.dtype == v_NGV.dtype  # the kernel casts nothing, not even under autocast
        and q_NHK.size(-1) == v_NGV.size(-1)
        and q_NHK.size(-1) % 8 == 0
        and q_NHK.size(-1) <= 256
        and torch.cuda.get_device_capability(q_NHK.device) >= (8, 0)
    )


def _flash(
    q_NHK: Tensor, k_NGK: Tensor, v_NGV: Tensor, queries: Packed, keys: Packed, scale: float, reach: tuple[int, int]
) -> Tensor:
    """Flash attention over packed documents (Dao, 2023, "FlashAttention-2"), without padding.

    To the kernel the tail is a document like any other, so its contexts are finite; its gradient is zero. `reach` says
    how many keys a query attends to on its left and right; -1: all.
    """
    from torch.nn.attention.varlen import varlen_attn  # not in every build of torch for the CPU

    k_NHK, v_NHV = (share_heads(x, q_NHK.size(1)) for x in (k_NGK, v_NGV))  # torch 2.11 cannot group heads here
    (cuts_q, longest_q), (cuts_k, longest_k) = queries.bounds, keys.bounds
    inputs = q_NHK, k_NHK, v_NHV, cuts_q, cuts_k, longest_q, longest_k
    return cast(Tensor, varlen_attn(*inputs, scale=scale, window_size=reach))


def chunked(
    q_BHLK: Tensor, k_BGMK: Tensor, v_BGMV: Tensor, keep_B11M: Tensor | None, *, scale: float, dropout: float
) -> Tensor:
    """softmax(q kᵀ · scale) v, `(B, H, L, V)`: `attend` for a few documents at a time, its backward pass written out.

    That reads and writes memory less often: a training step on the CPU takes 2 to 5 % less time than by autograd.
    Unlike in `attend`, a query without keys gets the mean of the values instead of zeros. So it is used only where
    no such query is ever read: in packed texts an empty document has no queries.
    """
    k_BHMK, v_BHMV = (share_heads(x, q_BHLK.size(1)) for x in (k_BGMK, v_BGMV))
    kind = q_BHLK.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else q_BHLK.dtype
    q, k, v = (x.to(dtype) for x in (q_BHLK, k_BHMK, v_BHMV))
    return cast(Tensor, _Attend.apply(q, k, v, keep_B11M, scale, dropout))


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, keep_B11M: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        B, H, L, _ = q.shape
        M = k.size(2)
        n_documents = max(1, CHUNK_BYTES // max(1, H * L * M * q.element_size()))
        ctx.scale, ctx.grow = scale, 1 / (1 - dropout)
        ctx.parts = [slice(at, at + n_documents) for at in range(0, max(1, B), n_documents)]
        context, saved = q.new_empty(*q.shape[:3], v.size(-1)), []
        for part in ctx.parts:
            q_, k_, v_ = (x[part].flatten(0, 1) for x in (q, k, v))
            scores = _scaled_product(q_, k_.mT, scale)
            if keep_B11M is not None:
                scores.view(*q[part].shape[:3], M).masked_fill_(~keep_B11M[part], torch.finfo(scores.dtype).min)
            weights = scores.softmax(-1)
            ones = kept(weights, dropout) if dropout else None
            dropped = weights if ones is None else weights * ones
            context[part] = _scaled_product(dropped, v_, ctx.grow).view_as(context[part])
            saved += [q_, k_, v_, weights, ones]
        ctx.save_for_backward(*saved)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        saved = ctx.saved_tensors  # once: what is recomputed may be taken out once alone
        gradients = []
        for at, part in enumerate(ctx.parts):
            q_, k_, v_, weights, ones = saved[5 * at : 5 * at + 5]
            grad_ = grad[part].flatten(0, 1)
            dropped = weights if ones is None else weights * ones
            grad_v = _scaled_product(dropped.mT, grad_, ctx.grow)
            grad_weights = _scaled_product(grad_, v_.mT, ctx.grow)
            grad_weights = grad_weights if ones is None else grad_weights * ones
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)  # pyright: ignore
            grad_q, grad_k = (_scaled_product(*one, ctx.scale) for one in ((grad_scores, k_), (grad_scores.mT, q_)))
            gradients.append([x.unflatten(0, (-1, grad.size(1))) for x in (grad_q, grad_k, grad_v)])
        return *(torch.cat(of_all) for of_all in zip(*gradients, strict=True)), None, None, None


def _scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """scale · a b in one call, so that bf16 rounds once."""
    return torch.baddbmm(a.new_empty(a.size(0), a.size(1), b.size(2)), a, b, beta=0, alpha=scale)
