"""Recurrent layers against a loop over torch's own cells, and attention over states against NumPy."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads import plugin
from manyheads.layout import Packed, Padded
from manyheads.nn import assemble
from manyheads.nn.attention import make_score
from manyheads.plugins.language.recurrent import Recurrent, StateAttention, StatePooling, last_states
from tests.registry import of_plugin

D, LENGTHS = 6, [3, 1, 0, 5]
KINDS, WAYS = of_plugin("language", "encoder"), (True, False)


def recurrent(kind: str, bidirectional: bool, bias: bool = True, n_layers: int = 2) -> Recurrent:
    return Recurrent(kind=kind, d_model=D, n_layers=n_layers, bidirectional=bidirectional, bias=bias).double()


def tokens(lengths: list[int] = LENGTHS) -> Tensor:
    return torch.randn(sum(lengths), D, dtype=torch.float64, requires_grad=True)


def by_cells(layers: Recurrent, x_LD: Tensor) -> Tensor:
    """One document, one token after the other, by `nn.GRUCell` or `nn.LSTMCell`."""
    width, has_bias = layers.cells.hidden_size, layers.cells.bias
    for layer in range(layers.n_layers):
        sides = []
        for side in ("", "_reverse")[: 1 + layers.bidirectional]:
            kind = nn.LSTMCell if layers.n_states == 2 else nn.GRUCell
            cell = kind(D, width, bias=has_bias, dtype=torch.float64)
            names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if has_bias else [])]
            weights = {name: getattr(layers.cells, f"{name}_l{layer}{side}") for name in names}
            state = (x_LD.new_zeros(1, width),) * layers.n_states
            states = []
            for x_D in x_LD.flip(0) if side else x_LD:
                given_state = state if layers.n_states == 2 else state[0]
                after = torch.func.functional_call(cell, weights, (x_D[None], given_state))
                state = after if isinstance(after, tuple) else (after,)
                states.append(state[0])
            sides.append(torch.cat(states[::-1] if side else states))
        x_LD = torch.cat(sides, dim=1)
    return x_LD


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("kind", "bidirectional", "bias"), list(product(KINDS, WAYS, (True, False))))
def test_states_are_those_of_a_loop_over_torchs_cells(kind, bidirectional, bias, padded):
    layers, layout, x_ND = recurrent(kind, bidirectional, bias), Packed.of_lengths(LENGTHS), tokens()
    expected = torch.cat([by_cells(layers, x_LD) for x_LD in x_ND.split(LENGTHS) if len(x_LD)])
    if padded:
        keep_BL = F.pad(layout.keep_BL, (0, 2))
        x_BLD = 100 * torch.rand(*keep_BL.shape, D, dtype=torch.float64)
        x_BLD[keep_BL] = x_ND
        got = layers(x_BLD, Padded(keep_BL))[keep_BL]
    else:
        got = layers(x_ND, layout)
    torch.testing.assert_close(got, expected)
    toward, wanted = torch.randn_like(expected), [x_ND, *layers.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(got, wanted, toward, retain_graph=True), torch.autograd.grad(expected, wanted, toward)
    )


@pytest.mark.parametrize(("kind", "bidirectional"), list(product(KINDS, WAYS)))
def test_the_last_states_are_those_torch_hands_back(kind, bidirectional):
    layers, layout, x_ND = recurrent(kind, bidirectional), Packed.of_lengths(LENGTHS), tokens()
    last_BD = last_states(layers(x_ND, layout), layout, bidirectional=bidirectional)
    for document, x_LD in enumerate(x_ND.split(LENGTHS)):
        if not len(x_LD):
            assert (last_BD[document] == 0).all()
            continue
        _, hidden = layers.cells(x_LD[None])
        hidden_SBD = hidden if isinstance(hidden, Tensor) else hidden[0]
        top = hidden_SBD[-2:, 0].flatten() if bidirectional else hidden_SBD[-1, 0]
        torch.testing.assert_close(last_BD[document], top)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_goes_on_from_the_states_before(kind):
    layers, x_BLD = recurrent(kind, False), torch.randn(4, 5, D, dtype=torch.float64)
    first = tuple(torch.randn(2, 4, D, dtype=torch.float64) for _ in range(layers.n_states))
    whole = layers(x_BLD, Padded(torch.ones(4, 5, dtype=torch.bool)), first)
    hidden = first
    for at in range(5):
        state_B1D, hidden = layers.step(x_BLD[:, at : at + 1], hidden)
        torch.testing.assert_close(state_B1D[:, 0], whole[:, at])


def test_every_layer_drops_its_output_the_last_one_too():
    layers = Recurrent(kind="gru", d_model=D, n_layers=1, bidirectional=True, dropout=0.5)
    layout, x_ND = Packed.of_lengths([50]), torch.randn(50, D)
    kept = layers.eval()(x_ND, layout)
    dropped = layers.train()(x_ND, layout)
    assert 0.3 < (dropped == 0).double().mean() < 0.7
    torch.testing.assert_close(dropped[dropped != 0], 2 * kept[dropped != 0])
    assert Recurrent(kind="gru", d_model=D, n_layers=3, bidirectional=True, dropout=0.5).cells.dropout == 0.5


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def numpys_score(kind: str, score: nn.Module, q: np.ndarray, k: np.ndarray) -> float:
    """As the papers write them: vectors are columns, our matrices act from the right."""
    held = {name: value.detach().numpy() for name, value in score.named_parameters()}
    if kind == "additive":
        W, U = held["query_weight_HKK"][0].T, held["key_weight_GKK"][0].T
        return held["v_HK"][0] @ np.tanh(W @ q + U @ k)
    if kind == "concat":
        return held["v_HK"][0] @ np.tanh(held["weight_H2KK"][0].T @ np.concatenate((q, k)))
    if kind == "general":
        return q @ held["weight_HKK"][0] @ k
    return q @ k


def attention_of(kind: str) -> StateAttention:
    score = make_score(kind, n_heads=1, n_kv_heads=1, d_k=D)
    block = StateAttention(d_model=D, score=score).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    return block


def numpys_attention(kind: str, block: StateAttention, q: np.ndarray, states: np.ndarray) -> np.ndarray:
    weights = softmax(np.array([numpys_score(kind, block.score, q, h) for h in states]))
    context = sum(weight * h for weight, h in zip(weights, states, strict=True))
    return np.tanh(block.combine.weight.detach().numpy() @ np.concatenate((context, q)))


@pytest.mark.parametrize("kind", ["additive", "concat", "general", "dot"])
def test_attention_over_states_is_the_papers_formula(kind):
    block, layout, memory_layout = attention_of(kind), Packed.of_lengths([2, 3]), Packed.of_lengths([4, 1])
    q_ND, memory_ND = (torch.randn(5, D, dtype=torch.float64) for _ in range(2))
    got = block(q_ND, layout, memory_ND, memory_layout).detach().numpy()
    step = block.keys_values(memory_ND, memory_layout)
    for document, (queries, states) in enumerate(zip(q_ND.split([2, 3]), memory_ND.split([4, 1]), strict=True)):
        for at, q in enumerate(queries):
            expected = numpys_attention(kind, block, q.numpy(), states.numpy())
            np.testing.assert_allclose(got[2 * document + at], expected, atol=1e-12)
            stepped = block.step(q.expand(2, 1, D), step)[document, 0]
            np.testing.assert_allclose(stepped.detach().numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("bidirectional", WAYS)
@pytest.mark.parametrize("kind", ["additive", "general"])
def test_pooling_asks_with_the_last_state(kind, bidirectional):
    block, layout, x_ND = attention_of(kind), Packed.of_lengths(LENGTHS), tokens().detach()
    got = StatePooling(block, bidirectional=bidirectional)(x_ND, layout).detach().numpy()
    for document, x_LD in enumerate(x_ND.split(LENGTHS)):
        if not len(x_LD):
            assert (got[document] == 0).all()
            continue
        half = D // 2 if bidirectional else D
        q = np.concatenate((x_LD[-1, :half].numpy(), x_LD[0, half:].numpy()))
        np.testing.assert_allclose(got[document], numpys_attention(kind, block, q, x_LD.numpy()), atol=1e-12)


EVERY = list(product(KINDS, WAYS, plugin.names("pooling"), ("additive", "cosine", "concat", "distance")))
FIRST = [name for name, part in plugin.parts("pooling").items() if part.facts.get("reads_first")]
POSSIBLE = [one for one in EVERY if one[1] or one[2] not in FIRST]
SOME = [one for at, one in enumerate(POSSIBLE) if one[2] == "attention" or at % 4 == 0]


@pytest.fixture(scope="module")
def build(small):
    built = {}

    def classifier(kind: str, bidirectional: bool, pooling: str, score: str, d_embedding: int = 0):
        key = kind, bidirectional, pooling, score, d_embedding
        if key not in built:
            torch.manual_seed(0)
            model = small(
                encoder=kind, bidirectional=bidirectional, pooling=pooling, score=score, d_embedding=d_embedding
            )
            built[key] = assemble(model, vocab_size=20, n_classes=3, max_length=9).eval()
        return built[key]

    return classifier


@given(st.sampled_from(SOME), st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(0, 5))
def test_logits_of_a_document_are_its_own(build, combination, lengths, extra):
    classifier, layout = build(*combination), Packed.of_lengths(lengths)
    ids_N = torch.randint(20, (sum(lengths),))
    keep_BL = F.pad(layout.keep_BL, (0, extra))
    ids_BL = torch.randint(20, keep_BL.shape)
    ids_BL[keep_BL] = ids_N
    with torch.no_grad():
        packed, padded = classifier(ids_N, layout), classifier(ids_BL, Padded(keep_BL))
        alone = torch.cat([classifier(ids, Packed.of_lengths([len(ids)])) for ids in ids_N.split(lengths)])
        back = classifier(torch.cat(ids_N.split(lengths)[::-1]), Packed.of_lengths(lengths[::-1])).flip(0)
    for logits in (packed, padded, back):
        torch.testing.assert_close(logits, alone, atol=1e-5, rtol=0)
    empty = torch.tensor(lengths) == 0
    torch.testing.assert_close(packed[empty], classifier.head.bias.detach().expand(int(empty.sum()), 3))


LEARNING = [one for one in SOME if one[2] not in FIRST]  # the first token's state has no state before it


@pytest.mark.parametrize("combination", LEARNING, ids=lambda one: "-".join(str(word) for word in one))
def test_gradients_reach_every_parameter(build, combination):
    classifier = build(*combination)
    classifier.zero_grad()
    F.cross_entropy(classifier(torch.arange(12) % 20, Packed.of_lengths([5, 0, 7])), torch.tensor([0, 1, 2])).backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-9, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_a_batch_without_tokens_gives_every_parameter_a_gradient(build, kind, lengths):
    classifier = build(kind, True, "attention", "additive")
    classifier.zero_grad()
    logits = classifier(torch.zeros(0, dtype=torch.int64), Packed.of_lengths(lengths))
    assert logits.shape == (len(lengths), 3)
    logits.sum().backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad == 0).all() or name == "head.bias", name
    nothing = torch.zeros(0, 4, dtype=torch.int64)
    assert classifier(nothing, Padded(nothing.bool())).shape == (0, 3)


@pytest.mark.parametrize("d_embedding", [0, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_bf16_autocast_stays_near_single_precision(build, kind, d_embedding):
    classifier = build(kind, True, "attention", "additive", d_embedding=d_embedding)
    ids, layout = torch.randint(20, (14,)), Packed.of_lengths([9, 0, 5])
    exact = classifier(ids, layout)
    with torch.autocast("cpu", torch.bfloat16):
        near = classifier(ids, layout)
    torch.testing.assert_close(near.float(), exact, atol=0.05, rtol=0.03)
    for gradient in torch.autograd.grad(near.float().square().sum(), list(classifier.parameters())):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_left_out_of_autocast_on_every_device(kind, device):
    """cuDNN's would run in fp16, whatever autocast is for."""
    layers, seen = recurrent(kind, False), []
    cells = layers.cells

    class Cells:
        weight_hh_l0 = SimpleNamespace(device=torch.device(device), dtype=torch.float64)

        def __call__(self, x, first):
            states = first if isinstance(first, tuple) else (first,)
            seen.append((torch.is_autocast_enabled(device), x.data.dtype, *(state.dtype for state in states)))
            return cells(x, first)

    del layers.cells
    layers.cells = Cells()
    first = tuple(torch.randn(2, 4, D).bfloat16() for _ in range(layers.n_states))
    torch.set_autocast_enabled(device, True)
    try:
        layers(tokens().bfloat16(), Packed.of_lengths(LENGTHS), first)
        layers.step(torch.randn(4, 1, D).bfloat16(), first)
    finally:
        torch.set_autocast_enabled(device, False)
    assert seen == [(False, *[torch.float64] * (1 + layers.n_states))] * 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("combination", SOME, ids=lambda one: "-".join(str(word) for word in one))
def test_a_gpu_gives_the_logits_of_the_cpu(build, combination):
    classifier = build(*combination)
    ids, layout = torch.randint(20, (14,)), Packed.of_lengths([9, 0, 5])
    expected = classifier(ids, layout)
    classifier.cuda()
    torch.testing.assert_close(classifier(ids.cuda(), layout.to("cuda")).cpu(), expected, atol=1e-4, rtol=1e-3)
    with torch.autocast("cuda", torch.bfloat16):
        near = classifier(ids.cuda(), layout.to("cuda")).float().cpu()
        assert classifier.encode(ids.cuda(), layout.to("cuda")).dtype is torch.float32, "cells are left out"
    classifier.cpu()
    torch.testing.assert_close(near, expected, atol=0.05, rtol=0.03)
