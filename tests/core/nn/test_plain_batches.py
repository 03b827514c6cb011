"""Blocks on a plain batch `(B, L, D)` with a mask: equal to packed tokens, and to torch's own modules."""

import pytest
import torch
from torch import nn

from manyheads import plugin
from manyheads.layout import Packed, Padded, as_layout
from manyheads.nn import (
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Residual,
    Rotary,
    assemble,
    initialise,
    make_score,
)
from tests.registry import of_plugin

LENGTHS = [3, 5, 1]
D = 12
LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]]).bool()
HOLES = torch.tensor([[1, 0, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0]]).bool()

RECURRENT = [{"encoder": one} for one in of_plugin("language", "encoder")[:1]]


def batch(full: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
    packed = Packed.of_lengths(LENGTHS)
    return torch.randn(3, packed.longest, D, dtype=torch.float64, requires_grad=True), None if full else packed.keep_BL


def encoder(d_model: int = D, n_layers: int = 2) -> Encoder:
    """As a user of the blocks puts one together."""
    layers = [
        EncoderLayer(
            attention=Residual(
                MultiHeadAttention(d_model=d_model, n_heads=3, rotary=Rotary(max_length=9, d_k=4)),
                before=nn.LayerNorm(d_model),
            ),
            feed_forward=Residual(FeedForward(d_model=d_model, d_ff=20), before=nn.LayerNorm(d_model)),
        )
        for _ in range(n_layers)
    ]
    return Encoder(layers, norm=nn.LayerNorm(d_model))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["attention", "layer", "encoder"])
def test_a_plain_batch_is_answered_as_packed_tokens_are(kind, training, full):
    blocks = {"attention": lambda: encoder().layers[0].attention.block, "layer": lambda: encoder().layers[0]}
    block = blocks.get(kind, encoder)().double().train(training)
    x, keep = batch(full)
    layout = Packed.of_lengths([5, 5, 5] if full else LENGTHS)
    kept = layout.keep_BL
    got, expected = block(x, keep)[kept], block(x[kept], layout)
    torch.testing.assert_close(got, expected)
    toward = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(got, (x, *block.parameters()), toward),
        torch.autograd.grad(expected, (x, *block.parameters()), toward),
    )


def test_tokens_that_are_masked_change_nothing():
    block, (x, _) = encoder().double(), batch()
    other = torch.where(HOLES[..., None], x, 1e6)
    torch.testing.assert_close(block(x, HOLES)[HOLES], block(other, HOLES)[HOLES])


def test_a_classifier_reads_a_plain_batch_of_ids(small):
    classifier = assemble(small(), vocab_size=30, n_classes=4, max_length=8).eval()
    layout = Packed.of_lengths(LENGTHS)
    ids = torch.randint(0, 30, (3, 5))
    torch.testing.assert_close(classifier(ids, layout.keep_BL), classifier(ids[layout.keep_BL], layout))
    whole = Packed.of_lengths([5, 5, 5])
    torch.testing.assert_close(classifier(ids), classifier(ids.flatten(), whole))


@pytest.mark.parametrize("more", [{"pooling": "first"}, *RECURRENT, {}])
@pytest.mark.parametrize("mask", [LEFT, HOLES])
def test_a_classifier_reads_the_same_wherever_the_padding_is(small, more, mask):
    model = assemble(small(**more), vocab_size=30, n_classes=3, max_length=8).eval()
    ids = torch.randint(30, mask.shape)
    found = model(ids, mask)
    for row, (its, keep) in enumerate(zip(ids, mask, strict=True)):
        torch.testing.assert_close(found[row : row + 1], model(its[keep][None]), rtol=1e-5, atol=1e-6)


def test_a_layout_goes_through_untouched():
    for layout in (Packed.of_lengths(LENGTHS), Padded(LEFT)):
        assert as_layout(torch.empty(0), layout) is layout


@pytest.mark.parametrize("kind", plugin.names("score"))
@pytest.mark.parametrize("drawn", [False, True])
def test_every_score_learns_from_the_weights_it_begins_with(kind, drawn):
    score = make_score(kind, n_heads=4, n_kv_heads=2, d_k=3)
    block = MultiHeadAttention(d_model=D, n_heads=4, n_kv_heads=2, d_k=3, score=score)
    if drawn:
        initialise(block)
    x = torch.randn(2, 5, D)
    block(x).square().sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.isfinite().all(), name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or name in ("project.bias", "score.scale"), name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((torch.randn(9, D),), r"the input has the shape \(9, 12\): give \(batch, length, width\), or packed tokens"),
        ((torch.randn(2, 3, D), torch.ones(2, 3)), r"the mask is torch.float32 of shape \(2, 3\): give torch.bool"),
        ((torch.randn(2, 3, D), torch.ones(3, 2).bool()), r"of shape \(3, 2\): give torch.bool of shape \(2, 3\)"),
    ],
)
def test_what_is_no_plain_batch_is_refused_in_a_sentence(given, said):
    with pytest.raises(ValueError, match=said):
        MultiHeadAttention(d_model=D, n_heads=2)(*given)


def test_heads_without_a_width_are_refused():
    assert MultiHeadAttention(d_model=10, n_heads=4).widths == (8, 8, 8)
    with pytest.raises(ValueError, match="d_model=3 gives none of n_heads=4 a width"):
        MultiHeadAttention(d_model=3, n_heads=4)
