"""Layers and stacks of them against torch's with copied weights, and their parts against formulas in NumPy."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from manyheads import plugin
from manyheads.layout import Packed, Padded
from manyheads.nn import Encoder, EncoderLayer, FeedForward, MultiHeadAttention, Residual
from manyheads.nn.multihead import KeysValues
from manyheads.nn.parts import make_block
from manyheads.nn.transformer import Decoder, DecoderLayer
from tests.registry import of_core, reference

D, H, WIDE, LENGTHS, MEMORY = 12, 3, 20, [4, 1, 6], [2, 5, 3]
LAYOUT, MEMORY_LAYOUT = Packed.of_lengths(LENGTHS), Packed.of_lengths(MEMORY)
KINDS = {
    "encoder": (EncoderLayer, Encoder, nn.TransformerEncoder),
    "decoder": (DecoderLayer, Decoder, nn.TransformerDecoder),
}
both_kinds = pytest.mark.parametrize("kind", KINDS)


def layer(kind: str, placement: str, activation: str = "relu", dropout: float = 0.0) -> EncoderLayer | DecoderLayer:
    def norm(*where: str) -> nn.Module:
        return nn.LayerNorm(D) if placement in where else nn.Identity()

    def residual(block: nn.Module) -> Residual:
        return Residual(block, before=norm("pre", "both"), after=norm("post", "both"), dropout=dropout)

    blocks = {"attention": residual(MultiHeadAttention(d_model=D, n_heads=H, causal=kind == "decoder"))}
    if kind == "decoder":
        blocks["cross_attention"] = residual(MultiHeadAttention(d_model=D, n_heads=H))
    blocks["feed_forward"] = residual(FeedForward(d_model=D, d_ff=WIDE, activation=activation))
    made = KINDS[kind][0](**blocks).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.4)
    return made


def inputs(kind: str) -> tuple[list[Tensor], list[Packed]]:
    """Tokens, and those of a memory for a decoder; where they lie."""
    lengths = [LENGTHS, MEMORY][: 1 + (kind == "decoder")]
    tokens = [torch.randn(sum(one), D, dtype=torch.float64, requires_grad=True) for one in lengths]
    return tokens, [LAYOUT, MEMORY_LAYOUT][: len(lengths)]


def side_by_side(tokens: list[Tensor], layouts: list[Packed]) -> list:
    """What `forward` takes."""
    return [one for pair in zip(tokens, layouts, strict=True) for one in pair]


def by_torch(theirs: nn.Module, tokens: list[Tensor], layouts: list[Packed]) -> Tensor:
    grids = [layout.grid(x) for x, layout in zip(tokens, layouts, strict=True)]
    padding = [~layout.keep_BL for layout in layouts]
    if len(grids) == 1:
        return theirs(*grids, src_key_padding_mask=padding[0])[LAYOUT.keep_BL]
    later_LL = torch.ones(LAYOUT.longest, LAYOUT.longest, dtype=torch.bool).triu(1)
    masks = {"tgt_mask": later_LL, "tgt_key_padding_mask": padding[0], "memory_key_padding_mask": padding[1]}
    return theirs(*grids, **masks)[LAYOUT.keep_BL]


@both_kinds
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_layer_equals_torchs(torchs_layer, kind, placement, activation, padded):
    ours = layer(kind, placement, activation)
    tokens, layouts = inputs(kind)
    expected = by_torch(torchs_layer(ours, activation), tokens, layouts)
    if padded:
        grids = [layout.grid(x) for x, layout in zip(tokens, layouts, strict=True)]
        got = ours(*side_by_side(grids, [Padded(layout.keep_BL) for layout in layouts]))[LAYOUT.keep_BL]
    else:
        got = ours(*side_by_side(tokens, layouts))
    torch.testing.assert_close(got, expected)
    toward = torch.randn_like(expected)
    of_ours, of_theirs = (torch.autograd.grad(one, tokens, toward, retain_graph=True) for one in (got, expected))
    torch.testing.assert_close(of_ours, of_theirs)


@both_kinds
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_stack_equals_torchs_and_a_decoder_step_by_step(torchs_layer, kind, placement):
    layers = [layer(kind, placement) for _ in range(3)]
    last = nn.LayerNorm(D).double() if placement == "pre" else nn.Identity()
    for parameter in last.parameters():
        nn.init.normal_(parameter)
    _, stack, torchs = KINDS[kind]
    plain = {"enable_nested_tensor": False} if kind == "encoder" else {}
    ours, theirs = stack(layers, norm=last), torchs(torchs_layer(layers[0]), 3, last, **plain)
    theirs.layers = nn.ModuleList([torchs_layer(one) for one in layers])
    tokens, layouts = inputs(kind)
    expected = by_torch(theirs.train(), tokens, layouts)  # in evaluation torch's encoder takes another way
    torch.testing.assert_close(ours(*side_by_side(tokens, layouts)), expected)
    if kind == "encoder":
        return
    state, steps = ours.start(tokens[1], MEMORY_LAYOUT), []
    for x_B1D in LAYOUT.grid(tokens[0]).split(1, dim=1):
        here = Padded(torch.ones(len(LENGTHS), 1, dtype=torch.bool), first=state.position)
        x_B1D, state = ours.step(x_B1D, here, state)
        steps.append(x_B1D)
    torch.testing.assert_close(torch.cat(steps, dim=1)[LAYOUT.keep_BL], expected)


@both_kinds
def test_norms_before_and_after_a_block_are_both_applied(kind):
    ours, (tokens, layouts) = layer(kind, "both"), inputs(kind)
    x = tokens[0]
    contexts = {"attention": (LAYOUT,), "cross_attention": (LAYOUT, *tokens[1:], MEMORY_LAYOUT), "feed_forward": ()}
    for name, residual in ours.named_children():
        x = residual.after(x + residual.block(residual.before(x), *contexts[name]))
    torch.testing.assert_close(ours(*side_by_side(tokens, layouts)), x)
    assert sum(isinstance(module, nn.LayerNorm) for module in ours.modules()) == 2 * len(list(ours.children()))


@both_kinds
def test_dropout_is_on_the_output_of_each_block_when_training(kind):
    class Constant(nn.Module):
        causal = True

        def forward(self, x: Tensor, *_: object) -> Tensor:
            return torch.ones_like(x)

    ours, (tokens, layouts) = layer(kind, "pre", dropout=0.5), inputs(kind)
    blocks = list(ours.children())
    for residual in blocks:
        residual.block = Constant()
    nothing = [torch.zeros_like(x) for x in tokens]
    drawn = ours(*side_by_side(nothing, layouts))
    assert set(drawn.unique().tolist()) == {2.0 * n for n in range(len(blocks) + 1)}, "nothing or twice the output"
    kept = ours.eval()(*side_by_side(nothing, layouts))
    assert torch.equal(kept, torch.full_like(nothing[0], float(len(blocks))))


def test_a_past_grows_to_its_most_and_forgets_the_oldest():
    k, v = torch.arange(5.0).view(1, 1, 5, 1), -torch.arange(5.0).view(1, 1, 5, 1)
    past = KeysValues(k[:, :, :1], v[:, :, :1])
    for at in range(1, 5):
        past = past.grown(KeysValues(k[:, :, at : at + 1], v[:, :, at : at + 1]), 3)
    assert past.k_BGMK.flatten().tolist() == [2, 3, 4]
    assert past.v_BGMV.flatten().tolist() == [-2, -3, -4]
    assert past.grown(past).k_BGMK.flatten().tolist() == [2, 3, 4, 2, 3, 4]


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
