"""The interval of a mean of costs: against Wilson's, SciPy, and what is held in draws."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy.optimize import minimize

from manyheads.evaluation.intervals import share_interval
from manyheads.plugins.judge.decisions import weighted_interval


def test_a_mean_of_two_weights_has_wilsons_interval():
    for n_some, n in ((0, 50), (2, 50), (50, 50), (3, 7), (1, 1)):
        found, share = (
            weighted_interval(np.array([-1.0, 4.0]), np.array([n - n_some, n_some]), -1, 4),
            share_interval(n_some, n),
        )
        assert astuple(found) == pytest.approx([5 * end - 1 for end in astuple(share)], abs=1e-6)


def test_the_ends_of_a_mean_of_weights_are_as_far_away_as_the_likeliest_shares_say():
    """Of three kinds and one that was not seen, the shares that SciPy finds the likeliest of all with this mean."""
    weights, counts = np.array([0.0, 1.0, 5.0]), np.array([80, 15, 5])
    found, kinds = weighted_interval(weights, counts, 0, 20), np.array([0.0, 1.0, 5.0, 20.0])
    for end in (found.low, found.high):
        of_sum = [
            {"type": "eq", "fun": lambda p: p.sum() - 1},
            {"type": "eq", "fun": lambda p, end=end: p @ kinds - end},
        ]
        start = np.full(4, 0.25)
        unlikely = lambda p: -(counts @ np.log(np.maximum(p[:3], 1e-12)))  # noqa: E731
        how = {"bounds": [(0, 1)] * 4, "constraints": of_sum, "method": "SLSQP", "options": {"ftol": 1e-14}}
        likeliest = minimize(unlikely, start, **how).x
        variance = likeliest @ kinds**2 - end**2
        assert abs(end - found.value) == pytest.approx(1.96 * np.sqrt(variance / 100), rel=2e-3)


@pytest.mark.parametrize(("n", "wrong", "cost"), [(100, 0.02, 5), (300, 0.01, 10), (1000, 0.005, 20), (500, 0.2, 1)])
def test_rare_costs_are_held_by_their_interval(n, wrong, cost):
    """Student's interval held them in 87, 79, 87 and 95 %, and was 0 to 0 where no row had one."""
    held, counts = 0, np.random.default_rng(0).binomial(n, wrong, size=1000)
    of_count = {
        some: weighted_interval(np.array([0.0, cost]), np.array([n - some, some]), 0, cost) for some in {*counts}
    }
    assert all(one.high > 0 for one in of_count.values())
    held = sum(of_count[some].low <= wrong * cost <= of_count[some].high for some in counts)
    assert 0.93 <= held / 1000 <= 0.98
