"""Our dropout against its definition."""

import pytest
import torch

from manyheads.nn import dropout as ours
from manyheads.nn.dropout import TABLE, Dropout, dropout, kept, random_table
from manyheads.nn.kernels import chunked

WORD = 2**64


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_share_of_zeros_is_p_and_the_mean_is_kept(p):
    torch.manual_seed(0)
    n = 400_000
    y = dropout(torch.ones(n), p)
    sd = (p * (1 - p) / n) ** 0.5
    assert abs(float((y == 0).double().mean()) - p) < 5 * sd
    assert y.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_elements_of_a_mask_are_independent_whatever_lies_between_them(p):
    torch.manual_seed(0)
    mask = kept(torch.ones(400_000), p).double()
    for lag in (1, 2, 3, 4, 31, 64, 256, 1000, 99_991):
        both = torch.stack([mask[:-lag], mask[lag:]])
        assert abs(float(torch.corrcoef(both)[0, 1])) < 0.01  # six standard deviations


def test_over_many_masks_each_element_is_dropped_as_often():
    torch.manual_seed(0)
    n, p = 4000, 0.1
    dropped = n - torch.stack([kept(torch.ones(64), p) for _ in range(n)]).sum(0)
    assert float((dropped - n * p).abs().max()) < 4.5 * (n * p * (1 - p)) ** 0.5


def test_a_large_mask_is_put_together_of_pieces(monkeypatch):
    monkeypatch.setattr(ours, "MOST_DRAWN", 999)
    torch.manual_seed(0)
    mask = kept(torch.ones(2, 40_000), 0.25)
    assert mask.shape == (2, 40_000)
    assert abs(float(mask.mean()) - 0.75) < 0.01
    assert abs(float(torch.corrcoef(torch.stack([mask[0], mask[1]]))[0, 1])) < 0.03


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


def split_mix(seed: int, n: int) -> list[int]:
    """Steele et al. (2014), figure 17, from the counter 0 on, in numbers without an end."""
    words = []
    for counter in range(n):
        z = (seed + counter * 0x9E3779B97F4A7C15) % WORD
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        words.append(z ^ (z >> 31))
    return words


def test_the_table_is_that_of_the_papers_generator():
    numbers = random_table(torch.device("cpu")).view(torch.int64)
    assert 4 * numbers.numel() == TABLE
    assert [one % WORD for one in numbers[:50].tolist()] == split_mix(0, 50)


def test_two_draws_have_nothing_to_do_with_each_other():
    torch.manual_seed(0)
    first, second = (kept(torch.ones(200_000), 0.5) for _ in range(2))
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.02


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_what_is_kept_is_one_in_every_type(dtype):
    assert kept(torch.ones(1000, dtype=dtype), 0.5).unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_change_is_added_as_if_it_were_dropped_first(dtype):
    layer = Dropout(0.25)
    x, change = torch.randn(30, 8), torch.randn(30, 8).to(dtype)
    torch.manual_seed(1)
    both = layer.add(x, change)
    torch.manual_seed(1)
    torch.testing.assert_close(both, x + kept(change, 0.25).float() * change.float() / 0.75)
    assert torch.equal(layer.eval().add(x, change), x + change)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_factor_of_what_is_kept_is_not_rounded(dtype):
    """1 / 0.9 is 1.111; bf16 has 1.109 and 1.117 alone."""
    x = torch.randn(4000).to(dtype).requires_grad_()
    for y in (dropout(x, 0.1), Dropout(0.1).add(torch.zeros_like(x), x)):
        exact = (x.double() / 0.9).to(dtype)
        assert torch.equal(y, exact.where(y != 0, 0.0))
        (grad,) = torch.autograd.grad(y, x, x.detach())
        assert torch.equal(grad, y)


def test_attention_does_not_round_the_factor_either():
    q, k = (torch.zeros(8, 1, 64, 4, dtype=torch.bfloat16) for _ in range(2))
    v = torch.rand(8, 1, 64, 4).to(torch.bfloat16).requires_grad_()
    torch.manual_seed(0)
    context = chunked(q, k, v, None, scale=1.0, dropout=0.1)
    torch.manual_seed(0)
    keep = kept(torch.ones(8, 64, 64, dtype=torch.bfloat16), 0.1).double()[:, None] / 0.9 / 64
    grad = torch.rand(context.shape).to(torch.bfloat16)
    context.backward(grad)
    assert float(context.detach().double().mean() / (keep @ v.detach().double()).mean()) == pytest.approx(1.0, abs=2e-4)
    assert float(v.grad.double().mean() / (keep.mT @ grad.double()).mean()) == pytest.approx(1.0, abs=2e-4)
