"""The documented spread of every freshly drawn weight, measured."""

import math

import pytest
import torch
from torch import Tensor, nn

from manyheads import plugin
from manyheads.layout import Packed
from manyheads.nn import assemble

SIZES = {"n_layers": 3, "n_heads": 4, "d_model": 96, "d_k": 24, "d_v": 40, "d_ff": 320}


@pytest.fixture(scope="module")
def build(small):
    def fresh(seed: int = 0, **fields):
        torch.manual_seed(seed)
        config = small(**(SIZES | {"positions": "learned", "pooling": "attention"} | fields))
        return assemble(config, vocab_size=3000, n_classes=60, max_length=500, n_segments=2)

    return fresh


def assert_xavier(weight: Tensor, gain: float = 1.0) -> None:
    """Glorot and Bengio (2010), equation 16: uniform within ± √(6 / (fan in + fan out))."""
    limit = gain * math.sqrt(6 / sum(weight.shape))
    assert weight.abs().max() <= limit
    assert weight.abs().max() > 0.98 * limit
    assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.04)
    assert abs(weight.mean().item()) < 0.05 * limit


def blocks_of(classifier) -> list[tuple[nn.Module, nn.Module]]:
    return [(layer.attention.block, layer.feed_forward.block) for layer in classifier.encoder.layers]


def test_embeddings_are_normal_with_the_inverse_root_of_d_model(build):
    embeddings = build().embeddings
    for table, tolerance in ((embeddings.words, 0.01), (embeddings.positions, 0.02), (embeddings.segments, 0.2)):
        assert table.weight.std().item() == pytest.approx(96**-0.5, rel=tolerance)
    normal = embeddings.words.weight.flatten() * math.sqrt(96)
    within = (normal.abs() < 1).double().mean().item()
    assert within == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.01)


def test_a_word_vector_read_by_the_encoder_has_unit_variance(build):
    embeddings = build(positions="none").embeddings
    read = embeddings.words(torch.arange(3000)) * embeddings.scale
    assert read.var().item() == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize(("n_kv_heads", "d_v"), [(0, 40), (2, 40), (0, 300)])
def test_queries_keys_and_values_are_each_xavier_by_themselves(build, n_kv_heads, d_v):
    n_groups = n_kv_heads or 4
    for attention, _ in blocks_of(build(n_kv_heads=n_kv_heads, d_v=d_v)):
        for weight in attention.project.weight.split((4 * 24, n_groups * 24, n_groups * d_v)):
            assert_xavier(weight)


def test_the_last_matrix_of_each_block_shrinks_with_the_number_of_layers(build):
    for n_layers in (1, 3):
        for attention, feed_forward in blocks_of(build(n_layers=n_layers)):
            assert_xavier(attention.output.weight, 1 / math.sqrt(2 * n_layers))
            assert_xavier(feed_forward.narrow.weight, 1 / math.sqrt(2 * n_layers))


@pytest.mark.parametrize("activation", plugin.names("activation"))
def test_the_widening_matrices_are_each_xavier_by_themselves(build, activation):
    for _, feed_forward in blocks_of(build(activation=activation)):
        matrices = feed_forward.widen.weight.split(320)
        assert len(matrices) == (2 if plugin.find("activation", activation).facts.get("gated") else 1)
        for weight in matrices:
            assert_xavier(weight)


def test_the_head_and_the_pooling_score_are_xavier(build):
    classifier = build()
    assert_xavier(classifier.head.weight)
    limit = math.sqrt(6 / 97)
    assert 0.9 * limit < classifier.pooling.score.weight.abs().max() <= limit


@pytest.mark.parametrize("norm", plugin.names("norm"))
def test_biases_start_at_zero_and_norms_at_one(build, norm):
    classifier = build(norm=norm, placement="both")
    for name, parameter in classifier.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
    norms = [module for module in classifier.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm)]
    assert len(norms) == 3 * 4
    assert all((module.weight == 1).all() for module in norms)


def test_the_same_seed_draws_the_same_weights_and_another_seed_others(build):
    first, again, other = (build(seed).state_dict() for seed in (1, 1, 2))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = [name for name in first if first[name].unique().numel() > 1]
    assert len(drawn) >= 3 * 4 + 5
    assert not any(torch.equal(first[name], other[name]) for name in drawn)


def test_the_residual_stream_keeps_its_size_through_many_layers(build):
    classifier = build(n_layers=24)
    x = torch.randn(200, 96)
    layout = Packed.of_lengths([50] * 4)
    for layer in classifier.encoder.layers:
        x = layer(x, layout)
    assert 0.8 < x.std() < 1.6


@pytest.mark.parametrize("activation", plugin.names("activation"))
def test_fresh_layers_hand_on_what_they_get(small, activation):
    layout = Packed.of_lengths([4, 2])
    model = assemble(
        small(zero_output=True, activation=activation, placement="pre"), vocab_size=9, n_classes=2, max_length=8
    )
    ids = torch.randint(9, (6,))
    embedded = model.embeddings.eval()(ids, layout)
    encoder = model.encoder.eval()
    torch.testing.assert_close(encoder(embedded, layout), encoder.norm(embedded))
    model(ids, layout).sum().backward()
    assert all(layer.feed_forward.block.narrow.weight.grad.abs().sum() > 0 for layer in encoder.layers)
