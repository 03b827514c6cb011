"""Moments and Jacobians against theory and autograd."""

import math

import pytest
import torch

from manyheads.explain.scores import entropy, moments, norms_of_products, softmax_figures, softmax_jacobian


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


def test_entropy_is_zero_for_one_key_and_its_logarithm_for_equal_ones():
    rows = torch.tensor([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0]])
    torch.testing.assert_close(entropy(rows), torch.tensor([0, math.log(4), math.log(2)]))


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
