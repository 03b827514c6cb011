"""MultiHeadAttention against torch's nn.MultiheadAttention and against separate matrices for each head."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from manyheads.layout import Packed, Padded
from manyheads.nn import Alibi, MultiHeadAttention, Rotary
from manyheads.nn.attention import attend, make_score

LENGTHS, MEMORY = [3, 5, 1], [4, 2, 6]
LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]]).bool()
HOLES = torch.tensor([[1, 0, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]]).bool()


def random_biases(module: nn.Module) -> None:
    """Biases start at zero; a test that never moves them would not see them."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)


def as_torchs(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    weights, names = ours.state_dict(), {"project.": "in_proj_", "output.": "out_proj."}
    dtype = ours.output.weight.dtype
    theirs = nn.MultiheadAttention(12, ours.n_heads, bias="output.bias" in weights, batch_first=True, dtype=dtype)
    for ours_name, theirs_name in names.items():
        for part in ["weight", "bias"][: 1 + ("output.bias" in weights)]:
            theirs.get_parameter(theirs_name + part).data.copy_(weights[ours_name + part])
    return theirs


def tokens(lengths: list[int], d_model: int = 12) -> torch.Tensor:
    return torch.randn(sum(lengths), d_model, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("mask", ["none", "right", "left", "holes", "packed"])
def test_attention_is_that_of_torchs_module(mask, cross, bias):
    """On a plain batch, wherever its padding is, and on packed tokens."""
    ours = MultiHeadAttention(d_model=12, n_heads=3, bias=bias).double()
    random_biases(ours)
    theirs, layout, memory_layout = as_torchs(ours), Packed.of_lengths(LENGTHS), Packed.of_lengths(MEMORY)
    keep = {"none": torch.ones_like(LEFT), "left": LEFT, "holes": HOLES}.get(mask, layout.keep_BL)
    x, memory = (torch.randn(3, n, 12, dtype=torch.float64, requires_grad=True) for n in (5, 6))
    memory_keep = torch.ones(3, 6, dtype=torch.bool) if mask == "none" else memory_layout.keep_BL
    if not cross:
        memory, memory_keep, memory_layout = x, keep, layout
    given = (x, None, memory, None) if mask == "none" else (x, keep, memory, memory_keep)
    if mask == "packed":
        given = x[keep], layout, memory[memory_keep], memory_layout
    got = ours(*given) if cross else ours(*given[:2])
    got = got if mask == "packed" else got[keep]
    expected = theirs(x, memory, memory, key_padding_mask=~memory_keep, need_weights=False)[0][keep]
    torch.testing.assert_close(got, expected)
    toward, learns = torch.randn_like(expected), [x, memory] if cross else [x]
    of_ours = [*learns, ours.project.weight, ours.output.weight]
    of_theirs = [*learns, theirs.in_proj_weight, theirs.out_proj.weight]
    torch.testing.assert_close(
        torch.autograd.grad(got, of_ours, toward), torch.autograd.grad(expected, of_theirs, toward)
    )


def test_maps_are_torchs_weights():
    ours, layout = MultiHeadAttention(d_model=12, n_heads=3), Packed.of_lengths(LENGTHS)
    x, keep = torch.randn(3, 5, 12), layout.keep_BL
    weights_BHLM, _ = ours.maps(x, keep)
    expected = as_torchs(ours)(x, x, x, key_padding_mask=~keep, average_attn_weights=False)[1]
    kept = keep[:, None, :, None].expand_as(weights_BHLM)
    torch.testing.assert_close(weights_BHLM[kept], expected[kept])
    assert (weights_BHLM[~kept] == 0).all()


def by_separate_heads(block: MultiHeadAttention, x: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Concat(head_1 .. head_h) W^O, a matrix for each W_i^Q, W_i^K, W_i^V, in NumPy."""
    n_heads, n_kv_heads, d_k, d_v = block.n_heads, block.n_kv_heads, block.d_k, block.d_v
    weight, bias = block.project.weight.detach().numpy(), block.project.bias.detach().numpy()
    starts = np.cumsum([0, n_heads * d_k, n_kv_heads * d_k])

    def projected(rows: np.ndarray, part: int, head: int, width: int) -> np.ndarray:
        columns = slice(starts[part] + head * width, starts[part] + (head + 1) * width)
        return rows @ weight[columns].T + bias[columns]

    heads = []
    for i in range(n_heads):
        shared = i // (n_heads // n_kv_heads)
        Q, K, V = projected(x, 0, i, d_k), projected(memory, 1, shared, d_k), projected(memory, 2, shared, d_v)
        powers = np.exp(Q @ K.T / np.sqrt(d_k))
        heads.append(powers / powers.sum(-1, keepdims=True) @ V)
    return np.concatenate(heads, -1) @ block.output.weight.detach().numpy().T + block.output.bias.detach().numpy()


@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "d_k", "d_v"), [(3, 3, 4, 4), (3, 3, 5, 7), (4, 2, 3, 6), (6, 1, 2, 9), (1, 1, 16, 1)]
)
@pytest.mark.parametrize("cross", [False, True])
def test_the_fused_projection_is_separate_matrices_for_each_head(n_heads, n_kv_heads, d_k, d_v, cross):
    block = MultiHeadAttention(d_model=10, n_heads=n_heads, n_kv_heads=n_kv_heads, d_k=d_k, d_v=d_v).double()
    random_biases(block)
    x_ND, memory_ND = tokens(LENGTHS, 10).detach(), tokens(MEMORY, 10).detach()
    layout, memory_layout = Packed.of_lengths(LENGTHS), Packed.of_lengths(MEMORY)
    got = block(x_ND, layout, memory_ND, memory_layout) if cross else block(x_ND, layout)
    documents = zip(x_ND.split(LENGTHS), memory_ND.split(MEMORY) if cross else x_ND.split(LENGTHS), strict=True)
    expected = np.concatenate([by_separate_heads(block, x.numpy(), memory.numpy()) for x, memory in documents])
    np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-12)


def test_grouped_heads_equal_heads_whose_keys_and_values_are_repeated():
    grouped = MultiHeadAttention(d_model=8, n_heads=6, n_kv_heads=2, d_k=3, d_v=5).double()
    whole = MultiHeadAttention(d_model=8, n_heads=6, d_k=3, d_v=5).double()
    random_biases(grouped)
    with torch.no_grad():
        for whole_x, x in ((whole.project.weight, grouped.project.weight), (whole.project.bias, grouped.project.bias)):
            q, k, v = x.split(grouped.widths)
            k, v = (part.unflatten(0, (2, -1)).repeat_interleave(3, dim=0).flatten(0, 1) for part in (k, v))
            whole_x.copy_(torch.cat((q, k, v)))
    whole.output.load_state_dict(grouped.output.state_dict())
    layout, x_ND = Packed.of_lengths(LENGTHS), tokens(LENGTHS, 8)
    torch.testing.assert_close(grouped(x_ND, layout), whole(x_ND, layout))


@pytest.mark.parametrize("kind", ["rotary", "alibi"])
def test_cross_attention_counts_positions_in_each_sequence_from_zero(kind):
    rotary = Rotary(max_length=9, d_k=4) if kind == "rotary" else None
    alibi = Alibi(n_heads=2) if kind == "alibi" else None
    block = MultiHeadAttention(d_model=8, n_heads=2, d_k=4, d_v=4, rotary=rotary, alibi=alibi).double()
    layout, memory_layout = Packed.of_lengths(LENGTHS), Packed.of_lengths(MEMORY)
    x_ND, memory_ND = tokens(LENGTHS, 8), tokens(MEMORY, 8)
    together = block(x_ND, layout, memory_ND, memory_layout)
    for document, (x, memory) in enumerate(zip(x_ND.split(LENGTHS), memory_ND.split(MEMORY), strict=True)):
        alone = block(x, Packed.of_lengths([len(x)]), memory, Packed.of_lengths([len(memory)]))
        torch.testing.assert_close(together.split(LENGTHS)[document], alone)


def test_dropout_of_weights_is_for_training_only():
    block = MultiHeadAttention(d_model=8, n_heads=2, d_k=4, d_v=4, dropout=0.5).double()
    layout, x_ND = Packed.of_lengths(LENGTHS), tokens(LENGTHS, 8)
    assert not torch.equal(block(x_ND, layout), block(x_ND, layout))
    block.eval()
    assert torch.equal(block(x_ND, layout), block(x_ND, layout))


@pytest.mark.parametrize("turned", [False, True])
def test_queries_and_keys_are_normed_head_by_head_before_they_are_turned(turned):
    layout = Packed.of_lengths([4, 2])
    rotary = Rotary(max_length=4, d_k=6) if turned else None
    block = MultiHeadAttention(d_model=10, n_heads=2, n_kv_heads=1, d_k=6, d_v=3, qk_norm=True, rotary=rotary)
    torch.nn.init.uniform_(block.query_norm.weight, 0.5, 2)
    torch.nn.init.uniform_(block.key_norm.weight, 0.5, 2)
    x = torch.randn(6, 10)
    q, k, v = block.project(x).split((12, 6, 3), dim=-1)
    q, k = (one.unflatten(-1, (-1, 6)) for one in (q, k))
    q = q / (q.square().mean(-1, keepdim=True) + 1e-6).sqrt() * block.query_norm.weight
    k = k / (k.square().mean(-1, keepdim=True) + 1e-6).sqrt() * block.key_norm.weight
    if rotary is not None:
        q, k = rotary(q, layout.positions), rotary(k, layout.positions)
    heads = [
        attend(*(one[part].transpose(0, 1)[None] for one in (q, k, v.unflatten(-1, (1, 3)))))[0].transpose(0, 1)
        for part in (slice(0, 4), slice(4, 6))
    ]
    torch.testing.assert_close(
        block(x, layout), F.linear(torch.cat(heads).flatten(1), block.output.weight, block.output.bias)
    )


def test_what_may_not_be_seen_gets_no_gradient():
    block = MultiHeadAttention(d_model=8, n_heads=2, d_k=4, d_v=4).double()
    layout, x_ND = Packed.of_lengths(LENGTHS), tokens(LENGTHS, 8)
    (gradient,) = torch.autograd.grad(block(x_ND, layout)[:3].sum(), x_ND)
    assert (gradient[:3] != 0).any()
    assert (gradient[3:] == 0).all(), "the first document does not depend on the others"


@pytest.mark.parametrize("n_heads", [1, 3])
def test_without_projections_attention_is_softmax_of_x_x_t_times_x(n_heads):
    """One head: softmax(X Xᵀ / c) X of the whole vectors; more: of each head's slice of them, side by side."""
    d_model, c = 12, 5.0
    d_k = d_model // n_heads
    score = make_score("dot", n_heads=n_heads, n_kv_heads=n_heads, d_k=d_k, scale=1 / c)
    block = MultiHeadAttention(
        d_model=d_model, n_heads=n_heads, d_k=d_k, d_v=d_k, score=score, project=False, project_output=False
    )
    assert list(block.parameters()) == []
    x_ND = tokens(LENGTHS)
    got = block(x_ND, Packed.of_lengths(LENGTHS))
    for X, Y in zip(x_ND.detach().split(LENGTHS), got.split(LENGTHS), strict=True):
        for head in range(n_heads):
            at = slice(head * d_k, (head + 1) * d_k)
            powers = np.exp(X[:, at].numpy() @ X[:, at].numpy().T / c)
            expected = powers / powers.sum(-1, keepdims=True) @ X[:, at].numpy()
            np.testing.assert_allclose(Y[:, at].detach().numpy(), expected, atol=1e-12)
    memory = tokens(MEMORY)
    crossed = block(x_ND, Packed.of_lengths(LENGTHS), memory, Packed.of_lengths(MEMORY))
    assert crossed.shape == x_ND.shape


def test_without_w_o_the_contexts_side_by_side_are_the_answer():
    with_it = MultiHeadAttention(d_model=12, n_heads=3, d_k=5, d_v=4).double()
    without = MultiHeadAttention(d_model=12, n_heads=3, d_k=5, d_v=4, project_output=False).double()
    random_biases(with_it)
    without.project.load_state_dict(with_it.project.state_dict())
    layout, x_ND = Packed.of_lengths(LENGTHS), tokens(LENGTHS)
    torch.testing.assert_close(with_it.output(without(x_ND, layout)), with_it(x_ND, layout))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("fields", [{}, {"window": 1}, {"causal": True, "normaliser": "sigmoid"}, {"dropout": 0.5}])
def test_maps_are_the_weights_behind_the_answer(padded, cross, fields):
    block = MultiHeadAttention(
        d_model=12, n_heads=4, n_kv_heads=2, d_k=4, d_v=3, rotary=Rotary(max_length=9, d_k=4), **fields
    ).eval()
    random_biases(block)
    packed, memory_packed = Packed.of_lengths(LENGTHS), Packed.of_lengths(MEMORY)
    x, memory = tokens(LENGTHS).float(), tokens(MEMORY).float() if cross else None
    layout, memory_layout = packed, memory_packed if cross else None
    answer = block(x, layout, memory, memory_layout)
    if padded:
        x, layout = packed.grid(x), Padded(packed.keep_BL)
        memory = None if memory is None else memory_packed.grid(memory)
        memory_layout = Padded(memory_packed.keep_BL) if cross else None
    weights_BHLM, context_BHLV = block.maps(x, layout, memory, memory_layout)
    again = block.output(context_BHLV.transpose(1, 2).flatten(-2))[packed.keep_BL]
    torch.testing.assert_close(again, answer, atol=1e-5, rtol=1e-5)
    keys = memory_packed if cross else packed
    assert weights_BHLM.shape == (len(LENGTHS), 4, packed.longest, keys.longest)
    assert (weights_BHLM.transpose(1, 2)[~packed.keep_BL] == 0).all()
    assert (weights_BHLM.permute(0, 3, 1, 2)[~keys.keep_BL] == 0).all()
    if not fields or "dropout" in fields:
        sums_BLH = weights_BHLM.sum(-1).transpose(1, 2)[packed.keep_BL]
        torch.testing.assert_close(sums_BLH, torch.ones_like(sums_BLH))
