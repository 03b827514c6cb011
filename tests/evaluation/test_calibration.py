"""Calibration error against torchmetrics and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_calibration_error

from manyheads.evaluation.metrics import reliability, score


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.integers(2, 6), st.integers(0, 999))
def test_it_is_torchmetrics_calibration_error(n_rows: int, n_classes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet(np.ones(n_classes), n_rows)
    labels = random.integers(n_classes, size=n_rows)
    expected = multiclass_calibration_error(torch.tensor(probabilities), torch.tensor(labels), n_classes, n_bins=15)
    names = [str(at) for at in range(n_classes)]
    assert score(labels, probabilities, names, n_resamples=1).calibration_error.value == pytest.approx(
        float(expected), abs=1e-6
    )


def test_the_error_is_the_weighted_gap_of_the_bins() -> None:
    random = np.random.default_rng(0)
    labels, confidence = random.integers(2, size=500), random.uniform(0.5, 1.0, 500)
    scores = score(labels, np.stack([confidence, 1 - confidence], 1), ["a", "b"], n_resamples=1)
    bins = scores.reliability
    assert sum(one.n_rows for one in bins) == 500
    gap = sum(one.n_rows * abs(one.confidence - one.accuracy) for one in bins) / 500
    assert gap == pytest.approx(scores.calibration_error.value)
    assert all(one.low <= one.confidence <= one.high for one in bins)


def test_certainty_falls_into_the_last_bin() -> None:
    (only,) = reliability(np.ones(4), np.array([True, True, True, False]))
    assert (only.high, only.n_rows, only.accuracy) == (1.0, 4, 0.75)
