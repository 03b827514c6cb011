"""The formulas, the soft look-up the scale and what sees order, against NumPy, theory and autograd."""

import math

import numpy as np
import pytest
import torch

from manyheads.config import ExplainConfig, ModelConfig
from manyheads.explain.formula import (
    CASES,
    D_K,
    D_MODEL,
    D_V,
    N_HEADS,
    T,
    build,
    compute,
    differences,
    formula,
    look_up,
    moments,
    norms_of_products,
    retrieval,
    softmax_figures,
    softmax_jacobian,
    transcribe,
    weights_of,
)
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
    finding = formula(ExplainConfig())
    found = finding.numbers
    assert finding.pictures["formula"].startswith(b"\x89PNG")
    assert found["largest_difference"] < 1e-6
    assert found["shapes"]["Z"] == [T, N_HEADS * D_V]
    for free in found["parameter_free"]:
        assert free["parameters"] == 0
        assert free["largest_difference"] < 1e-5
        assert free["weight_on_itself"] == pytest.approx(free["expected"], abs=0.06)


@pytest.fixture
def table():
    torch.manual_seed(3)
    return torch.randn(8, 16, dtype=torch.float64), torch.randn(8, 4, dtype=torch.float64)


def test_a_temperature_towards_zero_returns_the_best_match_alone(table):
    keys, values = table
    query = keys[5] + 0.1
    weights, context = look_up(query, keys, values, 1e-3)
    winner = int((keys @ query).argmax())
    torch.testing.assert_close(weights, torch.eye(8, dtype=torch.float64)[winner])
    torch.testing.assert_close(context, values[winner])


def test_a_temperature_towards_infinity_returns_the_mean(table):
    keys, values = table
    weights, context = look_up(keys[0], keys, values, 1e9)
    torch.testing.assert_close(weights, torch.full((8,), 1 / 8, dtype=torch.float64))
    torch.testing.assert_close(context, values.mean(0))


def test_equal_matches_share_what_there_is(table):
    keys, values = table
    keys[1] = keys[0]
    weights, _ = look_up(10 * keys[0], keys, values, 1e-3)
    torch.testing.assert_close(weights[:2], torch.tensor([0.5, 0.5], dtype=torch.float64))


def test_the_weight_of_all_others_stays_below_its_bound(monkeypatch):
    monkeypatch.setattr("manyheads.explain.formula.png", lambda figure: b"\x89PNG")  # drawn in test_explain.py
    found = retrieval(ExplainConfig()).numbers
    assert found["found"] == found["asked"]
    for row in found["temperatures"]:
        assert row["off_the_record"] <= row["bound"] + 1e-15
        assert row["bound"] == pytest.approx(7 * math.exp(-found["gap"] / row["temperature"]))


@pytest.fixture
def chance():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("d_k", [4, 64, 512])
def test_the_dot_product_of_independent_vectors_has_mean_zero_and_variance_d_k(d_k, chance):
    found = moments(d_k, 5000, chance)
    assert abs(found["mean"]) < 4 * found["mean_error"]
    assert abs(found["variance"] / d_k - 1) < 4 * found["variance_relative_error"]
    assert abs(found["mean_of_q_with_itself"] / d_k - 1) < 4 * math.sqrt(2 / d_k / 5000)


def test_the_standard_errors_are_those_of_repeated_samples(chance):
    d_k, n_samples = 4, 400
    rounds = [moments(d_k, n_samples, chance) for _ in range(400)]
    spread_of_means = torch.tensor([one["mean"] for one in rounds]).std()
    spread_of_variances = torch.tensor([one["variance"] for one in rounds]).std() / d_k
    assert abs(spread_of_means / rounds[0]["mean_error"] - 1) < 0.15
    assert abs(spread_of_variances / rounds[0]["variance_relative_error"] - 1) < 0.15


def test_the_jacobian_is_that_of_autograd():
    scores = torch.randn(3, 5, dtype=torch.float64)
    theirs = torch.stack([torch.autograd.functional.jacobian(lambda row: row.softmax(0), row) for row in scores])
    torch.testing.assert_close(softmax_jacobian(scores.softmax(-1)), theirs)


def test_the_jacobian_by_the_query_is_that_of_autograd():
    q_K, k_MK = torch.randn(7, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    factor = 0.3
    theirs = torch.autograd.functional.jacobian(lambda q: (factor * (k_MK @ q)).softmax(0), q_K)
    jacobian_RMM = softmax_jacobian((factor * (k_MK @ q_K)).softmax(0)[None])
    torch.testing.assert_close(factor * norms_of_products(jacobian_RMM, k_MK)[0], theirs.norm())


def test_the_scale_keeps_the_softmax_moving_whatever_the_width(chance):
    for d_k in (16, 1024):
        scaled = softmax_figures(d_k, d_k**-0.5, 5000, chance)
        assert abs(scaled["entropy"] - (math.log(64) - 0.5)) < 0.1, "scores of variance 1 cost half a nat"
        assert scaled["dead_share"] == 0
    bare = softmax_figures(1024, 1.0, 5000, chance)
    assert bare["jacobian_median"] < 0.01
    assert bare["dead_share"] > 0.5
    assert bare["query_gradient_mean"] > scaled["query_gradient_mean"], (
        "few rows carry it, but the mean does not vanish"
    )


def measured(case: str) -> dict[str, float]:
    torch.manual_seed(0)
    settings = {"positions": "none", "d_model": 16, "d_k": 4, "d_v": 4, "d_ff": 16} | CASES[case]
    classifier = build(ModelConfig(**settings)).double()
    return differences(classifier, carried="keeps its own" in case, random=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("case", ["no positions", "sinusoidal, each token keeps its own"])
def test_without_positions_the_encoder_commutes_with_any_exchange_and_the_logits_stay(case):
    found = measured(case)
    assert found["token_vectors"] < 1e-13
    assert found["logits"] < 1e-13


@pytest.mark.parametrize(
    "case", ["sinusoidal", "learned", "rotary", "alibi", "no positions, causal", "no positions, window of 2"]
)
def test_positions_masks_and_windows_see_order(case):
    found = measured(case)
    assert found["token_vectors"] > 0.05
    assert found["logits"] > 1e-3
