"""Growth with the length of the text."""

from functools import partial

import pytest

from manyheads.explain.cost import batch, exponent, forward_backward, lengths, make_layer, peak_bytes, textbook


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
