"""FeedForward against its formulas in NumPy."""

import math

import numpy as np
import pytest
import torch

from manyheads.nn import FeedForward

ERF = np.vectorize(math.erf)
F_OF = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + ERF(x / np.sqrt(2))) / 2,
    "geglu": lambda x: x * (1 + ERF(x / np.sqrt(2))) / 2,
    "swiglu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_plain_feed_forward_is_its_formula(activation, bias):
    block = FeedForward(d_model=5, d_ff=7, activation=activation, bias=bias).double()
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    W1, W2 = block.widen.weight.detach().numpy(), block.narrow.weight.detach().numpy()
    b1, b2 = (block.widen.bias.detach().numpy(), block.narrow.bias.detach().numpy()) if bias else (0, 0)
    assert W1.shape == (7, 5)
    assert W2.shape == (5, 7)
    expected = F_OF[activation](x.numpy() @ W1.T + b1) @ W2.T + b2
    np.testing.assert_allclose(block(x).detach().numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ["geglu", "swiglu"])
def test_gated_feed_forward_is_its_formula(activation, bias):
    block = FeedForward(d_model=5, d_ff=7, activation=activation, bias=bias).double()
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    W1, W3 = np.split(block.widen.weight.detach().numpy(), 2)
    W2 = block.narrow.weight.detach().numpy()
    b1, b3 = np.split(block.widen.bias.detach().numpy(), 2) if bias else (0, 0)
    b2 = block.narrow.bias.detach().numpy() if bias else 0
    assert W1.shape == W3.shape == (7, 5)
    hidden = F_OF[activation](x.numpy() @ W1.T + b1) * (x.numpy() @ W3.T + b3)
    np.testing.assert_allclose(block(x).detach().numpy(), hidden @ W2.T + b2, atol=1e-12)


@pytest.mark.parametrize("activation", sorted(F_OF))
def test_each_token_is_thought_over_alone(activation):
    block = FeedForward(d_model=5, d_ff=7, activation=activation).double()
    x = torch.randn(6, 5, dtype=torch.float64)
    torch.testing.assert_close(block(x), torch.stack([block(token) for token in x]))


def test_feed_forward_without_biases_has_none():
    block = FeedForward(d_model=5, d_ff=7, activation="swiglu", bias=False)
    assert [name for name, _ in block.named_parameters()] == ["widen.weight", "narrow.weight"]
