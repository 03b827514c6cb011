"""DecoderLayer and Decoder against torch's with copied weights."""

import pytest
import torch
from torch import Tensor, nn

from manyheads.layout import Packed, Padded
from manyheads.nn import FeedForward, MultiHeadAttention, Residual
from manyheads.nn.decoder import Decoder, DecoderLayer
from manyheads.nn.multihead import KeysValues

D, H, WIDE, LENGTHS, MEMORY = 12, 3, 20, [4, 1, 6], [2, 5, 3]


def layer(placement: str, activation: str = "relu", dropout: float = 0.0) -> DecoderLayer:
    def norm(*where: str) -> nn.Module:
        return nn.LayerNorm(D) if placement in where else nn.Identity()

    def residual(block: nn.Module) -> Residual:
        return Residual(block, before=norm("pre", "both"), after=norm("post", "both"), dropout=dropout)

    block = DecoderLayer(
        attention=residual(MultiHeadAttention(d_model=D, n_heads=H, d_k=D // H, d_v=D // H, causal=True)),
        cross_attention=residual(MultiHeadAttention(d_model=D, n_heads=H, d_k=D // H, d_v=D // H)),
        feed_forward=residual(FeedForward(d_model=D, d_ff=WIDE, activation=activation)),
    ).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.4)
    return block


def torchs_layer(ours: DecoderLayer, placement: str, activation: str = "relu") -> nn.TransformerDecoderLayer:
    theirs = nn.TransformerDecoderLayer(
        D, H, WIDE, 0.0, activation, batch_first=True, norm_first=placement == "pre", dtype=torch.float64
    )
    which = "before" if placement == "pre" else "after"
    copies = {}
    for theirs_name, residual in (("self_attn", ours.attention), ("multihead_attn", ours.cross_attention)):
        copies[f"{theirs_name}.in_proj_weight"] = residual.block.project.weight
        copies[f"{theirs_name}.in_proj_bias"] = residual.block.project.bias
        copies[f"{theirs_name}.out_proj.weight"] = residual.block.output.weight
        copies[f"{theirs_name}.out_proj.bias"] = residual.block.output.bias
    for at, linear in enumerate((ours.feed_forward.block.widen, ours.feed_forward.block.narrow), start=1):
        copies |= {f"linear{at}.weight": linear.weight, f"linear{at}.bias": linear.bias}
    for at, residual in enumerate((ours.attention, ours.cross_attention, ours.feed_forward), start=1):
        norm = getattr(residual, which)
        copies |= {f"norm{at}.weight": norm.weight, f"norm{at}.bias": norm.bias}
    theirs.load_state_dict({name: copy.detach() for name, copy in copies.items()})
    return theirs


def sequences() -> tuple[Tensor, Packed, Tensor, Packed]:
    x_ND, memory_ND = (
        torch.randn(sum(lengths), D, dtype=torch.float64, requires_grad=True) for lengths in (LENGTHS, MEMORY)
    )
    return x_ND, Packed.of_lengths(LENGTHS), memory_ND, Packed.of_lengths(MEMORY)


def by_torch(theirs: nn.Module, x_ND: Tensor, layout: Packed, memory_ND: Tensor, memory_layout: Packed) -> Tensor:
    later_LL = torch.ones(layout.longest, layout.longest, dtype=torch.bool).triu(1)
    return theirs(
        layout.grid(x_ND),
        memory_layout.grid(memory_ND),
        tgt_mask=later_LL,
        tgt_key_padding_mask=~layout.keep_BL,
        memory_key_padding_mask=~memory_layout.keep_BL,
    )[layout.keep_BL]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_layer_equals_torchs(placement, activation, padded):
    ours = layer(placement, activation)
    x_ND, layout, memory_ND, memory_layout = sequences()
    expected = by_torch(torchs_layer(ours, placement, activation), x_ND, layout, memory_ND, memory_layout)
    if padded:
        memory_BMD, keep_BL = memory_layout.grid(memory_ND), layout.keep_BL
        got = ours(layout.grid(x_ND), Padded(keep_BL), memory_BMD, Padded(memory_layout.keep_BL))[keep_BL]
    else:
        got = ours(x_ND, layout, memory_ND, memory_layout)
    torch.testing.assert_close(got, expected)
    toward = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(got, (x_ND, memory_ND), toward, retain_graph=True),
        torch.autograd.grad(expected, (x_ND, memory_ND), toward),
    )


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_a_decoder_equals_torchs_whole_and_step_by_step(placement):
    layers = [layer(placement) for _ in range(3)]
    last = nn.LayerNorm(D).double() if placement == "pre" else nn.Identity()
    for parameter in last.parameters():
        nn.init.normal_(parameter)
    ours = Decoder(layers, norm=last)
    theirs = nn.TransformerDecoder(torchs_layer(layers[0], placement), 3, last)
    theirs.layers = nn.ModuleList([torchs_layer(one, placement) for one in layers])
    x_ND, layout, memory_ND, memory_layout = sequences()
    expected = by_torch(theirs, x_ND, layout, memory_ND, memory_layout)
    torch.testing.assert_close(ours(x_ND, layout, memory_ND, memory_layout), expected)
    state = ours.start(memory_ND, memory_layout)
    steps = []
    for x_B1D in layout.grid(x_ND).split(1, dim=1):
        here = Padded(torch.ones(len(LENGTHS), 1, dtype=torch.bool), first=state.position)
        x_B1D, state = ours.step(x_B1D, here, state)
        steps.append(x_B1D)
    torch.testing.assert_close(torch.cat(steps, dim=1)[layout.keep_BL], expected)


def test_norms_before_and_after_a_block_are_both_applied():
    ours = layer("both")
    x_ND, layout, memory_ND, memory_layout = sequences()
    x = x_ND
    for residual, context in (
        (ours.attention, (layout,)),
        (ours.cross_attention, (layout, memory_ND, memory_layout)),
        (ours.feed_forward, ()),
    ):
        x = residual.after(x + residual.block(residual.before(x), *context))
    torch.testing.assert_close(ours(x_ND, layout, memory_ND, memory_layout), x)
    assert sum(isinstance(module, nn.LayerNorm) for module in ours.modules()) == 6


def test_dropout_is_for_training_only():
    ours = layer("pre", dropout=0.5)
    x_ND, layout, memory_ND, memory_layout = sequences()
    one, other = (ours(x_ND, layout, memory_ND, memory_layout) for _ in range(2))
    assert not torch.equal(one, other)
    ours.eval()
    one, other = (ours(x_ND, layout, memory_ND, memory_layout) for _ in range(2))
    assert torch.equal(one, other)


def test_a_past_grows_to_its_most_and_forgets_the_oldest():
    k, v = torch.arange(5.0).view(1, 1, 5, 1), -torch.arange(5.0).view(1, 1, 5, 1)
    past = KeysValues(k[:, :, :1], v[:, :, :1])
    for at in range(1, 5):
        past = past.grown(KeysValues(k[:, :, at : at + 1], v[:, :, at : at + 1]), 3)
    assert past.k_BGMK.flatten().tolist() == [2, 3, 4]
    assert past.v_BGMV.flatten().tolist() == [-2, -3, -4]
    assert past.grown(past).k_BGMK.flatten().tolist() == [2, 3, 4, 2, 3, 4]
