"""The limits of a soft look-up."""

import math

import pytest
import torch

from manyheads.config import ExplainConfig
from manyheads.explain.scores import look_up, retrieval


@pytest.fixture
def table():
    torch.manual_seed(3)
    return torch.randn(8, 16, dtype=torch.float64), torch.randn(8, 4, dtype=torch.float64)


def test_a_temperature_towards_zero_returns_the_best_match_alone(table):
    keys, values = table
    query = keys[5] + 0.1
    weights, context = look_up(query, keys, values, 1e-3)
    winner = int((keys @ query).argmax())
    torch.testing.assert_close(weights, torch.eye(8, dtype=torch.float64)[winner])
    torch.testing.assert_close(context, values[winner])


def test_a_temperature_towards_infinity_returns_the_mean(table):
    keys, values = table
    weights, context = look_up(keys[0], keys, values, 1e9)
    torch.testing.assert_close(weights, torch.full((8,), 1 / 8, dtype=torch.float64))
    torch.testing.assert_close(context, values.mean(0))


def test_equal_matches_share_what_there_is(table):
    keys, values = table
    keys[1] = keys[0]
    weights, _ = look_up(10 * keys[0], keys, values, 1e-3)
    torch.testing.assert_close(weights[:2], torch.tensor([0.5, 0.5], dtype=torch.float64))


def test_the_weight_of_all_others_stays_below_its_bound():
    found = retrieval(ExplainConfig()).numbers
    assert found["found"] == found["asked"]
    for row in found["temperatures"]:
        assert row["off_the_record"] <= row["bound"] + 1e-15
        assert row["bound"] == pytest.approx(7 * math.exp(-found["gap"] / row["temperature"]))
