"""Layers of a decoder compiled and recomputed."""

import pytest
import torch
from torch._dynamo.utils import counters

from manyheads.layout import Packed
from manyheads.nn.layer_calls import make_call
from manyheads.nn.transformer import call_layer
from manyheads.plugins.language.networks import assemble_seq2seq


def gradients(model, sources: list[int], targets: list[int]) -> list[torch.Tensor]:
    torch.manual_seed(7)
    ids = torch.randint(20, (sum(sources),)), torch.randint(20, (sum(targets),))
    logits = model(ids[0], Packed.of_lengths(sources), ids[1], Packed.of_lengths(targets))
    return list(torch.autograd.grad(logits.square().sum(), list(model.parameters())))


def test_recomputed_decoders_too(small):
    model = assemble_seq2seq(small(dropout=0.3), vocab_size=20, max_length=16)
    expected = gradients(model, [2, 4], [5, 3])
    model.encoder.call = model.decoder.call = make_call(recompute=True)
    torch.testing.assert_close(gradients(model, [2, 4], [5, 3]), expected, rtol=0, atol=0)


@pytest.mark.slow  # tests/core/nn/test_layer_calls.py compiles layers of encoders
def test_compiled_decoders_too(small):
    """Two graphs of the encoder, of which its decoder shares one, and two more."""
    torch.compiler.reset()
    counters.clear()
    model = assemble_seq2seq(small(dropout=0.3), vocab_size=20, max_length=16)
    compiled = make_call(mode="default", backend="aot_eager")
    for sources, targets in (([2, 4], [5, 3]), ([7, 3], [4, 4]), ([3, 3], [4, 2]), ([2, 9, 1], [8, 1, 1])):
        found = []
        for call in (call_layer, compiled):
            model.encoder.call = model.decoder.call = call
            found.append(gradients(model, sources, targets))
        torch.testing.assert_close(*found)
    assert counters["stats"]["unique_graphs"] == 4
