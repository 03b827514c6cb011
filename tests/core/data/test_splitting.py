"""Carving and shortening: by class, by seed, equal texts together."""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.config import DataConfig
from manyheads.data.rows import Rows
from manyheads.data.sources import read_splits
from manyheads.data.splits import carve, shuffled, stratified_sample


def rows_of(pairs: list[tuple[str, int]]) -> Rows:
    return Rows([t for t, _ in pairs], None, [n for _, n in pairs], "all.csv", range(2, len(pairs) + 2))


some_rows = st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.integers(0, 3)), min_size=1, max_size=80).map(
    rows_of
)


@settings(deadline=None)  # numpy is imported on the way
@given(
    some_rows, st.none() | st.lists(st.integers(0, 20), min_size=80, max_size=80), st.floats(0.01, 0.9), st.integers()
)
def test_a_carve_loses_nothing_and_parts_no_equal_texts_and_no_group(rows, groups, share, seed):
    together = rows.texts
    if groups is not None:
        rows.groups = np.array(groups[: len(rows)])
        together = rows.groups.tolist()
    try:
        kept, carved = carve(rows, share, seed, "validation")
    except ValueError:
        assert len(set(together)) <= len(set(rows.labels))
        return
    assert sorted([*kept.numbers, *carved.numbers]) == list(rows.numbers)
    assert list(kept.numbers) == sorted(kept.numbers)
    sides = [{together[number - 2] for number in part.numbers} for part in (kept, carved)]
    assert sides[0].isdisjoint(sides[1])
    assert len(kept) >= 1
    assert len(carved) >= 1


@pytest.mark.parametrize(("n_classes", "each"), [(150, 4), (77, 5), (20, 4), (10, 5), (3, 2)])
def test_of_small_classes_a_carve_is_still_the_share(n_classes, each):
    """Rounded class by class it would be nothing."""
    rows = rows_of([(f"{label} {n}", label) for label in range(n_classes) for n in range(each)])
    rest, test = carve(rows, 0.1, 0, "test")
    kept, validation = carve(rest, 1 / 9, 0, "validation")
    wanted = max(1, round(0.1 * len(rows)))
    assert len(test) == wanted
    assert len(validation) == pytest.approx(wanted, abs=1)
    assert set(kept.labels) == set(range(n_classes))
    assert max(Counter(test.labels).values()) == 1


def test_a_carve_is_stratified_and_depends_on_seed_and_purpose_alone():
    rows = rows_of([(f"text {i}", int(i % 10 == 0)) for i in range(1000)])
    _, carved = carve(rows, 0.2, 0, "validation")
    assert Counter(carved.labels) == {0: 180, 1: 20}
    assert list(carve(rows, 0.2, 0, "validation")[1].numbers) == list(carved.numbers)
    assert list(carve(rows, 0.2, 1, "validation")[1].numbers) != list(carved.numbers)
    assert list(carve(rows, 0.2, 0, "test")[1].numbers) != list(carved.numbers)
    assert list(carved.numbers)[:5] == [3, 10, 12, 15, 17]  # the same on every machine


def test_a_class_of_one_row_stays():
    rows = rows_of([*((f"a{i}", 0) for i in range(10)), ("b", 1)])
    kept, carved = carve(rows, 0.5, 0, "validation")
    assert set(kept.labels) == {0, 1}
    assert set(carved.labels) == {0}


def test_too_few_rows_are_refused():
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        carve(rows_of([("a", 0), ("b", 1)]), 0.1, 0, "validation")
    assert str(caught.value) == (
        "all.csv: 2 rows are too few to carve a validation split out of them: give a file for each split, or more rows"
    )


@pytest.mark.parametrize(
    ("groups", "what", "remedy"),
    [(None, "2 texts", "check data.text, the column of the text, or"), ([7, 7, 7, 7], "1 group", "give a file")],
)
def test_rows_that_stay_together_are_said_to_be_few(groups, what, remedy):
    rows = rows_of([("a", 0), ("b", 1), ("a", 0), ("b", 1)])
    rows.groups = groups
    with pytest.raises(
        ValueError, match=rf"^all.csv: 4 rows of {what} are too few to carve a test split out of them: {remedy}"
    ):
        carve(rows, 0.1, 0, "test")


@settings(deadline=None)  # numpy is imported on the way
@given(some_rows, st.integers(0, 40), st.integers(0, 9))
def test_shortening_keeps_classes_where_they_fit(rows, n_rows, seed):
    short = stratified_sample(rows, n_rows, seed)
    assert len(short) == (min(n_rows, len(rows)) if n_rows else len(rows))
    assert list(short.numbers) == sorted(short.numbers)
    if n_rows >= len(set(rows.labels)):
        assert set(short.labels) == set(rows.labels)


def test_the_seed_of_the_split_wins_over_that_of_the_run(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"row {n},{'ab'[n % 2]}\n" for n in range(60)))

    def validation(seed, split_seed):
        data = DataConfig(source="files", path=str(path), split_seed=split_seed)
        return read_splits(data, seed).validation.texts

    assert validation(5, 3) == validation(3, None) == validation(3, 3)
    assert validation(5, None) != validation(3, None)


def test_labels_that_are_all_different_are_no_classes(tmp_path, write, complaint):
    path = write(tmp_path / "all.csv", [(f"text {at}", f"id{at}") for at in range(300)])
    assert complaint(DataConfig(path=str(path))) == (
        "all.csv has 300 labels, each of one text alone, so that nothing can be learnt from them: check data.label, "
        "the column of the label"
    )


@pytest.mark.parametrize(
    ("n_rows", "key", "digest"),
    [
        (17, "0 folds", "90f8d95a8f18a948"),
        (20_000, "0 validation 1", "5dfa9d4443b84da3"),
        (65_536, "é 7", "50add31e69ecf0ff"),
        (70_000, "3 rows 0", "1fe9d2002368e58c"),
    ],
)
def test_rows_are_drawn_in_the_order_of_earlier_runs(n_rows, key, digest):
    """Digests of orders that were drawn when numpy still shuffled more than 16,384 rows."""
    order = shuffled(np.arange(7, 7 + n_rows), key)
    assert sorted(order) == [*range(7, 7 + n_rows)]
    assert hashlib.sha256(json.dumps(order).encode()).hexdigest()[:16] == digest
