"""Accuracy beside the Trainer: the rate is chosen by validation, the table is of the test split."""

import math

import accuracy_parity as parity
import pytest


def runs(best: str, tests: list[float]) -> dict:
    of_rates = {rate: {"0": {"validation": 0.5, "test": 0.99}} for rate in parity.RATES}
    of_rates[best] = {str(seed): {"validation": 0.6, "test": test} for seed, test in enumerate(tests)}
    return of_rates


def test_the_table_is_of_the_rate_that_validation_chose():
    table = parity.accuracy_table(
        {"emotion": {"f": runs("3e-4", [0.9, 0.91, 0.92]), "a": runs("1e-4", [0.9, 0.9, 0.93])}}
    )
    line = table.splitlines()[2]
    assert line.startswith("| emotion | 0.9100 ± 0.0100 (3e-4) | 0.9100 ± 0.0173 (1e-4) | +0.0000 (")


def test_a_set_that_is_not_finished_has_no_line():
    assert len(parity.accuracy_table({"emotion": {"f": runs("3e-4", [0.9, 0.91, 0.92])}}).splitlines()) == 2


def test_the_interval_is_welchs():
    """Equal variances and sizes leave 2 (n - 1) degrees of freedom, so the textbook's t of 4: 2.776."""
    low, high = parity.welch([0.1, 0.2, 0.3], [0.3, 0.4, 0.5])
    half = 2.776445 * math.sqrt(2 * 0.01 / 3)
    assert (low, high) == pytest.approx((-0.2 - half, -0.2 + half), abs=1e-5)
