"""Layers compiled and recomputed: the same answers, the same gradients, the same random numbers."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters
from torch.nn import functional as F

from manyheads.layout import Packed
from manyheads.nn import assemble, kernels
from manyheads.nn.transformer import call_layer, make_call

LENGTHS = [3, 5, 8]


def gradients(model, layout: Packed) -> list[torch.Tensor]:
    """Of some loss with respect to every weight, the generator set anew."""
    torch.manual_seed(7)
    ids = torch.randint(20, (layout.n_tokens + layout.tail,))
    loss = model(ids, layout).square().sum()
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_recomputed_layers_have_the_same_gradients_and_random_numbers(small, dropout, placement):
    model = assemble(small(dropout=dropout, placement=placement), vocab_size=20, n_classes=3, max_length=16)
    layout = Packed.of_lengths(LENGTHS)
    expected = gradients(model, layout)
    behind = torch.random.get_rng_state()
    model.encoder.call = make_call(recompute=True)
    torch.testing.assert_close(gradients(model, layout), expected, rtol=0, atol=0)
    assert torch.equal(torch.random.get_rng_state(), behind)


def test_recomputing_keeps_less(small):
    model = assemble(small(n_layers=6), vocab_size=20, n_classes=3, max_length=16)
    as_written = numbers_kept(model)
    model.encoder.call = make_call(recompute=True)
    assert numbers_kept(model) < as_written / 3


def numbers_kept(model) -> int:
    """Of all tensors for the backward pass, weights left out."""
    weights, kept = {p.data_ptr() for p in model.parameters()}, {}
    layout = Packed.of_lengths(LENGTHS)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.update({x.data_ptr(): x}) or x, lambda x: x):
        model(torch.arange(16), layout)
    return sum(x.numel() for at, x in kept.items() if at not in weights)


def test_compiled_and_recomputed_layers_have_the_same_gradients(small, flash_on_cpu):
    model = assemble(small(d_v=4), vocab_size=20, n_classes=3, max_length=16)
    layout = Packed.of_lengths(LENGTHS).rounded(32)
    expected = gradients(model, layout)
    model.encoder.call = make_call(mode="default", recompute=True, backend="aot_eager")
    torch.testing.assert_close(gradients(model, layout), expected)


def test_the_way_of_a_gpu_is_compiled_once_for_all_layers_and_batches(small, flash_on_cpu):
    """Packed texts through the kernel of variable length, nothing left to the interpreter, few counts of anything."""
    counter = CompileCounterWithBackend("aot_eager")
    torch.compiler.reset()
    model = assemble(small(n_layers=4, d_v=4), vocab_size=20, n_classes=3, max_length=16)
    layers, call = model.encoder.layers, torch.compile(call_layer, backend=counter, fullgraph=True)
    counts = []
    for lengths in (LENGTHS, [4, 4, 3], [7, 9, 8], [1, 8, 7, 5, 4], [2, 6], [16, 1, 16]):
        layout = Packed.of_lengths(lengths).rounded(8)
        layout.prepare()  # made once a batch, outside of what is compiled
        x = torch.randn(layout.n_tokens + layout.tail, 12, requires_grad=True)
        ours = theirs = x
        for layer in layers:
            ours, theirs = call(layer, ours, layout), call_layer(layer, theirs, layout)
        torch.testing.assert_close(ours, theirs)
        weights = list(layers.parameters())
        torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), weights) for one in (ours, theirs)))
        counts.append(counter.frame_count)
    assert counts[0] == 1, "for all layers"
    assert counts[2:] == [counts[2]] * 4, "for all batches, when torch has seen which numbers change"


WAYS = {
    "no padding": {"windows": [0, 2, 0]},
    "dropout": {"dropout_attention": 0.1},
    "bias": {"positions": "alibi"},
    "windows": {"dropout_attention": 0.1, "windows": [1, 1, 1]},
}


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in ("no padding", "windows") else pytest.mark.slow) for way in WAYS]
)
def test_compiled_steps_learn_as_layers_as_written_do(small, flash_on_cpu, monkeypatch, way, backend):
    """By each way of a GPU. The graphs are few, and none is broken, whatever the batches. `eager` captures the graphs
    alone; `aot_eager`, which takes twice as long, also traces their gradients."""
    monkeypatch.setattr(kernels, "_is_on_gpu", lambda x: True)

    def losses(call) -> list[float]:
        torch.manual_seed(3)
        model = assemble(small(n_layers=3, d_v=4, **WAYS[way]), vocab_size=20, n_classes=3, max_length=16)
        model.encoder.call = call
        optimizer, found = torch.optim.AdamW(model.parameters(), lr=1e-2), []
        for step in range(50):
            lengths = (torch.randperm(9)[: 3 + step % 4] + 2).tolist()
            layout = Packed.of_lengths(lengths).rounded(8 if way == "no padding" else 1)
            ids = torch.randint(20, (layout.n_tokens + layout.tail,))
            loss = F.cross_entropy(model(ids, layout), ids[layout.offsets[:-1]] % 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    torch.compiler.reset()
    counters.clear()
    compiled = losses(make_call(mode="default", backend=backend))
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] <= 4, "two of each kind, or each of three counts changes once"
    torch.testing.assert_close(compiled, losses(call_layer), atol=1e-4, rtol=1e-4)
    assert sum(compiled[-10:]) < sum(compiled[:10])


def test_every_window_of_many_is_compiled(small, flash_on_cpu, monkeypatch):
    monkeypatch.setattr(kernels, "_is_on_gpu", lambda x: True)
    torch.compiler.reset()
    counters.clear()
    model = assemble(small(n_layers=9, d_v=4, windows=list(range(9))), vocab_size=20, n_classes=3, max_length=16)
    with torch._dynamo.config.patch(recompile_limit=8):  # as it is at first
        model.encoder.call = make_call(mode="default", backend="eager")
        for lengths in (LENGTHS, [4, 4, 3, 5, 2]):
            gradients(model, Packed.of_lengths(lengths))
    assert 8 < counters["stats"]["unique_graphs"] <= 18
    assert not counters["unimplemented"]
    assert not counters["graph_break"]


def test_what_is_not_trained_is_gone_through_as_written(small):
    model = assemble(small(), vocab_size=20, n_classes=3, max_length=16).eval()
    model.encoder.call = None  # would fail
    model(torch.arange(16), Packed.of_lengths(LENGTHS))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_way_of_a_cpu_can_be_compiled_too(small, backend):
    model = assemble(small(), vocab_size=20, n_classes=3, max_length=16)
    for lengths in (LENGTHS, [4, 4, 3], [7, 9]):
        layout = Packed.of_lengths(lengths)
        model.encoder.call = call_layer
        expected = gradients(model, layout)
        model.encoder.call = make_call(mode="default", backend=backend)
        torch.testing.assert_close(gradients(model, layout), expected, atol=1e-4, rtol=1e-4)
