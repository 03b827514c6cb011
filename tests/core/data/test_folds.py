"""Folds hold every row once and part no group; shares of the training rows are nested; both go by class."""

import csv
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.config import DataConfig
from manyheads.data.rows import Rows
from manyheads.data.sources import read_splits
from manyheads.data.splits import assign_folds, stratified_sample


def rows_of(labels, texts=None, groups=None):
    texts = texts or [f"text {at}" for at in range(len(labels))]
    return Rows(texts, None, labels, "all.csv", range(2, len(labels) + 2), groups=groups)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=10, max_size=120), st.integers(2, 10), st.integers(0, 99))
def test_rows_alone_are_dealt_within_one_of_each_other(labels, n_folds, seed):
    fold_n = assign_folds(rows_of(labels), n_folds, seed)
    assert set(fold_n.tolist()) == {*range(1, n_folds + 1)}
    for part in (fold_n, *(fold_n[np.array(labels) == one] for one in set(labels))):
        counts = [int((part == fold).sum()) for fold in range(1, n_folds + 1)]
        assert max(counts) - min(counts) <= 1
    assert (fold_n == assign_folds(rows_of(labels), n_folds, seed)).all()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), min_size=30, max_size=120), st.integers(0, 99))
def test_no_group_and_no_text_is_in_two_folds(pairs, seed):
    labels, groups = [label for label, _ in pairs], [group for _, group in pairs]
    if len({*groups}) < 3:
        return
    for rows in (rows_of(labels, groups=np.array(groups)), rows_of(labels, [f"text {one}" for one in groups])):
        fold_n = assign_folds(rows, 3, seed)
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
    ours = assign_folds(rows_of(labels.tolist(), groups=groups), 5, 0)
    assert unevenness(ours) <= unevenness(theirs) + 6


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=120), st.integers(1, 120), st.integers(1, 120), st.integers(0, 9)
)
def test_shares_are_nested_and_by_class(labels, n_rows, more, seed):
    rows, (few, many) = rows_of(labels), sorted((n_rows, more))
    smaller, larger = stratified_sample(rows, few, seed), stratified_sample(rows, many, seed)
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
    return DataConfig(source="files", path=str(place / "rows.csv"), cache=str(place / "cache"), **more)


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


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_a_share_thins_what_is_learnt_and_never_what_is_judged(place, share):
    """Folds are those of all rows, whatever the share; scikit-learn's rule that each row is judged once holds."""
    whole = read_splits(data_of(place, folds=4), 3).train
    of_share = read_splits(data_of(place, folds=4, train_share=share), 3).train
    assert [*of_share.numbers] == [*whole.numbers] == [*range(2, 122)]
    fold_n = assign_folds(of_share, 4, 3)
    for fold in range(1, 5):
        splits = read_splits(data_of(place, folds=4, fold=fold, train_share=share), 3)
        all_learnt = read_splits(data_of(place, folds=4, fold=fold), 3)
        assert splits.test is not None
        assert [*splits.test.numbers] == np.asarray(of_share.numbers)[fold_n == fold].tolist()
        assert {*splits.train.numbers} < {*all_learnt.train.numbers}
        assert [*splits.validation.numbers] == [*all_learnt.validation.numbers]
        assert len(splits.train) == round(share * len(all_learnt.train))
    every = read_splits(data_of(place, folds=4, fold=0, train_share=share), 3)
    assert len(every.train) == round(share * (120 - len(every.validation)))


@pytest.mark.parametrize(
    "more", [{"folds": 4, "fold": 2}, {"folds": 4, "fold": 0}, {}, {"folds": 4, "group": "author"}]
)
def test_a_run_may_be_validated_on_the_rows_it_learns_from(place, more):
    carved = read_splits(data_of(place, **more), 3)
    splits = read_splits(data_of(place, validation_split="train", **more), 3)
    assert [*splits.validation.numbers] == [*splits.train.numbers]
    for ours, theirs in ((splits.test, carved.test),):
        assert (ours and [*ours.numbers]) == (theirs and [*theirs.numbers])
    learnt = {*carved.train.numbers, *carved.validation.numbers}
    assert {*splits.train.numbers} == learnt


def test_rows_without_a_group_are_groups_of_their_own(place, write):
    """As in scikit-learn's splitter, which is given a number of its own for each; rows of one text stay together."""
    from sklearn.model_selection import StratifiedGroupKFold

    kinds = ["", "  ", "\u00a0", "\u200b"]
    rows = [
        (f"number {at if at < 380 else 7}", "ab"[at % 2], kinds[at % 4] if at * 37 % 100 < 60 else f"u{at % 40}")
        for at in range(400)
    ]
    path = write(place / "authors.csv", rows, ("text", "label", "author"))
    data = replace(data_of(place, group="author"), path=str(path))
    splits = read_splits(data, 0)
    assert [len(part) for part in splits.by_name().values()] == pytest.approx([320, 40, 40], abs=6)
    assert (
        "authors.csv: 240 of 400 rows have nothing in author (data.group): each is a group of its own" in splits.notes
    )
    fold_n = assign_folds(read_splits(replace(data, folds=5), 0).train, 5, 0)
    groups = np.array([author.strip("\u200b\u00a0 ") or text for text, _, author in rows])
    ids = np.unique(groups, return_inverse=True)[1]
    labels = [label for _, label, _ in rows]
    theirs = [len(own) for _, own in StratifiedGroupKFold(5).split(labels, labels, ids)]
    assert np.ptp(np.bincount(fold_n)[1:]) <= np.ptp(theirs) + 2
    assert len({*zip(ids.tolist(), fold_n.tolist(), strict=True)}) == len({*ids.tolist()})


def test_a_group_that_is_too_large_for_a_split_is_noted(place, write):
    rows = [(f"number {at}", "ab"[at % 2], "n/a" if at % 2 else f"u{at}") for at in range(120)]
    path = write(place / "a.csv", rows, ("text", "label", "author"))
    notes = read_splits(replace(data_of(place, group="author"), path=str(path)), 0).notes
    assert notes[0] == "a.csv: 60 of 120 rows have 'n/a' in author (data.group), and stay together in one split"


def test_groups_are_the_same_in_every_format(place):
    """A number that pandas writes as 3.0 where others are missing is that of a file without missing ones."""
    import json

    import pandas as pd

    authors = [None if at % 3 == 0 else at % 11 for at in range(90)]
    frame = pd.DataFrame(
        {"text": [f"number {at}" for at in range(90)], "label": ["ab"[at % 2] for at in range(90)], "author": authors}
    )
    frame.to_csv(place / "a.csv", index=False)
    frame.to_parquet(place / "a.parquet")
    lines = [json.dumps(dict(zip(frame, one, strict=True)) | {"author": author})
             for one, author in zip(frame.itertuples(index=False), authors, strict=True)]  # fmt: skip
    (place / "a.jsonl").write_text("\n".join(lines))
    held = []
    for name in ("a.csv", "a.parquet", "a.jsonl"):
        splits = read_splits(replace(data_of(place, group="author", folds=3, fold=1), path=str(place / name)), 0)
        held.append([[*part.texts] for part in splits.by_name().values()])
        assert any("30 of 90 rows have nothing in author" in note for note in splits.notes)
    assert held[0] == held[1] == held[2]


def test_a_class_that_no_fold_learns_is_named(place):
    """Rows without a label are no class, and a label is learnt where it is not the rarest of its row, too."""
    lines = ['{"text": "none", "labels": []}']
    lines += [f'{{"text": "both {at}", "labels": ["a", "b"]}}' for at in range(20)]
    (place / "rows.jsonl").write_text("\n".join(lines))
    data = replace(data_of(place, folds=5), path=str(place / "rows.jsonl"))
    for fold in range(1, 6):
        assert not any("cannot be learnt" in note for note in read_splits(replace(data, fold=fold), 0).notes)
    (place / "rows.jsonl").write_text("\n".join([*lines, '{"text": "once", "labels": ["a", "rare"]}']))
    said = [note for fold in range(1, 6) for note in read_splits(replace(data, fold=fold), 0).notes if "learnt" in note]
    assert len(said) == 1
    assert said[0].startswith("train: no row of rare, which fold ")


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
            "data.folds=3 needs rows that are all at hand, which those of data.streaming=true are not: remove one of "
            "them",
        ),
    ],
)
def test_what_cannot_be_dealt_is_refused(place, more, said):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - compared whole
        read_splits(data_of(place, **more), 0)
    assert str(refused.value) == said
