"""Figures of any number of labels against scikit-learn; intervals against a plain bootstrap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from manyheads.evaluation.classification import details
from manyheads.evaluation.metrics import change_of_answers, score_answers, score_labels


def some_rows(n_rows: int, n_labels: int, seed: int = 0):
    random = np.random.default_rng(seed)
    marks = random.random((n_rows, n_labels)) < np.linspace(0.6, 0.1, n_labels)
    probabilities = 1 / (1 + np.exp(-random.normal(size=marks.shape) - 2.0 * marks + 1))
    return marks, probabilities, probabilities >= 0.4, [f"label {at}" for at in range(n_labels)]


@given(st.integers(1, 50), st.integers(1, 6), st.integers(0, 1000))
def test_figures_are_those_of_scikit_learn(n_rows: int, n_labels: int, seed: int) -> None:
    marks, probabilities, answers, names = some_rows(n_rows, n_labels, seed)
    scores = score_labels(marks, probabilities, names, [0.4] * n_labels)
    two = (marks.astype(int), answers.astype(int)) if n_labels > 1 else (marks[:, 0], answers[:, 0])
    assert scores.figures["accuracy"].value == pytest.approx(metrics.accuracy_score(*two))
    table = metrics.precision_recall_fscore_support(marks.astype(int).reshape(n_rows, -1).tolist() if n_labels > 1 else
        marks[:, 0], two[1], labels=list(range(n_labels)) if n_labels > 1 else [True], zero_division=0)  # fmt: skip
    ours = [(one.precision, one.recall, one.f1, one.support) for one in scores.per_class]
    np.testing.assert_allclose(ours, np.stack(table, axis=1), atol=1e-12)
    occurs = marks.any(0) | answers.any(0)
    for at, name in enumerate(("precision", "recall", "f1")):
        expected = table[at][occurs].mean() if occurs.any() else 0
        assert scores.figures[f"macro_{name}"].value == pytest.approx(expected)
        flat = metrics.precision_recall_fscore_support(
            marks.ravel(), answers.ravel(), average="binary", zero_division=0
        )
        assert scores.figures[f"micro_{name}"].value == pytest.approx(flat[at])


def test_loss_is_the_sum_of_each_labels_log_loss() -> None:
    marks, probabilities, _, names = some_rows(200, 3)
    loss = score_labels(marks, probabilities, names, [0.4] * 3).figures["loss"].value
    assert loss == pytest.approx(sum(metrics.log_loss(marks[:, at], probabilities[:, at]) for at in range(3)))
    certain = score_labels(marks[:1], 1.0 - marks[:1], names, [0.4] * 3)
    assert np.isfinite(certain.figures["loss"].value)


def test_intervals_are_those_of_a_plain_bootstrap() -> None:
    marks, probabilities, answers, names = some_rows(300, 3)
    scores = score_labels(marks, probabilities, names, [0.4] * 3)
    random = np.random.default_rng(9)
    drawn = [random.integers(300, size=300) for _ in range(600)]
    counts = [[one[rows].sum(0) for one in (marks & answers, marks, answers)] for rows in drawn]
    plain = {
        "micro": [2 * right.sum() / (had.sum() + given.sum()) for right, had, given in counts],
        "macro": [(2 * right / (had + given)).mean() for right, had, given in counts],
    }
    for average, found in plain.items():
        ours = scores.figures[f"{average}_f1"]
        assert (ours.low, ours.high) == pytest.approx(tuple(np.percentile(found, (2.5, 97.5))), abs=0.01)
    again = score_answers(marks, answers, marks.shape[1])
    assert (again["micro_f1"], again["accuracy"]) == (scores.figures["micro_f1"], scores.figures["accuracy"])


def test_a_change_is_paired() -> None:
    marks, _, answers, _ = some_rows(300, 3)
    other = answers.copy()
    other[:10, 0] ^= True
    change = change_of_answers(marks, other, [answers], 3)[0]
    apart = [score_answers(marks, one, marks.shape[1])["micro_f1"] for one in (answers, other)]
    assert change["micro_f1"].value == pytest.approx(apart[0].value - apart[1].value)
    assert change["micro_f1"].high - change["micro_f1"].low < 0.5 * (apart[0].high - apart[0].low)
    none = change_of_answers(marks, answers, [answers], 3)[0]["macro_f1"]
    assert none.value == 0
    assert none.high == pytest.approx(-none.low)
    assert 0.005 < none.high < 0.02


def test_no_rows_are_one_sentence() -> None:
    nothing = np.zeros((0, 2), dtype=bool)
    with pytest.raises(ValueError, match="there are no rows to judge"):
        score_answers(nothing, nothing, nothing.shape[1])


def test_rows_that_are_all_right_leave_a_doubt() -> None:
    marks_nC = np.array([[True, False], [False, True], [False, False], [True, True]])
    own = score_answers([0, 1, 1, 0], [0, 1, 1, 0], 2)["accuracy"]
    assert score_answers(marks_nC, marks_nC, marks_nC.shape[1])["accuracy"] == own
    found = score_labels(marks_nC, marks_nC.astype(float), ["a", "b"], [0.5, 0.5])
    assert found.figures["accuracy"] == own
    assert own.low < 0.6
    assert (found.figures["micro_f1"].value, found.figures["macro_f1"].value) == (1, 1)
    assert found.figures["micro_f1"].low == pytest.approx(own.low, abs=0.02)
    assert found.figures["macro_f1"].low == pytest.approx(own.low, abs=0.1)


def test_a_label_that_is_surely_not_there_costs_no_more_than_its_logit() -> None:
    marks = np.array([[False]])
    for logit, least, most in ((36.0, 36.0, 36.1), (37.0, 36.7, 37.0), (45.0, 36.7, 45.0), (-45.0, 0.0, 1e-9)):
        chance = np.array([[1 / (1 + np.exp(-logit))]])
        loss = score_labels(marks, chance, ["a"], [0.5]).figures["loss"].value
        assert least <= loss <= most


def test_labels_of_one_row_are_not_further_rows() -> None:
    all_right = np.ones((100, 20), dtype=bool)
    found = score_answers(all_right, all_right, all_right.shape[1])
    assert (found["macro_f1"].low, found["macro_f1"].high) == pytest.approx((0.963, 1), abs=1e-4)
    assert found["micro_f1"].low == pytest.approx(found["macro_f1"].low)


def test_nothing_is_known_of_a_figure_without_a_row() -> None:
    marks, none = np.ones((30, 2), dtype=bool), np.zeros((30, 2), dtype=bool)
    precision = score_answers(marks, none, marks.shape[1])["micro_precision"]
    assert (precision.value, precision.low, precision.high) == (0, 0, 1)
    nothing = score_answers(none, none, none.shape[1])
    assert (
        (nothing["micro_f1"].low, nothing["micro_f1"].high)
        == (nothing["macro_f1"].low, nothing["macro_f1"].high)
        == (0, 1)
    )


def test_macro_f1_of_many_labels_of_each_row_is_held_as_often_as_it_says() -> None:
    random, held = np.random.default_rng(0), []
    for _ in range(60):
        marks = random.random((400, 50)) < 0.5
        answers = marks ^ (random.random(marks.shape) < 0.2)  # so that each F1 is 0.8
        found = score_answers(marks, answers, 50)["macro_f1"]
        held.append(found.low <= 0.8 <= found.high)
    assert np.mean(held) >= 0.92  # by rows as few as count as independent the interval would lie above it


def test_labels_that_are_all_right_by_far_have_a_brier_score() -> None:
    marks = np.array([[True, False], [False, True]] * 20)
    chances = 1 / (1 + np.exp(np.where(marks, -1.0, 1.0) * np.random.default_rng(0).uniform(125, 135, marks.shape)))
    brier = score_labels(marks, chances, ["a", "b"], [0.5, 0.5]).figures["brier"]
    assert 0 <= brier.low <= brier.value <= brier.high < 1e-100


def test_labels_that_no_row_has_or_is_given_are_left_out_of_macro_figures_and_that_is_said():
    marks = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)
    likely = np.where(marks, 0.9, 0.1)
    likely[3, 3] = 0.8  # which no row has, but one is given
    found = score_labels(marks, likely, list("abcd"), [0.5] * 4)
    answers, occur = likely >= 0.5, [0, 1, 3]
    assert found.averaged == found.as_json()["averaged"] == 3
    for name in ("f1", "precision", "recall"):
        peer = getattr(metrics, f"{name}_score")
        wanted = peer(marks, answers, average="macro", labels=occur, zero_division=0)
        assert found.figures[f"macro_{name}"].value == pytest.approx(wanted)
    assert [*details(found)[0].notes] == [
        "macro figures are means over the 3 labels that are true of some row, or predicted"
    ]
    everywhere = score_labels(marks[:, :2], likely[:, :2], list("ab"), [0.5] * 2)
    assert (everywhere.averaged, [*details(everywhere)[0].notes]) == (2, [])
