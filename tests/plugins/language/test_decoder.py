"""Layers of a decoder and stacks of them against torch's with copied weights, at once and step by step."""

import pytest
import torch
from torch import Tensor, nn

from manyheads.layout import Packed, Padded
from manyheads.nn import FeedForward, MultiHeadAttention
from manyheads.plugins.language.decoder import Decoder, DecoderLayer, KeysValues
from tests.core.nn.test_transformer import (
    LAYOUT,
    LENGTHS,
    WIDE,
    Constant,
    D,
    H,
    assert_same_gradients,
    last_norm,
    residual,
    tokens,
    with_any_weights,
)

MEMORY = [2, 5, 3]
MEMORY_LAYOUT = Packed.of_lengths(MEMORY)


def layer(placement: str, activation: str = "relu", dropout: float = 0.0) -> DecoderLayer:
    blocks = [MultiHeadAttention(d_model=D, n_heads=H, causal=causal) for causal in (True, False)]
    blocks.append(FeedForward(d_model=D, d_ff=WIDE, activation=activation))
    own, across, thought = (residual(block, placement, dropout) for block in blocks)
    return with_any_weights(DecoderLayer(attention=own, cross_attention=across, feed_forward=thought))


def by_torch(theirs: nn.Module, x: Tensor, memory: Tensor) -> Tensor:
    later_LL = torch.ones(LAYOUT.longest, LAYOUT.longest, dtype=torch.bool).triu(1)
    padding = {"tgt_key_padding_mask": ~LAYOUT.keep_BL, "memory_key_padding_mask": ~MEMORY_LAYOUT.keep_BL}
    found = theirs(LAYOUT.grid(x), MEMORY_LAYOUT.grid(memory), tgt_mask=later_LL, **padding)
    return found[LAYOUT.keep_BL]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_layer_equals_torchs(torchs_layer, placement, activation, padded):
    ours, x, memory = layer(placement, activation), tokens(LENGTHS), tokens(MEMORY)
    expected = by_torch(torchs_layer(ours, activation), x, memory)
    if padded:
        grids = [LAYOUT.grid(x), Padded(LAYOUT.keep_BL), MEMORY_LAYOUT.grid(memory), Padded(MEMORY_LAYOUT.keep_BL)]
        got = ours(*grids)[LAYOUT.keep_BL]
    else:
        got = ours(x, LAYOUT, memory, MEMORY_LAYOUT)
    assert_same_gradients(got, expected, [x, memory])


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_stack_equals_torchs_at_once_and_step_by_step(torchs_layer, placement):
    layers, last = [layer(placement) for _ in range(3)], last_norm(placement)
    x, memory = tokens(LENGTHS), tokens(MEMORY)
    ours, theirs = Decoder(layers, norm=last), nn.TransformerDecoder(torchs_layer(layers[0]), 3, last)
    theirs.layers = nn.ModuleList([torchs_layer(one) for one in layers])
    expected = by_torch(theirs, x, memory)
    torch.testing.assert_close(ours(x, LAYOUT, memory, MEMORY_LAYOUT), expected)
    state, steps = ours.start(memory, MEMORY_LAYOUT), []
    for x_B1D in LAYOUT.grid(x).split(1, dim=1):
        here = Padded(torch.ones(len(LENGTHS), 1, dtype=torch.bool), first=state.position)
        x_B1D, state = ours.step(x_B1D, here, state)
        steps.append(x_B1D)
    torch.testing.assert_close(torch.cat(steps, dim=1)[LAYOUT.keep_BL], expected)


def test_norms_before_and_after_a_block_are_both_applied():
    ours, x, memory = layer("both"), tokens(LENGTHS), tokens(MEMORY)
    expected = x
    contexts = {"attention": (LAYOUT,), "cross_attention": (LAYOUT, memory, MEMORY_LAYOUT), "feed_forward": ()}
    for name, block in ours.named_children():
        expected = block.after(expected + block.block(block.before(expected), *contexts[name]))
    torch.testing.assert_close(ours(x, LAYOUT, memory, MEMORY_LAYOUT), expected)


def test_dropout_is_on_the_output_of_each_block_when_training():
    ours = layer("pre", dropout=0.5)
    for block in ours.children():
        block.block = Constant()
    nothing, memory = torch.zeros(sum(LENGTHS), D, dtype=torch.float64), tokens(MEMORY)
    drawn = ours(nothing, LAYOUT, memory, MEMORY_LAYOUT)
    assert set(drawn.unique().tolist()) == {0.0, 2.0, 4.0, 6.0}, "nothing or twice the output"
    assert torch.equal(ours.eval()(nothing, LAYOUT, memory, MEMORY_LAYOUT), torch.full_like(nothing, 3.0))


def test_a_past_grows_to_its_most_and_forgets_the_oldest():
    k, v = torch.arange(5.0).view(1, 1, 5, 1), -torch.arange(5.0).view(1, 1, 5, 1)
    past = KeysValues(k[:, :, :1], v[:, :, :1])
    for at in range(1, 5):
        past = past.grown(KeysValues(k[:, :, at : at + 1], v[:, :, at : at + 1]), 3)
    assert past.k_BGMK.flatten().tolist() == [2, 3, 4]
    assert past.v_BGMV.flatten().tolist() == [-2, -3, -4]
    assert past.grown(past).k_BGMK.flatten().tolist() == [2, 3, 4, 2, 3, 4]
