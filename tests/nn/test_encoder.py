"""EncoderLayer and Encoder against torch's with copied weights, and against a NumPy transcription."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from manyheads.layout import Packed, Padded
from manyheads.nn import Encoder, EncoderLayer, FeedForward, MultiHeadAttention, Residual

D, H, F, LENGTHS = 12, 3, 20, [4, 1, 6]


def layer(placement: str, activation: str = "relu", dropout: float = 0.0) -> EncoderLayer:
    def norm(*where: str) -> nn.Module:
        return nn.LayerNorm(D) if placement in where else nn.Identity()

    def residual(block: nn.Module) -> Residual:
        return Residual(block, before=norm("pre", "both"), after=norm("post", "both"), dropout=dropout)

    block = EncoderLayer(
        attention=residual(MultiHeadAttention(d_model=D, n_heads=H, d_k=D // H, d_v=D // H)),
        feed_forward=residual(FeedForward(d_model=D, d_ff=F, activation=activation)),
    ).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.4)
    return block


def torchs_layer(ours: EncoderLayer, placement: str, activation: str) -> nn.TransformerEncoderLayer:
    theirs = nn.TransformerEncoderLayer(
        D, H, F, 0.0, activation, batch_first=True, norm_first=placement == "pre", dtype=torch.float64
    )
    attention, feed_forward = ours.attention.block, ours.feed_forward.block
    which = "before" if placement == "pre" else "after"
    norms = getattr(ours.attention, which), getattr(ours.feed_forward, which)
    copies = {
        "self_attn.in_proj_weight": attention.project.weight,
        "self_attn.in_proj_bias": attention.project.bias,
        "self_attn.out_proj.weight": attention.output.weight,
        "self_attn.out_proj.bias": attention.output.bias,
        "linear1.weight": feed_forward.widen.weight,
        "linear1.bias": feed_forward.widen.bias,
        "linear2.weight": feed_forward.narrow.weight,
        "linear2.bias": feed_forward.narrow.bias,
        "norm1.weight": norms[0].weight,
        "norm1.bias": norms[0].bias,
        "norm2.weight": norms[1].weight,
        "norm2.bias": norms[1].bias,
    }
    theirs.load_state_dict({name: copy.detach() for name, copy in copies.items()})
    return theirs


def tokens() -> Tensor:
    return torch.randn(sum(LENGTHS), D, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_layer_equals_torchs(placement, activation, padded):
    ours = layer(placement, activation)
    theirs = torchs_layer(ours, placement, activation)
    layout, x_ND = Packed.of_lengths(LENGTHS), tokens()
    keep_BL = layout.keep_BL
    expected = theirs(layout.grid(x_ND), src_key_padding_mask=~keep_BL)[keep_BL]
    got = ours(layout.grid(x_ND), Padded(keep_BL))[keep_BL] if padded else ours(x_ND, layout)
    torch.testing.assert_close(got, expected)
    toward = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(got, x_ND, toward, retain_graph=True), torch.autograd.grad(expected, x_ND, toward)
    )


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_an_encoder_equals_torchs(placement):
    layers = [layer(placement) for _ in range(3)]
    last = nn.LayerNorm(D).double() if placement == "pre" else nn.Identity()
    for parameter in last.parameters():
        nn.init.normal_(parameter)
    ours = Encoder(layers, norm=last)
    theirs = nn.TransformerEncoder(torchs_layer(layers[0], placement, "relu"), 3, last, enable_nested_tensor=False)
    theirs.layers = nn.ModuleList([torchs_layer(one, placement, "relu") for one in layers])
    layout, x_ND = Packed.of_lengths(LENGTHS), tokens()
    expected = theirs(layout.grid(x_ND), src_key_padding_mask=~layout.keep_BL)[layout.keep_BL]
    torch.testing.assert_close(ours(x_ND, layout), expected)


def layer_norm(norm: nn.Module, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return normal * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def multihead(block: MultiHeadAttention, x: np.ndarray) -> np.ndarray:
    projected = x @ block.project.weight.detach().numpy().T + block.project.bias.detach().numpy()
    Q, K, V = (np.split(part, H, -1) for part in np.split(projected, 3, -1))
    heads = []
    for head in range(H):
        powers = np.exp(Q[head] @ K[head].T / math.sqrt(D / H))
        heads.append(powers / powers.sum(-1, keepdims=True) @ V[head])
    return np.concatenate(heads, -1) @ block.output.weight.detach().numpy().T + block.output.bias.detach().numpy()


def feed_forward(block: FeedForward, x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x @ block.widen.weight.detach().numpy().T + block.widen.bias.detach().numpy(), 0)
    return hidden @ block.narrow.weight.detach().numpy().T + block.narrow.bias.detach().numpy()


def test_norms_at_both_places_are_norm_of_x_plus_block_of_norm_of_x():
    ours, x_ND = layer("both"), tokens().detach()
    expected = []
    for x in x_ND.split(LENGTHS):
        looked, thought = ours.attention, ours.feed_forward
        x = layer_norm(looked.after, x.numpy() + multihead(looked.block, layer_norm(looked.before, x.numpy())))
        expected.append(layer_norm(thought.after, x + feed_forward(thought.block, layer_norm(thought.before, x))))
    got = ours(x_ND, Packed.of_lengths(LENGTHS))
    np.testing.assert_allclose(got.detach().numpy(), np.concatenate(expected), atol=1e-12)


def test_dropout_is_on_the_output_of_each_block():
    class Constant(nn.Module):
        def forward(self, x: Tensor, *_: object) -> Tensor:
            return torch.ones_like(x)

    block = layer("pre", dropout=0.5)
    block.attention.block, block.feed_forward.block = Constant(), Constant()
    x_ND = torch.zeros(sum(LENGTHS), D, dtype=torch.float64)
    drawn = block(x_ND, Packed.of_lengths(LENGTHS))
    assert set(drawn.unique().tolist()) == {0.0, 2.0, 4.0}, "each block gives nothing or twice its output"
    assert torch.equal(block.eval()(x_ND, Packed.of_lengths(LENGTHS)), torch.full_like(x_ND, 2.0))
