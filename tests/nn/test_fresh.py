"""Layers that begin at nothing, and queries and keys that are normed."""

import pytest
import torch
from torch.nn import functional as F

from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.nn.attention import attend
from manyheads.nn.embeddings import Rotary
from manyheads.nn.multihead import MultiHeadAttention

LAYOUT = Packed.of_lengths([4, 2])


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_fresh_layers_hand_on_what_they_get(small, activation):
    torch.manual_seed(0)
    model = assemble(
        small(zero_output=True, activation=activation, placement="pre"), vocab_size=9, n_classes=2, max_length=8
    )
    ids = torch.randint(9, (6,))
    embedded = model.embeddings.eval()(ids, LAYOUT)
    encoder = model.encoder.eval()
    torch.testing.assert_close(encoder(embedded, LAYOUT), encoder.norm(embedded))
    model(ids, LAYOUT).sum().backward()
    assert all(layer.feed_forward.block.narrow.weight.grad.abs().sum() > 0 for layer in encoder.layers)


@pytest.mark.parametrize("turned", [False, True])
def test_queries_and_keys_are_normed_head_by_head_before_they_are_turned(turned):
    torch.manual_seed(0)
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
        q, k = rotary(q, LAYOUT.positions), rotary(k, LAYOUT.positions)
    heads = [
        attend(*(one[part].transpose(0, 1)[None] for one in (q, k, v.unflatten(-1, (1, 3)))))[0].transpose(0, 1)
        for part in (slice(0, 4), slice(4, 6))
    ]
    torch.testing.assert_close(
        block(x, LAYOUT), F.linear(torch.cat(heads).flatten(1), block.output.weight, block.output.bias)
    )
