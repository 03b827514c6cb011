"""The documented spread of every freshly drawn weight of decoders and of recurrent layers, measured."""

import math

import pytest
import torch

from manyheads.nn import MultiHeadAttention
from manyheads.nn.transformer import Residual
from manyheads.plugins.language.networks import assemble_seq2seq
from tests.core.nn.test_weights import SIZES, assert_xavier
from tests.registry import of_plugin


def test_a_decoder_shrinks_by_its_three_blocks_a_layer_and_an_encoder_by_its_two(small):
    torch.manual_seed(0)
    model = assemble_seq2seq(small(**SIZES), vocab_size=60, max_length=20)
    for layers, n_blocks in ((model.encoder.layers, 2), (model.decoder.layers, 3)):
        for residual in layers.modules():
            if isinstance(residual, Residual) and isinstance(residual.block, MultiHeadAttention):
                assert_xavier(residual.block.output.weight, 1 / math.sqrt(n_blocks * 3))
                for weight in residual.block.project.weight.split(residual.block.widths):
                    assert_xavier(weight)
    assert_xavier(model.head.weight)


@pytest.mark.parametrize("kind", of_plugin("language", "encoder"))
def test_gates_of_recurrent_layers_are_xavier_from_the_input_and_orthogonal_from_the_state(small, kind):
    torch.manual_seed(0)
    model = assemble_seq2seq(small(**SIZES, encoder=kind, score="additive"), vocab_size=60, max_length=20)
    for cells, width in ((model.encoder.cells, 48), (model.decoder.recurrent.cells, 96)):
        for name, parameter in cells.named_parameters():
            gates = parameter.split(width)
            assert len(gates) == {"gru": 3, "lstm": 4}[kind]
            for at, gate in enumerate(gates):
                if name.startswith("weight_ih"):
                    assert_xavier(gate)
                elif name.startswith("weight_hh"):
                    torch.testing.assert_close(gate @ gate.T, torch.eye(width), atol=1e-5, rtol=0)
                else:
                    forget = kind == "lstm" and at == 1 and name.startswith("bias_ih")
                    assert (gate == float(forget)).all(), name
    attention = model.decoder.attention
    for weight in (attention.score.query_weight_HKK[0], attention.score.key_weight_GKK[0], attention.combine.weight):
        assert_xavier(weight)
    assert_xavier(model.decoder.bridge.weight)
