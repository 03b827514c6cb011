"""The formulas of the cost against torch's own counters."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from manyheads.layout import Packed
from manyheads.nn import assemble
from manyheads.nn.cost import count_parameters, flops_per_token

LENGTH, N_CLASSES = 11, 3


@pytest.mark.parametrize("activation", ["relu", "gelu", "geglu", "swiglu"])
@pytest.mark.parametrize("n_kv_heads", [0, 1, 3])
@pytest.mark.parametrize("n_layers", [1, 3])
def test_the_operations_of_a_token_are_those_that_torch_counts(small, activation, n_kv_heads, n_layers):
    model = small(n_layers=n_layers, n_heads=6, n_kv_heads=n_kv_heads, activation=activation)
    classifier = assemble(model, vocab_size=5, n_classes=N_CLASSES, max_length=LENGTH)
    with FlopCounterMode(display=False) as counter:
        classifier(torch.zeros(2 * LENGTH, dtype=torch.int64), Packed.of_lengths([LENGTH] * 2))
    head = 2 * model.d_model * N_CLASSES
    assert counter.get_total_flops() == 2 * (LENGTH * flops_per_token(model, LENGTH) + head)


def test_parameters_are_counted_once_each(small):
    classifier = assemble(small(), vocab_size=5, n_classes=N_CLASSES, max_length=LENGTH)
    assert count_parameters(classifier) == sum(tensor.numel() for tensor in classifier.state_dict().values())
