"""Rows that come a chunk at a time: the figures are those of all rows at once, and memory is bounded."""

import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import f1_score

from manyheads.evaluation import metrics
from manyheads.evaluation.metrics import (
    Outcomes,
    change_of_answers,
    covariances_of,
    score,
    score_answers,
    score_labels,
)
from tests.core.evaluation.test_scores import some_rows

NAMES = ["a", "b", "c", "d"]


def chunked(step: int, *of_rows) -> Outcomes:
    starts = range(0, len(of_rows[0]), step)
    chunks = (Outcomes.of(*(one[start : start + step] for one in of_rows)) for start in starts)
    return Outcomes.joined(len(of_rows[0]), chunks)


def some_labels(n: int, seed: int = 0):
    random = np.random.default_rng(seed)
    marks = random.random((n, 4)) < [0.5, 0.3, 0.2, 0.1]
    return marks, np.clip(0.45 * marks + random.uniform(0, 0.55, (n, 4)), 1e-6, 1 - 1e-6)


def alike(found, expected) -> None:
    assert list(found) == list(expected)
    for name, one in expected.items():
        assert (found[name].value, found[name].low, found[name].high) == pytest.approx(
            (one.value, one.low, one.high), abs=1e-9
        ), name


def test_chunks_of_rows_have_the_figures_of_all_at_once() -> None:
    labels, probabilities, names = some_rows(700, 4)
    found = chunked(64, labels, probabilities.argmax(1), probabilities).scores(names)
    expected = score(labels, probabilities, names)
    alike(found.figures, expected.figures)
    assert (found.confusion, found.per_class, found.n_rows) == (expected.confusion, expected.per_class, 700)
    for one, other in zip(found.reliability, expected.reliability, strict=True):
        assert (one.n_rows, one.confidence, one.accuracy) == pytest.approx(
            (other.n_rows, other.confidence, other.accuracy)
        )
    marks, likely = some_labels(300)
    whole = score_labels(marks, likely, NAMES, [0.5] * 4)
    found = chunked(7, marks, likely >= 0.5, likely).scores(NAMES, [0.5] * 4)
    alike(found.figures, whole.figures)
    assert found.per_class == whole.per_class


def test_changes_are_paired_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, probabilities, _ = some_rows(3000, 4)
    before = probabilities.argmax(1)
    after = np.where(np.random.default_rng(1).random(3000) < 0.1, 0, before)
    marks, likely = some_labels(3000)

    def changes():
        (of_classes,) = change_of_answers(labels, before, [after], 4)
        (of_labels,) = change_of_answers(marks, likely > 0.5, [likely > 0.4], 4)
        return of_classes, of_labels

    whole = changes()
    monkeypatch.setattr(metrics, "CHUNK", 500)
    for found, expected in zip(changes(), whole, strict=True):
        alike(found, expected)


@pytest.mark.parametrize("multi", [False, True])
def test_covariances_are_those_of_what_each_row_adds(multi: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random, (marks, likely) = np.random.default_rng(0), some_labels(2000)
    labels, answers = (marks, likely > 0.5) if multi else random.integers(4, size=(2, 2000))
    slopes = random.normal(size=(13, 3))
    monkeypatch.setattr(metrics, "CHUNK", 100)
    found = covariances_of(labels, [answers], [slopes])
    of_row = []
    for label, answer in zip(labels, answers, strict=True):
        had, given = (label, answer) if multi else (np.arange(4) == label, np.arange(4) == answer)
        of_row.append(np.concatenate([had & given, given, had, [(had == given).all()]]) @ slopes)
    np.testing.assert_allclose(found, 2000 * np.cov(np.array(of_row).T, ddof=0))


def test_many_rows_take_the_memory_of_few() -> None:
    labels, probabilities, names = some_rows(20_000, 50)
    answers = probabilities.argmax(1)
    tracemalloc.start()
    found = Outcomes.joined(400_000, (Outcomes.of(labels, answers, probabilities) for _ in range(20))).scores(names)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n_rows == 400_000
    assert found.figures["macro_f1"].value == pytest.approx(
        score(labels, probabilities, names).figures["macro_f1"].value
    )
    assert peak < 60e6  # all probabilities are 160


@pytest.mark.slow  # those by classes do above
def test_answers_by_many_labels_take_the_memory_of_few_rows() -> None:
    random = np.random.default_rng(0)
    marks, given = random.random((2, 60_000, 100)) < 0.05
    tracemalloc.start()
    found = score_answers(marks, given, 100), change_of_answers(marks, given, [~given], 100)[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[0]["micro_f1"].value == pytest.approx(f1_score(marks, given, average="micro"))
    assert found[1]["accuracy"].value == (marks == ~given).all(1).mean() - (marks == given).all(1).mean()
    assert peak < 100e6  # all numbers of all rows twice are 290


def test_many_rows_at_an_edge_are_in_one_bin() -> None:
    labels, answers = np.arange(5000) % 2, np.zeros(5000, dtype=int)
    parts = [Outcomes.of(labels, answers, np.tile([0.6, 0.4], (5000, 1))) for _ in range(20)]
    (only,) = Outcomes.joined(100_000, parts).scores(["a", "b"]).reliability
    assert (only.low, only.n_rows, only.accuracy) == (0.6, 100_000, 0.5)
