"""Heads share the width: what is equal is equal exactly."""

from functools import partial

import pytest

from manyheads.explain.cost import N_HEADS, batch, count_flops, forward_backward, make_layer, peak_bytes
from manyheads.nn.cost import count_parameters

D, T = 64, 32


@pytest.mark.parametrize("n_heads", N_HEADS)
def test_parameters_and_matrix_products_are_the_same_for_any_number_of_heads(n_heads):
    layer = make_layer(D, n_heads)
    assert count_parameters(layer) == 4 * D * D + 4 * D
    assert count_flops(layer, *batch(T, D, 2 * T)) == 2 * (8 * T * D**2 + 4 * T**2 * D)


def test_weights_are_not_the_same():
    peaks = [peak_bytes(partial(forward_backward, make_layer(D, n_heads), *batch(128, D, 128))) for n_heads in (1, 16)]
    assert peaks[1] - peaks[0] > 15 * 4 * 128**2


def test_gradients_are_dropped():
    layer, (x, layout) = make_layer(D, 2), batch(T, D, T)
    forward_backward(layer, x, layout)
    assert x.grad is None
    assert all(one.grad is None for one in layer.parameters())
