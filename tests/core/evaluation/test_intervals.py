"""Holm's correction, and power laws against SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize

from manyheads.evaluation.statistics import error_at, holm, power_law


def test_p_values_are_corrected_as_holm_does() -> None:
    ps = np.random.default_rng(0).random(7) / 5
    order = np.argsort(ps)
    expected = np.minimum(1, np.maximum.accumulate(ps[order] * np.arange(7, 0, -1)))
    np.testing.assert_allclose(np.array(holm(ps.tolist()))[order], expected)


@pytest.mark.parametrize("law", [(0.05, 1.2, 0.45), (0.0, 2.0, 0.5), (0.1, 30.0, 1.1), (0.02, 0.6, 0.12)])
def test_a_planted_power_law_is_found(law):
    counts = np.array([50, 100, 200, 500, 1000, 3000])
    errors = law[0] + law[1] * counts ** -law[2]
    found_3R = power_law(counts, np.stack([errors, errors]))
    assert found_3R[:, 0] == pytest.approx(law, rel=0.01, abs=1e-3)
    assert (found_3R[:, 0] == found_3R[:, 1]).all()
    assert error_at(found_3R, 6000) == pytest.approx(law[0] + law[1] * 6000 ** -law[2], rel=1e-3)


def test_a_power_law_is_the_least_squares_of_scipy_and_never_rises():
    draw = np.random.default_rng(0)
    counts = np.array([100.0, 200, 400, 800, 1600])
    weights = np.arange(1, 6) / 15
    for _ in range(10):
        errors = 0.1 + 3 * counts**-0.6 + draw.normal(0, 0.005, 5)
        found = power_law(counts, errors[None])[:, 0]

        def cost(law, errors=errors):
            return weights @ (errors - law[0] - law[1] * (counts / 1600) ** -law[2]) ** 2

        scaled = [found[0], found[1] * 1600.0 ** -found[2], found[2]]
        best = minimize(cost, scaled, bounds=[(0, None), (0, None), (0.02, 2)], method="L-BFGS-B")
        assert cost(scaled) <= best.fun * 1.01 + 1e-12
    rising = power_law(counts, np.array([[0.1, 0.2, 0.3, 0.4, 0.5]]))
    assert error_at(rising, 3200)[0] == pytest.approx(error_at(rising, 100)[0])
