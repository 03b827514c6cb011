"""Folds hold every row once and part no group; shares of the training rows are nested; both go by class."""

import csv
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.config import DataConfig, Source
from manyheads.data.rows import Rows
from manyheads.data.sources import read_splits
from manyheads.data.splits import deal_folds, shorten


def rows_of(labels, texts=None, groups=None):
    texts = texts or [f"text {at}" for at in range(len(labels))]
    return Rows(texts, None, labels, "all.csv", range(2, len(labels) + 2), groups=groups)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=10, max_size=120), st.integers(2, 10), st.integers(0, 99))
def test_rows_alone_are_dealt_within_one_of_each_other(labels, n_folds, seed):
    fold_n = deal_folds(rows_of(labels), n_folds, seed)
    assert set(fold_n.tolist()) == {*range(1, n_folds + 1)}
    for part in (fold_n, *(fold_n[np.array(labels) == one] for one in set(labels))):
        counts = [int((part == fold).sum()) for fold in range(1, n_folds + 1)]
        assert max(counts) - min(counts) <= 1
    assert (fold_n == deal_folds(rows_of(labels), n_folds, seed)).all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), min_size=30, max_size=120), st.integers(0, 99))
def test_no_group_and_no_text_is_in_two_folds(pairs, seed):
    labels, groups = [label for label, _ in pairs], [group for _, group in pairs]
    if len({*groups}) < 3:
        return
    for rows in (rows_of(labels, groups=np.array(groups)), rows_of(labels, [f"text {one}" for one in groups])):
        fold_n = deal_folds(rows, 3, seed)
        assert len({*zip(groups, fold_n.tolist(), strict=True)}) == len({*groups})
        assert {*fold_n.tolist()} == {1, 2, 3}


def test_groups_of_one_class_are_spread_like_those_of_the_reference():
    """scikit-learn's splitter, which is as greedy, parts classes no more evenly."""
    from sklearn.model_selection import StratifiedGroupKFold

    draw = np.random.default_rng(0)
    groups = draw.integers(0, 60, 600)
    labels = (groups % 3 + (draw.random(600) < 0.2)) % 3

    def unevenness(fold_n):
        return sum(np.ptp([((fold_n == fold) & (labels == one)).sum() for fold in range(1, 6)]) for one in range(3))

    theirs = np.zeros(600, dtype=int)
    for fold, (_, own) in enumerate(
        StratifiedGroupKFold(5, shuffle=True, random_state=0).split(labels, labels, groups)
    ):
        theirs[own] = fold + 1
    ours = deal_folds(rows_of(labels.tolist(), groups=groups), 5, 0)
    assert unevenness(ours) <= unevenness(theirs) + 6


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=120), st.integers(1, 120), st.integers(1, 120), st.integers(0, 9)
)
def test_shares_are_nested_and_by_class(labels, n_rows, more, seed):
    rows, (few, many) = rows_of(labels), sorted((n_rows, more))
    smaller, larger = shorten(rows, few, seed), shorten(rows, many, seed)
    assert {*smaller.numbers} <= {*larger.numbers}
    counts, whole = Counter(smaller.labels), Counter(labels)
    for label, n in whole.items():
        assert abs(counts[label] - n * len(smaller) / len(labels)) <= len(whole)


@pytest.fixture
def place(tmp_path):
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {at}", "ab"[at % 2], f"author {at % 17}", at) for at in range(120)]
        csv.writer(file).writerows([("text", "label", "author", "at"), *rows])
    return tmp_path


def data_of(place, **more):
    return DataConfig(source=Source.files, path=str(place / "rows.csv"), cache=str(place / "cache"), **more)


def test_each_row_is_judged_once_and_never_by_a_model_that_learnt_from_it(place):
    judged = []
    for fold in range(1, 5):
        splits = read_splits(data_of(place, folds=4, fold=fold), 3)
        parts = [[*rows.numbers] for rows in splits.by_name().values()]
        assert sorted(number for part in parts for number in part) == [*range(2, 122)]
        assert splits.test is not None
        judged += [*splits.test.numbers]
        assert len(splits.test) == 30
        unread = read_splits(data_of(place, folds=4, fold=fold), 3, with_test=False)
        assert [[*unread.train.numbers], [*unread.validation.numbers]] == parts[:2]
    assert sorted(judged) == [*range(2, 122)]
    every = read_splits(data_of(place, folds=4, fold=0), 3)
    assert every.test is None
    assert len(every.train) + len(every.validation) == 120
    assert len(read_splits(data_of(place, folds=4), 3).train) == 120
    assert len(read_splits(data_of(place, folds=4, rows=40), 3).train) == 40


def test_authors_are_in_one_split_alone(place):
    for more in ({"folds": 4, "fold": 2}, {}):
        splits = read_splits(data_of(place, group="author", **more), 3, with_unread=True)
        authors = [{*rows.unread.columns()["author"]} for rows in splits.by_name().values()]  # pyright: ignore
        assert len(authors) == 3
        assert sum(map(len, authors)) == 17


def test_a_test_split_stays_unread(place):
    (place / "test.csv").write_text("text,label\nbroken")
    (place / "rows.csv").rename(place / "train.csv")
    splits = read_splits(replace(data_of(place, folds=3, fold=1), path=str(place)), 0)
    assert splits.test is not None
    assert splits.test.source == "train.csv"


def test_shares_leave_the_other_splits_as_they_are(place):
    whole, part, less, other = (
        read_splits(data_of(place, train_share=share, split_seed=0), seed)
        for share, seed in ((1.0, 0), (0.5, 0), (0.25, 0), (0.5, 1))
    )
    assert (len(whole.train), len(part.train), len(less.train)) == (96, 48, 24)
    assert {*less.train.numbers} < {*part.train.numbers} < {*whole.train.numbers}
    assert {*part.train.numbers} != {*other.train.numbers}
    for one in (part, less, other):
        assert [*one.validation.numbers] == [*whole.validation.numbers]
        assert one.test is not None
        assert whole.test is not None
        assert [*one.test.numbers] == [*whole.test.numbers]
        assert Counter(one.train.labels).keys() == {0, 1}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"folds": 1}, "data.folds=1 leaves nothing to learn from: use two folds or more, such as data.folds=5"),
        ({"folds": 3, "fold": 4}, "data.fold=4 is more than the data.folds=3 there are: choose 1 to 3"),
        (
            {"folds": 3, "fold": 1, "group": "writer"},
            "data.group=writer is no further column of rows.csv: it has author, at",
        ),
        (
            {"folds": 50, "fold": 1, "group": "author"},
            "data.folds=50, but rows.csv has 17 different groups: use fewer folds",
        ),
        (
            {"folds": 3, "streaming": True},
            "data.folds=3 parts rows that are all at hand, which those of data.streaming=true are not: remove one of "
            "them",
        ),
    ],
)
def test_what_cannot_be_dealt_is_refused(place, more, said):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - compared whole
        read_splits(data_of(place, **more), 0)
    assert str(refused.value) == said
