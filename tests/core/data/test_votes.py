"""Votes of annotators in a cell or in columns, and weights: what is read, by which classes, and what is refused."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.config import DataConfig, MergeLabels, OnBadRow
from manyheads.data.column import join_rows
from manyheads.data.formats.votes import votes_in
from manyheads.data.rows import Rows
from manyheads.data.sources import read_split, read_splits


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, header, rows):
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def voted(cells, name="votes.csv", **further):
    """A file whose rows have these votes in turn, and its splits."""
    write(name, ["text", "votes"], [(f"text {at}", cells[at % len(cells)]) for at in range(20 * len(cells))])
    return read_splits(DataConfig(path=name, votes="votes", **further), 0)


@pytest.mark.parametrize(
    ("cell", "votes"),
    [
        ("spam:3|ham:1", {"spam": 3, "ham": 1}),
        (" spam : 2.5 | ham:0 ", {"spam": 2.5, "ham": 0}),
        ("spam|spam|ham|", {"spam": 2, "ham": 1}),
        ('{"spam": 3, "ham": null}', {"spam": 3, "ham": 0}),
        ('["spam", "spam", "ham"]', {"spam": 2, "ham": 1}),
        ({"spam": 0.75, "ham": 0.25}, {"spam": 0.75, "ham": 0.25}),
        ([("spam", 3), ("ham", 1)], {"spam": 3, "ham": 1}),
        (["spam", "ham"], {"spam": 1, "ham": 1}),
        ("a:b:2|c:d:1", {"a:b": 2, "c:d": 1}),
        ("a:b|a:b|c:d", {"a:b": 2, "c:d": 1}),
        ("R, D:2", {"R, D": 2}),
        ("a:b, c:1", {"a:b, c": 1}),
        ("五月:2|e\u0301:1", {"五月": 2, "é": 1}),
        (4, {"4": 1}),
    ],
)
def test_cells_of_votes(cell, votes):
    assert votes_in(cell) == (votes, "")


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("", "it has no votes (data.votes)"),
        (None, "it has no votes (data.votes)"),
        ("spam:3;ham:1", "'spam:3;ham:1' (data.votes) joins votes by ';': join them by |"),
        ("spam: 3, ham: 1, eggs: 0.5", "'spam: 3, ham: 1, eggs: 0.5' (data.votes) joins votes by ',': join them by |"),
        ("spam:0", "it has no votes (data.votes)"),
        ("spam:1e-50|ham:0", "it has no votes (data.votes)"),  # less than a number of single precision
        ("spam:-1", "'spam:-1' (data.votes) gives 'spam' '-1.0', which is not a number from 0 to 1e+12"),
        ("spam:nan", "'spam:nan' (data.votes) gives 'spam' 'nan', which is not a number from 0 to 1e+12"),
        ("spam:inf", "'spam:inf' (data.votes) gives 'spam' 'inf', which is not a number from 0 to 1e+12"),
        (":3", "':3' (data.votes) has a vote that names no class"),
        ('[["spam"]]', "'[[\"spam\"]]' (data.votes) has a vote that names no class"),
        ("R|D:2", "'R|D:2' (data.votes) has names with numbers, and others without: give each one, or write JSON"),
        (
            "spam:3|ham:",
            "'spam:3|ham:' (data.votes) has names with numbers, and others without: give each one, or write JSON",
        ),
        (
            "spam:1_0|ham:2",
            "'spam:1_0|ham:2' (data.votes) has names with numbers, and others without: give each one, or write JSON",
        ),
        ('{"spam": 1', "'{\"spam\": 1' (data.votes) is not JSON"),
    ],
)
def test_cells_that_hold_no_votes(place, complaint, cell, fault):
    found, why = votes_in(cell)
    assert (found, why.replace("[['spam']]", '[["spam"]]')) == ({}, fault)
    rows = [("a", "spam:1"), ("b", "ham:1"), ("c", cell)]
    write("votes.csv", ["text", "votes"], rows)
    said = complaint(DataConfig(path="votes.csv", votes="votes"))
    assert said == f"votes.csv, row 4: {why}; correct it, or leave such rows out by data.on_bad_row=drop"


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(any), min_size=12, max_size=30))
def test_columns_and_cells_say_the_same(tmp_path_factory, counts):
    """Against the shares by NumPy; of equal counts the first of the classes is the label."""
    counts = [*counts, [1, 0, 0], [0, 1, 0], [0, 0, 1]] * 2
    folder, names = tmp_path_factory.mktemp("same"), ["a", "b", "c"]
    of_cells = ["|".join(f"{name}:{n}" for name, n in zip(names, row, strict=True)) for row in counts]
    table = [(f"text {at}", cell, *row) for at, (cell, row) in enumerate(zip(of_cells, counts, strict=True))]
    write(folder / "votes.csv", ["text", "votes", *names], table)
    shared = {"path": str(folder / "votes.csv"), "validation_split": "train"}
    one = read_splits(DataConfig(votes="votes", **shared), 0)
    other = read_splits(DataConfig(label_columns=names, **shared), 0)
    assert one.labels == other.labels == names
    expected_nC = np.array(counts) / np.array(counts).sum(1, keepdims=True)
    for splits in (one, other):
        rows = splits.train
        at = np.array(rows.numbers) - 2
        np.testing.assert_allclose(rows.probabilities, expected_nC[at], atol=1e-7)
        assert np.array_equal(rows.voters, np.array(counts).sum(1)[at])
        assert np.array_equal(rows.labels, np.array(counts).argmax(1)[at])
    assert one.digests() == other.digests()


def test_a_class_may_never_have_the_most_votes(place):
    splits = voted(["spam:3|ham:1", "spam:1|ham:2", "spam:2|other:2"])
    assert splits.labels == ["ham", "other", "spam"]
    assert {*splits.train.labels} == {0, 1, 2}  # of a tie the first in the order of classes
    assert voted(["spam", "ham"]).notes[0].startswith("votes.csv: 1 vote a row, from")
    assert splits.notes[0] == (
        "votes.csv: 3.67 votes a row, from whose shares a row is learnt; 20 of 60 rows tie; the first of the classes "
        "in their order is its label"
    )


def test_spellings_are_merged_before_votes_are_counted(place):
    plain = voted(["spam:2|Spam:2|ham:3", "ham:4", "Spam:1"])
    assert plain.labels == ["ham", "Spam", "spam"] or plain.labels == ["Spam", "ham", "spam"]
    merged = voted(["spam:2|Spam:2|ham:3", "ham:4", "Spam:1"], merge_labels=MergeLabels.case)
    assert sorted(merged.labels, key=str.lower) == ["ham", "Spam"]
    at = next(at for at, number in enumerate(merged.train.numbers) if (number - 2) % 3 == 0)
    assert merged.train.probabilities[at].max() == np.float32(4 / 7)
    assert merged.labels[merged.train.labels[at]] == "Spam"


def test_columns_of_predictions_are_called_as_their_classes(place):
    write("p.csv", ["text", "p_no", "p_yes"], [(f"text {at}", at % 5 / 4, 1 - at % 5 / 4) for at in range(40)])
    splits = read_splits(DataConfig(path="p.csv", label_columns=["p_yes", "p_no"]), 0)
    assert splits.labels == ["yes", "no"]
    assert splits.train.probabilities.sum(1) == pytest.approx(1)


@pytest.mark.parametrize("around", ["{}", "{}:05", "2024-01-05 {}", "5/1/2024 {}:30", "2024-01-05T{}:30"])
def test_a_column_of_times_is_none_of_votes(place, complaint, around):
    write("times.csv", ["text", "votes"], [(f"text {at}", around.format(f"1{at % 3}:3{at % 6}")) for at in range(30)])
    said = complaint(DataConfig(path="times.csv", votes="votes"))
    assert f"'{around.format('10:30')}' (data.votes) may be a time or votes, as all cells of the column" in said


def test_votes_that_are_no_times(place, complaint):
    splits = voted(["12:30|13:2", "12:30", "13:20"])  # in one of votes they are votes
    assert splits.labels == ["12", "13"]


def test_one_class_names_the_columns_of_votes(place, complaint):
    write("one.csv", ["text", "votes"], [(f"text {at}", "spam:2") for at in range(30)])
    said = complaint(DataConfig(path="one.csv", votes="votes"))
    assert said == "one.csv has one class only, 'spam': a classifier needs at least two; check the columns of the votes"


def test_mistakes_in_columns(place, complaint):
    rows = [(f"text {at}", 1, 2) for at in range(20)]
    write("p.csv", ["text", "no", "yes"], [*rows, ("x", "", 1), ("y", 0, 0)])
    data = DataConfig(path="p.csv", label_columns=["no", "yes"])
    assert complaint(data) == (
        "p.csv, row 22: '' in the column 'no' is not a number from 0 to 1e+12 (1 more row is bad); correct it, or "
        "leave such rows out by data.on_bad_row=drop"
    )
    write("p.csv", ["text", "no", "yes"], [*rows, ("y", 0, 0)])
    assert "row 22: each of its data.label_columns is 0; any number of labels" in complaint(data)
    assert "p.csv has no column 'maybe' (data.label_columns): its columns are text, no, yes" in complaint(
        DataConfig(path="p.csv", label_columns=["no", "maybe"])
    )
    assert "name one column of p.csv twice" in complaint(
        DataConfig(path="p.csv", text="no", label_columns=["no", "yes"])
    )
    for wrong, said in (
        ({"label_columns": ["no"]}, "data.label_columns=[no] needs a column for each class, two or more"),
        ({"label_columns": ["no", "no"]}, "data.label_columns=[no, no] needs a column for each class"),
        ({"label_columns": ["no", "yes"], "votes": "v"}, "are two places of what annotators say"),
        ({"votes": "v", "streaming": True, "hub": "a/b"}, "data.votes=v needs rows that are all at hand"),
        ({"weight": "w", "streaming": True, "hub": "a/b"}, "data.weight=w needs rows that are all at hand"),
    ):
        with pytest.raises(ValueError, match="data") as caught:
            DataConfig(**wrong)
        assert said in str(caught.value)


def test_another_split_may_have_labels_or_votes(place, complaint):
    """Experts' labels in test; a vote for a class that training does not know is a fault with its row."""
    (place / "data").mkdir()
    write("data/train.csv", ["text", "votes"], [(f"text {at}", ("a:2|b:1", "b:1")[at % 2]) for at in range(40)])
    write("data/test.csv", ["text", "label"], [("new 1", "a"), ("new 2", "b")])
    splits = read_splits(DataConfig(path="data", votes="votes"), 0)
    assert splits.test is not None
    assert (splits.test.probabilities, [*splits.test.labels]) == (None, [0, 1])
    write("data/test.csv", ["text", "votes"], [("new 1", "a:1"), ("new 2", "b:3|c:1")])
    assert complaint(DataConfig(path="data", votes="votes")) == (
        "test.csv, row 3: it has votes for 'c', which has no row in the training split; correct it, or leave such rows "
        "out by data.on_bad_row=drop"
    )
    dropped = read_splits(DataConfig(path="data", votes="votes", on_bad_row=OnBadRow["drop"]), 0)
    assert dropped.test is not None
    assert np.array_equal(dropped.test.probabilities, [[1, 0]])
    rows = read_split(DataConfig(path="data/train.csv", votes="votes"), "test", ["b", "a"])
    assert np.allclose(rows.probabilities[0], [1 / 3, 2 / 3])


def test_weights_follow_their_rows(place, complaint):
    rows = [(f"text {at}", "ab"[at % 2], at / 4) for at in range(40)]
    write("w.csv", ["text", "label", "w"], rows)
    splits = read_splits(DataConfig(path="w.csv", weight="w"), 0)
    assert splits.test is not None
    for split in (splits.train, splits.validation, splits.test):
        assert np.array_equal(split.weights, (np.array(split.numbers) - 2) / 4)
    plain = read_splits(DataConfig(path="w.csv"), 0)
    assert splits.train.texts == plain.train.texts, "weights draw no other rows"
    assert splits.digests()["train"] != plain.digests()["train"]
    for cell in ("", "-1", "much", "nan", "inf", "1e13", "1,5", "1_0"):
        write("w.csv", ["text", "label", "w"], [*rows, ("x", "a", cell)])
        assert complaint(DataConfig(path="w.csv", weight="w")) == (
            f"w.csv, row 42: the weight '{cell}' is not a number from 0 to 1e+12; correct it, or leave such rows out "
            "by data.on_bad_row=drop"
        )
    assert complaint(DataConfig(path="w.csv", weight="v")) == (
        "w.csv has no column 'v' (data.weight): its columns are text, label, w; name one by data.weight=<column>"
    )


def test_a_test_split_may_lack_weights(place):
    (place / "data").mkdir()
    write("data/train.csv", ["text", "label", "w"], [(f"text {at}", "ab"[at % 2], 1) for at in range(40)])
    write("data/test.csv", ["text", "label"], [("new 1", "a"), ("new 2", "b")])
    splits = read_splits(DataConfig(path="data", weight="w"), 0)
    assert splits.test is not None
    assert splits.test.weights is None


def test_joined_rows_without_weights_weigh_as_the_others_do():
    """So that only ratios of weights count."""
    one = Rows(["a", "d"], None, [0, 1], "one", [1, 2], weights=np.array([3.0, 5.0]))
    other = Rows(["b", "c"], None, [1, 0], "other", [1, 2])
    assert join_rows([one, other], 2).weights.tolist() == [3, 5, 4, 4]


def test_joined_rows_keep_their_votes(place):
    """The linear model learns from the shares of votes of rows that others are added to."""
    rows = voted(["a:3|b:1", "b:3|a:1"]).train
    joined = join_rows([rows, Rows(["c"], None, [1], "other", [1])], 2)
    assert joined.voters.tolist() == [4] * len(rows) + [1]
    assert joined.probabilities[-2:].tolist() in ([[0.75, 0.25], [0, 1]], [[0.25, 0.75], [0, 1]])


def test_rows_in_python_have_votes(place):
    """Mappings whose cells are mappings, as a jsonl has them."""
    from manyheads.data.opening import table_from

    given = [{"text": f"text {at}", "votes": {"a": 1 + at % 2, "b": 1}} for at in range(40)]
    given += [{"text": f"more {at}", "votes": {"b": 2}} for at in range(10)]
    (place / "v.jsonl").write_text("\n".join(map(json.dumps, given)))
    of_file = read_splits(DataConfig(path="v.jsonl", votes="votes"), 0)
    held = {"all": lambda: table_from(given, "rows")}
    of_rows = read_splits(DataConfig(source="memory", votes="votes"), 0, held=held)
    assert of_file.labels == of_rows.labels == ["a", "b"]
    assert np.array_equal(of_file.train.probabilities, of_rows.train.probabilities)
