"""Each pooling against a loop over documents."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from manyheads.layout import Packed, Padded
from manyheads.nn import Pooling
from manyheads.nn.classifier import Pooler
from manyheads.nn.parts import make_block
from tests.registry import of_core, reference

POOLERS = {"tanh": torch.tanh, "relu": nn.functional.relu, "gelu": nn.functional.gelu}
KINDS = [*of_core("pooling"), *POOLERS]


def make(kind: str, d_model: int = 3) -> nn.Module:
    if kind in POOLERS:
        return Pooler(Pooling("first"), d_model=d_model, activation=kind, norm=nn.LayerNorm(d_model)).double()
    made = make_block("pooling", kind, d_model=d_model)
    return (made if isinstance(made, nn.Module) else Pooling(made)).double()


def weighted(pooling: nn.Module, x_LD: Tensor) -> Tensor:
    powers = [(x_D @ pooling.score.weight[0]).exp() for x_D in x_LD]
    return sum(power / sum(powers) * x_D for power, x_D in zip(powers, x_LD, strict=True))


OF_ONE_DOCUMENT = {
    "mean": lambda pooling, x_LD: sum(x_LD) / len(x_LD),
    "max": lambda pooling, x_LD: torch.stack([max(x_LD[:, d]) for d in range(x_LD.size(1))]),
    "first": lambda pooling, x_LD: x_LD[0],
    "attention": weighted,
}


def of_one_document(kind: str, pooling: nn.Module, x_LD: Tensor) -> Tensor:
    if len(x_LD) == 0:
        return x_LD.new_zeros(x_LD.size(1))
    if kind in POOLERS:
        activated = POOLERS[kind](pooling.dense.weight @ x_LD[0] + pooling.dense.bias)
        return (activated - activated.mean()) / (activated.var(correction=0) + 1e-5).sqrt()
    return reference("pooling", kind, OF_ONE_DOCUMENT)(pooling, x_LD)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padded", [False, True])
@settings(max_examples=settings.default.max_examples // 3)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4))
@example(lengths=[0, 0])
@example(lengths=[2, 2])
@example(lengths=[3, 0, 1])
def test_pooling_is_a_loop_over_documents(kind, padded, lengths):
    pooling, layout = make(kind), Packed.of_lengths(lengths)
    x_ND = torch.randn(sum(lengths), 3, dtype=torch.float64, requires_grad=True)
    expected = torch.stack([of_one_document(kind, pooling, x_LD) for x_LD in x_ND.split(lengths)])
    if padded:
        garbage = 100 * torch.rand(len(lengths), layout.longest, 3, dtype=torch.float64)
        x_BLD = torch.where(layout.keep_BL[..., None], layout.grid(x_ND), garbage)
        got = pooling(x_BLD, Padded(layout.keep_BL))
    else:
        got = pooling(x_ND, layout)
    torch.testing.assert_close(got, expected)
    if sum(lengths):
        toward = torch.randn_like(expected)
        (ours,), (theirs,) = (torch.autograd.grad(y, x_ND, toward) for y in (got, expected))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_tokens_pools_to_zeros_with_finite_gradients(kind):
    pooling = make(kind)
    x_BLD = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    pooled = pooling(x_BLD, Padded(torch.tensor([[True, True, False], [False] * 3])))
    assert (pooled[1] == 0).all()
    pooled.square().sum().backward()
    assert x_BLD.grad is not None
    assert x_BLD.grad.isfinite().all()
    assert (x_BLD.grad[1] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_no_documents_pool_to_no_vectors(kind):
    assert make(kind)(torch.zeros(0, 3, dtype=torch.float64), Packed.of_lengths([])).shape == (0, 3)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if [*make(kind).parameters()]])
def test_every_parameter_of_a_pooling_moves_the_result(kind):
    pooling = make(kind)
    pooling(torch.randn(5, 3, dtype=torch.float64), Packed.of_lengths([2, 3])).square().sum().backward()
    for name, parameter in pooling.named_parameters():
        assert parameter.grad is not None
        assert (parameter.grad.abs() > 1e-9).any(), name
