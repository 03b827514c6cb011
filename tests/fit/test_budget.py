"""Budgets as steps: what they come to, and that they are kept."""

import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from manyheads.compose import compose
from manyheads.config import BatchConfig, OptimConfig, RunConfig, Task
from manyheads.fit.budget import LOOKS, even, of_time, settled_notes, with_min_steps


@pytest.mark.parametrize("n_steps", [1, 7, 20, 21, 399, 2000, 12_345])
def test_validations_of_a_pretraining_are_even_and_the_last_is_at_the_end(n_steps):
    limits = even(Task.pretrain, n_steps, LOOKS)
    assert limits["max_steps"] % limits["val_check_interval"] == 0
    assert 0 <= limits["max_steps"] - n_steps < limits["val_check_interval"]
    assert limits["max_steps"] // limits["val_check_interval"] <= LOOKS
    assert even(Task.classify, n_steps, LOOKS) == {"max_steps": n_steps}


@pytest.mark.parametrize(("n_steps", "look"), [(6000, 20.0), (120, 20.0), (3.3, 0.01), (0.2, 12.0)])
def test_steps_and_looks_fill_the_time(n_steps, look):
    limits = of_time(Task.pretrain, n_steps, look, 100)
    looks = limits["max_steps"] // limits["val_check_interval"]
    assert limits["max_steps"] + looks * look <= max(n_steps, 1 + look) + limits["val_check_interval"]
    assert looks == 1 or looks * look <= 0.1 * n_steps
    limits = of_time(Task.classify, n_steps, look, 100)
    assert limits["max_steps"] * (1 + look / 100) <= max(n_steps, 1 + look)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A run of the demo, ready to be budgeted."""
    from manyheads.data.cache import prepare_tokens
    from manyheads.data.texts import read_rows
    from manyheads.fit.session import assemble_network

    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path))

    def made(verb, *words):
        run = compose(verb, ["debug=fast", "hardware=cpu", "hardware.precision=fp32", *words])
        splits = read_rows(run, with_test=False)
        tokenizer, tokens = prepare_tokens(splits, run)
        return run, assemble_network(run, splits, tokenizer), tokens, splits.labels

    return made


@pytest.mark.parametrize("verb", ["train", "pretrain"])
def test_tokens_are_turned_into_steps(verb, small):
    from manyheads.data.module import TextData
    from manyheads.fit.budget import settle_budget

    run, network, tokens, labels = small(verb)
    run.budget = "5ktok"
    limits = settle_budget(run, network, tokens, labels).trainer
    lengths = tokens["train"].lengths
    per_step = int(lengths.sum()) / TextData(tokens, run.batch, run.seed).steps_of(0)
    assert limits["max_epochs"] == -1
    assert abs(limits["max_steps"] - 5000 / per_step) <= limits.get("val_check_interval", 1)


def test_a_time_is_found_by_timing_and_leaves_everything_as_it_was(small):
    from manyheads.fit.budget import settle_budget

    run, network, tokens, labels = small("pretrain")
    run.budget = "30s"
    before, state = {name: one.clone() for name, one in network.state_dict().items()}, torch.get_rng_state()
    began = time.perf_counter()
    settled = settle_budget(run, network, tokens, labels)
    took = time.perf_counter() - began
    assert settled.trainer["max_steps"] > 10
    assert took < 30
    assert torch.get_rng_state().equal(state)
    assert all(one.equal(before[name]) for name, one in network.state_dict().items())


def test_several_devices_do_not_time_their_steps(small):
    from manyheads.fit.budget import settle_budget

    run, network, tokens, labels = small("train")
    run.budget, run.hardware.devices = "1min", 2
    with pytest.raises(ValueError, match=r"budget=1min is a time, which steps of one device tell, but this run has"):
        settle_budget(run, network, tokens, labels)


@given(st.integers(0, 5000), st.integers(1, 40), st.integers(1, 300))
def test_few_rows_are_read_so_many_times_as_often(least, epochs, per_epoch):
    run = RunConfig(optim=OptimConfig(min_steps=least), trainer={"max_epochs": epochs, "max_steps": 2500})
    settled = with_min_steps(run, per_epoch).trainer
    times, looks = settled["max_epochs"] // epochs, settled.get("check_val_every_n_epoch", 1)
    assert settled["max_epochs"] * per_epoch >= least, "enough"
    assert times == 1 or (times - 1) * epochs * per_epoch < least, "no more than that needs"
    assert settled["max_epochs"] == looks * epochs, "validated as often, at the end at last"
    assert settled["max_steps"] == 2500


def test_a_run_without_epochs_has_its_steps_and_an_interval_of_validation_stays():
    optim = OptimConfig(min_steps=90)
    without = RunConfig(optim=optim, trainer={"max_epochs": -1, "max_steps": 50})
    assert with_min_steps(without, 1) is without
    typed = RunConfig(optim=optim, trainer={"max_epochs": 30, "val_check_interval": 5})
    assert with_min_steps(typed, 1).trainer == {"max_epochs": 90, "val_check_interval": 5}


@pytest.mark.parametrize("limit", ["trainer.max_epochs=3", "trainer.max_steps=20"])
def test_a_limit_that_is_typed_is_kept(limit):
    assert compose("train", ["optim=finetune"]).optim.min_steps > 0
    assert compose("train", ["optim=finetune", limit]).optim.min_steps == 0
    assert compose("train", ["optim=finetune", limit, "optim.min_steps=70"]).optim.min_steps == 70


def test_what_was_settled_is_said():
    asked = RunConfig(optim=OptimConfig(min_steps=90), trainer={"max_epochs": 30}, batch=BatchConfig(tokens="auto"))
    assert list(settled_notes(asked, asked)) == []
    found = replace(asked, batch=BatchConfig(tokens=4096))
    assert list(settled_notes(asked, found)) == ["batch.tokens=auto: 4096"]
    assert list(settled_notes(found, with_min_steps(found, 1))) == ["optim.min_steps=90: 90 epochs instead of 30"]
    bought = replace(found, budget="2ktok", trainer={"max_epochs": -1, "max_steps": 7})
    assert list(settled_notes(replace(found, budget="2ktok"), bought)) == ["budget=2ktok: 7 steps"]
