"""No weight of a model that answers by texts lacks a gradient, whatever it is given to read."""

from dataclasses import replace

import pytest
import torch

from manyheads.cli.compose import compose
from manyheads.config import ModelConfig
from manyheads.data.tokens import Tokens
from manyheads.nn import assemble
from manyheads.plugins.language.networks import assemble_seq2seq
from manyheads.plugins.language.objectives import Translate
from manyheads.training.objectives import Classify
from tests.core.training.test_gradients import BATCHES, SMALL, tokens, without_gradient

MODELS = {
    "experiment=dates": compose("train", ["experiment=dates"]).model,
    "texts for texts": ModelConfig(),
    "recurrent texts for texts": ModelConfig(encoder="lstm"),
}


def translated() -> Tokens:
    """Three rows of one text each, and their targets."""
    rows = tokens()
    targets = Tokens(rows.ids_N[1:8], torch.tensor([0, 2, 4, 7]), None, torch.zeros(3))
    return Tokens(rows.ids_N, rows.offsets, None, rows.labels, targets=targets)


@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES)
def test_every_weight_has_a_gradient(rows):
    lacking = {}
    for name, model in MODELS.items():
        torch.manual_seed(0)
        network = assemble_seq2seq(replace(model, **SMALL), vocab_size=20, max_length=12)
        lacking[name] = without_gradient(network, Translate(label_smoothing=0.0), translated(), rows)
    assert {name: weights for name, weights in lacking.items() if weights} == {}


@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES)
def test_every_weight_of_the_recurrent_preset_has_a_gradient(rows):
    torch.manual_seed(0)
    model = replace(compose("train", ["model=rnn_attention"]).model, **SMALL)
    network = assemble(model, vocab_size=20, n_classes=3, max_length=12, n_segments=2)
    assert without_gradient(network, Classify(torch.ones(3), label_smoothing=0.0), tokens(), rows) == []
