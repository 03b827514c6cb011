"""The cheap models: what they answer, and that they never fail on odd rows."""

import numpy as np
import pytest

from manyheads.data.rows import Rows
from manyheads.evaluation.answers import LINEAR, MAJORITY, judge_baselines, lead_words, majority, strongest
from manyheads.evaluation.scores import Interval
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import LinearBaseline


def rows(texts: list[str], labels: list[int], pairs: list[str] | None = None) -> Rows:
    return Rows(texts=texts, pairs=pairs, labels=labels, source="rows.csv", numbers=list(range(2, 2 + len(texts))))


TRAIN = rows(["good film", "fine film", "a bad film", "awful, bad", "good good"], [1, 1, 0, 0, 1])
TEST = rows(["good", "so bad"], [1, 0])


def test_majority_is_the_most_frequent_class_of_train() -> None:
    assert majority(TRAIN) == 1
    assert majority(rows(["a", "b"], [1, 0])) == 0


def linear(train: Rows = TRAIN, n_classes: int = 2) -> LinearBaseline:
    model = fit_linear(train, n_classes)
    assert model is not None
    return LinearBaseline(model)


def test_both_are_judged_with_intervals() -> None:
    answers = linear().logits(TEST.texts, None).argmax(-1).tolist()
    constant, tfidf = found = judge_baselines(TEST, 2, {MAJORITY: [1, 1], LINEAR: answers}, n_resamples=50)
    assert (constant.name, tfidf.name) == (MAJORITY, LINEAR)
    assert (constant.scores.accuracy.value, tfidf.scores.accuracy.value) == (0.5, 1.0)
    assert constant.scores.accuracy.low < 0.5 < constant.scores.accuracy.high
    assert strongest(found, "accuracy") is tfidf
    assert strongest([tfidf, constant], "macro_f1") is tfidf
    assert strongest([], "accuracy") is None


def test_the_lead_of_a_model_is_paired() -> None:
    draw = np.random.default_rng(3)
    labels = draw.integers(2, size=60).tolist()
    rows_60 = rows(["good film" if draw.random() < 0.5 else "bad film" for _ in labels], labels)
    model = [label if draw.random() < 0.9 else 1 - label for label in labels]
    theirs = linear().logits(rows_60.texts, None).argmax(-1).tolist()
    (tfidf,) = judge_baselines(rows_60, 2, {LINEAR: theirs}, model, n_resamples=400, seed=5)
    right = np.equal(model, labels).astype(float) - np.equal(theirs, labels)
    again = np.random.default_rng(5)
    means = [right[again.integers(60, size=60)].mean() for _ in range(400)]
    assert tfidf.lead is not None
    assert tfidf.lead.accuracy.value == pytest.approx(right.mean())
    added = 2 / 62**2 + 2 * 60 * right.mean() ** 2 / 62**3
    half = 1.959964 * np.sqrt(np.var(means) * (60 / 62) ** 2 + added)
    middle = right.mean() * 60 / 62
    assert (tfidf.lead.accuracy.low, tfidf.lead.accuracy.high) == pytest.approx((middle - half, middle + half))


@pytest.mark.parametrize(
    ("lead", "words"),
    [
        (Interval(0.031, 0.02, 0.042), "beats the words by 3.1 points (95 % interval 2.0 to 4.2)"),
        (Interval(-0.05, -0.06, -0.01), "falls short of the words by 5.0 points (95 % interval -6.0 to -1.0)"),
        (Interval(0.01, 0.0, 0.02), "cannot be told from the words: +1.0 points (95 % interval 0.0 to 2.0)"),
    ],
)
def test_a_lead_is_claimed_where_its_interval_leaves_out_zero(lead: Interval, words: str) -> None:
    assert lead_words(lead, "words") == words
