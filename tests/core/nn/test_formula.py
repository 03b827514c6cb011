"""The formulas of the papers, transcribed in NumPy, against the blocks; attention as a soft look-up."""

import math

import numpy as np
import pytest
import torch

from manyheads.layout import Packed
from manyheads.nn import MultiHeadAttention, attention_weights
from manyheads.nn.attention import Dot

T, D_MODEL, N_HEADS, D_K, D_V = 7, 16, 4, 6, 5  # all different, so that a shape tells which it is


def softmax(scores, axis):
    powers = np.exp(scores)
    return powers / powers.sum(axis=axis, keepdims=True)


@pytest.fixture
def layer():
    return MultiHeadAttention(d_model=D_MODEL, n_heads=N_HEADS, d_k=D_K, d_v=D_V, bias=False).double()


@pytest.fixture
def x_TD():
    return torch.randn(T, D_MODEL, dtype=torch.float64)


def weights_of(layer):
    """W^Q `(H, D, K)`, W^K `(H, D, K)`, W^V `(H, D, V)` and W^O `(H V, D)`, as the papers write them."""
    stacked = [weight.T.detach().numpy() for weight in layer.project.weight.split(layer.widths)]
    w_q, w_k, w_v = (np.stack(np.split(weight, N_HEADS, axis=1)) for weight in stacked)
    return w_q, w_k, w_v, layer.output.weight.T.detach().numpy()


@torch.no_grad()
def test_every_step_is_that_of_vaswani_et_al(layer, x_TD):
    """Sections 3.2.1 and 3.2.2, a token a row: head_i = softmax(X W_i^Q (X W_i^K)ᵀ / √d_k) X W_i^V."""
    w_q, w_k, w_v, w_o = weights_of(layer)
    layout = Packed.of_lengths([T])
    q_THK, k_THK, v_THV = layer.queries_keys_values(x_TD, None, layout, layout)
    heads, all_weights = [], []
    for head in range(N_HEADS):
        q, k, v = (x_TD.numpy() @ w[head] for w in (w_q, w_k, w_v))
        weights = softmax(q @ k.T / math.sqrt(D_K), axis=1)
        heads.append(weights @ v)
        for ours, papers in ((q_THK, q), (k_THK, k), (v_THV, v)):
            np.testing.assert_allclose(ours[:, head], papers, atol=1e-12)
        all_weights.append(weights)
    np.testing.assert_allclose(layer(x_TD, layout), np.concatenate(heads, axis=1) @ w_o, atol=1e-12)
    weights_BHTT, contexts_BHTV = layer.float().maps(x_TD.float(), layout)  # which are in single precision
    np.testing.assert_allclose(weights_BHTT[0], np.stack(all_weights), atol=1e-6)
    np.testing.assert_allclose(contexts_BHTV[0], np.stack(heads), atol=1e-6)


@torch.no_grad()
def test_a_token_a_column_gives_the_transpose(layer, x_TD):
    """Q = W X and softmax(Kᵀ Q / √d_k) over columns, as some write it."""
    w_q, w_k, w_v, w_o = weights_of(layer)
    heads = []
    for head in range(N_HEADS):
        q, k, v = (w[head].T @ x_TD.numpy().T for w in (w_q, w_k, w_v))  # (K, T), (K, T), (V, T)
        heads.append(v @ softmax(k.T @ q / math.sqrt(D_K), axis=0))  # element (j, i) compares k_j with q_i
    np.testing.assert_allclose(w_o.T @ np.concatenate(heads), layer(x_TD, Packed.of_lengths([T])).T, atol=1e-12)


def look_up(q_K, k_MK, temperature):
    """The weights of one query."""
    score = Dot(scale=1 / (math.sqrt(len(q_K)) * temperature))
    return attention_weights(q_K[None, None, None], k_MK[None, None], score=score)[0, 0, 0]


@pytest.fixture
def k_MK():
    return torch.randn(8, 16, dtype=torch.float64)


def test_a_cold_softmax_returns_the_best_match_and_a_hot_one_the_mean(k_MK):
    q_K = k_MK[5] + 0.1
    best = int((k_MK @ q_K).argmax())
    torch.testing.assert_close(look_up(q_K, k_MK, 1e-3), torch.eye(8, dtype=torch.float64)[best])
    torch.testing.assert_close(look_up(q_K, k_MK, 1e9), torch.full((8,), 1 / 8, dtype=torch.float64))


def test_equal_matches_share(k_MK):
    k_MK[1] = k_MK[0]
    torch.testing.assert_close(look_up(10 * k_MK[0], k_MK, 1e-3)[:2], torch.tensor([0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1])
def test_all_but_the_best_match_stay_below_their_bound(k_MK, temperature):
    """(M - 1) e^(-g / temperature), where the best score leads by g."""
    q_K = k_MK[2] + 0.3 * torch.randn(16, dtype=torch.float64)
    best, second = (k_MK @ q_K / 4).topk(2).values
    weights_M = look_up(q_K, k_MK, temperature)
    assert 1 - float(weights_M.max()) <= 7 * math.exp(-(best - second) / temperature) + 1e-15
