"""Every field of ModelConfig arrives in the module, and every parameter of the module learns."""

from dataclasses import fields
from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads import plugin
from manyheads.config import ModelConfig, PairKind
from manyheads.layout import Packed, Padded
from manyheads.nn import Classifier, MultiHeadAttention, assemble

LENGTHS = [4, 0, 7, 2]
LAYOUT = Packed.of_lengths(LENGTHS)
OTHER_VALUES: dict[str, Any] = {
    "n_layers": 3,
    "n_heads": 4,
    "n_kv_heads": 1,
    "d_model": 14,
    "d_k": 6,
    "d_v": 4,
    "d_ff": 18,
    "score": "additive",
    "scores": ["scaled_dot", "general"],
    "normaliser": "sparsemax",
    "scale": 2.0,
    "project": False,
    "project_output": False,
    "window": 1,
    "windows": [0, 1],
    "causal": True,
    "activation": "relu",
    "positions": "rotary",
    "qk_norm": True,
    "zero_output": True,
    "matches": True,
    "norm": "rms",
    "placement": "post",
    "segments": "always",
    "pair": "cross",
    "norm_eps": 0.1,
    "d_embedding": 5,
    "rotary_base": 20.0,
    "rotary_base_window": 20.0,
    "norm_bias": False,
    "norm_embedding": True,
    "pooling": "max",
    "pooler": "tanh",
    "bias": False,
    "dropout": 0.4,
    "dropout_embedding": 0.4,
    "dropout_residual": 0.4,
    "dropout_classifier": 0.4,
    "dropout_attention": 0.4,
    "dropout_tokens": 0.4,
}


def fresh(model: ModelConfig, seed: int = 0, n_segments: int = 2) -> Classifier:
    torch.manual_seed(seed)
    return assemble(model, vocab_size=13, n_classes=3, max_length=8, n_segments=n_segments)


def batch() -> tuple[Tensor, Packed, Tensor]:
    every = torch.arange(sum(LENGTHS))
    return every % 13, LAYOUT, every % 2


def trained_logits(classifier: Classifier) -> Tensor:
    torch.manual_seed(7)
    return classifier.train()(*batch())


OF_LANGUAGE = ("encoder", "bidirectional")  # tests/plugins/language/test_assemble.py
FIELDS = [  # options: tests/core/nn/test_own_parts.py
    one.name for one in fields(ModelConfig) if not one.name.endswith("_options") and one.name not in OF_LANGUAGE
]


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_changes_the_model(small, field):
    assert field in OTHER_VALUES, "a new field needs another value here"
    square = {"d_k": 6, "d_v": 6} if field.startswith("project") else {}  # n_heads · d_k is d_model
    square |= {"positions": "rotary", "window": 1} if field.startswith("rotary") else {}
    assert_differ(small(**square), small(**square, **{field: OTHER_VALUES[field]}), 0 if field == "segments" else 2)


def assert_differ(one: ModelConfig, other: ModelConfig, n_segments: int = 2) -> None:
    """In their parameters or in what they compute."""
    before, after = (fresh(model, n_segments=n_segments) for model in (one, other))
    has_as_many = before.state_dict().keys() == after.state_dict().keys()  # biases of norms begin at zero
    assert not (has_as_many and torch.equal(trained_logits(before), trained_logits(after)))


@pytest.mark.parametrize(
    "field", ["activation", "positions", "norm", "placement", "pooling", "pooler", "score", "normaliser", "pair"]
)
def test_every_choice_is_a_model_of_its_own(small, choices, field):
    others = [one for one in choices[field] if (field, one) != ("pair", "auto")]  # which a run resolves to another
    logits = [trained_logits(fresh(small(**{field: one}))) for one in others]
    for at, first in enumerate(logits):
        assert not any(torch.allclose(first, second, atol=1e-4) for second in logits[at + 1 :])


PAIRS, POOLINGS, POSITIONS = [one.name for one in PairKind], plugin.names("pooling"), plugin.names("positions")
QUICK = [(*both, one) for both, one in zip(product(PAIRS, POOLINGS), cycle(POSITIONS), strict=False)]


@pytest.mark.parametrize(
    ("pair", "pooling", "positions"),
    [pytest.param(*one, marks=[pytest.mark.slow] * (one not in QUICK)) for one in product(PAIRS, POOLINGS, POSITIONS)],
)
def test_no_documents_give_no_logits_and_every_parameter_a_gradient_of_zero(small, positions, pooling, pair):
    classifier = fresh(small(positions=positions, pooling=pooling, pair=pair, placement="both"))
    nothing = torch.zeros(0, dtype=torch.int64)
    logits, no_row = classifier(nothing, Packed.of_lengths([]), nothing), nothing.view(0, 4)
    assert logits.shape == classifier(no_row, Padded(no_row.bool()), no_row).shape == (0, 3)
    logits.sum().backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad == 0).all(), name


def test_gradients_reach_queries_keys_and_values_alike(small):
    classifier = fresh(small())
    F.cross_entropy(trained_logits(classifier), torch.tensor([0, 1, 2, 1])).backward()
    for layer in classifier.encoder.layers:
        attention = layer.attention.block
        for part in attention.project.weight.grad.split(attention.widths):
            assert (part.abs().amax(1) > 1e-7).all(), "every row of W^Q, W^K, W^V"


def test_without_dropout_the_logits_are_deterministic(small):
    classifier = fresh(small())
    assert torch.equal(classifier.train()(*batch()), classifier.train()(*batch()))
    dropping = fresh(small(dropout=0.5, dropout_attention=0.5, dropout_tokens=0.5))
    assert not torch.equal(dropping(*batch()), dropping(*batch()))
    assert torch.equal(dropping.eval()(*batch()), classifier.eval()(*batch())), "evaluation never drops"


@pytest.mark.parametrize(
    ("placement", "n_norms", "at_the_start", "at_the_end"),
    [("pre", 2 * 2 + 1, False, True), ("post", 2 * 2 + 1, True, True), ("both", 2 * 4, False, True)],
)
def test_each_placement_has_its_norms(small, placement, n_norms, at_the_start, at_the_end):
    classifier = fresh(small(placement=placement))
    assert sum(isinstance(module, nn.LayerNorm) for module in classifier.modules()) == n_norms
    for tokens, is_normal in (
        (classifier.embeddings(*batch()), at_the_start),
        (classifier.encode(*batch()), at_the_end),
    ):
        sizes = tokens.square().mean(-1)
        assert torch.allclose(sizes, torch.ones(sum(LENGTHS)), atol=1e-3) == is_normal


def test_dropout_of_each_place_is_its_own_or_the_common_one(small):
    def rates(**dropouts: float) -> list[float]:
        classifier = fresh(small(**dropouts))
        layer = classifier.encoder.layers[1]
        return [
            classifier.embeddings.dropout.p,
            layer.attention.dropout.p,
            layer.feed_forward.dropout.p,
            classifier.dropout.p,
            layer.attention.block.dropout,
            classifier.embeddings.dropout_tokens.p,
        ]

    assert rates(dropout=0.2) == [0.2, 0.2, 0.2, 0.2, 0.0, 0.0]
    assert rates(dropout=0.2, dropout_residual=0.0) == [0.2, 0.0, 0.0, 0.2, 0.0, 0.0]
    assert rates(
        dropout_embedding=0.1,
        dropout_residual=0.3,
        dropout_classifier=0.4,
        dropout_attention=0.5,
        dropout_tokens=0.6,
    ) == [0.1, 0.3, 0.3, 0.4, 0.5, 0.6]


@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "d_k", "d_v", "d_model"), [(3, 0, 2, 7, 10), (5, 1, 4, 1, 12), (1, 1, 64, 2, 6)]
)
def test_heads_need_not_divide_the_width(small, n_heads, n_kv_heads, d_k, d_v, d_model):
    model = small(n_heads=n_heads, n_kv_heads=n_kv_heads, d_k=d_k, d_v=d_v, d_model=d_model)
    classifier = fresh(model)
    n_groups = n_kv_heads or n_heads
    for module in classifier.modules():
        if isinstance(module, MultiHeadAttention):
            assert module.project.weight.shape == (n_heads * d_k + n_groups * (d_k + d_v), d_model)
            assert module.output.weight.shape == (d_model, n_heads * d_v)
    assert trained_logits(classifier).shape == (len(LENGTHS), 3)


def test_single_texts_need_no_segments(small):
    classifier = fresh(small(), n_segments=0)
    assert classifier.embeddings.segments is None
    assert fresh(small(segments="never"), n_segments=2).embeddings.segments is None
    ids, layout, _ = batch()
    assert classifier(ids, layout).shape == (len(LENGTHS), 3)


def test_the_number_of_parameters_is_that_of_the_papers_matrices(small):
    n_heads, d_k, d_v, d_model, d_ff, vocab_size, n_classes = 2, 4, 5, 12, 16, 13, 3
    attention = d_model * n_heads * (2 * d_k + d_v) + n_heads * (2 * d_k + d_v) + n_heads * d_v * d_model + d_model
    feed_forward = d_model * d_ff + d_ff + d_ff * d_model + d_model
    norms = 2 * 2 * d_model
    expected = vocab_size * d_model + 2 * (attention + feed_forward + norms) + 2 * d_model + (d_model + 1) * n_classes
    classifier = fresh(small(), n_segments=0)
    assert sum(parameter.numel() for parameter in classifier.parameters()) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("positions", plugin.names("positions"))
@pytest.mark.parametrize("pair", [one.name for one in PairKind])
def test_a_gpu_gives_the_logits_of_the_cpu(small, positions, pair):
    classifier = fresh(small(positions=positions, pair=pair, d_k=8, d_v=8)).eval()
    ids, layout, segments = batch()
    expected = classifier(ids, layout, segments)
    classifier.cuda()
    on_gpu = ids.cuda(), layout.to("cuda"), segments.cuda()
    torch.testing.assert_close(classifier(*on_gpu).cpu(), expected, atol=1e-4, rtol=1e-3)
    with torch.autocast("cuda", torch.bfloat16):
        torch.testing.assert_close(classifier(*on_gpu).float().cpu(), expected, atol=0.05, rtol=0.03)
