"""The schedule and parameter groups against their rules, AdamW against the paper's update."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from manyheads.config import ModelConfig, OptimConfig, Schedule
from manyheads.nn import assemble
from manyheads.training.optim import clip_gradients, make_optimizer, make_schedule, rate_factor
from manyheads.training.state import check_moments


@given(
    n_steps=st.integers(1, 500),
    warmup=st.floats(0, 1),
    schedule=st.sampled_from(list(Schedule)),
    decay_share=st.floats(0.01, 1),
)
def test_the_rate_stays_between_zero_and_the_peak(n_steps, warmup, schedule, decay_share):
    optim = OptimConfig(warmup=warmup, schedule=schedule, decay_share=decay_share)
    factors = [rate_factor(step, n_steps, optim) for step in range(n_steps + 1)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert any(factor > 0 for factor in factors[:n_steps])


@given(n_steps=st.integers(10, 500), schedule=st.sampled_from([Schedule.linear, Schedule.cosine, Schedule.wsd]))
def test_the_rate_reaches_its_peak_after_the_warm_up_and_zero_after_the_last_step(n_steps, schedule):
    optim = OptimConfig(warmup=0.1, schedule=schedule)
    assert rate_factor(round(0.1 * n_steps), n_steps, optim) == 1
    assert rate_factor(n_steps, n_steps, optim) == 0


@given(
    n_steps=st.integers(1, 500),
    warmup=st.floats(0, 1),
    schedule=st.sampled_from(list(Schedule)),
    decay_share=st.floats(0.01, 1),
)
@example(n_steps=100, warmup=0.5, schedule=Schedule.wsd, decay_share=0.8)
def test_the_rate_never_jumps(n_steps, warmup, schedule, decay_share):
    """It rises in equal steps to the peak, and falls from it to zero by no more at once than its steepest slope."""
    optim = OptimConfig(warmup=warmup, schedule=schedule, decay_share=decay_share)
    factors = [rate_factor(step, n_steps, optim) for step in range(n_steps + 1)]
    n_warmup = round(warmup * n_steps)
    n_falling = n_steps - n_warmup
    assert factors[:n_warmup] == pytest.approx([step / n_warmup for step in range(1, n_warmup + 1)])
    if not n_falling:
        return
    slope = {Schedule.linear: 1 / n_falling, Schedule.cosine: math.pi / 2 / n_falling, Schedule.constant: 0.0}
    slope[Schedule.wsd] = 1 / max(1.0, min(decay_share * n_steps, n_falling))
    falling = [1.0, *factors[n_warmup:]]
    drops = [before - after for before, after in pairwise(falling)]
    assert all(-1e-12 <= drop <= slope[schedule] + 1e-12 for drop in drops)
    assert drops[0] == 0.0, "the peak is held for a step"


def test_the_warm_up_rises_in_equal_steps():
    optim = OptimConfig(warmup=0.1)
    assert [rate_factor(step, 100, optim) for step in range(10)] == pytest.approx([k / 10 for k in range(1, 11)])


def test_cosine_is_half_a_cosine():
    optim = OptimConfig(warmup=0.0, schedule=Schedule.cosine)
    expected = [0.5 * (1 + math.cos(math.pi * step / 50)) for step in range(51)]
    assert [rate_factor(step, 50, optim) for step in range(51)] == pytest.approx(expected)


def test_wsd_is_stable_until_its_last_share():
    optim = OptimConfig(warmup=0.0, schedule=Schedule.wsd, decay_share=0.2)
    factors = [rate_factor(step, 100, optim) for step in range(101)]
    assert factors[:81] == [1.0] * 81
    assert factors[80:] == pytest.approx([1 - k / 20 for k in range(21)])


def test_the_optimizer_follows_the_schedule():
    optim = OptimConfig(lr=0.5, warmup=0.2)
    optimizer = make_optimizer(nn.Linear(2, 2), optim)
    schedule = make_schedule(optimizer, optim, 10)
    rates = []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0.5 * rate_factor(step, 10, optim) for step in range(10)])


def test_only_matrices_of_layers_decay():
    classifier = assemble(ModelConfig(), vocab_size=50, n_classes=3, max_length=8, n_segments=2)
    decaying, steady = make_optimizer(classifier, OptimConfig(weight_decay=0.3)).param_groups
    names = {id(p): name for name, p in classifier.named_parameters()}
    assert decaying["weight_decay"] == 0.3
    assert steady["weight_decay"] == 0
    assert {names[id(p)] for p in decaying["params"]} == {
        name for name, p in classifier.named_parameters() if p.ndim == 2 and not name.startswith("embeddings.")
    }
    assert len(decaying["params"]) + len(steady["params"]) == len(names)


def test_one_step_is_the_papers_update():
    torch.manual_seed(0)
    linear = nn.Linear(3, 2, bias=False)
    before, gradient = linear.weight.detach().clone(), torch.randn(2, 3)
    linear.weight.grad = gradient.clone()
    optim = OptimConfig(lr=0.1, weight_decay=0.2, beta1=0.8, beta2=0.9, eps=1e-8)
    make_optimizer(linear, optim).step()
    first, second = 0.2 * gradient / (1 - 0.8), 0.1 * gradient**2 / (1 - 0.9)
    expected = before * (1 - 0.1 * 0.2) - 0.1 * first / (second.sqrt() + 1e-8)
    torch.testing.assert_close(linear.weight.detach(), expected)


@pytest.mark.parametrize("algorithm", ["norm", "value", None])
@pytest.mark.parametrize("most", [0.05, 1e3])
def test_clipping_is_torchs(most, algorithm):
    torch.manual_seed(0)
    ours, dense = nn.Embedding(9, 3), nn.Embedding(9, 3)
    ours.load_state_dict(dense.state_dict())
    for table in (dense, ours):
        (table(torch.tensor([1, 4, 1, 8])) ** 2).sum().backward()
    clip_gradients(ours, most, algorithm)
    if algorithm == "value":
        nn.utils.clip_grad_value_(dense.parameters(), most)
    else:
        nn.utils.clip_grad_norm_(dense.parameters(), most)
    torch.testing.assert_close(ours.weight.grad, dense.weight.grad)


def test_steps_that_are_told_to_change_nothing_are_as_if_they_had_not_been():
    """What the guard relies on: torch's fused AdamW on a CPU heeds `found_inf`, and counts no such step."""

    def made(*, told: bool) -> tuple[torch.Tensor, dict]:
        torch.manual_seed(0)
        table = nn.Embedding(20, 3)
        optimizer = torch.optim.AdamW(table.parameters(), lr=0.01, fused=True)
        for step in range(30):
            optimizer.zero_grad()
            (table(torch.tensor([step % 20, 3])) ** 2).sum().backward()
            optimizer.found_inf = torch.tensor(float(told and step in (0, 1, 7, 20)))
            if told or step not in (0, 1, 7, 20):
                optimizer.step()
        return table.weight, optimizer.state_dict()["state"]

    (told, its), (never, others) = made(told=True), made(told=False)
    assert torch.equal(told, never)
    torch.testing.assert_close(its, others, rtol=0, atol=0)


def test_a_checkpoint_of_another_optimiser_is_refused():
    table = nn.Embedding(4, 2)
    optimizer = torch.optim.AdamW(table.parameters(), lr=0.1)
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["initial_lr"] = 0.1
    check_moments(optimizer)
    optimizer.state[table.weight]["owed"] = torch.zeros(129)
    with pytest.raises(ValueError, match="its optimiser keeps something else of a weight than AdamW"):
        check_moments(optimizer)
