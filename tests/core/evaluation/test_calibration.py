"""Calibration against scikit-learn and plain loops."""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss

from manyheads.evaluation.calibration import equal_bins
from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.metrics import score, score_labels
from tests.core.evaluation.test_counts import NAMES, some_labels
from tests.core.evaluation.test_scores import some_rows


def binned(likely: np.ndarray, is_so: np.ndarray, bins: list[np.ndarray]) -> float:
    return sum(len(one) * abs(likely[one].mean() - is_so[one].mean()) for one in bins if len(one)) / len(likely)


def wide(likely: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(np.minimum((likely * 15).astype(int), 14) == at) for at in range(15)]


def test_the_errors_are_their_formulas() -> None:
    labels, probabilities, names = some_rows(600, 4, seed=2)
    figures = score(labels, probabilities, names).figures
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    parts = np.array_split(np.argsort(confidence), 15)
    assert figures["adaptive_calibration_error"].value == pytest.approx(binned(confidence, right, parts))
    of_class = [binned(of, labels == at, wide(of)) for at, of in enumerate(probabilities.T)]
    assert figures["classwise_calibration_error"].value == pytest.approx(np.mean(of_class))
    expected = sum(brier_score_loss(labels == at, of) for at, of in enumerate(probabilities.T))
    assert figures["brier"].value == pytest.approx(expected)
    for one in score(labels, probabilities, names).reliability:
        share = share_interval(round(one.accuracy * one.n_rows), one.n_rows)
        assert (one.accuracy, one.least, one.most) == (share.value, share.low, share.high)


def test_labels_are_calibrated_each_by_itself() -> None:
    marks, likely = some_labels(500)
    figures = score_labels(marks, likely, NAMES, [0.5] * 4).figures
    of_label = [binned(of, is_so, wide(of)) for of, is_so in zip(likely.T, marks.T, strict=True)]
    assert figures["classwise_calibration_error"].value == pytest.approx(np.mean(of_label))
    assert figures["brier"].value == pytest.approx(sum(map(brier_score_loss, marks.T, likely.T)))
    assert "adaptive_calibration_error" not in figures


def test_bins_hold_equally_many_rows() -> None:
    confidence = np.random.default_rng(0).random(150)
    assert np.bincount(equal_bins(confidence)).tolist() == [10] * 15


def test_rows_dealt_evenly_to_classes_leave_a_doubt_of_calibration() -> None:
    labels = np.repeat(np.arange(10), 40)
    figures = score(labels, np.full((400, 10), 0.1), [str(at) for at in range(10)]).figures
    drawn = np.random.default_rng(0).binomial(400, 0.1, size=10_000)
    for name in ("calibration_error", "adaptive_calibration_error", "classwise_calibration_error"):
        assert (figures[name].value, figures[name].low) == (pytest.approx(0), 0)
        assert figures[name].high > np.abs(drawn - 40).mean() / 400  # which noise alone makes of no error
