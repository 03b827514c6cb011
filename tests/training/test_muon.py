"""Muon against torch's own, and its polynomial against the one of singular values."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import Activation, ModelConfig, OptimConfig
from manyheads.config.training import OptimKind
from manyheads.layout import Packed
from manyheads.nn import Classifier, assemble
from manyheads.training import optim
from manyheads.training import optim as muon
from manyheads.training.state import check_moments

SHAPE = ModelConfig(n_layers=2, n_heads=2, n_kv_heads=1, d_model=12, d_k=4, d_v=6, d_ff=16, bias=False, dropout=0.0)
RATE = 1e-2


def build(kind: str, **fields) -> tuple[Classifier, torch.optim.AdamW]:
    torch.manual_seed(0)
    model = assemble(replace(SHAPE, **fields), vocab_size=30, n_classes=3, max_length=8).double().eval()
    settings = OptimConfig(kind=OptimKind[kind], lr=RATE, weight_decay=0.1, eps=1e-8)
    return model, optim.make_optimizer(model, settings)


def learn(model: Classifier, steps: list[torch.optim.Optimizer], n: int, skip: int = 0) -> None:
    generator = torch.Generator().manual_seed(1)
    for step in range(n):
        ids, labels = torch.randint(30, (12,), generator=generator), torch.randint(3, (3,), generator=generator)
        if step < skip:
            continue
        model.zero_grad()
        F.cross_entropy(model(ids, Packed.of_lengths([5, 3, 4])), labels).backward()
        for one in steps:
            one.step()


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6)])
def test_a_step_is_the_polynomial_of_the_singular_values(shape):
    matrix = torch.randn(shape, dtype=torch.float64)
    u, s, v = np.linalg.svd(matrix.numpy() / np.linalg.norm(matrix.numpy()), full_matrices=False)
    for _ in range(muon.ROUNDS):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    np.testing.assert_allclose(muon.orthogonal(matrix).numpy(), u * s @ v, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("activation", [Activation.gelu, Activation.geglu])
def test_the_weights_are_those_of_torch(activation, monkeypatch):
    """Which has each block as a matrix of its own, and would compute in bf16."""
    ours, optimizer = build("muon", activation=activation)
    theirs, _ = build("adamw", activation=activation)
    hidden = muon.hidden_matrices(theirs)
    blocks = {matrix: [nn.Parameter(one.clone()) for one in matrix.split(rows)] for matrix, rows in hidden.items()}
    reference = torch.optim.Muon(
        [one for of_matrix in blocks.values() for one in of_matrix],
        lr=RATE,
        weight_decay=0.1,
        adjust_lr_fn="match_rms_adamw",
    )
    others = [one for one in theirs.parameters() if one not in hidden and one is not theirs.head.weight]
    groups = [{"params": others, "weight_decay": 0.0}, {"params": [theirs.head.weight], "weight_decay": 0.1}]
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    learn(ours, [optimizer], 4)
    learn(theirs, [Torch(reference, blocks), torch.optim.AdamW(groups, lr=RATE, eps=1e-8)], 4)
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6, msg=name)


class Torch:
    """torch's Muon over the blocks of matrices."""

    def __init__(self, optimizer: torch.optim.Optimizer, blocks: dict[Tensor, list[nn.Parameter]]) -> None:
        self.optimizer, self.blocks = optimizer, blocks

    @torch.no_grad()
    def step(self) -> None:
        for matrix, parts in self.blocks.items():
            for one, gradient in zip(parts, matrix.grad.split([len(part) for part in parts]), strict=True):
                one.grad = gradient.clone()
        self.optimizer.step()
        for matrix, parts in self.blocks.items():
            matrix.copy_(torch.cat(parts))


def test_a_step_that_is_told_to_change_nothing_changes_nothing():
    model, optimizer = build("muon")
    learn(model, [optimizer], 2)
    before = [one.detach().clone() for one in (*model.parameters(), *states(optimizer))]
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert all(
        torch.equal(one, two) for one, two in zip(before, (*model.parameters(), *states(optimizer)), strict=True)
    )


def states(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [tensor for kept in optimizer.state.values() for name, tensor in kept.items() if name != "step"]


def test_a_saved_state_goes_on_to_the_same_weights(tmp_path):
    straight, optimizer = build("muon")
    learn(straight, [optimizer], 6)
    half, first = build("muon")
    learn(half, [first], 3)
    torch.save((half.state_dict(), first.state_dict()), tmp_path / "half")
    weights, state = torch.load(tmp_path / "half", weights_only=True)
    again, second = build("muon")
    again.load_state_dict(weights)
    second.load_state_dict(state)
    for group in second.param_groups:
        group["initial_lr"] = group["lr"]
    check_moments(second)
    learn(again, [second], 6, skip=3)
    assert all(torch.equal(one, two) for one, two in zip(straight.parameters(), again.parameters(), strict=True))


def test_a_checkpoint_of_the_optimiser_that_went_by_rows_is_refused():
    table = nn.Embedding(4, 2)
    optimizer = torch.optim.AdamW(table.parameters(), lr=0.1)
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["initial_lr"] = 0.1
    check_moments(optimizer)
    optimizer.state[table.weight]["owed"] = torch.zeros(129)
    with pytest.raises(ValueError, match="an earlier version updated its embedding row by row"):
        check_moments(optimizer)
