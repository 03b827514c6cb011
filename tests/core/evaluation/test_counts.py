"""Rows that come a chunk at a time and are counted: the figures are those of all rows held."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import f1_score

from manyheads.evaluation import calibration as counts
from manyheads.evaluation.calibration import Cells, Sums
from manyheads.evaluation.metrics import (
    AnswerTally,
    ClassTally,
    LabelPart,
    LabelTally,
    change_of_answers,
    score,
    score_answers,
    score_labels,
)
from tests.core.evaluation.test_scores import some_rows

NAMES = ["a", "b", "c", "d"]


def chunked(tally, step: int, *of_rows):
    for start in range(0, len(of_rows[0]), step):
        tally.add(*(one[start : start + step] for one in of_rows))
    return tally


def some_labels(n: int, seed: int = 0):
    random = np.random.default_rng(seed)
    marks = random.random((n, 4)) < [0.5, 0.3, 0.2, 0.1]
    return marks, np.clip(0.45 * marks + random.uniform(0, 0.55, (n, 4)), 1e-6, 1 - 1e-6)


def alike(found, expected, width: float = 0.2) -> None:
    """Values are the same, and the ends of intervals differ by what resamples do."""
    assert list(found) == list(expected)
    for name, one in expected.items():
        assert found[name].value == pytest.approx(one.value, abs=1e-9), name
        most = width * (one.high - one.low) + 1e-9
        assert abs(found[name].low - one.low) < most, name
        assert abs(found[name].high - one.high) < most, name


def test_few_rows_in_chunks_are_drawn_as_all_at_once() -> None:
    labels, probabilities, names = some_rows(700, 4)
    found, expected = (
        chunked(ClassTally(4), 64, labels, probabilities),
        score(labels, probabilities, names),
    )
    alike(found.scores(names).figures, expected.figures, width=0)
    marks, likely = some_labels(300)
    whole = score_labels(marks, likely, NAMES, [0.5] * 4)
    alike(chunked(LabelTally([0.5] * 4), 7, marks, likely).scores(NAMES).figures, whole.figures, width=0)


def test_many_rows_are_counted_to_the_same_figures_and_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, probabilities, names = some_rows(4000, 4)
    whole = score(labels, probabilities, names)
    monkeypatch.setattr(counts, "EXACT", 100)
    found = chunked(ClassTally(4), 64, labels, probabilities).scores(names)
    alike(found.figures, whole.figures)
    assert (found.confusion, found.per_class, found.n_rows) == (whole.confusion, whole.per_class, 4000)
    for one, expected in zip(found.reliability, whole.reliability, strict=True):
        assert (one.n_rows, one.confidence, one.accuracy) == pytest.approx(
            (expected.n_rows, expected.confidence, expected.accuracy)
        )


def test_changes_of_many_rows_stay_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, probabilities, _ = some_rows(3000, 4)
    before = probabilities.argmax(1)
    after = np.where(np.random.default_rng(1).random(3000) < 0.1, 0, before)
    (whole,) = change_of_answers(labels, before, [after], 4)
    marks, likely = some_labels(3000)
    (of_labels,) = change_of_answers(marks, likely > 0.5, [likely > 0.4], 4)
    monkeypatch.setattr(counts, "EXACT", 100)
    alike(chunked(AnswerTally(4), 128, labels, before, after).figures()[1], whole)
    found = chunked(AnswerTally(4), 128, marks, likely > 0.5, likely > 0.4).figures()[1]
    alike(found, of_labels)


def test_labels_of_many_rows_are_drawn_by_their_covariances(monkeypatch: pytest.MonkeyPatch) -> None:
    marks, likely = some_labels(3000)
    whole = score_labels(marks, likely, NAMES, [0.5] * 4)
    monkeypatch.setattr(counts, "EXACT", 100)
    found = chunked(LabelTally([0.5] * 4), 128, marks, likely).scores(NAMES)
    alike(found.figures, whole.figures)
    assert found.per_class == whole.per_class
    sums, random = Sums(), np.random.default_rng(0).normal(3, 1, (2000, 3))
    random[:, 2] += random[:, 0]
    sums.add(random)
    np.testing.assert_allclose(sums.total(), random.sum(0))
    np.testing.assert_allclose(sums.covariances(np.eye(3)), 2000 * np.cov(random.T, ddof=0))


def test_cells_count_what_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "EXACT", 10)
    random, cells = np.random.default_rng(0), Cells(1)
    keys, values = random.integers(5, size=200), random.normal(size=(200, 1))
    for start in range(0, 200, 9):
        cells.add(keys[start : start + 9], values[start : start + 9])
    key_P, count_P, mean_PV, variance_PV = cells.get()
    found = Counter[int]()
    for key, n in zip(key_P.tolist(), count_P.tolist(), strict=True):
        found[key] += n
    assert found == Counter(keys.tolist())
    assert mean_PV.T @ count_P == pytest.approx(values.sum())
    assert (variance_PV + mean_PV**2).T @ count_P == pytest.approx((values**2).sum())


def test_a_million_rows_take_the_memory_of_few() -> None:
    labels, probabilities, names = some_rows(20_000, 3)
    tally = ClassTally(3)
    tracemalloc.start()
    for _ in range(50):
        tally.add(labels, probabilities)
    found = tally.scores(names)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n_rows == 1_000_000
    assert found.figures["macro_f1"].value == pytest.approx(
        score(labels, probabilities, names).figures["macro_f1"].value
    )
    assert peak < 60e6


def test_answers_by_many_labels_take_the_memory_of_few_rows() -> None:
    random = np.random.default_rng(0)
    marks, given = random.random((2, 60_000, 100)) < 0.05
    tracemalloc.start()
    found = score_answers(marks, given, 100), change_of_answers(marks, given, [~given], 100)[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[0]["micro_f1"].value == pytest.approx(f1_score(marks, given, average="micro"))
    assert found[1]["accuracy"].value == (marks == ~given).all(1).mean() - (marks == given).all(1).mean()
    assert peak < 400e6  # all numbers of all rows twice are 290


def test_parts_of_rows_with_labels_come_twice_and_none_is_held() -> None:
    marks, likely = some_labels(6000)
    given = likely > 0.5
    whole, part = score_answers(marks, given, 4), LabelPart(4)
    for add in (part.add, part.again):
        for start in range(0, 6000, 64):
            add(marks[start : start + 64], given[start : start + 64])
    alike(part.figures()[0], whole, width=1e-6)
    assert sum(of.nbytes for of in vars(part).values() if isinstance(of, np.ndarray)) < 2000


def test_a_loss_that_is_the_same_in_all_rows_has_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "EXACT", 0)
    sums = Sums()
    for n in (70_001, 3):
        sums.add(np.full((n, 2), 0.1))
    assert (sums.mean(0).low, sums.mean(0).high) == pytest.approx((0.1, 0.1))


def test_many_rows_at_an_edge_are_in_one_bin() -> None:
    tally, labels = ClassTally(2), np.arange(5000) % 2
    for _ in range(20):
        tally.add(labels, np.tile([0.6, 0.4], (5000, 1)))
    (only,) = tally.scores(["a", "b"]).reliability
    assert (only.low, only.n_rows, only.accuracy) == (0.6, 100_000, 0.5)
