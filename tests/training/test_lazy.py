"""AdamW by rows against torch's AdamW, which reads and writes all of them in every step."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.config import Accelerator, HardwareConfig, ModelConfig, Precision, RunConfig, Strategy
from manyheads.data.tokens import Tokens
from manyheads.nn import assemble
from manyheads.training.optim import Muon
from manyheads.training.session import run_trainer
from manyheads.training.sparse_adamw import PERIOD, LazyAdamW, settle, take_over

ROWS, WIDTH, RATE = 200, 6, 1e-2


def build(*, lazy: bool, eps: float, fused: bool = False) -> tuple[nn.Embedding, nn.Linear, torch.optim.AdamW]:
    torch.manual_seed(0)
    table, head = nn.Embedding(ROWS, WIDTH).double(), nn.Linear(WIDTH, 3).double()
    groups = [
        {"params": list(head.parameters()), "weight_decay": 0.1},
        {"params": [table.weight], "weight_decay": 0.0},
    ]
    if lazy:
        return table, head, LazyAdamW(groups, [table], lr=RATE, eps=eps)
    return table, head, torch.optim.AdamW(groups, lr=RATE, eps=eps, fused=fused)


def texts(steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Ids of which some come in every step and some almost never."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield (torch.rand(12, generator=generator) ** 4 * ROWS).long(), torch.randint(3, (12,), generator=generator)


def train(table: nn.Embedding, head: nn.Linear, optimizer: torch.optim.AdamW, steps: int, skip: int = 0) -> None:
    """With a rate that falls, as in a run; `skip` steps were made before."""
    for step, (ids, labels) in enumerate(texts(steps)):
        if step < skip:
            continue
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / 400)
        optimizer.zero_grad()
        F.cross_entropy(head(table(ids)), labels).backward()
        optimizer.step()


@pytest.mark.parametrize("steps", [1, 7, PERIOD - 1, PERIOD, 2 * PERIOD + 5])
def test_the_weights_are_those_of_torch(steps):
    (ours, our_head, lazy), (theirs, their_head, dense) = (build(lazy=lazy, eps=1e-16) for lazy in (True, False))
    train(ours, our_head, lazy, steps)
    train(theirs, their_head, dense, steps)
    settle([lazy])
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(our_head.weight, their_head.weight, rtol=1e-6, atol=1e-7)


def test_a_common_epsilon_moves_a_weight_by_less_than_a_tenth_of_a_step():
    (ours, our_head, lazy), (theirs, their_head, dense) = (build(lazy=lazy, eps=1e-8) for lazy in (True, False))
    train(ours, our_head, lazy, 300)
    train(theirs, their_head, dense, 300)
    settle([lazy])
    assert float((ours.weight - theirs.weight).detach().abs().max()) < 0.1 * RATE


def test_a_row_is_up_to_date_when_it_is_read():
    (ours, our_head, lazy), (theirs, their_head, dense) = (build(lazy=lazy, eps=1e-16) for lazy in (True, False))
    train(ours, our_head, lazy, 50)
    train(theirs, their_head, dense, 50)
    every = torch.arange(ROWS)
    assert not torch.allclose(ours.weight, theirs.weight, atol=1e-7)
    torch.testing.assert_close(ours(every), theirs(every), rtol=1e-6, atol=1e-7)


def test_settling_twice_is_settling_once():
    table, head, lazy = build(lazy=True, eps=1e-8)
    train(table, head, lazy, 20)
    settle([lazy])
    once = table.weight.detach().clone()
    settle([lazy])
    assert torch.equal(table.weight, once)


@pytest.mark.parametrize("lazy", [True, False])
def test_one_kind_goes_on_from_the_state_of_the_other(lazy):
    """As when one process goes on with what several began, or several with what one did."""
    before, head, first = build(lazy=lazy, eps=1e-16)
    train(before, head, first, 60)
    after, other_head, second = build(lazy=not lazy, eps=1e-16)
    after.load_state_dict(before.state_dict())
    other_head.load_state_dict(head.state_dict())
    second.load_state_dict(first.state_dict())
    take_over(second)
    train(after, other_head, second, 2 * PERIOD, skip=60)
    settle([second])
    plain, *_ = whole = build(lazy=False, eps=1e-16)
    train(*whole, 2 * PERIOD)
    torch.testing.assert_close(after.weight, plain.weight, rtol=1e-6, atol=1e-7)
    assert any("owed" in its for its in second.state_dict()["state"].values()) is not lazy


def test_muon_without_tables_goes_on_from_what_it_owed_to_rows():
    def made(*, lazy: bool) -> tuple[nn.Embedding, nn.Linear, Muon]:
        torch.manual_seed(0)
        table, head = nn.Embedding(ROWS, WIDTH).double(), nn.Linear(WIDTH, 3).double()
        groups = [{"params": [*table.parameters(), *head.parameters()], "weight_decay": 0.0}]
        return table, head, Muon(groups, [table] if lazy else [], {}, fused=False, lr=RATE, eps=1e-16)

    begun, head, first = made(lazy=True)
    train(begun, head, first, 60)
    after, other_head, second = made(lazy=False)
    after.load_state_dict(begun.state_dict())
    other_head.load_state_dict(head.state_dict())
    second.load_state_dict(first.state_dict())
    take_over(second)
    train(after, other_head, second, PERIOD, skip=60)
    whole = made(lazy=False)
    train(*whole, PERIOD)
    torch.testing.assert_close(after.weight, whole[0].weight, rtol=1e-5, atol=1e-6)
    assert not any("owed" in its for its in second.state_dict()["state"].values())


def test_a_first_step_that_is_left_out_begins_no_state():
    table, head, optimizer = build(lazy=True, eps=1e-8, fused=True)
    ids, labels = next(iter(texts(1)))
    F.cross_entropy(head(table(ids)), labels).backward()
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()
    settle([optimizer])
    assert optimizer.state_dict()["state"] == {}


@pytest.mark.parametrize("lazy", [True, False])
def test_steps_that_are_told_to_change_nothing_are_as_if_they_had_not_been(lazy):
    steps, out = PERIOD + 20, {0, 1, 40, PERIOD, PERIOD + 3}

    def made(*, told: bool) -> tuple[Tensor, dict]:
        table, head, optimizer = build(lazy=lazy, eps=1e-8, fused=True)
        for step, (ids, labels) in enumerate(texts(steps)):
            optimizer.zero_grad()
            F.cross_entropy(head(table(ids)), labels).backward()
            optimizer.found_inf = torch.tensor(float(told and step in out))
            if told or step not in out:
                optimizer.step()
        settle([optimizer])
        return table.weight, optimizer.state_dict()["state"]

    (told, its), (never, others) = made(told=True), made(told=False)
    assert torch.equal(told, never)
    torch.testing.assert_close(its, others, rtol=0, atol=0)


def test_a_saved_state_goes_on_to_the_same_weights(tmp_path):
    straight = build(lazy=True, eps=1e-8)
    train(*straight, 150)
    half = build(lazy=True, eps=1e-8)
    train(*half, 60)
    torch.save(
        {"table": half[0].state_dict(), "head": half[1].state_dict(), "optimizer": half[2].state_dict()},
        tmp_path / "half",
    )
    saved = torch.load(tmp_path / "half", weights_only=True)
    table, head, lazy = build(lazy=True, eps=1e-8)
    table.load_state_dict(saved["table"])
    head.load_state_dict(saved["head"])
    lazy.load_state_dict(saved["optimizer"])
    train(table, head, lazy, 150, skip=60)
    assert torch.equal(table.weight, straight[0].weight)


def test_one_process_of_ddp_has_whole_gradients(tmp_path, monkeypatch):
    """DDP has made room for the gradient of a table before the optimiser could ask for rows of it."""
    monkeypatch.setattr("manyheads.training.optim.LAZY_FROM", 1)
    tokens = Tokens(torch.arange(1, 7, dtype=torch.int32), torch.tensor([0, 2, 4, 6]), None, torch.tensor([0, 1, 0]))
    kinds = []
    for strategy in (Strategy.auto, Strategy.ddp):
        torch.manual_seed(0)
        run = RunConfig(
            model=ModelConfig(n_layers=1, n_heads=1, d_model=8, d_k=8, d_v=8, d_ff=8),
            hardware=HardwareConfig(accelerator=Accelerator.cpu, precision=Precision.fp32, strategy=strategy),
            trainer={"max_epochs": 2},
        )
        network = assemble(run.model, vocab_size=9, n_classes=2, max_length=8)
        try:
            module = run_trainer(run, network, {"train": tokens, "validation": tokens}, ["a", "b"], [])
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
        assert module.global_step == 2
        kinds.append(type(module.optimizers().optimizer))
    assert kinds == [LazyAdamW, torch.optim.AdamW]
