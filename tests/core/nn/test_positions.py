"""Each kind of position against the formula or the values of its paper."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.layout import Packed
from manyheads.nn import Alibi, LearnedPositions, Rotary, SinusoidalPositions, attention_weights
from manyheads.nn.embeddings import alibi_slopes


@pytest.mark.parametrize("d_model", [1, 2, 7, 12])
def test_sinusoidal_positions_are_the_papers_formula(d_model):
    max_length = 600
    expected = np.zeros((max_length, d_model))
    for position in range(max_length):
        for dimension in range(d_model):
            angle = position / 10_000 ** (2 * (dimension // 2) / d_model)
            expected[position, dimension] = np.cos(angle) if dimension % 2 else np.sin(angle)
    table = SinusoidalPositions(max_length=max_length, d_model=d_model)(torch.arange(max_length))
    assert table.dtype == torch.float32
    np.testing.assert_allclose(table.numpy(), expected, atol=1e-6)


def test_added_positions_are_looked_up_by_place_in_the_document():
    layout = Packed.of_lengths([2, 0, 3])
    for positions in (SinusoidalPositions(max_length=4, d_model=6), LearnedPositions(max_length=4, d_model=6)):
        each = [positions(torch.tensor(at)) for at in (0, 1, 0, 1, 2)]
        assert torch.equal(positions(layout.positions), torch.stack(each))


def test_learned_positions_are_trained_and_the_fixed_ones_are_not_saved():
    assert [p.shape for p in LearnedPositions(max_length=4, d_model=6).parameters()] == [(4, 6)]
    for fixed in (
        SinusoidalPositions(max_length=4, d_model=6),
        Rotary(max_length=4, d_k=6),
        Alibi(n_heads=2),
    ):
        assert not list(fixed.parameters())
        assert not fixed.state_dict()


def test_rotary_turns_pairs_of_dimensions_as_complex_numbers():
    d_k, n_positions = 6, 600
    x = torch.randn(n_positions, 2, d_k, dtype=torch.float64)
    z = x[..., :3].numpy() + 1j * x[..., 3:].numpy()
    angles = np.arange(n_positions)[:, None] / 10_000 ** (2 * np.arange(3) / d_k)
    turned = z * np.exp(1j * angles)[:, None]
    ours = Rotary(max_length=n_positions, d_k=d_k)(x, torch.arange(n_positions))
    np.testing.assert_allclose(ours.numpy(), np.concatenate([turned.real, turned.imag], -1), atol=1e-6)


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 400), st.sampled_from([2, 4, 10]))
def test_the_product_of_turned_vectors_depends_on_their_distance_alone(query_at, key_at, shift, d_k):
    rotary = Rotary(max_length=1000, d_k=d_k)
    q, k = torch.randn(1, 1, d_k, dtype=torch.float64), torch.randn(1, 1, d_k, dtype=torch.float64)

    def product(at: int, other: int) -> float:
        return float((rotary(q, torch.tensor([at])) * rotary(k, torch.tensor([other]))).sum())

    assert product(query_at, key_at) == pytest.approx(product(query_at + shift, key_at + shift), abs=2e-6)


def test_rotary_keeps_the_norm_the_dtype_and_position_zero():
    rotary, x = Rotary(max_length=50, d_k=8), torch.randn(50, 3, 8)
    turned = rotary(x, torch.arange(50))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[0], x[0])
    assert not torch.allclose(turned[1:], x[1:], atol=0.1)
    assert rotary(x.bfloat16(), torch.arange(50)).dtype == torch.bfloat16
    with pytest.raises(AssertionError, match="odd d_k"):
        Rotary(max_length=4, d_k=5)


def test_alibi_slopes_are_the_papers():
    of_eight, of_sixteen = [2.0 ** -(i + 1) for i in range(8)], [2 ** (-(i + 1) / 2) for i in range(16)]
    assert alibi_slopes(8) == of_eight
    np.testing.assert_allclose(alibi_slopes(16), of_sixteen)
    np.testing.assert_allclose(alibi_slopes(12), of_eight + of_sixteen[0::2][:4])  # filled up from sixteen


def test_every_number_of_heads_has_as_many_different_slopes():
    for n_heads in range(1, 34):
        slopes = alibi_slopes(n_heads)
        assert len(set(slopes)) == len(slopes) == n_heads
        assert all(0 < slope < 1 for slope in slopes)


def test_alibi_lowers_scores_by_slope_times_distance():
    bias_HLM = Alibi(n_heads=4)(torch.arange(3), torch.arange(5))
    assert bias_HLM.shape == (4, 3, 5)
    for head, slope in enumerate(2.0 ** (-2 * (i + 1)) for i in range(4)):
        for query in range(3):
            for key in range(5):
                assert bias_HLM[head, query, key] == -slope * abs(query - key)


def test_attention_with_alibi_decays_by_the_slope_from_key_to_key():
    same = torch.ones(1, 4, 7, 3, dtype=torch.float64)
    weights = attention_weights(same, same, bias=Alibi(n_heads=4).double()(torch.arange(7), torch.arange(7)))
    for head, slope in enumerate(2.0 ** (-2 * (i + 1)) for i in range(4)):
        for query in range(7):
            decayed = np.exp(-slope * abs(query - np.arange(7)))
            np.testing.assert_allclose(weights[0, head, query].numpy(), decayed / decayed.sum(), atol=1e-12)
