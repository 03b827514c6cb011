"""What to do next follows from the figures, and names rows and classes."""

import numpy as np
import pytest

from manyheads.data.rows import Rows
from manyheads.evaluation.answered import LogitStore
from manyheads.evaluation.evaluation import Judged
from manyheads.evaluation.metrics import Outcomes
from manyheads.evaluation.report import Advice
from manyheads.plugins.review.advice import MOST, advise
from manyheads.runs.summary import LINEAR, NETWORK, Interval

NAMES = ["anger", "joy", "love"]


def rows_of(labels: list[int]) -> Rows:
    return Rows(["a text"] * len(labels), None, labels, "x.csv", range(2, len(labels) + 2))


def steps(labels, answers, confidence=0.6, *, train=None, members=None, leads=None, training=None) -> list[Advice]:
    """The advice on answers `(n,)` of a confidence `(n,)`, the rest of which is spread evenly."""
    labels, answers = np.array(labels), np.array(answers)
    confidence_n1 = np.broadcast_to(np.asarray(confidence, dtype=float), labels.shape)[:, None]
    probabilities_nC = np.tile((1 - confidence_n1) / (len(NAMES) - 1), (1, len(NAMES)))
    np.put_along_axis(probabilities_nC, answers[:, None], confidence_n1, axis=1)
    outcomes = Outcomes.of(labels, answers, probabilities_nC)
    learnt = None if train is None else rows_of(train)
    stored = LogitStore(rows_of(labels.tolist()), NAMES, {}, {})
    judged = Judged(None, stored, outcomes.scores(NAMES), outcomes, learnt, members or {}, leads or {})
    return advise(judged, training or {})


def test_sure_mistakes_of_a_model_that_is_right_when_sure_are_labels_to_check() -> None:
    labels = [0, 1, 2] * 400
    answers = [1, *labels[1:]]
    (step,) = steps(labels, answers, [0.99] * 1200)
    assert step.step == "Check the label of row 2"
    assert step.why == "1 of 1,200 answers of at least 95% confidence contradict the label"
    assert steps(labels, answers, [0.94] * 1200) == []
    often_wrong = steps(labels, [(one + (at % 5 == 0)) % 3 for at, one in enumerate(labels)], 0.99)
    assert not any("Check" in one.step for one in often_wrong)


@pytest.mark.parametrize(
    ("train", "said", "known"),
    [
        ([0] * 5 + [1] * 9, "Label more rows of anger", "; anger occurs 5 times in 14 training rows"),
        (
            [0] * 9 + [1] * 5,
            "Write down what separates anger from joy, or label more rows of both",
            "; anger occurs 9 times",
        ),
        (None, "Write down what separates anger from joy, or label more rows of both", "confusion"),
    ],
)
def test_the_most_frequent_confusion_is_named(train: list[int] | None, said: str, known: str) -> None:
    labels = [0] * 1000 + [1] * 1000
    step = steps(labels, [1] * 30 + [0] * 970 + [1] * 1000, train=train)[0]
    assert step.step == said
    assert step.why.startswith("30 of 1,000 rows of anger are answered as joy, the most frequent confusion")
    assert known in step.why


@pytest.mark.parametrize(
    ("learnt", "best", "said"),
    [(0.95, 3, "Label more training rows"), (0.82, 9, "Train longer"), (0.82, 3, ""), (0.6, 3, "")],
)
def test_more_rows_or_more_epochs(learnt: float, best: int, said: str) -> None:
    members = {NETWORK: {"accuracy": Interval(0.8, 0.78, 0.82), "loss": Interval(0.5, 0.4, 0.6)}}
    training = {"train": {"accuracy": learnt, "loss": 0.1}, "best": {"epoch": best}, "epochs": 9}
    found = steps([0, 1, 2] * 1000, [0, 1, 2] * 1000, members=members, training=training)
    assert [one.step for one in found] == ([said] if said else [])


def test_a_model_that_has_learnt_nothing_is_not_told_which_class_it_confuses() -> None:
    level = {"accuracy": Interval(0.0, -0.1, 0.1), "macro_f1": Interval(-0.05, -0.1, 0.0)}
    labels, answers = [0, 1, 2] * 1000, [0, 0, 2] * 1000
    (step,) = steps(labels, answers, leads={"most frequent class": level, LINEAR: {"accuracy": Interval(0, -0.1, 0.1)}})
    assert step.step.startswith("Check that the right columns were read")
    assert step.why.endswith("no better than the answer of the most frequent class to all rows")
    unknown = {"accuracy": Interval(0.5, -0.3, 0.9)}  # by a handful of rows
    assert "columns" not in steps(labels, answers, leads={"most frequent class": unknown})[0].step
    rare = level | {"macro_f1": Interval(0.2, 0.1, 0.3)}  # as where one class has nearly all rows
    assert steps(labels, answers, leads={"most frequent class": rare})[0].step.startswith("Write down what separates")


@pytest.mark.parametrize(("right", "epochs", "said"), [(1.0, 9, ""), (0.8, 1, "There was one epoch; the accuracy")])
def test_a_perfect_network_need_not_train_longer(right: float, epochs: int, said: str) -> None:
    training = {"train": {"accuracy": 0.7}, "best": {"epoch": epochs}, "epochs": epochs}
    members = {NETWORK: {"accuracy": Interval(right, right - 0.01, right)}}
    found = steps([0, 1, 2] * 1000, [0, 1, 2] * 1000, members=members, training=training)
    assert [one.why[: len(said)] for one in found] == ([said] if said else [])


def test_a_linear_model_that_is_as_good_is_said_and_few_rows_are() -> None:
    leads = {LINEAR: {"accuracy": Interval(0.0, -0.02, 0.02)}}
    found = [one.step for one in steps([0, 1, 2] * 20, [0, 1, 2] * 20, leads=leads)]
    assert found[0] == "Begin from other weights (init_from=), or train with a linear model (linear=true)"
    kept = steps([0, 1, 2] * 20, [0, 1, 2] * 20, leads=leads, members={LINEAR: leads[LINEAR]})
    assert kept[0].step.endswith("or use the linear model alone (members=linear), which is faster")
    assert steps([0, 1, 2] * 2, [0, 1, 2] * 2)[0].why == (
        "With 6 rows accuracy is known to ±20 points; four times as many halve that"
    )


def test_labels_have_their_worst_named_and_there_are_never_more_than_three() -> None:
    marks_nC = np.zeros((60, 3), dtype=bool)
    marks_nC[:30, 0] = marks_nC[20:40, 1] = True
    given_nC = marks_nC.copy()
    given_nC[20:30, 1] = False
    outcomes = Outcomes.of(marks_nC, given_nC, np.where(given_nC, 0.9, 0.1))
    leads = {LINEAR: {"micro_f1": Interval(-0.1, -0.2, -0.01)}}
    members = {NETWORK: {"micro_f1": Interval(0.8, 0.78, 0.82)}}
    training = {"train": {"micro_f1": 0.99}, "best": {}, "epochs": 3}
    stored = LogitStore(rows_of([0] * 60), NAMES, {}, {})
    found = advise(Judged(None, stored, outcomes.scores(NAMES, [0.5] * 3), outcomes, None, members, leads), training)
    assert len(found) == MOST
    assert found[0] == Advice("Label more rows of joy", "It has the lowest F1, 0.67 on 20 rows")
    assert found[2].why == "In micro F1 the linear model is better"
