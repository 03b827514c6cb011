"""Figures by weights and votes, and the agreement of annotators, against NumPy and counts by hand."""

import numpy as np
import pytest

from manyheads.data.rows import Rows
from manyheads.evaluation.answered import LogitStore
from manyheads.evaluation.classification import outcomes_of
from manyheads.evaluation.intervals import share_interval
from manyheads.plugins.judge.annotations import agreement, by_votes, by_weights
from manyheads.runs.summary import NETWORK

NAMES = ["a", "b", "c"]


def drawn(n=300, *, multi=False, **further):
    random = np.random.default_rng(0)
    labels, logits = random.integers(3, size=n), random.normal(size=(n, 3)).astype(np.float32)
    logits[np.arange(n), labels] += 1
    sets = [(int(label),) for label in labels] if multi else None
    rows = Rows(["x"] * n, None, labels.tolist(), "x.csv", range(n), sets=sets, **further)
    stored = LogitStore(rows, NAMES, {NETWORK: [0.5] * 3 if multi else None}, {NETWORK: logits})
    return stored, outcomes_of(stored, NETWORK), logits.astype(np.float64), labels


@pytest.mark.parametrize("multi", [False, True])
def test_figures_by_weights(multi):
    weights = np.random.default_rng(1).exponential(size=300)
    stored, outcomes, logits, labels = drawn(multi=multi, weights=weights)
    found = by_weights(stored, outcomes)
    assert found is not None
    right = logits.argmax(1) == labels
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(300), labels]
    if multi:
        marks = np.eye(3)[labels].astype(bool)
        right = ((logits >= 0) == marks).all(1)
        losses = np.log1p(np.exp(np.where(marks, -logits, logits))).sum(1)
    assert found.figures["weighted_accuracy"].value == pytest.approx(np.average(right, weights=weights))
    assert found.figures["weighted_loss"].value == pytest.approx(np.average(losses, weights=weights))
    assert found.content["effective_rows"] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert by_weights(drawn(multi=multi)[0], outcomes) is None


def test_equal_weights_change_no_figure_and_rows_without_one_do_not_count():
    stored, outcomes, logits, labels = drawn(weights=np.full(300, 7.0))
    n_right = int((logits.argmax(1) == labels).sum())
    equal, plain = by_weights(stored, outcomes).figures["weighted_accuracy"], share_interval(n_right, 300)
    assert (equal.value, equal.low, equal.high) == pytest.approx((plain.value, plain.low, plain.high))
    stored, outcomes, *_ = drawn(weights=np.full(300, 1e-200))
    tiny = by_weights(stored, outcomes).figures["weighted_accuracy"]
    assert (tiny.value, tiny.low, tiny.high) == pytest.approx((plain.value, plain.low, plain.high))
    stored, outcomes, logits, labels = drawn(weights=np.repeat([1.0, 0.0], 150))
    half = by_weights(stored, outcomes).figures["weighted_accuracy"]
    plain = share_interval(int((logits.argmax(1) == labels)[:150].sum()), 150)
    assert (half.value, half.low, half.high) == pytest.approx((plain.value, plain.low, plain.high))


@pytest.mark.parametrize("seed", range(20))
def test_no_accuracy_is_above_one(seed):
    """A dot product and a sum of the same weights are rounded in other ways."""
    stored, outcomes, *_ = drawn(weights=np.random.default_rng(seed).exponential(size=300))
    outcomes.answers = outcomes.labels
    found = by_weights(stored, outcomes).figures["weighted_accuracy"]
    assert (found.value, found.high) == (1, 1)


def test_the_interval_by_weights_holds_the_true_accuracy():
    """In about 95 of 100 draws of rows, weights and answers."""
    random, held = np.random.default_rng(0), 0
    stored, outcomes, *_ = drawn(200)
    for _ in range(300):
        stored.rows.weights = random.gamma(1.5, size=200)
        outcomes.answers = np.where(random.random(200) < 0.8, outcomes.labels, (outcomes.labels + 1) % 3)
        interval = by_weights(stored, outcomes).figures["weighted_accuracy"]
        held += interval.low <= 0.8 <= interval.high
    assert 0.92 <= held / 300 <= 0.98


def test_figures_by_votes():
    votes = np.random.default_rng(2).integers(0, 3, size=(300, 3)) + np.array([0, 0, 1])
    shares = (votes / votes.sum(1, keepdims=True)).astype(np.float32)
    stored, outcomes, logits, _ = drawn(probabilities=shares)
    stored.rows.labels = shares.argmax(1).tolist()
    outcomes = outcomes_of(stored, NETWORK)
    found = by_votes(stored, outcomes)
    assert found is not None
    p, q = votes / votes.sum(1, keepdims=True), np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    entropy = -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(1)
    log_loss = -(p * np.log(q)).sum(1)
    most = votes == votes.max(1, keepdims=True)
    tied, answers = most.sum(1) > 1, logits.argmax(1)
    of_answer = votes[np.arange(300), answers]
    expected = {
        "votes_log_loss": log_loss.mean(),
        "votes_kl": (log_loss - entropy).mean(),
        "votes_for_answer": p[np.arange(300), answers].mean(),
        "accuracy_or_tied": (of_answer == votes.max(1)).mean(),
        "accuracy_untied": (votes.argmax(1) == answers)[~tied].mean(),
    }
    assert {name: figure.value for name, figure in found.figures.items()} == pytest.approx(expected, abs=1e-6)
    assert found.content["tied"] == tied.sum() > 0
    assert found.content["votes_entropy"] == pytest.approx(entropy.mean(), abs=1e-6)
    assert found.content["most_votes_for_answer"] == pytest.approx(p.max(1).mean(), abs=1e-6)
    assert by_votes(drawn()[0], outcomes) is None


def reference(votes):
    """Alpha by the matrix of coincidences: Krippendorff (2011), section C."""
    coincidences = np.zeros((votes.shape[1],) * 2)
    for row in votes:
        raters = np.repeat(np.arange(len(row)), row)
        for at, one in enumerate(raters):
            for other_at, other in enumerate(raters):
                if at != other_at:
                    coincidences[one, other] += 1 / (len(raters) - 1)
    of_class = coincidences.sum(1)
    n = of_class.sum()
    observed = n - np.trace(coincidences)
    expected = (n**2 - (of_class**2).sum()) / (n - 1)
    return 1 - observed / expected


def test_agreement_is_krippendorffs():
    """By the coincidences of pairs, and of his example of nominal data in section C: alpha = .743."""
    votes = np.random.default_rng(3).integers(0, 4, size=(80, 3))
    votes = votes[votes.sum(1) > 0]
    several = votes[votes.sum(1) > 1]
    found = agreement((votes / votes.sum(1, keepdims=True)).astype(np.float32), votes.sum(1).astype(np.float32))
    assert found["alpha"]["value"] == pytest.approx(reference(several))
    assert found["alpha"]["low"] < found["alpha"]["value"] < found["alpha"]["high"]
    assert (found["rows"], found["votes"]) == (len(several), several.sum())
    assert found["for_most"] == pytest.approx(several.max(1).sum() / several.sum())
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
    example = np.array([[column.count(label) for label in range(1, 6)] for column in np.array(observers).T.tolist()])
    shares = (example / example.sum(1, keepdims=True)).astype(np.float32)
    assert agreement(shares, example.sum(1).astype(np.float32))["alpha"]["value"] == pytest.approx(0.743, abs=5e-4)
    many = np.array([[40_000, 1], [1, 70_001]])  # whose squares single precision cannot hold
    found = agreement((many / many.sum(1, keepdims=True)).astype(np.float32), many.sum(1).astype(np.float32))
    observed = sum(2 * one * other / (one + other - 1) for one, other in many.tolist())
    by_chance = 2 * 40_001 * 70_002 / (many.sum() - 1)
    assert 1 - found["alpha"]["value"] == pytest.approx(observed / by_chance, rel=1e-6)


def test_agreement_needs_votes_of_two():
    assert agreement(np.array([[0.7, 0.3], [0.5, 0.5]], np.float32), np.ones(2, np.float32)) == {}
    assert agreement(np.array([[1, 0], [0, 1]], np.float32), np.ones(2, np.float32)) == {}
    alike = agreement(np.array([[1, 0], [1, 0]], np.float32), np.full(2, 3, np.float32))
    assert alike["alpha"]["value"] == 1
