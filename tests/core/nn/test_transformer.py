"""Layers and stacks of them against torch's with copied weights, and their parts against formulas in NumPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from manyheads import plugin
from manyheads.layout import Packed, Padded
from manyheads.nn import Encoder, EncoderLayer, FeedForward, MultiHeadAttention, Residual
from manyheads.nn.parts import make_block
from tests.registry import of_core, reference

D, H, WIDE, LENGTHS = 12, 3, 20, [4, 1, 6]
LAYOUT = Packed.of_lengths(LENGTHS)


class Constant(nn.Module):
    """A block whose output is one everywhere."""

    causal = True

    def forward(self, x: Tensor, *_: object) -> Tensor:
        return torch.ones_like(x)


def residual(block: nn.Module, placement: str, dropout: float = 0.0) -> Residual:
    def norm(*where: str) -> nn.Module:
        return nn.LayerNorm(D) if placement in where else nn.Identity()

    return Residual(block, before=norm("pre", "both"), after=norm("post", "both"), dropout=dropout)


def with_any_weights(module: nn.Module, std: float = 0.4) -> Any:
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=std)
    return module


def layer(placement: str, activation: str = "relu", dropout: float = 0.0) -> EncoderLayer:
    attention, thought = (
        MultiHeadAttention(d_model=D, n_heads=H),
        FeedForward(d_model=D, d_ff=WIDE, activation=activation),
    )
    blocks = [residual(block, placement, dropout) for block in (attention, thought)]
    return with_any_weights(EncoderLayer(attention=blocks[0], feed_forward=blocks[1]))


def last_norm(placement: str) -> nn.Module:
    return with_any_weights(nn.LayerNorm(D), std=1.0) if placement == "pre" else nn.Identity()


def tokens(lengths: list[int]) -> Tensor:
    return torch.randn(sum(lengths), D, dtype=torch.float64, requires_grad=True)


def assert_same_gradients(got: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(got, expected)
    toward = torch.randn_like(expected)
    of_ours, of_theirs = (torch.autograd.grad(one, inputs, toward, retain_graph=True) for one in (got, expected))
    torch.testing.assert_close(of_ours, of_theirs)


def by_torch(theirs: nn.Module, x: Tensor) -> Tensor:
    return theirs(LAYOUT.grid(x), src_key_padding_mask=~LAYOUT.keep_BL)[LAYOUT.keep_BL]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_layer_equals_torchs(torchs_layer, placement, activation, padded):
    ours, x = layer(placement, activation), tokens(LENGTHS)
    expected = by_torch(torchs_layer(ours, activation), x)
    got = ours(LAYOUT.grid(x), Padded(LAYOUT.keep_BL))[LAYOUT.keep_BL] if padded else ours(x, LAYOUT)
    assert_same_gradients(got, expected, [x])


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_stack_equals_torchs(torchs_layer, placement):
    layers, last, x = [layer(placement) for _ in range(3)], last_norm(placement), tokens(LENGTHS)
    theirs = nn.TransformerEncoder(torchs_layer(layers[0]), 3, last, enable_nested_tensor=False)
    theirs.layers = nn.ModuleList([torchs_layer(one) for one in layers])
    expected = by_torch(theirs.train(), x)  # in evaluation torch's encoder takes another way
    torch.testing.assert_close(Encoder(layers, norm=last)(x, LAYOUT), expected)


def test_norms_before_and_after_a_block_are_both_applied():
    ours, x = layer("both"), tokens(LENGTHS)
    expected = x
    for block, context in ((ours.attention, (LAYOUT,)), (ours.feed_forward, ())):
        expected = block.after(expected + block.block(block.before(expected), *context))
    torch.testing.assert_close(ours(x, LAYOUT), expected)
    assert sum(isinstance(module, nn.LayerNorm) for module in ours.modules()) == 4


def test_dropout_is_on_the_output_of_each_block_when_training():
    ours, nothing = layer("pre", dropout=0.5), torch.zeros(sum(LENGTHS), D, dtype=torch.float64)
    ours.attention.block = ours.feed_forward.block = Constant()
    assert set(ours(nothing, LAYOUT).unique().tolist()) == {0.0, 2.0, 4.0}, "nothing or twice the output"
    assert torch.equal(ours.eval()(nothing, LAYOUT), torch.full_like(nothing, 2.0))


ERF = np.vectorize(math.erf)
F_OF = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + ERF(x / np.sqrt(2))) / 2,
    "geglu": lambda x: x * (1 + ERF(x / np.sqrt(2))) / 2,
    "swiglu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", of_core("activation"))
def test_feed_forward_is_its_formula_token_by_token(activation, bias):
    block = FeedForward(d_model=5, d_ff=7, activation=activation, bias=bias).double()
    assert [name for name, _ in block.named_parameters() if "bias" in name] == ["widen.bias", "narrow.bias"] * bias
    x = torch.randn(6, 5, dtype=torch.float64)
    gated = plugin.find("activation", activation).facts.get("gated", False)
    W, W2 = block.widen.weight.detach().numpy(), block.narrow.weight.detach().numpy()
    assert (W.shape, W2.shape) == ((14 if gated else 7, 5), (5, 7))
    b, b2 = (block.widen.bias.detach().numpy(), block.narrow.bias.detach().numpy()) if bias else (np.zeros(len(W)), 0)
    hidden = reference("activation", activation, F_OF)(x.numpy() @ W[:7].T + b[:7])
    hidden = hidden * (x.numpy() @ W[7:].T + b[7:]) if gated else hidden
    np.testing.assert_allclose(block(x).detach().numpy(), hidden @ W2.T + b2, atol=1e-12)
    torch.testing.assert_close(block(x), torch.stack([block(token) for token in x]))


@pytest.mark.parametrize("kind", of_core("norm"))
def test_a_norm_is_its_formula(kind):
    norm, x = make_block("norm", kind, d_model=64).double(), 3 + 5 * torch.randn(4, 64, dtype=torch.float64)
    sizes = norm(9 * x - 27).square().mean(-1)
    torch.testing.assert_close(sizes, torch.ones_like(sizes), rtol=1e-3, atol=0)  # fresh
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    centred, eps = (x - x.mean(-1, keepdim=True), 1e-5) if kind == "layer" else (x, 1e-6)
    normal = (centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()).numpy()
    bias = norm.bias.detach().numpy() if kind == "layer" else 0
    np.testing.assert_allclose(norm(x).detach().numpy(), normal * norm.weight.detach().numpy() + bias, atol=1e-12)
    assert [name for name, _ in norm.named_parameters()] == ["weight", "bias"][: 1 + (kind == "layer")]
    nothing = torch.zeros(2, 64, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(norm(nothing).sum(), nothing)
    assert gradient.isfinite().all()
