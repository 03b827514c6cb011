"""Attention with its own backward pass against torch's attention, against `attend` by autograd, and by differences."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from manyheads.nn import kernels as plain
from manyheads.nn.attention import attend
from manyheads.nn.kernels import chunked

SCALE = 0.3


@pytest.fixture(autouse=True, params=["all at once", "one by one"])
def at_once(request, monkeypatch) -> None:
    """Documents are attended to together, or in parts."""
    if request.param == "one by one":
        monkeypatch.setattr(plain, "CHUNK_BYTES", 1)


def heads(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), groups=st.sampled_from([1, 2]))
def test_values_and_gradients_are_those_of_torchs_attention(lengths, groups):
    n, longest = len(lengths), max(lengths)
    q, k, v = heads(n, 4, longest, 3), heads(n, 4 // groups, longest, 3), heads(n, 4 // groups, longest, 5)
    keep = (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]
    ours = chunked(q, k, v, keep, scale=SCALE, dropout=0.0)
    theirs = F.scaled_dot_product_attention(q, k, v, keep, scale=SCALE, enable_gqa=True)
    torch.testing.assert_close(ours, theirs)
    toward = torch.randn_like(ours)
    of_ours, of_theirs = (torch.autograd.grad(context, (q, k, v), toward) for context in (ours, theirs))
    torch.testing.assert_close(of_ours, of_theirs)


def test_the_backward_pass_is_that_of_the_differences():
    torch.manual_seed(0)
    q, k, v = heads(2, 2, 4, 3), heads(2, 2, 4, 3), heads(2, 2, 4, 2)
    assert torch.autograd.gradcheck(lambda *qkv: chunked(*qkv, None, scale=SCALE, dropout=0.0), (q, k, v))


def test_with_dropout_the_gradient_is_that_of_the_weights_that_were_kept(monkeypatch):
    torch.manual_seed(0)
    kept = (torch.rand(6, 5, 5) > 0.3).double()
    left = list(kept.clone())
    monkeypatch.setattr(plain, "kept", lambda weights, p: torch.stack([left.pop(0) for _ in weights]))
    q, k, v = heads(2, 3, 5, 4), heads(2, 3, 5, 4), heads(2, 3, 5, 2)
    ours = chunked(q, k, v, None, scale=SCALE, dropout=0.3)
    weights = (q @ k.mT * SCALE).softmax(-1) * kept.view(2, 3, 5, 5) / 0.7
    torch.testing.assert_close(ours, weights @ v)
    toward = torch.randn_like(ours)
    of_ours, by_autograd = (torch.autograd.grad(context, (q, k, v), toward) for context in (ours, weights @ v))
    torch.testing.assert_close(of_ours, by_autograd)


def test_in_bf16_it_is_no_farther_from_double_precision_than_autograd():
    torch.manual_seed(0)
    exact = [heads(8, 4, 40, 32) for _ in range(3)]
    rough = [one.detach().bfloat16().requires_grad_() for one in exact]
    toward = torch.randn(8, 4, 40, 32, dtype=torch.float64)

    def gradients(context: Tensor, inputs: list[Tensor]) -> list[Tensor]:
        return [context.double(), *torch.autograd.grad(context, inputs, toward.to(context.dtype))]

    scale = 32**-0.5
    true = gradients(F.scaled_dot_product_attention(*exact), exact)
    ours = gradients(chunked(*rough, None, scale=scale, dropout=0.0), rough)
    theirs = gradients(attend(*rough), rough)
    for a, b, c in zip(ours, theirs, true, strict=True):
        assert (a.double() - c).norm() <= 1.1 * (b.double() - c).norm()


def test_under_autocast_single_precision_is_cast_as_torch_would():
    torch.manual_seed(0)
    q, k, v = (heads(2, 2, 4, 3, dtype=torch.float32) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        context = chunked(q, k, v, None, scale=SCALE, dropout=0.0)
    assert context.dtype == torch.bfloat16
    context.sum().backward()
    assert q.grad is not None
    assert q.grad.dtype == torch.float32
    torch.testing.assert_close(
        context, F.scaled_dot_product_attention(q, k, v, scale=SCALE).bfloat16(), atol=0.02, rtol=0.02
    )
