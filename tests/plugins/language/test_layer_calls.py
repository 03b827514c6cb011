"""Layers of a decoder compiled and recomputed."""

import torch

from manyheads.layout import Packed
from manyheads.nn.transformer import make_call
from manyheads.plugins.language.networks import assemble_seq2seq


def test_recomputed_decoders_too(small):
    model = assemble_seq2seq(small(dropout=0.3), vocab_size=20, max_length=16)
    sources, targets = Packed.of_lengths([2, 4]), Packed.of_lengths([5, 3])

    def answer() -> list[torch.Tensor]:
        torch.manual_seed(7)
        loss = model(torch.randint(20, (6,)), sources, torch.randint(20, (8,)), targets).square().sum()
        return list(torch.autograd.grad(loss, list(model.parameters())))

    expected = answer()
    model.encoder.call = model.decoder.call = make_call(recompute=True)
    torch.testing.assert_close(answer(), expected, rtol=0, atol=0)
