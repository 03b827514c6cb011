"""Every path of `attention` against torch's attention, one document at a time."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads import plugin
from manyheads.layout import Layout, Packed, Padded
from manyheads.nn import kernels
from manyheads.nn.attention import attend, make_score
from manyheads.nn.kernels import attention
from manyheads.nn.parts import make_block

H, K, V = 4, 6, 5
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
on_every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
QUERIES, KEYS = [3, 0, 5, 1, 2], [4, 2, 3, 0, 1]  # a document without queries, one without keys


@pytest.fixture(params=["plain", "fused"])
def path(request, monkeypatch):
    """The textbook formula or torch's fused kernel, whatever the length."""
    for name in ("SDPA_FROM", "SDPA_FROM_CHUNKED"):
        monkeypatch.setattr(kernels, name, 0 if request.param == "fused" else 10**9)
    return request.param


def heads(lengths: list[int], n_heads: int, width: int) -> Tensor:
    return torch.randn(sum(lengths), n_heads, width, dtype=torch.float64, requires_grad=True)


def document_by_document(
    q_NHK: Tensor, k_NGK: Tensor, v_NGV: Tensor, queries: list[int], keys: list[int], bias_HLM: Tensor | None
) -> Tensor:
    contexts = []
    for q, k, v in zip(q_NHK.split(queries), k_NGK.split(keys), v_NGV.split(keys), strict=True):
        if len(k) == 0:
            contexts.append(torch.zeros(len(q), q.size(1), v.size(2), dtype=q.dtype))
            continue
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), dim=1).transpose(0, 1) for x in (k, v))
        bias = None if bias_HLM is None else bias_HLM[:, : len(q), : k.size(1)]
        contexts.append(F.scaled_dot_product_attention(q.transpose(0, 1), k, v, bias).transpose(0, 1))
    return torch.cat(contexts)


def in_layout(x_N: Tensor, packed: Packed, padded: bool) -> tuple[Tensor, Layout]:
    """With garbage behind the end of each document, if padded."""
    if not padded:
        return x_N, packed
    x_BL = packed.grid(x_N)
    garbage = torch.randn_like(x_BL).masked_fill(packed.keep_BL[(...,) + (None,) * (x_BL.dim() - 2)], 0.0)
    return x_BL + 9 * garbage, Padded(packed.keep_BL)


def allowed(n_queries: int, n_keys: int, window: int, causal: bool) -> Tensor:
    """Query i may look at key j, pair by pair."""
    pairs = [
        [(not causal or j <= i) and (not window or abs(i - j) <= window) for j in range(n_keys)]
        for i in range(n_queries)
    ]
    return torch.tensor(pairs, dtype=torch.bool).reshape(n_queries, n_keys)


LOCAL = [7, 1, 0, 12, 4]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("n_kv_heads", [2, 4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 2, 3, 5, 50])
def test_a_window_and_causality_hide_what_lies_beyond(path, padded, n_kv_heads, causal, window):
    """Windows of 1 to 3 in texts of 12 go through blocks, wider ones through a mask."""
    q, k, v = heads(LOCAL, H, K), heads(LOCAL, n_kv_heads, K), heads(LOCAL, n_kv_heads, V)
    layout = Packed.of_lengths(LOCAL)
    (q_in, layout_in), (k_in, _), (v_in, _) = (in_layout(x, layout, padded) for x in (q, k, v))
    ours = attention(q_in, k_in, v_in, layout_in, layout_in, window=window, causal=causal)
    ours = layout.flat(ours) if padded else ours
    contexts = []
    for q_b, k_b, v_b in zip(q.split(LOCAL), k.split(LOCAL), v.split(LOCAL), strict=True):
        k_b, v_b = (x.repeat_interleave(H // n_kv_heads, dim=1).transpose(0, 1) for x in (k_b, v_b))
        mask = allowed(len(q_b), len(q_b), window, causal)
        contexts.append(F.scaled_dot_product_attention(q_b.transpose(0, 1), k_b, v_b, mask).transpose(0, 1))
    theirs = torch.cat(contexts)
    torch.testing.assert_close(ours, theirs)
    toward = torch.randn_like(theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours, (q, k, v), toward), torch.autograd.grad(theirs, (q, k, v), toward)
    )


@pytest.mark.parametrize("causal", [False, True])
def test_across_two_sequences_positions_count_from_the_start_of_each(causal):
    q, k, v = heads(QUERIES, H, K), heads(KEYS, H, K), heads(KEYS, H, V)
    ours = attention(q, k, v, Packed.of_lengths(QUERIES), Packed.of_lengths(KEYS), window=1, causal=causal)
    for q_b, k_b, v_b, got in zip(q.split(QUERIES), k.split(KEYS), v.split(KEYS), ours.split(QUERIES), strict=True):
        mask = allowed(len(q_b), len(k_b), 1, causal)
        expected = attend(*(x.transpose(0, 1)[None] for x in (q_b, k_b, v_b)), mask)[0].transpose(0, 1)
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("kind", plugin.names("score"))
@pytest.mark.parametrize("normaliser", plugin.names("normaliser"))
@pytest.mark.parametrize("window", [0, 2])
def test_every_score_and_normaliser_is_the_textbook_formula_of_each_document(path, kind, normaliser, window):
    score = make_score(kind, n_heads=H, n_kv_heads=H, d_k=K).double()
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter)
    q, k, v = (heads(LOCAL, H, width) for width in (K, K, V))
    layout, normalise = Packed.of_lengths(LOCAL), make_block("normaliser", normaliser)
    ours = attention(q, k, v, layout, layout, score=score, normalise=normalise, window=window)
    for q_b, k_b, v_b, got in zip(*(x.split(LOCAL) for x in (q, k, v, ours)), strict=True):
        keep = allowed(len(q_b), len(q_b), window, causal=False)
        inputs = (x.transpose(0, 1)[None] for x in (q_b, k_b, v_b))
        expected = attend(*inputs, keep, score=score, normalise=normalise)[0].transpose(0, 1)
        torch.testing.assert_close(got, expected)


def test_blocks_of_a_window_take_memory_that_grows_with_the_text_and_not_with_its_square():
    assert numbers_kept(512, window=8) == pytest.approx(2 * numbers_kept(256, window=8), rel=0.1)
    assert numbers_kept(256, window=0) > 256 * 256


def numbers_kept(length: int, window: int) -> int:
    """For the backward pass, of one text."""
    layout, kept = Packed.of_lengths([length]), []
    q, k, v = (heads([length], 1, 8) for _ in range(3))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        attention(q, k, v, layout, layout, window=window)
    return sum(kept)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("n_kv_heads", [2, 4])
@pytest.mark.parametrize(
    ("queries", "keys"),
    [(QUERIES, KEYS), (QUERIES, QUERIES), ([3, 3], [3, 3]), ([2, 1], [3, 3]), ([3, 3], [2, 1])],
    ids=["cross", "self", "full", "full keys", "full queries"],
)
def test_attention_is_torchs_attention_of_each_document(path, padded, biased, n_kv_heads, queries, keys):
    q, k, v = heads(queries, H, K), heads(keys, n_kv_heads, K), heads(keys, n_kv_heads, V)
    query_layout, key_layout = Packed.of_lengths(queries), Packed.of_lengths(keys)
    bias = torch.randn(H, query_layout.longest, key_layout.longest, dtype=torch.float64) if biased else None
    q_in, layout_in = in_layout(q, query_layout, padded)
    k_in, memory_in = in_layout(k, key_layout, padded)
    v_in, _ = in_layout(v, key_layout, padded)
    ours = attention(q_in, k_in, v_in, layout_in, memory_in, bias=bias)
    ours = query_layout.flat(ours) if padded else ours
    theirs = document_by_document(q, k, v, queries, keys, bias)
    torch.testing.assert_close(ours, theirs)
    toward = torch.randn_like(theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours, (q, k, v), toward), torch.autograd.grad(theirs, (q, k, v), toward)
    )


@on_every_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("queries", "keys"), [([], []), ([0, 0], [0, 0]), ([2, 3], [0, 0]), ([0, 0], [2, 3])])
def test_attention_without_queries_or_keys_is_zero(path, device, dtype, queries, keys):
    q, k, v = (heads(one, H, 8).detach().to(device, dtype).requires_grad_() for one in (queries, keys, keys))
    context = attention(q, k, v, Packed.of_lengths(queries).to(device), Packed.of_lengths(keys).to(device))
    assert torch.equal(context, torch.zeros_like(q))
    for gradient in torch.autograd.grad(context.sum(), (q, k, v)):
        assert (gradient == 0).all()


@on_every_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
def test_a_document_without_keys_makes_no_gradient_nan(path, device, dtype, biased):
    q, k, v = (torch.randn(2, 3, H, 8, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    layout = Padded(torch.tensor([[True, True, False], [False] * 3], device=device))
    bias = torch.randn(H, 3, 3, device=device, dtype=dtype) if biased else None
    context = attention(q, k, v, layout, layout, bias=bias)
    assert (context[1] == 0).all()
    for gradient in torch.autograd.grad(context.float().square().sum(), (q, k, v)):
        assert gradient.isfinite().all()
        assert (gradient[1] == 0).all()


def test_the_fused_kernel_takes_over_at_its_thresholds_and_with_dropout_never(monkeypatch):
    taken = []
    monkeypatch.setattr(kernels, "fused", lambda q, k, *_: taken.append(k.size(2)) or torch.zeros(1, H, q.size(2), V))

    def of_one_text(n_queries: int, n_keys: int, dropout: float) -> None:
        keys, own = Packed.of_lengths([n_keys]), n_queries == n_keys
        q, k, v = heads([n_queries], H, K), heads([n_keys], H, K), heads([n_keys], H, V)
        attention(q, k, v, keys if own else Packed.of_lengths([n_queries]), keys, dropout=dropout)

    for least, n_queries in ((kernels.SDPA_FROM, lambda n: 1), (kernels.SDPA_FROM_CHUNKED, lambda n: n)):
        for n_keys in (least - 1, least):
            of_one_text(n_queries(n_keys), n_keys, 0.0)
        of_one_text(n_queries(least), least, 0.1)
    assert taken == [kernels.SDPA_FROM, kernels.SDPA_FROM_CHUNKED]
    with torch.no_grad():
        of_one_text(1, 1, 0.0)
    assert taken[2:] == [1], "without gradients always"


@pytest.mark.parametrize("lengths", [[9], [4, 4], [3, 0, 5, 1], []])
@pytest.mark.parametrize("causal", [False, True])
def test_without_gradients_the_answers_are_the_same(lengths, causal):
    layout = Packed.of_lengths(lengths)
    q, k, v = heads(lengths, H, K), heads(lengths, H, K), heads(lengths, H, V)
    with torch.no_grad():
        answer = attention(q, k, v, layout, layout, causal=causal)
    torch.testing.assert_close(answer, attention(q, k, v, layout, layout, causal=causal).detach())


def test_dropout_silences_weights_on_every_path(path):
    n_keys, dropout = 1000, 0.3
    layout, one = Packed.of_lengths([n_keys]), Packed.of_lengths([1])
    context = attention(
        torch.zeros(1, 1, 4), torch.zeros(n_keys, 1, 4), torch.eye(n_keys)[:, None], one, layout, dropout=dropout
    )
    survives = context > 0
    assert abs(survives.double().mean() - (1 - dropout)) < 0.06
    torch.testing.assert_close(context[survives], torch.full_like(context[survives], 1 / n_keys / (1 - dropout)))


def heads_on_a_gpu(width: int = 64, dtype: torch.dtype = torch.bfloat16, is_cuda: bool = True) -> SimpleNamespace:
    return SimpleNamespace(is_cuda=is_cuda, dtype=dtype, size=lambda _: width, device="cuda:0")


def test_the_flash_kernel_fits_packed_half_precision_and_nothing_else(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    packed, padded = Packed.of_lengths([2, 3]), Padded(torch.ones(2, 3).bool())
    q, half, single = heads_on_a_gpu(), heads_on_a_gpu(dtype=torch.float16), heads_on_a_gpu(dtype=torch.float32)
    narrow, odd, wide = heads_on_a_gpu(32), heads_on_a_gpu(12), heads_on_a_gpu(264)
    fits, on_cpu = kernels._flash_fits, heads_on_a_gpu(is_cuda=False)
    assert fits(q, q, q, packed, packed)
    assert fits(half, half, half, packed, packed)
    for of_one_type in (single, odd, wide, on_cpu):
        assert not fits(of_one_type, of_one_type, of_one_type, packed, packed)
    for mixed in ((half, q, q), (q, single, q), (q, q, single), (q, q, narrow)):  # the kernel casts nothing
        assert not fits(*mixed, packed, packed)
    nothing, no_keys = Packed.of_lengths([]), Packed.of_lengths([0, 0])
    for layouts in ((nothing, nothing), (packed, no_keys), (padded, packed), (packed, padded)):
        assert not fits(q, q, q, *layouts)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert not fits(q, q, q, packed, packed), "older than the kernel"


@pytest.mark.parametrize(("capability", "fits"), [((8, 0), True), ((8, 9), False), ((9, 0), True), ((12, 0), False)])
def test_heads_of_200_to_224_are_left_to_other_kernels_where_flash_has_no_gradient_for_them(
    monkeypatch, capability, fits
):
    """`check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120` of torch's sdp_utils.cpp."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    packed = Packed.of_lengths([2, 3])
    for width in (192, 200, 224, 232, 256):
        q = heads_on_a_gpu(width)
        assert kernels._flash_fits(q, q, q, packed, packed) is (fits or not 192 < width <= 224)


class OnGpu(Tensor):
    """Computed on the CPU, and takes the ways of a GPU."""

    is_cuda = True


@pytest.mark.parametrize(
    "more",
    [{}, {"causal": True}, {"window": 50}, {"dropout": 0.1}, {"bias": torch.randn(H, 12, 12).double()}],
    ids=lambda more: next(iter(more), "plain"),
)
@pytest.mark.parametrize("lengths", [LOCAL, [12, 12]])
def test_on_a_gpu_cudnns_attention_is_left_out(monkeypatch, lengths, more):
    seen, torchs = [], F.scaled_dot_product_attention

    def sdpa(*args, **named):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return torchs(*args, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", sdpa)
    layout, inputs = Packed.of_lengths(lengths), [heads(lengths, H, width) for width in (K, K, V)]
    ours = attention(*(x.as_subclass(OnGpu) for x in inputs), layout, layout, **more)
    assert (seen, torch.backends.cuda.cudnn_sdp_enabled()) == ([False], True)
    if "dropout" not in more:
        torch.testing.assert_close(ours.as_subclass(Tensor), attention(*inputs, layout, layout, **more))


@pytest.mark.parametrize("n_kv_heads", [2, 4])
def test_the_flash_kernel_is_called_as_the_oldest_torch_knows_it(monkeypatch, n_kv_heads):
    def varlen_attn(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1)):
        assert query.size(1) == key.size(1) == value.size(1), "torch 2.11: no grouped heads"
        assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
        assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
        assert (scale, window_size) == (pytest.approx(K**-0.5), (-1, -1))
        lengths = [offsets.diff().tolist() for offsets in (cu_seq_q, cu_seq_k)]
        assert max_q >= max(lengths[0])
        assert max_k >= max(lengths[1])
        return document_by_document(query, key, value, *lengths, None)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_attn)
    monkeypatch.setattr(kernels, "_flash_fits", lambda *_: True)
    q, k, v = heads(QUERIES, H, K), heads(KEYS, n_kv_heads, K), heads(KEYS, n_kv_heads, K)
    context = attention(q, k, v, Packed.of_lengths(QUERIES), Packed.of_lengths(KEYS))
    torch.testing.assert_close(context, document_by_document(q, k, v, QUERIES, KEYS, None))


@pytest.mark.parametrize("tail", [0, 5])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("n_kv_heads", [2, 4])
def test_the_way_through_the_flash_kernel_gives_what_the_others_give(flash_on_cpu, n_kv_heads, window, causal, tail):
    """Also where a tail belongs to no text: there the answer is finite, and no gradient comes from it."""
    layout, settled = Packed.of_lengths(LOCAL), Packed(Packed.of_lengths(LOCAL).offsets, max(LOCAL), tail)
    q, k, v = (heads([*LOCAL, tail], n, K).float().detach().requires_grad_() for n in (H, n_kv_heads, n_kv_heads))
    ours = attention(q, k, v, settled, settled, window=window, causal=causal)
    n_tokens = sum(LOCAL)
    padded = Padded(layout.keep_BL)  # the kernel takes no such
    theirs = layout.flat(
        attention(*(layout.grid(x[:n_tokens]) for x in (q, k, v)), padded, padded, window=window, causal=causal)
    )
    torch.testing.assert_close(ours[:n_tokens], theirs)
    assert ours.isfinite().all()
    toward = torch.randn_like(theirs)
    mine = torch.autograd.grad((ours[:n_tokens] * toward).sum(), (q, k, v))
    torch.testing.assert_close(mine, torch.autograd.grad(theirs, (q, k, v), toward), atol=1e-5, rtol=1e-4)


def test_windows_between_two_sequences_and_dropout_go_another_way(flash_on_cpu, monkeypatch):
    monkeypatch.setattr(kernels, "_flash", None)  # would fail
    q, k, v = heads(QUERIES, H, K), heads(KEYS, H, K), heads(KEYS, H, K)
    attention(q, k, v, Packed.of_lengths(QUERIES), Packed.of_lengths(KEYS), window=1)
    layout = Packed.of_lengths(QUERIES)
    attention(q, q, q, layout, layout, dropout=0.1)
    attention(q, q, q, layout, layout, bias=torch.zeros(H, 5, 5))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("n_kv_heads", [2, 4])
@pytest.mark.parametrize(("queries", "keys"), [(QUERIES, QUERIES), (QUERIES, KEYS)])
def test_flash_is_torchs_attention_of_each_document(monkeypatch, n_kv_heads, queries, keys):
    q, k, v = heads(queries, H, 16), heads(keys, n_kv_heads, 16), heads(keys, n_kv_heads, 16)
    half = [x.detach().to("cuda", torch.bfloat16).requires_grad_() for x in (q, k, v)]
    query_layout, key_layout = Packed.of_lengths(queries).to("cuda"), Packed.of_lengths(keys).to("cuda")
    assert kernels._flash_fits(*half, query_layout, key_layout)
    ours = attention(*half, query_layout, key_layout)
    theirs = document_by_document(q, k, v, queries, keys, None)
    torch.testing.assert_close(ours.cpu().double(), theirs, atol=3e-2, rtol=3e-2)
    toward = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, (q, k, v), toward, allow_unused=True)
    for mine, other in zip(torch.autograd.grad(ours, half, toward.to(ours)), expected, strict=True):
        other = torch.zeros(mine.shape, dtype=torch.float64) if other is None else other
        torch.testing.assert_close(mine.cpu().double(), other, atol=6e-2, rtol=6e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("tail", [0, 5])
def test_flash_hides_what_lies_beyond_a_window_and_leaves_the_tail_alone(causal, window, tail):
    n_tokens, grid = sum(LOCAL), Packed.of_lengths(LOCAL)
    q, k, v = (heads([*LOCAL, tail], H, 16).detach().requires_grad_() for _ in range(3))
    half = [x.detach().to("cuda", torch.bfloat16).requires_grad_() for x in (q, k, v)]
    layout = Packed(grid.offsets, grid.longest, tail)
    layout.n_tokens  # noqa: B018 - known before it is on the device
    layout = layout.to("cuda")
    assert kernels._flash_fits(*half, layout, layout)
    ours = attention(*half, layout, layout, window=window, causal=causal)
    padded = Padded(grid.keep_BL)
    theirs = grid.flat(
        attention(*(grid.grid(x[:n_tokens]) for x in (q, k, v)), padded, padded, window=window, causal=causal)
    )
    torch.testing.assert_close(ours[:n_tokens].cpu().double(), theirs, atol=3e-2, rtol=3e-2)
    assert ours.isfinite().all()
    toward = torch.randn_like(theirs)
    mine = torch.autograd.grad((ours[:n_tokens] * toward.to(ours)).sum(), half)
    expected = torch.autograd.grad(theirs, (q, k, v), toward)
    for one, other in zip(mine, expected, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, atol=6e-2, rtol=6e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("length", [64, 128, 192, 320])
@pytest.mark.parametrize(
    "more",
    [{}, {"dropout": 0.1}, {"window": 16, "dropout": 0.1}, {"window": 60, "dropout": 0.1}, {"causal": True}],
    ids=str,
)
def test_very_negative_scores_make_no_gradient_nan(length, more):
    """Every score is near -120: what cuDNN's backward pass makes NaN of at length % 128 == 64."""
    keep_BL = torch.ones(2, length, dtype=torch.bool, device="cuda")
    keep_BL[1, length // 2 :] = False
    packed = Packed.of_lengths([length, length // 2]).to("cuda")
    for layout in (Padded(keep_BL), Padded(torch.ones_like(keep_BL), is_full=True), packed):
        shape = (packed.n_tokens,) if layout is packed else (2, length)
        q, k, v = (torch.randn(*shape, H, 64, device="cuda") for _ in range(3))
        q, k = q * 0.1, k * 0.1
        q[..., 0], k[..., 0] = 1.0, -120 * math.sqrt(64)
        inputs = [x.to(torch.bfloat16).requires_grad_() for x in (q, k, v)]
        context = attention(*inputs, layout, layout, **more)
        for gradient in torch.autograd.grad(context.float().square().sum(), inputs):
            assert gradient.isfinite().all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("biased", [False, True])
def test_the_fused_kernel_on_a_gpu_is_torchs_attention_of_each_document(biased):
    q, k, v = heads(QUERIES, H, K), heads(KEYS, H, K), heads(KEYS, H, V)
    bias = torch.randn(H, max(QUERIES), max(KEYS), dtype=torch.float64) if biased else None
    ours = attention(
        *(x.to("cuda", torch.float32) for x in (q, k, v)),
        Packed.of_lengths(QUERIES).to("cuda"),
        Packed.of_lengths(KEYS).to("cuda"),
        bias=None if bias is None else bias.to("cuda", torch.float32),
    )
    theirs = document_by_document(q, k, v, QUERIES, KEYS, bias)
    torch.testing.assert_close(ours.cpu().double(), theirs, atol=1e-4, rtol=1e-3)
    assert math.isfinite(ours.sum().item())
