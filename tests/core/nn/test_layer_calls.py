"""Layers compiled and recomputed: the same answers, the same gradients, the same random numbers."""

import csv
import os
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn import functional as F

from manyheads.data.batches import plan_epoch
from manyheads.data.formats.demo import demo_splits
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.nn.attention import UserScore
from manyheads.nn.layer_calls import make_call
from manyheads.nn.transformer import call_layer

LENGTHS = [3, 5, 8]


def gradients(model, layout: Packed, segments: torch.Tensor | None = None) -> list[torch.Tensor]:
    """Of some loss with respect to every weight, the generator set anew."""
    torch.manual_seed(7)
    ids = torch.randint(20, (layout.n_tokens + layout.tail,))
    loss = model(ids, layout, segments).square().sum()
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


@pytest.mark.slow  # both are tested alone
def test_compiled_and_recomputed_layers_have_the_same_gradients(small):
    model = assemble(small(d_v=4, dropout=0.3), vocab_size=20, n_classes=3, max_length=16)
    layout = Packed.of_lengths(LENGTHS).rounded(32)
    expected = gradients(model, layout)
    model.encoder.call = make_call(mode="default", recompute=True, backend="aot_eager")
    torch.testing.assert_close(gradients(model, layout), expected)


def squares(q_BHLK, k_BHMK):
    """A user's score, which looks at values: torch.compile would break a graph at it."""
    scores_BHLM = q_BHLK @ k_BHMK.transpose(-2, -1)
    return scores_BHLM.square() if float(scores_BHLM.detach().mean()) > 0 else scores_BHLM


WAYS = {
    "padding": {},
    "no padding": {"d_v": 4, "dropout_attention": 0.0},
    "windows": {"n_layers": 9, "windows": list(range(9))},
    "rotary positions, shared heads, norms": {"positions": "rotary", "n_kv_heads": 1, "qk_norm": True},
    "a bias": {"positions": "alibi", "placement": "post", "activation": "swiglu"},
    "an own score": {"score": "additive", "normaliser": "entmax15"},
    "a score that looks at values": {},
    "pairs": {"pair": "cross"},
}
QUICK = ("a score that looks at values",)


@pytest.fixture
def counted():
    """`counted()` is the number of graphs made in the test, none of them in parts."""
    torch.compiler.reset()
    counters.clear()

    def count() -> int:
        assert not counters["graph_break"]
        return counters["stats"]["unique_graphs"]

    return count


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way in QUICK else pytest.mark.slow) for way in WAYS])
def test_compiled_layers_are_the_layers_as_written(small, counted, way, request):
    """The same losses, gradients and random numbers from two graphs, whatever the documents and kinds of attention."""
    if way == "no padding":
        request.getfixturevalue("flash_on_cpu")
    n_segments = 2 if way == "pairs" else 0
    model_config = small(**{"dropout": 0.2, "dropout_attention": 0.1} | WAYS[way])
    model = assemble(model_config, vocab_size=20, n_classes=3, max_length=16, n_segments=n_segments)
    if way == "a score that looks at values":
        for layer in model.encoder.layers:
            layer.attention.block.score = UserScore(squares)
    compiled = make_call(mode="default", backend="aot_eager")
    for lengths in (LENGTHS, [4, 4, 3], [7, 9, 8], [2, 6], [16, 3, 16]):
        layout = Packed.of_lengths(lengths).rounded(8 if way == "no padding" else 1)
        segments = (layout.positions > 1).long() if n_segments else None
        found = []
        for model.encoder.call in (call_layer, compiled):
            found.append([*gradients(model, layout, segments), torch.random.get_rng_state()])
        torch.testing.assert_close(*found)
    assert counted() == 2


def real_lengths() -> torch.Tensor:
    """Words of the texts of ag_news_10k where real data is at hand, else of the built-in sentences."""
    texts = [text for text, _ in demo_splits()["train"]]
    if "MANYHEADS_DATA" in os.environ:
        with Path(os.environ["MANYHEADS_DATA"], "ag_news_10k", "train.csv").open(newline="", encoding="utf-8") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
    return torch.tensor([min(len(text.split()), 128) for text in texts])


def test_five_hundred_batches_of_real_texts_are_two_graphs(small, counted):
    model = assemble(small(windows=[0, 4], positions="rotary"), vocab_size=20, n_classes=3, max_length=128)
    model.encoder.call = make_call(mode="default", backend="eager")
    lengths, n_batches, counts = real_lengths(), 0, set()
    while n_batches < 500:
        for planned in plan_epoch(lengths, tokens=1024, rows=16, seed=0, epoch=n_batches):
            layout = Packed.of_lengths(lengths[planned.rows].tolist())
            model(torch.zeros(layout.n_tokens, dtype=torch.int64), layout)
            n_batches += 1
            counts.add(layout.n_tokens)
    assert len(counts) > 100
    assert counted() == 2


def test_layers_that_cannot_be_compiled_run_as_they_are_written(small, counted, warned):
    model = assemble(small(), vocab_size=20, n_classes=3, max_length=16)
    for layer in model.encoder.layers:
        layer.feed_forward.block.activate = lambda x: x.relu() if float(x.detach().mean()) > 0 else x
    expected = gradients(model, Packed.of_lengths(LENGTHS))
    model.encoder.call = make_call(mode="default", backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(gradients(model, Packed.of_lengths(LENGTHS)), expected)
    (said,) = warned
    assert said.startswith("layers cannot be compiled, and are run as they are written: ")
    assert "\n" not in said


def test_what_is_not_trained_is_gone_through_as_written(small):
    model = assemble(small(), vocab_size=20, n_classes=3, max_length=16).eval()
    model.encoder.call = None  # would fail
    model(torch.arange(16), Packed.of_lengths(LENGTHS))


@pytest.mark.slow
def test_two_hundred_compiled_steps_have_the_losses_of_steps_as_written(small, counted):
    """With dropout: the bits are the same. In bf16 and fp32, the code that torch makes for a processor."""

    def losses(call, dtype: torch.dtype) -> list[float]:
        torch.manual_seed(3)
        chosen = small(n_layers=3, dropout=0.1, dropout_attention=0.1, positions="rotary", d_model=32)
        model, found = assemble(chosen, vocab_size=20, n_classes=3, max_length=16), []
        model.encoder.call = call
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for step in range(200):
            layout = Packed.of_lengths((torch.randperm(9)[: 3 + step % 4] + 2).tolist())
            classes = torch.randint(3, (layout.n_documents,))
            ids = 3 * torch.randint(6, (layout.n_tokens,)) + classes.repeat_interleave(layout.lengths_B)
            with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
                loss = F.cross_entropy(model(ids, layout), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    for dtype, noise in ((torch.float32, 1e-3), (torch.bfloat16, 0.05)):
        compiled, written = losses(make_call(mode="default"), dtype), losses(call_layer, dtype)
        torch.testing.assert_close(compiled, written, atol=noise, rtol=0)
        assert sum(compiled[-20:]) < 0.5 * sum(compiled[:20])
    assert counted() == 4, "two of each precision"


@pytest.mark.slow
def test_torchs_code_for_a_processor_serves_few_tokens_and_many(small, counted):
    """From 4,097 on it would add up in another way, by graphs of their own."""
    model = assemble(small(dropout=0.2), vocab_size=20, n_classes=3, max_length=16)
    compiled = make_call(mode="default")
    for n_documents in (3, 500, 30):
        found = []
        for model.encoder.call in (call_layer, compiled):
            found.append(gradients(model, Packed.of_lengths([16] * n_documents)))
        torch.testing.assert_close(*found, atol=1e-3, rtol=1e-3)
    assert counted() == 2
