"""The formulas of the cost of recurrent layers and of answers against torch's own counters."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from manyheads import plugin
from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.nn.cost import flops_per_token
from manyheads.plugins.language.decoder import flops_per_answer
from manyheads.plugins.language.networks import assemble_seq2seq
from tests.core.nn.test_cost import LENGTH, N_CLASSES, counted
from tests.registry import of_plugin


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("kind", of_plugin("language", "encoder"))
def test_a_recurrent_layer_costs_a_product_with_each_of_its_weights(small, kind, bidirectional):
    model = small(encoder=kind, bidirectional=bidirectional, n_layers=3)
    cells = assemble(model, vocab_size=5, n_classes=N_CLASSES, max_length=LENGTH).encoder.cells
    n_weights = sum(weight.numel() for name, weight in cells.named_parameters() if name.startswith("weight"))
    assert flops_per_token(model, LENGTH) == 2 * n_weights
    if kind == "gru":  # torch's counter does not see into an LSTM
        assert counted(model) == 2 * LENGTH * flops_per_token(model, LENGTH)


@pytest.mark.parametrize("score", plugin.names("score"))
def test_attention_over_recurrent_states_costs_what_torch_counts(small, score):
    model = small(encoder="gru", pooling="attention", score=score)
    is_sum = plugin.find("score", score).facts.get("is_sum", False)
    sums = 2 * model.d_model * LENGTH if is_sum else 0  # a sum and its tanh: no product of matrices
    of_query = 2 * model.d_model**2 * (is_sum or score == "general") + 4 * model.d_model**2  # W q, then W [c; q]
    assert counted(model) == 2 * (LENGTH * flops_per_token(model, LENGTH) - sums + of_query)


SOURCE, TARGET, WORDS = 7, 4, 5


def counted_answer(model):
    """Operations of products over one source and one target, as torch counts them."""
    seq2seq = assemble_seq2seq(model, vocab_size=WORDS, max_length=LENGTH)
    ids = [torch.zeros(length, dtype=torch.int64) for length in (SOURCE, TARGET)]
    layouts = [Packed.of_lengths([length]) for length in (SOURCE, TARGET)]
    with FlopCounterMode(display=False) as counter:
        seq2seq(ids[0], layouts[0], ids[1], layouts[1])
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "fields", [{}, {"n_kv_heads": 2}, {"project_output": False, "d_v": 2}, {"scores": ["general", "dot"]}]
)
def test_an_answer_costs_what_torch_counts_but_for_what_is_masked(small, fields):
    model = small(n_heads=6, n_layers=3, **fields)
    hidden = TARGET * (TARGET - 1) / 2  # of the whole grid that the kernel computes, what a causal mask hides
    masked = 2 * model.n_layers * model.n_heads * (model.d_k + model.d_v) * hidden
    assert counted_answer(model) == flops_per_answer(model, SOURCE, TARGET, WORDS) + masked


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("score", ["dot", "general", "additive", "concat"])
def test_so_does_one_of_a_recurrent_decoder_but_for_sums_and_its_first_state(small, score, bidirectional):
    model = small(encoder="gru", score=score, bidirectional=bidirectional)
    sums = 2 * model.d_model * SOURCE * TARGET * (plugin.find("score", score).facts.get("is_sum", False))
    first = 2 * model.n_layers * model.d_model**2  # once a text
    assert counted_answer(model) == flops_per_answer(model, SOURCE, TARGET, WORDS) - sums + first
