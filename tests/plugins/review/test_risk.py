"""What if only sure answers are given: risk by coverage, counted by hand."""

import numpy as np
import pytest

from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.metrics import Outcomes
from manyheads.plugins.review.risk import risk_by_coverage
from tests.core.evaluation.drawn_answers import drawn


@pytest.mark.drawn
def test_the_risk_of_the_surest_rows_is_counted() -> None:
    stored, likely, labels = drawn()
    (found,) = stored.answers()
    judged = Outcomes.of(labels, likely.argmax(1), found.probabilities_nC)
    order, wrong = np.argsort(-likely.max(1)), likely.argmax(1) != labels
    points = risk_by_coverage(stored, judged).content
    assert len(points) == 20
    for at, one in enumerate(points, 1):
        first = order[: at * 45]
        share = share_interval(int(wrong[first].sum()), at * 45)
        assert one["answered"] == pytest.approx(at / 20)
        assert (one["risk"]["value"], one["risk"]["high"]) == (share.value, share.high)
    assert points[0]["risk"]["value"] < points[-1]["risk"]["value"]


def test_rows_that_are_as_sure_are_answered_together() -> None:
    risks, errors = [], []
    for order in (np.arange(300), np.arange(300)[::-1]):
        labels = np.where(order < 240, 0, 1)
        judged = Outcomes.of(labels, np.zeros(300, dtype=int), np.tile([[0.8, 0.2]], (300, 1)))
        risks += [(one["answered"], one["risk"]["value"]) for one in risk_by_coverage(drawn(3)[0], judged).content]
        errors.append(judged.figures()["adaptive_calibration_error"].value)
    assert {*risks} == {(1.0, 0.2)}
    assert errors == pytest.approx([0, 0])  # 80 % sure, and right in 80 %
