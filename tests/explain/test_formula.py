"""The seeds' formulas, rows and columns, against our blocks."""

import numpy as np
import pytest
import torch

from manyheads.config import ExplainConfig
from manyheads.explain.formula import D_K, D_MODEL, D_V, N_HEADS, T, compute, formula, transcribe, weights_of
from manyheads.nn.multihead import MultiHeadAttention


@pytest.fixture
def layer():
    torch.manual_seed(1)
    return MultiHeadAttention(d_model=D_MODEL, n_heads=N_HEADS, d_k=D_K, d_v=D_V, bias=False)


def test_every_step_of_our_blocks_is_the_papers(layer):
    x_TD = torch.randn(T, D_MODEL)
    ours, papers = compute(layer, x_TD), transcribe(x_TD.numpy(), *weights_of(layer))
    assert ours.keys() == {"Q_1", "K_1", "V_1", "A_1", "Z_1", "Z", "Y"}
    for name, value in ours.items():
        np.testing.assert_allclose(value, papers[name], atol=1e-6)


def test_columns_give_the_transpose_of_rows(layer):
    """W X with a token a column, as two seeds write it, has the transposed weights and the transposed result."""
    x_TD = np.random.default_rng(0).normal(size=(T, D_MODEL))
    w_q, w_k, w_v, w_o = weights_of(layer)
    rows = transcribe(x_TD, w_q, w_k, w_v, w_o)
    heads = []
    for head in range(N_HEADS):
        q, k, v = (w[head].T @ x_TD.T for w in (w_q, w_k, w_v))  # (K, T), (K, T), (V, T)
        powers = np.exp(k.T @ q / np.sqrt(D_K))  # element (j, i) compares k_j with q_i: columns are normalised
        heads.append(v @ (powers / powers.sum(axis=0)))
    np.testing.assert_allclose((w_o.T @ np.concatenate(heads, axis=0)).T, rows["Y"], atol=1e-12)


def test_the_numbers_of_the_formula():
    found = formula(ExplainConfig()).numbers
    assert found["largest_difference"] < 1e-6
    assert found["shapes"]["Z"] == [T, N_HEADS * D_V]
    for free in found["parameter_free"]:
        assert free["parameters"] == 0
        assert free["largest_difference"] < 1e-5
        assert free["weight_on_itself"] == pytest.approx(free["expected"], abs=0.06)
