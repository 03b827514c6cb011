"""Our dropout against its definition."""

import pytest
import torch

from manyheads.nn.dropout import Dropout, dropout


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_share_of_zeros_is_p_and_the_mean_is_kept(p):
    torch.manual_seed(0)
    n = 400_000
    y = dropout(torch.ones(n), p)
    sd = (p * (1 - p) / n) ** 0.5
    assert abs(float((y == 0).double().mean()) - p) < 5 * sd
    assert y.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])


def test_the_four_draws_of_a_number_are_independent_and_equally_likely():
    torch.manual_seed(0)
    kept_4 = (dropout(torch.ones(400_000), 0.5) > 0).view(-1, 4).double()
    assert torch.allclose(kept_4.mean(0), torch.full((4,), 0.5, dtype=torch.float64), atol=0.01)
    assert torch.allclose(torch.corrcoef(kept_4.T), torch.eye(4, dtype=torch.float64), atol=0.02)


def test_the_gradient_passes_where_the_value_did():
    torch.manual_seed(0)
    x = torch.randn(7, 5, requires_grad=True)
    y = dropout(x, 0.3)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach() / x.detach())


def test_it_does_nothing_in_evaluation_and_at_zero():
    x = torch.randn(3, 3)
    assert Dropout(0.5).eval()(x) is x
    assert torch.equal(Dropout(0.0)(x), x)


def test_the_generator_decides_and_the_dtype_is_kept():
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        torch.manual_seed(3)
        first = dropout(torch.ones(9, dtype=dtype), 0.5)
        torch.manual_seed(3)
        assert torch.equal(first, dropout(torch.ones(9, dtype=dtype), 0.5))
        assert first.dtype is dtype
