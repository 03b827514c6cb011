"""Every normaliser against its definition: the sparse ones against a threshold found by bisection."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from torch import Tensor

from manyheads import plugin
from manyheads.nn.attention import sigmoid, softmax
from manyheads.nn.parts import make_block
from manyheads.nn.sparse import entmax15, sparsemax

SPARSE = {"sparsemax": 2.0, "entmax15": 1.5}
rows = some.arrays(np.float64, st.integers(1, 12), elements=st.floats(-8, 8))


def by_bisection(scores: np.ndarray, alpha: float) -> np.ndarray:
    """[(α - 1) s - τ]₊^(1 / (α - 1)) with the τ at which it sums to one: Peters et al. (2019), definition 1."""
    scaled = (alpha - 1) * scores
    low, high = scaled.max() - 1, scaled.max()
    for _ in range(60):  # to the last bit of a float64
        middle = (low + high) / 2
        total = (np.clip(scaled - middle, 0, None) ** (1 / (alpha - 1))).sum()
        low, high = (middle, high) if total > 1 else (low, middle)
    return np.clip(scaled - (low + high) / 2, 0, None) ** (1 / (alpha - 1))


@pytest.mark.parametrize("kind", SPARSE)
@given(scores=rows)
def test_a_sparse_normaliser_is_its_definition(kind, scores):
    weights = make_block("normaliser", kind)(torch.from_numpy(scores), None).numpy()
    np.testing.assert_allclose(weights, by_bisection(scores, SPARSE[kind]), atol=1e-6)


@given(scores=rows)
def test_sparsemax_is_the_nearest_point_of_the_simplex(scores):
    """No other point is nearer: for the projection p, (s - p) · (x - p) <= 0 for every corner x."""
    p = sparsemax(torch.from_numpy(scores)).numpy()
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1)
    assert ((scores - p) @ (np.eye(len(p)) - p).T).max() <= 1e-9


def test_sigmoid_weighs_each_key_by_itself_shifted_by_the_log_of_their_number():
    scores = torch.randn(3, 5, dtype=torch.float64)
    expected = 1 / (1 + 5 * np.exp(-scores.numpy()))
    np.testing.assert_allclose(sigmoid(scores).numpy(), expected, atol=1e-12)
    keep = torch.tensor([1, 0, 1, 1, 0]).bool()
    by_hand = np.where(keep.numpy(), 1 / (1 + 3 * np.exp(-scores.numpy())), 0)
    np.testing.assert_allclose(sigmoid(scores, keep).numpy(), by_hand, atol=1e-12)
    assert sigmoid(torch.zeros(1, 1000)).sum().item() == pytest.approx(1, rel=2e-3)


@pytest.mark.parametrize("kind", plugin.names("normaliser"))
def test_what_is_not_kept_weighs_nothing_and_does_not_matter(kind):
    normalise = make_block("normaliser", kind)
    scores = torch.randn(4, 6, dtype=torch.float64) * 3
    keep = torch.rand(4, 6) > 0.4
    keep[0], keep[1] = True, False
    weights = normalise(scores, keep)
    assert (weights[~keep] == 0).all()
    for row in range(4):
        if keep[row].any():
            torch.testing.assert_close(weights[row][keep[row]], normalise(scores[row][keep[row]], None))
    torch.testing.assert_close(normalise(scores.masked_fill(~keep, 1e4), keep), weights)


@pytest.mark.parametrize("kind", [kind for kind in plugin.names("normaliser") if kind != "sigmoid"])
def test_weights_are_a_distribution_that_ignores_a_constant(kind):
    normalise, scores = make_block("normaliser", kind), torch.randn(50, 9, dtype=torch.float64) * 4
    weights = normalise(scores, None)
    torch.testing.assert_close(weights.sum(-1), torch.ones(50, dtype=torch.float64))
    assert (weights >= 0).all()
    torch.testing.assert_close(normalise(scores + 100, None), weights)
    assert (weights.argmax(-1) == scores.argmax(-1)).all()


@pytest.mark.parametrize("kind", plugin.names("normaliser"))
@pytest.mark.parametrize("masked", [False, True])
def test_normalisers_pass_gradcheck(kind, masked):
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    keep = torch.tensor([[1, 1, 1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).bool() if masked else None
    assert torch.autograd.gradcheck(lambda scores: make_block("normaliser", kind)(scores, keep), (scores,))


@pytest.mark.parametrize("kind", plugin.names("normaliser"))
def test_scores_of_thousands_and_half_precision_are_no_trouble(kind):
    normalise = make_block("normaliser", kind)
    scores = torch.tensor([[3e4, 1e4, -3e4, 2.9e4]])
    for row in (scores, scores.bfloat16(), scores * 1e30):
        keep = torch.tensor([[True, True, False, True]])
        weights = normalise(row, keep)
        assert weights.dtype == row.dtype
        assert weights.isfinite().all()
        assert weights[0, 0] == 1
    half = torch.randn(20, 30)
    torch.testing.assert_close(normalise(half.bfloat16(), None).float(), normalise(half, None), atol=0.02, rtol=0.1)


@pytest.mark.parametrize("kind", plugin.names("normaliser"))
def test_no_keys_have_no_weights(kind):
    assert make_block("normaliser", kind)(torch.zeros(2, 3, 0), None).shape == (2, 3, 0)
    assert make_block("normaliser", kind)(torch.zeros(2, 3, 0), torch.zeros(2, 3, 0).bool()).shape == (2, 3, 0)


def zeros_of(weights: Tensor) -> int:
    return int((weights == 0).sum())


def test_sparser_than_softmax():
    scores = torch.randn(100, 20) * 2
    assert zeros_of(softmax(scores)) == 0
    assert 0 < zeros_of(entmax15(scores)) < zeros_of(sparsemax(scores))


@pytest.mark.parametrize("kind", plugin.names("normaliser"))
@pytest.mark.parametrize("masked", [False, True])
def test_a_score_of_nan_is_passed_on(kind, masked):
    """The guard ends a training by a sentence where its loss is NaN, but not where a block raises an error."""
    scores = torch.tensor([[0.3, torch.nan, 1.0], [0.3, -0.2, 1.0]], requires_grad=True)
    keep = torch.tensor([True, True, False]).expand(2, 3) if masked else None
    weights = make_block("normaliser", kind)(scores, keep)
    assert weights[0].isnan().any()
    assert weights[1].isfinite().all()
    (gradient,) = torch.autograd.grad(weights.square().sum(), scores)
    assert gradient[0].isnan().any()
    assert gradient[1].isfinite().all()
