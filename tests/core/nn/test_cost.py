"""The formulas of the cost against torch's own counters."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from manyheads import plugin
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.nn.cost import (
    count_parameters,
    flops_per_token,
    keys_per_query,
    mean_flops,
)
from manyheads.nn.kernels import near
from tests.registry import of_plugin

LENGTH, N_CLASSES = 11, 3


def counted(model):
    """Operations of products in a forward pass of two texts, as torch counts them, those of the head left out."""
    classifier = assemble(model, vocab_size=5, n_classes=N_CLASSES, max_length=LENGTH)
    with FlopCounterMode(display=False) as counter:
        classifier(torch.zeros(2 * LENGTH, dtype=torch.int64), Packed.of_lengths([LENGTH] * 2))
    return counter.get_total_flops() - 2 * 2 * model.d_model * N_CLASSES


SQUARE = {"n_heads": 2, "d_model": 16, "d_k": 8, "d_v": 8}


@pytest.mark.parametrize(
    "fields",
    [
        *({"activation": one, "n_kv_heads": n} for one, n in product(plugin.names("activation"), (0, 1, 3))),
        {"n_layers": 1},
        {"d_embedding": 5},
        {"scores": ["general", "dot"]},
        SQUARE | {"project": False},
        SQUARE | {"project_output": False},
        SQUARE | {"project": False, "project_output": False},
        *({"pooling": one} for one in plugin.names("pooling")),
        {"window": LENGTH},
    ],
    ids=str,
)
def test_the_operations_of_a_token_are_those_that_torch_counts(small, fields):
    model = small(**{"n_layers": 2, "n_heads": 6} | fields)
    assert counted(model) == 2 * LENGTH * flops_per_token(model, LENGTH)


@pytest.mark.parametrize("score", plugin.names("score"))
@pytest.mark.parametrize("n_kv_heads", [0, 2])
def test_so_are_those_of_every_score(small, score, n_kv_heads):
    model = small(n_heads=6, n_kv_heads=n_kv_heads, score=score)
    sums = 2 * model.d_k * model.n_heads * LENGTH * model.n_layers  # a sum and its tanh: no product of matrices
    sums = sums if plugin.find("score", score).facts.get("is_sum", False) else 0
    assert counted(model) == 2 * LENGTH * (flops_per_token(model, LENGTH) - sums)


def counted_pair(model, first, second):
    """Operations of products for one pair of texts, as torch counts them, those of the head left out."""
    classifier = assemble(model, vocab_size=5, n_classes=N_CLASSES, max_length=3 * LENGTH, n_segments=2)
    segments, ids = torch.tensor([0] * first + [1] * second), torch.arange(first + second) % 5  # no mark twice
    with FlopCounterMode(display=False) as counter:
        if classifier.cross is None or first == second + 1:
            classifier(ids, Packed.of_lengths([first + second]), segments)
            counted = counter.get_total_flops() - 2 * classifier.head.in_features * N_CLASSES
        else:  # each text by itself, as the classifier puts both into one grid as wide as the longer
            layouts = [Packed.of_lengths([length]) for length in (first, second + 1)]
            embedded = [classifier.embeddings(torch.zeros(one.n_tokens, dtype=torch.int64), one) for one in layouts]
            both = [classifier.encoder(x, one) for x, one in zip(embedded, layouts, strict=True)]
            for own, other in ((0, 1), (1, 0)):
                x = both[own]
                for layer in classifier.cross.layers:  # one, or none
                    layer.attention.block(x, layouts[own], both[other], layouts[other])
                    x = layer.feed_forward(x)
                classifier.pooling(x, layouts[own])
            counted = counter.get_total_flops()
    return counted


PAIRED = [
    *({"pair": "cross"} | more for more in ({}, {"n_kv_heads": 1}, {"score": "general", "n_layers": 3})),
    {"pair": "compare"},
    *({"pair": "cross"} | more for more in ({"d_embedding": 5}, {"pooling": "attention"}, {"matches": True})),
    *({"pair": "joint"} | more for more in ({}, {"matches": True}, {"segments": "never"})),
    *({"encoder": one} for one in of_plugin("language", "encoder")[:1]),
]


@pytest.mark.parametrize(
    "fields",
    [one if at % 2 == 0 else pytest.param(one, marks=pytest.mark.slow) for at, one in enumerate(PAIRED)],
    ids=str,
)
def test_pairs_cost_what_torch_counts(small, fields):
    """Read apart both texts have [CLS], so that a pair of L tokens costs what L + 1 cost."""
    model = small(**({"n_heads": 6} if "encoder" not in fields else {}) | fields)
    for first, second in ((LENGTH, LENGTH - 1), (2 * LENGTH, 3)):
        length = first + second
        assert counted_pair(model, first, second) == pytest.approx(length * flops_per_token(model, length, second))
    even = 2 * LENGTH - 1
    assert flops_per_token(model, even) == pytest.approx(counted_pair(model, LENGTH, LENGTH - 1) / even)


@pytest.mark.parametrize("pair", ["joint", "cross", "compare"])
def test_a_mean_over_tokens_is_of_texts_as_long_as_they_are(small, pair):
    model = small(n_heads=6, pair=pair)
    texts = [(5, 2, 0, 3), (2 * LENGTH, 7, 0, 1), (9, 1, 0, 2)]
    total = sum(n * counted_pair(model, length - second, second) for length, second, _, n in texts)
    assert mean_flops(model, texts) == pytest.approx(total / sum(n * length for length, _, _, n in texts))


@pytest.mark.parametrize("pair", ["joint", "cross", "compare"])
def test_a_second_mark_costs_something_where_it_is_read(small, pair):
    model = small(n_heads=6, pair=pair)
    classifier = assemble(model, vocab_size=5, n_classes=N_CLASSES, max_length=3 * LENGTH, n_segments=2)
    segments = torch.tensor([0] * LENGTH + [4] + [1] * (LENGTH - 1 if pair == "compare" else LENGTH))
    ids = torch.zeros(len(segments), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        classifier(ids, Packed.of_lengths([len(segments)]), segments)
    counted = counter.get_total_flops() - 2 * classifier.head.in_features * N_CLASSES
    size = (len(segments), int((segments & 1).sum()), 1, 1)
    assert mean_flops(model, [size]) == pytest.approx(counted / len(segments))


@given(st.integers(1, 40), st.integers(0, 45), st.booleans())
def test_keys_are_those_that_the_mask_keeps(length, window, causal):
    at = torch.arange(length)
    kept = near(at[:, None], at, window, causal).sum(1).double().mean()
    assert keys_per_query(length, window=window, causal=causal) == pytest.approx(float(kept))


def test_parameters_are_counted_once_each(small):
    classifier = assemble(small(), vocab_size=5, n_classes=N_CLASSES, max_length=LENGTH)
    assert count_parameters(classifier) == sum(tensor.numel() for tensor in classifier.state_dict().values())
