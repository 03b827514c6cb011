"""What the audit says of rows and of splits together."""

import json

import pytest

from manyheads.config import DataConfig, OnBadRow
from manyheads.data.audit import audit_splits, good_rows
from manyheads.data.class_names import label_names
from manyheads.data.rows import Rows, Splits
from manyheads.data.sources import read_splits
from manyheads.data.table import RawTable
from manyheads.data.texts import text_faults

RAISE, DROP = OnBadRow["raise"], OnBadRow["drop"]


def table_of(n_rows: int) -> RawTable:
    return RawTable(["text"], lambda name: [""] * n_rows, range(2, n_rows + 2), "train.csv")


def rows_of(texts: list[str], labels: list[int], source: str = "train.csv") -> Rows:
    return Rows(texts, None, labels, source, range(2, len(texts) + 2))


def test_texts_that_are_no_texts_are_told_apart():
    cells = ["fine", None, "", " \n", 3, 2.5, ["a"], "half \ud800", "U\u0085x", "ok 東京", b"x", {"a": 1}, True]
    assert text_faults(cells, "the text") == {
        1: "the text is empty",
        2: "the text is empty",
        3: "the text is only white space",
        4: "the text is not a string but a number",
        5: "the text is not a string but a number",
        6: "the text is not a string but a list",
        7: "the text holds half a character (a lone surrogate), which UTF-8 cannot write",
        10: "the text is not a string but bytes",
        11: "the text is not a string but an object",
        12: "the text is not a string but true or false",
    }


def test_labels_become_names():
    cells = ["joy", " joy ", 3, 3.0, True, "", None, float("nan"), ["a", "b"], 2.5]
    names, faults = label_names(cells, None)
    assert names == ["joy", "joy", "3", "3.0", "true", "", "", "", "", "2.5"]  # as csv has them; see test_labels
    assert faults == {
        5: "the label is empty",
        6: "the label is empty",
        7: "the label is empty",
        8: "has 2 labels, but one is needed",
    }


def test_class_ids_become_their_names():
    names, faults = label_names([1, 0, -1, None, 2], ["no", "yes"])
    assert names == ["yes", "no", "", "", ""]
    assert faults == {
        2: "the label -1 is not a known class",
        3: "the label is empty",
        4: "the label 2 is not a known class",
    }


def test_a_bad_row_stops_or_is_left_out_and_counted():
    faults = {3: "the text is empty", 1: "the label is empty"}
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        good_rows(table_of(5), faults, RAISE, [])
    assert str(caught.value) == (
        "train.csv, row 3: the label is empty (1 more row is bad); "
        "correct it, or leave such rows out by data.on_bad_row=drop"
    )
    notes: list[str] = []
    assert list(good_rows(table_of(5), faults, DROP, notes)) == [0, 2, 4]
    assert notes == ["train.csv: 2 of 5 rows left out (first: row 3: the label is empty)"]


def test_a_split_needs_a_row():
    with pytest.raises(ValueError, match=r"^train\.csv has no row: a split needs at least one$"):
        good_rows(table_of(0), {}, DROP, [])


def test_repeats_conflicts_and_overlap_are_counted():
    splits = Splits(
        train=rows_of(["a", "b", "a", "c", "b"], [0, 1, 0, 1, 0]),
        validation=rows_of(["x", "c"], [0, 1], "validation.csv"),
        test=rows_of(["a", "y", "a"], [0, 1, 0], "test.csv"),
        labels=["no", "yes"],
    )
    audit_splits(splits)
    assert splits.notes == [
        "train (train.csv): 2 of 5 rows repeat the text of an earlier row (first: row 4 repeats row 2)",
        "train (train.csv): 1 text carries more than one label (first: row 3, no and yes)",
        "validation (validation.csv): 1 of 2 texts are also in train (first: row 3 is row 5 of train.csv)",
        "test (test.csv): 2 of 3 texts are also in train (first: row 2 is row 2 of train.csv)",
    ]


def test_validation_and_test_are_compared_too():
    splits = Splits(
        train=rows_of(["a", "b"], [0, 1]),
        validation=rows_of(["x", "y", "x"], [0, 1, 0], "validation.csv"),
        test=rows_of(["z", "x"], [0, 1], "test.csv"),
        labels=["no", "yes"],
    )
    audit_splits(splits)
    assert splits.notes == [
        "test (test.csv): 1 of 2 texts are also in validation (first: row 3 is row 2 of validation.csv)"
    ]


def test_pairs_repeat_only_as_pairs():
    train = Rows(["a", "a", "b"], ["x", "y", "x"], [0, 1, 0], "train.csv", range(2, 5))
    splits = Splits(train, train.pick([1]), None, ["no", "yes"])
    audit_splits(splits)
    assert splits.notes == [
        "validation (train.csv): 1 of 1 texts are also in train (first: row 3 is row 3 of train.csv)"
    ]


def test_a_text_with_a_label_and_without_any_contradicts_itself():
    rows = Rows(["a", "a"], None, [0, 1], "train.csv", range(2, 4), sets=[(0,), ()])
    splits = Splits(rows, rows.pick([1]), None, ["yes"])
    audit_splits(splits)
    assert any("more than one set of labels (first: row 2, no label and yes)" in note for note in splits.notes)


def test_labels_that_look_like_scores_are_told(tmp_path, write):
    rows = [(f"text {at}", f"{at % 25}.{at % 25 + 10}") for at in range(200)]
    splits = read_splits(DataConfig(path=str(write(tmp_path / "a.csv", rows))), 0)
    assert [note for note in splits.notes if "scores" in note] == [
        "a.csv: its 25 labels look like scores, such as 0.10: each is a class of its own, as if none were near "
        "another; write a class for each range of them instead"
    ]
    for name in ("{}.0", "{}", "v1.{}"):
        rows = [(f"text {at}", name.format(at % 25)) for at in range(200)]
        splits = read_splits(DataConfig(path=str(write(tmp_path / "a.csv", rows))), 0)
        assert not any("scores" in note for note in splits.notes)


def test_half_a_character_is_no_part_of_a_label(tmp_path, complaint):
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"text": f"t{at}", "label": "\ud83d" if at % 2 else "a"}) + "\n" for at in range(9))
    )
    assert complaint(DataConfig(path=str(path))) == (
        "a.jsonl, row 2: the label holds half a character (a lone surrogate), which UTF-8 cannot write (3 more rows "
        "are bad); correct it, or leave such rows out by data.on_bad_row=drop"
    )


@pytest.mark.parametrize(("column", "cell"), [("label", "mg/l"), ("labels", "x|mg/l")])
def test_a_label_of_a_single_row_is_said_with_its_row(tmp_path, column, cell):
    lines = [f"text {at},{'xy'[at % 2]}" for at in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join([f"text,{column}", *lines, f"a line of units,{cell}"]))
    notes = read_splits(DataConfig(path=str(tmp_path / "rows.csv")), 0).notes
    said = (
        "rows.csv: 1 of 3 labels have a single row (first: row 42, 'mg/l'): remove such rows if they are not examples"
    )
    assert said in notes
    (tmp_path / "rows.csv").write_text("\n".join([f"text,{column}", *lines]))
    assert not any("single row" in note for note in read_splits(DataConfig(path=str(tmp_path / "rows.csv")), 0).notes)
