"""A training step of a model that answers by texts never waits for a GPU."""

import torch

from manyheads.plugins.language.networks import assemble_seq2seq
from manyheads.plugins.language.objectives import Translate
from tests.core.distributed.test_waits import SHAPE, assert_nothing_is_read_back, tokens


def test_a_step_reads_nothing_back():
    torch.manual_seed(0)
    network, rows = assemble_seq2seq(SHAPE, vocab_size=30, max_length=16), tokens()
    rows.targets = tokens()
    assert_nothing_is_read_back(network, Translate(label_smoothing=0.1), rows)
