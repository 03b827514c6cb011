"""What heads and lengths cost: what is equal is equal exactly, growth by length, memory of work that is known."""

import time
from functools import partial

import pytest
import torch

from manyheads.explain.cost import (
    N_HEADS,
    batch,
    count_flops,
    exponent,
    forward_backward,
    lengths,
    make_layer,
    median_seconds,
    peak_bytes,
    textbook,
)
from manyheads.nn.assemble import count_parameters

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


def test_lengths_double_up_to_the_longest():
    assert lengths(128) == [64, 128]
    assert lengths(1000) == [64, 128, 256, 512]


@pytest.mark.parametrize("power", [1, 2])
def test_the_exponent_of_a_power_law_is_found(power):
    costs = [{"tokens": n, "ms": {"kind": 3.0 * n**power}} for n in (64, 128, 256, 512, 1024)]
    assert exponent(costs, "ms", "kind") == pytest.approx(power)


def test_the_formula_holds_all_weights_and_a_window_does_not():
    full, local = make_layer(16, 2), make_layer(16, 2, 8)
    peaks = {}
    for n_tokens in (128, 256):
        x, layout = batch(n_tokens, 16, n_tokens)
        peaks[n_tokens] = (
            peak_bytes(partial(textbook, full, x)),
            peak_bytes(partial(forward_backward, local, x, layout)),
        )
        assert peaks[n_tokens][0] > 2 * 2 * n_tokens**2 * 4, "two heads, at least two maps at one time"
    assert peaks[256][0] > 3 * peaks[128][0]
    assert peaks[256][1] < 2.2 * peaks[128][1]


def test_the_peak_is_what_is_held_at_one_time():
    def work():
        first = torch.ones(1000, dtype=torch.float64)
        second = first * 2
        del first
        return second + second  # two of them are alive again

    assert peak_bytes(work) == 2 * 8000


def test_views_and_what_was_there_before_cost_nothing():
    before = torch.ones(1000)
    assert peak_bytes(lambda: before.view(10, 100).T[:5]) == 0
    assert peak_bytes(lambda: before.mul_(2)) == 0


def test_the_backward_pass_is_counted():
    x = torch.randn(64, 64, requires_grad=True)
    forward = peak_bytes(lambda: x.exp())
    both = peak_bytes(lambda: x.exp().sum().backward())
    assert forward == 4 * 64 * 64
    assert both >= 2 * forward


def test_works_take_turns_after_a_warm_up_and_threads_come_back():
    turns, threads = [], torch.get_num_threads()
    seconds = median_seconds({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, repeats=3)
    assert turns == ["a", "b"] * 4
    assert seconds.keys() == {"a", "b"}
    assert torch.get_num_threads() == threads


def test_the_time_of_sleep_is_not_counted_and_that_of_work_is():
    def spin():
        total = 0
        for at in range(200_000):
            total += at

    seconds = median_seconds({"sleep": lambda: time.sleep(0.02), "work": spin}, repeats=3)
    assert seconds["sleep"] < seconds["work"]
