"""Fast forms of `attend`, each tested to be equal to it, and `attention`, the one place that chooses between them.

    flash     packed documents on a GPU in half precision, no padding at all
    banded    a window much shorter than the text: blocks of one window
    fused     torch's scaled_dot_product_attention
    chunked   training on a CPU with texts too short for `fused`: a few documents at a time, written-out backward pass
    attend    everything else: the textbook formula

B documents . L query positions . M key positions . N tokens in their layout, packed or padded
H query heads . G key/value heads . K d_k . V d_v . W window
b documents of a chunk, or blocks of a band . P pairs of a document and a head in a chunk
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
from manyheads.nn.dropout import has_no_values, kept

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

SINGLE_BELOW = 128
"""Key positions below which softmax is faster in fp32 on a CPU than in bf16, although it is cast there and back. 256
matrices, one thread: 0.7 against 2.0 ms at 45 positions, 1.0 against 1.2 at 64, 1.7 against 2.7 at 80, level at 128."""

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
    bias: Tensor | None = None,
    window: int = 0,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of each document's queries to its own keys, by the fastest kernel for the case.

    Args:
        q_NHK, k_NGK, v_NGV: projected tokens in their layouts: `(N, H, K)` packed, `(B, L, H, K)` padded.
        queries, keys: their layouts; the same object in self-attention.
        score, normalise: see `attend`; default: softmax(q kᵀ / √d_k).
        bias: added to the scores, broadcasts to `(B, H, L, M)`.
        window: a query attends to keys at most this many positions away; 0: no limit.
        causal: a query attends only to keys at its own position and before it.
        dropout: probability of dropping an attention weight.

    Returns:
        Contexts in the layout of the queries: `(N, H, V)` packed, `(B, L, H, V)` padded.
    """
    score = score or ScaledDot(d_k=q_NHK.size(-1))
    # `flash`, `fused` and `chunked` compute softmax(scale · q kᵀ) v and nothing else. None: this is another formula.
    scale = score.dot_scale if normalise is softmax else None
    is_self_attention = queries is keys
    is_unrestricted = not window and not causal

    # In cross-attention the flash kernel counts the positions of windows and causal masks differently.
    counts_alike = is_self_attention or is_unrestricted
    if (
        scale is not None
        and dropout == 0.0
        and bias is None
        and counts_alike
        and _flash_fits(q_NHK, k_NGK, v_NGV, queries, keys)
    ):
        left = window or -1  # -1: no limit
        right = 0 if causal else left
        return _flash(q_NHK, k_NGK, v_NGV, cast(Packed, queries), cast(Packed, keys), scale, (left, right))

    # From here on one document a row, heads before positions.
    q_BHLK = queries.grid(q_NHK).transpose(1, 2)
    k_BGMK = keys.grid(k_NGK).transpose(1, 2)
    v_BGMV = keys.grid(v_NGV).transpose(1, 2)
    textbook = partial(attend, score=score, normalise=normalise, dropout=dropout)
    if (
        window
        and bias is None
        and is_self_attention
        and not torch.compiler.is_exporting()  # an exported graph serves all lengths, and cannot choose by them
        and keys.longest >= BAND_FROM * window
    ):
        context_BHLV = banded(q_BHLK, k_BGMK, v_BGMV, keys.keep_BL, window, causal, textbook)
        return queries.flat(context_BHLV.transpose(1, 2))

    keep = attention_mask(queries, keys, window, causal)
    # In `chunked` the context of a query without keys is not zero. In these layouts no such context is ever read.
    reads_no_empty_row = isinstance(keys, Packed) or keys.is_full
    fits_chunked = is_self_attention and is_unrestricted and bias is None and reads_no_empty_row
    trains_on_cpu = torch.is_grad_enabled() and not _is_on_gpu(q_BHLK)
    fused_from = SDPA_FROM_CHUNKED if fits_chunked else SDPA_FROM
    if scale is not None and (not trains_on_cpu or (dropout == 0.0 and keys.longest >= fused_from)):
        context_BHLV = fused(q_BHLK, k_BGMK, v_BGMV, keep, bias, dropout, scale)
    elif scale is not None and fits_chunked:
        context_BHLV = chunked(q_BHLK, k_BGMK, v_BGMV, keep, scale=scale, dropout=dropout)
    else:
        context_BHLV = textbook(q_BHLK, k_BGMK, v_BGMV, keep, bias=bias)
    return queries.flat(context_BHLV.transpose(1, 2))


def attention_mask(queries: Layout, keys: Layout, window: int = 0, causal: bool = False) -> Tensor | None:
    """A boolean mask, true where a query may attend, that broadcasts to `(B, H, L, M)`; None if it may everywhere."""
    keep_B11M = None if keys.is_full else keys.keep_BL[:, None, None, :]
    if not window and not causal:
        return keep_B11M
    device = keys.keep_BL.device
    positions_L1 = torch.arange(queries.longest, device=device)[:, None]
    positions_M = torch.arange(keys.longest, device=device)
    near_LM = near(positions_L1, positions_M, window, causal)
    if keep_B11M is None:
        return near_LM
    return keep_B11M & near_LM


def near(query_at: Tensor, key_at: Tensor, window: int, causal: bool) -> Tensor:
    """Whether a query may attend to a key, by their positions (any shapes that broadcast).

    The sliding window of Beltagy et al. (2020), "Longformer", section 3.1.
    """
    distance = key_at - query_at
    if causal and window:
        return (distance <= 0) & (distance.abs() <= window)
    if causal:
        return distance <= 0
    if window:
        return distance.abs() <= window
    return torch.ones_like(distance, dtype=torch.bool)


def banded(
    q_BHLK: Tensor,
    k_BGMK: Tensor,
    v_BGMV: Tensor,
    keep_BM: Tensor,
    window: int,
    causal: bool,
    textbook: Callable[..., Tensor],
) -> Tensor:
    """Attention within a window, in blocks of one window: time and memory grow with L · W instead of L · M.

    The queries of block i attend to keys of blocks i - 1, i and i + 1 only; `textbook` is called as if each block
    were a document. Used in self-attention, where M is L.
    """
    B, _, L, _ = q_BHLK.shape
    n_blocks = -(-L // window)  # rounded up
    n_padding = n_blocks * window - L  # of the last block
    q_blocks = F.pad(q_BHLK, (0, 0, 0, n_padding)).unflatten(2, (n_blocks, window))
    # With a window of padding on either side, block i of 3 W keys begins where block i - 1 of W queries does.
    k_blocks = F.pad(k_BGMK, (0, 0, window, n_padding + window)).unfold(2, 3 * window, window).transpose(-2, -1)
    v_blocks = F.pad(v_BGMV, (0, 0, window, n_padding + window)).unfold(2, 3 * window, window).transpose(-2, -1)
    keep_blocks = F.pad(keep_BM, (window, n_padding + window)).unfold(1, 3 * window, window)
    # Positions within the 3 W keys of a block; its queries are the middle third.
    positions_M = torch.arange(3 * window, device=keep_BM.device)
    near_LM = near(positions_M[window : 2 * window, None], positions_M, window, causal)
    keep_b1LM = (keep_blocks[:, :, None] & near_LM).flatten(0, 1)[:, None]
    # Blocks become documents: (B, heads, blocks, ...) to (b, heads, ...).
    q_bHWK = q_blocks.transpose(1, 2).flatten(0, 1)
    k_bGMK = k_blocks.transpose(1, 2).flatten(0, 1)
    v_bGMV = v_blocks.transpose(1, 2).flatten(0, 1)
    context = textbook(q_bHWK, k_bGMK, v_bGMV, keep_b1LM).unflatten(0, (B, n_blocks))
    return context.transpose(1, 2).flatten(2, 3)[:, :, :L]


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

    Args:
        keep: boolean mask that broadcasts to `(B, H, L, M)`, see `attention_mask`.
        bias: added to the scores, broadcasts likewise.
        scale: of q kᵀ; default: 1 / √d_k.

    Returns:
        Contexts `(B, H, L, V)`.
    """
    mask, has_no_key = keep, None
    # An exported graph is only given texts with [CLS], so no query is without keys; onnxruntime does not broadcast L.
    if keep is not None and torch.compiler.is_exporting() and keep.size(-2) == 1:
        mask = keep.expand(-1, -1, q_BHLK.size(2), -1)
    elif keep is not None:
        has_no_key = ~keep.any(-1, keepdim=True)
        mask = keep | has_no_key
    if bias is not None:  # the kernel takes one tensor: a mask, or what to add to the scores
        bias = bias.to(q_BHLK.dtype)
        if mask is not None:
            bias = bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
        mask = bias
    backends = sdpa_kernel(GPU_KERNELS) if _is_on_gpu(q_BHLK) else nullcontext()
    shares_heads = q_BHLK.size(1) != k_BGMK.size(1)
    with backends:
        context_BHLV = F.scaled_dot_product_attention(
            q_BHLK, k_BGMK, v_BGMV, mask, dropout, scale=scale, enable_gqa=shares_heads
        )
    if has_no_key is None:
        return context_BHLV
    return context_BHLV.masked_fill(has_no_key, 0.0)


def _is_on_gpu(x: Tensor) -> bool:
    """A function, so that tests on a CPU can take the GPU's road."""
    return x.is_cuda


def _flash_fits(q_NHK: Tensor, k_NGK: Tensor, v_NGV: Tensor, queries: Layout, keys: Layout) -> bool:
    """Whether the inputs are packed documents on a GPU, in half precision and of a width that the kernel supports."""
    width = q_NHK.size(-1)
    fits = (
        q_NHK.is_cuda
        and isinstance(queries, Packed)
        and isinstance(keys, Packed)
        and min(queries.longest, keys.longest) > 0
        and q_NHK.dtype in (torch.bfloat16, torch.float16)
        and q_NHK.dtype == k_NGK.dtype == v_NGV.dtype  # the kernel casts nothing, not even under autocast
        and width == v_NGV.size(-1)
        and width % 8 == 0
        and width <= 256
    )
    if not fits:
        return False
    capability = torch.cuda.get_device_capability(q_NHK.device)
    if 192 < width <= 224:  # elsewhere the kernel has no backward pass for them: sdp_utils.cpp of torch
        return capability in ((8, 0), (9, 0))
    return capability >= (8, 0)


def _flash(
    q_NHK: Tensor, k_NGK: Tensor, v_NGV: Tensor, queries: Packed, keys: Packed, scale: float, reach: tuple[int, int]
) -> Tensor:
    """Flash attention over packed documents (Dao, 2023, "FlashAttention-2"), without padding.

    To the kernel the tail is a document like any other, so its contexts are finite; its gradient is zero. `reach` says
    how many keys a query attends to on its left and right; -1: all.
    """
    from torch.nn.attention.varlen import varlen_attn  # not in every build of torch for the CPU

    n_heads = q_NHK.size(1)
    k_NHK, v_NHV = share_heads(k_NGK, n_heads), share_heads(v_NGV, n_heads)  # torch 2.11 cannot group heads here
    (cuts_q, longest_q), (cuts_k, longest_k) = queries.bounds, keys.bounds
    inputs = q_NHK, k_NHK, v_NHV, cuts_q, cuts_k, longest_q, longest_k
    return cast(Tensor, varlen_attn(*inputs, scale=scale, window_size=reach))


def chunked(
    q_BHLK: Tensor, k_BGMK: Tensor, v_BGMV: Tensor, keep_B11M: Tensor | None, *, scale: float, dropout: float
) -> Tensor:
    """softmax(q kᵀ · scale) v, `(B, H, L, V)`: `attend` for a few documents at a time, its backward pass written out.

    That reads and writes memory less often: a training step on the CPU takes 2 to 5 % less time than by autograd.
    Unlike in `attend`, a query without keys gets the mean of the values instead of zeros. So it is used only where
    no such query is ever read: in packed texts an empty document has no queries. Padding, where `keep_B11M` is false,
    is at the end of each document.
    """
    n_heads = q_BHLK.size(1)
    k_BHMK, v_BHMV = share_heads(k_BGMK, n_heads), share_heads(v_BGMV, n_heads)
    device, dtype = q_BHLK.device.type, q_BHLK.dtype
    if torch.is_autocast_enabled(device):  # autocast does not reach into an autograd function
        dtype = torch.get_autocast_dtype(device)
    context = _Chunked.apply(q_BHLK.to(dtype), k_BHMK.to(dtype), v_BHMV.to(dtype), keep_B11M, scale, dropout)
    return cast(Tensor, context)


class _Chunked(torch.autograd.Function):
    """`chunked` for H heads of keys and values. What autograd would do step by step over the whole batch is done for
    one chunk after another, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, q_BHLK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor, keep_B11M: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        B, H, L, _ = q_BHLK.shape
        M = k_BHMK.size(2)
        n_documents = max(1, CHUNK_BYTES // max(1, H * L * M * q_BHLK.element_size()))
        ctx.scale, ctx.grow = scale, 1 / (1 - dropout)
        ctx.chunks = [slice(at, at + n_documents) for at in range(0, max(1, B), n_documents)]
        context_BHLV = q_BHLK.new_empty(B, H, L, v_BHMV.size(-1))
        saved = []
        for chunk in ctx.chunks:
            q_PLK = q_BHLK[chunk].flatten(0, 1)
            k_PMK = k_BHMK[chunk].flatten(0, 1)
            v_PMV = v_BHMV[chunk].flatten(0, 1)
            scores_PLM = _scaled_product(q_PLK, k_PMK.mT, scale)
            if keep_B11M is not None:
                scores_bHLM = scores_PLM.view(*q_BHLK[chunk].shape[:3], M)
                _mask_ends(scores_bHLM, keep_B11M[chunk])
            weights_PLM = dropped_PLM = _softmax(scores_PLM)
            kept_PLM = None
            if dropout:
                kept_PLM = kept(weights_PLM, dropout)
                dropped_PLM = weights_PLM * kept_PLM
            context_PLV = _scaled_product(dropped_PLM, v_PMV, ctx.grow)
            context_BHLV[chunk] = context_PLV.view_as(context_BHLV[chunk])
            saved += [q_PLK, k_PMK, v_PMV, weights_PLM, kept_PLM]
        ctx.save_for_backward(*saved)
        return context_BHLV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHLV: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        saved = ctx.saved_tensors  # read once: with recomputed layers a second time would be an error
        H = grad_BHLV.size(1)
        grads_q, grads_k, grads_v = [], [], []
        for at, chunk in enumerate(ctx.chunks):
            q_PLK, k_PMK, v_PMV, weights_PLM, kept_PLM = saved[5 * at : 5 * at + 5]
            grad_PLV = grad_BHLV[chunk].flatten(0, 1)
            dropped_PLM = weights_PLM if kept_PLM is None else weights_PLM * kept_PLM
            grad_v_PMV = _scaled_product(dropped_PLM.mT, grad_PLV, ctx.grow)
            grad_weights_PLM = _scaled_product(grad_PLV, v_PMV.mT, ctx.grow)
            if kept_PLM is not None:
                grad_weights_PLM = grad_weights_PLM * kept_PLM
            grad_scores_PLM = torch._softmax_backward_data(grad_weights_PLM, weights_PLM, -1, weights_PLM.dtype)  # pyright: ignore
            grads_q.append(_scaled_product(grad_scores_PLM, k_PMK, ctx.scale).unflatten(0, (-1, H)))
            grads_k.append(_scaled_product(grad_scores_PLM.mT, q_PLK, ctx.scale).unflatten(0, (-1, H)))
            grads_v.append(grad_v_PMV.unflatten(0, (-1, H)))
        return torch.cat(grads_q), torch.cat(grads_k), torch.cat(grads_v), None, None, None


def _mask_ends(scores_bHLM: Tensor, keep_b11M: Tensor) -> None:
    """Mask padding, which is at the end of each document: only columns in which some document has any are visited."""
    n_full = 0 if has_no_values() else int(keep_b11M.all(0).sum())
    scores_bHLM[..., n_full:].masked_fill_(~keep_b11M[..., n_full:], torch.finfo(scores_bHLM.dtype).min)


def _softmax(scores_PLM: Tensor) -> Tensor:
    """softmax(-1); rows of 16 bits that are shorter than `SINGLE_BELOW` go through single precision."""
    if scores_PLM.element_size() == 2 and scores_PLM.size(-1) < SINGLE_BELOW:
        return scores_PLM.float().softmax(-1).to(scores_PLM.dtype)
    return scores_PLM.softmax(-1)


def _scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """scale · a b in one call, so that bf16 rounds once."""
    return torch.baddbmm(a.new_empty(a.size(0), a.size(1), b.size(2)), a, b, beta=0, alpha=scale)
