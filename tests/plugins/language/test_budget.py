"""Budgets of pretraining as steps."""

import time

import torch

from manyheads.config.facts import replace_settings
from manyheads.training.budget import settle_budget
from tests.core.training.test_budget import assert_steps_of_tokens


def test_tokens_are_turned_into_steps(small_run):
    assert_steps_of_tokens(*small_run("pretrain"))


def test_a_time_is_found_by_timing_and_leaves_everything_as_it_was(small_run):
    run, network, tokens, labels = small_run("pretrain")
    run = replace_settings(run, {"budget": "30s"})
    before, state = {name: one.clone() for name, one in network.state_dict().items()}, torch.get_rng_state()
    began = time.perf_counter()
    settled = settle_budget(run, network, tokens, labels)
    took = time.perf_counter() - began
    assert settled.trainer["max_steps"] > 10
    assert took < 30
    assert torch.get_rng_state().equal(state)
    assert all(one.equal(before[name]) for name, one in network.state_dict().items())
