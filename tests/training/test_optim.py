"""The schedule against its formula, the parameter groups against the rule, AdamW against the paper's update."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from manyheads.config import ModelConfig, OptimConfig, Schedule
from manyheads.nn import assemble
from manyheads.training import optim as optim_module
from manyheads.training.optim import clip_gradients, make_optimizer, make_schedule, rate_factor
from manyheads.training.sparse_adamw import LazyAdamW


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
def test_clipping_is_torchs_also_of_rows_that_a_batch_reads_twice(most, algorithm):
    torch.manual_seed(0)
    dense, rows = nn.Embedding(9, 3), nn.Embedding(9, 3, sparse=True)
    rows.load_state_dict(dense.state_dict())
    ids = torch.tensor([1, 4, 1, 8])
    for table in (dense, rows):
        (table(ids) ** 2).sum().backward()
    clip_gradients(rows, most, algorithm)
    if algorithm == "value":
        nn.utils.clip_grad_value_(dense.parameters(), most)
    else:
        nn.utils.clip_grad_norm_(dense.parameters(), most)
    torch.testing.assert_close(rows.weight.grad.to_dense(), dense.weight.grad)


def test_large_embeddings_are_updated_by_rows_where_that_pays(monkeypatch):
    monkeypatch.setattr(optim_module, "LAZY_FROM", 100 * 128)
    small, large = (assemble(ModelConfig(), vocab_size=n, n_classes=3, max_length=8) for n in (99, 100))
    for model, lazily in ((small, False), (large, True)):
        assert isinstance(make_optimizer(model, OptimConfig(), lazy=True), LazyAdamW) is lazily
        assert not isinstance(make_optimizer(model, OptimConfig(), lazy=False), LazyAdamW)
