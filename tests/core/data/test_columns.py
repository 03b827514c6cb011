"""Columns are found by the settings; classes are ordered as a person would."""

import pytest

from manyheads.config import DataConfig
from manyheads.data.class_names import declared_classes, label_cells, natural_order
from manyheads.data.columns import ColumnRoles, as_found, find_columns, require_columns
from manyheads.data.table import RawTable


def table_of(*names: str) -> RawTable:
    return RawTable(list(names), lambda name: [], range(0), "train.csv")


def complaint(table: RawTable, data: DataConfig) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        find_columns(table, data)
    return str(caught.value)


def test_a_pair_is_read_where_its_column_exists():
    assert find_columns(table_of("text", "label"), DataConfig()) == ColumnRoles("text", None, "label")
    assert find_columns(table_of("text", "text_pair", "label"), DataConfig()) == ColumnRoles(
        "text", "text_pair", "label"
    )
    assert find_columns(table_of("text", "text_pair", "label"), DataConfig(text_pair="")) == ColumnRoles(
        "text", None, "label"
    )


def test_typed_names_must_exist():
    table = table_of("text", "stars")
    assert complaint(table, DataConfig()) == (
        "train.csv has no column 'label' (data.label): its columns are text, stars; name one by data.label=<column>"
    )
    assert complaint(table, DataConfig(label="stars", text_pair="question")) == (
        "train.csv has no column 'question' (data.text_pair): its columns are text, stars; "
        "name one by data.text_pair=<column>"
    )


def test_another_spelling_of_capitals_is_named():
    table = table_of("Text", "LABEL")
    assert complaint(table, DataConfig()) == (
        "train.csv has no column 'text' (data.text): its columns are Text, LABEL; did you mean data.text=Text?"
    )
    assert complaint(table, DataConfig(text="Text")) == (
        "train.csv has no column 'label' (data.label): its columns are Text, LABEL; did you mean data.label=LABEL?"
    )


@pytest.mark.parametrize(
    ("names", "header"),
    [
        (("3", "Oil prices rise"), "label,text"),
        (("ham", "Go until jurong point, crazy.."), "label,text"),
        (("Go until jurong point, crazy..", "ham"), "text,label"),
    ],
)
def test_a_file_whose_first_line_is_a_row_is_told_from_one_with_other_names(names, header):
    assert complaint(table_of(*names), DataConfig()) == (
        f"train.csv has no column 'text' (data.text): its columns are {', '.join(names)}; name one by "
        f"data.text=<column>, or, if that is a row, put a first line that names the columns, such as {header}, on top"
    )


@pytest.mark.parametrize("typed", ["text", "data.text"])
def test_fields_within_a_column_are_told(typed):
    cells = {"id": [1], "data": [{"text": "a film", "label": "good"}]}
    table = RawTable([*cells], cells.__getitem__, range(1, 2), "train.jsonl")
    assert complaint(table, DataConfig(text=typed)) == (
        f"train.jsonl has no column '{typed}' (data.text): its columns are id, data; data holds objects with one: give "
        "each of their fields a column of its own"
    )


def test_a_txt_cannot_have_labels():
    table = RawTable(["text"], lambda name: [], range(0), "train.txt")
    assert complaint(table, DataConfig()) == (
        "train.txt has no column 'label' (data.label): its columns are text; a .txt holds one text a line and nothing "
        "else: give a .csv or .tsv whose first line names the columns"
    )


def test_labels_in_columns_of_their_own_are_told():
    cells = {"id": [4, 5, 6], "text": ["a", "b", "c"], "toxic": ["0", "1", "x"], "rude": [0, 1, 0], "odd": [0, 2, 1]}
    table = RawTable([*cells], cells.__getitem__, range(3), "train.csv", broken={2: "has 9 cells"})
    assert complaint(table, DataConfig()) == (
        "train.csv has no column 'label' (data.label): its columns are id, text, toxic, rude, odd; name one by "
        "data.label=<column>; or, if toxic, rude, which hold 0 and 1 alone, are labels, write a column labels that "
        "joins the names of those that are 1 by |, such as toxic|rude"
    )


def test_texts_alone_have_no_column_to_name():
    said = "; add a column of labels; texts without labels are answered by manyheads predict"
    assert complaint(table_of("text"), DataConfig()).endswith(said)


def test_a_column_that_is_within_another_is_told():
    lines = RawTable(["text,label"], lambda _: ["a,x"], range(1), "rows.csv")
    assert complaint(lines, DataConfig()).endswith("; each of its lines is quoted as a whole: remove these quotes")
    cells = {"version": [1], "data": [[{"text": "a", "label": "x"}]]}
    within = RawTable([*cells], cells.__getitem__, range(1), "rows.json")
    said = "; data holds a list of objects with one: save that list alone"
    assert complaint(within, DataConfig()).endswith(said)


def test_columns_that_are_counted_are_named_by_their_numbers():
    """As those of a data frame that was made of rows."""
    said = "rows has no column 'text' (data.text): its columns are 0, 1; name one by data.text=<column>, such as "
    table = RawTable(["0", "1"], {"0": ["a", "b"], "1": ["x", "y"]}.__getitem__, range(2), "rows")
    assert complaint(table, DataConfig()) == f"{said}data.text=1"


@pytest.mark.parametrize(
    ("name", "cells", "multi"),
    [("label", [["a", "b"], ["a"], None], True), ("labels", ["a", "b", ""], False), ("labels", ["a", "b|c", ""], True)],
)
def test_rows_that_cannot_be_read_do_not_say_how_many_labels_rows_have(name, cells, multi):
    table = RawTable(["text", name], lambda _: cells, range(3), "train.csv", broken={2: "is not JSON"})
    assert as_found(table, ColumnRoles("text", None, name)).multi is multi


def test_a_test_split_without_labels_may_be_left_unread():
    said = "its columns are index, text; a test split without labels is left unread by test=false$"
    with pytest.raises(ValueError, match=said):
        require_columns(table_of("index", "text"), ColumnRoles("text", None, "label"))


def test_a_file_without_columns_says_what_is_wrong_with_it():
    assert complaint(table_of(), DataConfig()) == "train.csv holds no rows: give a file of texts and labels"
    table = RawTable([], lambda name: [{}], [7, 8], "a.jsonl", broken={1: "is odd", 0: "is not JSON (why)"})
    said = (
        "a.jsonl has no row that can be read: row 7 is not JSON (why); write one object such as "
        '{"text": "...", "label": "..."} a line'
    )
    assert complaint(table, DataConfig()) == said
    with pytest.raises(ValueError, match=r"^a\.jsonl has no row that can be read: row 7"):
        require_columns(table, ColumnRoles("text", None, "label"))


def test_typed_names_win_over_ours_in_a_users_file():
    table = table_of("text", "title", "label")
    assert find_columns(table, DataConfig(path="x", text="title")).text == "title"


def test_a_presets_local_copy_may_use_our_names_or_the_hubs():
    preset = DataConfig(source="hub", hub="glue", path="x", text="sentence1", text_pair="sentence2", label="gold")
    assert find_columns(table_of("text", "text_pair", "label"), preset) == ColumnRoles("text", "text_pair", "label")
    assert find_columns(table_of("sentence1", "sentence2", "gold"), preset) == ColumnRoles(
        "sentence1", "sentence2", "gold"
    )


def test_columns_must_differ():
    assert complaint(table_of("text", "label"), DataConfig(text="label")) == (
        "data.text=label and data.label=label name one column of train.csv twice: each needs its own"
    )


def test_every_split_needs_the_columns_of_train():
    columns = ColumnRoles("text", "text_pair", "label")
    require_columns(table_of("label", "text", "text_pair"), columns)
    with pytest.raises(
        ValueError, match=r"^train\.csv has no column 'text_pair' \(data\.text_pair\), which the training"
    ):
        require_columns(table_of("label", "text"), columns)


def test_only_a_column_called_labels_joins_several_names():
    cells = ["joy", "joy|anger", "", None, " fear |", "|", ["a|b"], 3]
    assert label_cells(cells, "label") == cells
    assert label_cells(cells, "labels") == [["joy"], ["joy", "anger"], [], [], [" fear "], [], ["a|b"], 3]


def test_class_names_of_single_labels_and_of_lists():
    kind = {"names": ["no", "yes"], "_type": "ClassLabel"}
    text = {"dtype": "string", "_type": "Value"}
    features = {"text": text, "label": kind, "labels": {"feature": kind, "_type": "List"}, "words": [text], "m": {}}
    assert declared_classes(features) == {"label": ["no", "yes"], "labels": ["no", "yes"]}


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        (["10", "2", "1"], ["1", "2", "10"]),
        (["0", "-1", "1", "-2", "0.5"], ["-2", "-1", "0", "0.5", "1"]),
        (["v10", "v2", "v1"], ["v1", "v2", "v10"]),
        (["5 stars", "10 stars", "none"], ["5 stars", "10 stars", "none"]),
        (["b", "a", "B", "é", "3"], ["3", "B", "a", "b", "é"]),
        (["nan", "inf", "a", "1"], ["1", "a", "inf", "nan"]),
    ],
)
def test_names_are_sorted_naturally(names, ordered):
    assert natural_order(names) == ordered
    assert natural_order(reversed(names)) == ordered


def test_a_typed_name_is_never_replaced_by_labels():
    data = DataConfig(label="categry")
    assert complaint(table_of("text", "category", "labels"), data) == (
        "train.csv has no column 'categry' (data.label): its columns are text, category, labels; "
        "did you mean data.label=category?"
    )
    assert complaint(table_of("text", "labels"), DataConfig(label="stars")).endswith("name one by data.label=<column>")
    assert find_columns(table_of("text", "labels"), DataConfig()).answer == "labels"
    assert complaint(table_of("labels", "label"), DataConfig(text="label2")).endswith("did you mean data.text=label?")
    assert complaint(table_of("Review", "n"), DataConfig(text="reveiw")).endswith("did you mean data.text=Review?")
