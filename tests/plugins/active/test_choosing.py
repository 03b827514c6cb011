"""What is chosen, against formulas written out here and SciPy."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from manyheads.data.rows import Rows
from manyheads.plugins.active.choosing import FAR, SMOOTH, closeness, divergence, plus_plus, strange, unit
from manyheads.plugins.active.config import By
from manyheads.plugins.active.selection import choose


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def softmax(logits_nC: np.ndarray) -> np.ndarray:
    return np.exp(logits_nC) / np.exp(logits_nC).sum(1, keepdims=True)


def test_the_closest_answers_have_the_smallest_margin():
    p_nC = softmax(drawn(0, 40, 5))
    ordered = [sorted(row, reverse=True) for row in p_nC]
    assert np.allclose(closeness(p_nC), [1 - (first - second) for first, second, *_ in ordered])
    assert closeness(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist() == [1, 0]


@given(st.floats(0, 1), st.floats(1e-6, 1 - 1e-6))
def test_a_label_is_closest_at_its_threshold(probability, threshold):
    (found,) = closeness(np.array([[probability]]), np.array([threshold]))
    assert 0 <= found <= 1
    if probability == threshold:
        assert found == 1
    elif probability in (0, 1):  # as far from it as that side is wide
        assert found == pytest.approx(0, abs=1e-9)
    other = closeness(np.array([[probability, threshold]]), np.array([threshold, threshold]))
    assert other.tolist() == [1]  # that of the label that is closest


def test_disagreement_is_that_of_jensen_and_shannon():
    one_nC, other_nC = softmax(drawn(1, 30, 4)), softmax(drawn(2, 30, 4))
    expected = jensenshannon(one_nC, other_nC, base=2, axis=1) ** 2
    assert np.allclose(divergence(one_nC, other_nC, multi=False), expected)
    assert np.allclose(divergence(other_nC, one_nC, multi=False), expected)
    assert divergence(np.eye(3), np.eye(3)[[1, 2, 0]], multi=False).tolist() == [1, 1, 1]
    of_labels = [
        max(
            divergence(np.array([[p, 1 - p]]), np.array([[q, 1 - q]]), multi=False)[0]
            for p, q in zip(*row, strict=True)
        )
        for row in zip(one_nC, other_nC, strict=True)
    ]
    assert np.allclose(divergence(one_nC, other_nC, multi=True), of_labels)


@pytest.mark.parametrize("by_errors", [False, True])
def test_texts_are_drawn_by_their_distance_from_those_before(by_errors):
    """The same draws over the gradients themselves, as vectors that are written out."""
    vectors_nD = unit(drawn(3, 60, 7))
    p_nC = softmax(drawn(4, 60, 3))
    errors_nC = np.eye(3)[p_nC.argmax(1)] - p_nC if by_errors else np.ones((60, 1))
    gradients_nM = (errors_nC[:, :, None] * vectors_nD[:, None, :]).reshape(60, -1)
    draw, expected = np.random.default_rng(5), list[int]()
    weights_n = (gradients_nM**2).sum(1)
    for _ in range(12):
        expected.append(int(draw.choice(60, p=weights_n / weights_n.sum())))
        distances_nk = ((gradients_nM[:, None] - gradients_nM[expected]) ** 2).sum(2)
        weights_n = distances_nk.min(1)
    assert plus_plus(vectors_nD, 12, 5, errors_nC if by_errors else None) == expected


def test_a_text_like_a_known_one_waits_for_all_others():
    vectors_nD = unit(np.repeat(np.eye(4), 5, axis=0))
    assert {at // 5 for at in plus_plus(vectors_nD, 3, 0, known=[vectors_nD[:1]])} == {1, 2, 3}
    everything = plus_plus(vectors_nD, 100, 0, known=[vectors_nD[:1]])
    assert sorted(everything) == list(range(20))
    assert {at // 5 for at in everything[:3]} == {1, 2, 3}
    assert plus_plus(vectors_nD[:0], 3, 0) == []


def test_more_known_texts_than_are_compared_at_once():
    known_mD, vectors_nD = unit(drawn(6, 2500, 3)), unit(drawn(7, 10, 3))
    nearest_n = ((vectors_nD[:, None] - known_mD) ** 2).sum(2).min(1)
    first = np.random.default_rng(1).choice(10, p=nearest_n / nearest_n.sum())
    assert plus_plus(vectors_nD, 1, 1, known=[known_mD]) == [first]


def test_texts_of_other_words_are_strange():
    """Against the definition, word by word."""
    draw = np.random.default_rng(8)
    known = [draw.integers(0, 20, 6).tolist() for _ in range(40)]
    texts = [draw.integers(0, 20, 1 + at % 9).tolist() for at in range(100)] + [[27, 28, 29], []]
    counts = Counter(token for text in known for token in text)
    total = sum(counts.values()) + 30 * SMOOTH
    means = [np.mean([-np.log((counts[token] + SMOOTH) / total) for token in text] or [0.0]) for text in texts]
    low, high = np.quantile(means, (0.25, 0.75))
    ids_N, offsets = np.array([token for text in texts for token in text]), np.cumsum([0, *map(len, texts)])
    known_V = np.bincount([token for text in known for token in text], minlength=30)
    found = strange(ids_N, offsets, known_V)
    assert found.tolist() == [mean > high + FAR * (high - low) for mean in means]
    assert found[100]
    assert not found[101]
    assert not strange(ids_N[-3:], np.array([0, 3]), known_V).any()  # too few to say


def test_vectors_of_length_one():
    assert np.allclose(np.linalg.norm(unit(drawn(9, 5, 3)), axis=1), 1)
    assert unit(np.zeros((1, 3))).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(
    ("by", "why"),
    [("uncertainty", "b (0.20) or c (0.50)"), ("disagreement", "c: network (0.10), linear model (0.90)")],
)
def test_the_label_for_which_a_text_is_chosen_is_named(by, why):
    """Not the one whose probability differs least from its threshold, which is a: it is half way to 1, b nearer."""
    p_C, network_C, linear_C = torch.tensor([[[0.95, 0.2, 0.5]], [[0.95, 0.2, 0.1]], [[0.95, 0.2, 0.9]]]).logit()
    classifier = SimpleNamespace(
        multi=True,
        labels=["a", "b", "c"],
        thresholds=[0.9, 0.3, 0.99],
        probabilities=torch.sigmoid,
        as_read=list,
        baseline=lambda home: SimpleNamespace(logits=lambda texts, pairs: linear_C),
    )
    rows = Rows(["x"], None, [0], "x.csv", [1])
    answers = {"logits": p_C, "network": network_C, "vectors": torch.ones(1, 2)}
    config: Any = SimpleNamespace(by=By[by], n=1)
    assert choose(config, classifier, None, rows, answers, []) == ([0], [why])  # pyright: ignore[reportArgumentType]
