"""A class has one name, however and wherever it is written; several names in one cell are read back as they were."""

import csv
import json
import unicodedata
from decimal import Decimal
from time import perf_counter
from unittest.mock import patch

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.config import DataConfig, MergeLabels, OnBadRow
from manyheads.data.checks import check_class_names
from manyheads.data.class_names import ClassLookup, join_names, label_names, normalise_name, split_names
from manyheads.data.ids.terms import fold_case, normalise_unicode
from manyheads.data.sources import read_split, read_splits
from manyheads.training.objectives import class_weights

FORMATS = ("csv", "tsv", "jsonl", "parquet", "saved")


def written(folder, kind, cells, column="label"):
    """Texts with these labels, as a file of this kind, or what `datasets` saves."""
    texts = [f"text number {at}" for at in range(len(cells))]
    path = folder / f"rows.{kind}"
    if kind in ("csv", "tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, delimiter="," if kind == "csv" else "\t")
            lines.writerows([("text", column), *zip(texts, map(str, cells), strict=True)])
    elif kind == "jsonl":
        plain = [str(cell) if isinstance(cell, Decimal) else cell for cell in cells]
        lines = (json.dumps({"text": text, column: cell}) for text, cell in zip(texts, plain, strict=True))
        path.write_text("\n".join(lines), encoding="utf-8")
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"text": texts, column: cells}), path)
    else:
        from datasets import Dataset

        plain = [str(cell) if isinstance(cell, Decimal) else cell for cell in cells]
        Dataset.from_dict({"text": texts, column: plain}).save_to_disk(path)
    return path


def read(path, **more):
    return read_splits(DataConfig(source="files", path=str(path), **more), 0)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("cells", "names"),
    [
        ([0.0, 1.0, 2.0], ["0", "1", "2"]),
        ([0, 1], ["0", "1"]),
        ([1.0, 1.5, 2.0], ["1.0", "1.5", "2.0"]),
        ([True, False], ["false", "true"]),
        ([Decimal("1.00"), Decimal("2.00")], ["1", "2"]),
        ([Decimal("2.10"), Decimal("2.00")], ["2.00", "2.10"]),
        (["2.1", "2.10", "3.0"], ["2.1", "2.10", "3.0"]),
        (["0", "0.0", "1", "1.0"], ["0", "1"]),
        (["010", "10.0", "1e3"], ["10.0", "010", "1e3"]),
        (["Card", "Card ", "\u00a0Card", "Card\u200b", "\ufeffCard", "Ca\u00adrd", "cash"], ["Card", "cash"]),
        (["credit card", "credit  card", "credit\u00a0card", "credit\tcard", "cash"], ["cash", "credit card"]),
        (["cafe\u0301", "caf\u00e9", "tea"], ["caf\u00e9", "tea"]),
        (["True", "true", "TRUE", "no"], ["no", "true"]),
        ([-0.0, 1.0], ["0", "1"]),
        ([1e20, 2.0], ["1e+20", "2.0"]),
    ],
)
def test_classes_are_the_same_in_every_format(tmp_path, kind, cells, names):
    splits = read(written(tmp_path, kind, cells * 20))
    assert sorted(splits.labels) == sorted(names)
    by_row = {at: splits.labels[label] for part in splits.by_name().values()
              for at, label in zip(part.texts, part.labels, strict=True)}  # fmt: skip
    alone = {name: name for name in names}
    for at in range(len(cells) * 20):
        cell = cells[at % len(cells)]
        expected = alone.get(str(cell)) or alone.get(str(cell).lower())
        if expected is not None:
            assert by_row[f"text number {at}"] == expected


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved"])
def test_any_number_of_labels_is_spelled_alike(tmp_path, kind):
    lists = [["Card ", "cash"], ["Card", "Card\u200b"], [], ["ca\u200bsh"]] * 20
    splits = read(written(tmp_path, kind, lists, "labels"))
    assert splits.labels == ["Card", "cash"]
    assert splits.train.sets is not None
    assert {*splits.train.sets} == {(0, 1), (0,), (), (1,)}
    in_csv = read(written(tmp_path, "csv", ["|".join(one) for one in lists], "labels"))
    assert [*(in_csv.train.sets or [])] == [*splits.train.sets]


def test_joiners_between_letters_and_in_emoji_stay():
    for name in ("\u0645\u06cc\u200c\u062e\u0648", "\u2764\ufe0f\u200d\U0001f525"):
        assert normalise_name(f" {name}\u200d") == name
    assert normalise_name("ca\u200crd\u200d") == "card"


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("e\u0301\u0323\u0327"), max_size=60))
def test_texts_are_composed_as_unicode_says(text):
    normalise_unicode("e" * 2000)  # runs of a thousand marks are known from here on
    with patch("manyheads.data.ids.terms.MAX_MARKS", 20):
        assert normalise_unicode(text) == unicodedata.normalize("NFC", text)


def test_many_marks_on_a_letter_are_read_in_no_time():
    """Python takes a minute to put 150,000 of them in order, and four times as long for twice as many."""
    text = "e" + "\u0301\u0323" * 75_000 + " cafe\u0301"
    began = perf_counter()
    assert normalise_name(text).endswith("\u0323 caf\u00e9")
    assert len(fold_case(text)) == len(text) - 1
    assert perf_counter() - began < 10


def test_numbers_of_declared_classes_are_their_names(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Value

    for names, labels in ((["0.0", "1.0"], ["0", "1"]), (["Card ", "cash"], ["Card", "cash"]), (["1.0", "n/a"],) * 2):
        features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
        rows = {"text": [f"text {at}" for at in range(40)], "label": [at % 2 for at in range(40)]}
        Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / labels[0])
        splits = read(tmp_path / labels[0])
        assert splits.labels == labels
        assert np.bincount(splits.train.labels).min() > 10


@pytest.mark.parametrize(
    ("learnt", "judged"),
    [
        (["0", "1"], ["0.0", "1.0"]),
        (["0.0", "1.0"], ["0", "1"]),
        (["1.0", "2.5"], ["1", "2.5"]),
        (["True", "False"], ["true", "FALSE"]),
        (["caf\u00e9", "tea"], ["cafe\u0301", "tea\u200b"]),
    ],
)
def test_other_splits_and_judged_rows_are_of_the_classes_that_are_known(tmp_path, write, learnt, judged):
    texts = [f"text number {at}" for at in range(40)]
    write(tmp_path / "train.csv", [(text, learnt[at % 2]) for at, text in enumerate(texts)])
    write(tmp_path / "validation.csv", [(f"{text}.", judged[at % 2]) for at, text in enumerate(texts)])
    splits = read(tmp_path)
    first = splits.labels.index(normalise_name(learnt[0]) if splits.labels[0] != "0" else learnt[0][:1])
    expected = [first, 1 - first] * 20
    assert [*splits.validation.labels] == expected
    data = DataConfig(source="files", path=str(tmp_path / "validation.csv"))
    for labels in (splits.labels, learnt):  # as an earlier version called them
        rows = read_split(data, "validation", labels)
        assert [labels[one] for one in rows.labels] == [labels[labels.index(labels[one])] for one in rows.labels]
        assert [*rows.labels] == ([0, 1] * 20 if labels == learnt else expected)


def test_names_that_differ_by_case_are_noted_and_joined_where_that_is_asked(tmp_path, write):
    cells = ["Card"] * 60 + ["card"] * 12 + ["cash"] * 40 + ["STRASSE", "Straße"] * 5
    path = write(tmp_path / "rows.csv", [(f"text {at}", cell) for at, cell in enumerate(cells)])
    splits = read(path)
    assert len(splits.labels) == 5
    assert splits.notes[0] == (
        "rows.csv: classes that differ by case only: Card (60), card (12); STRASSE (5), Straße (5): "
        "data.merge_labels=case joins them"
    )
    merged = read(path, merge_labels=MergeLabels.case)
    assert merged.labels == ["Card", "STRASSE", "cash"]
    assert merged.notes[0] == "rows.csv: data.merge_labels=case joins Card (60), card (12); STRASSE (5), Straße (5)"
    data = DataConfig(source="files", path=str(path), merge_labels=MergeLabels.case)
    assert np.bincount(read_split(data, "train", merged.labels).labels).tolist() == [72, 10, 40]
    lists = [["Card", "card"], ["card", "cash"], []] * 20
    sets = read(written(tmp_path, "jsonl", lists, "labels"), merge_labels=MergeLabels.case).train.sets
    assert {*(sets or [])} == {(0,), (0, 1), ()}


def test_numbers_written_in_two_ways_are_noted(tmp_path, write):
    path = write(tmp_path / "rows.csv", [(f"text {at}", ("2.1", "2.10", "3")[at % 3]) for at in range(30)])
    assert read(path).notes[0] == (
        "rows.csv: classes that differ by how a number is written: 2.1 (10), 2.10 (10): write them alike if they are "
        "one"
    )


def test_a_split_without_a_usable_row_says_why(tmp_path, write, two_classes, complaint):
    write(tmp_path / "train.csv", two_classes(20))
    write(tmp_path / "test.csv", [("one", "maybe"), ("two", "perhaps")])
    data = DataConfig(source="files", path=str(tmp_path), on_bad_row=OnBadRow["drop"])
    assert complaint(data) == (
        "test.csv has no usable row, but a split needs at least one: 2 of 2 are left out by data.on_bad_row=drop "
        "(first: row 2: the label 'maybe' has no row in the training split)"
    )


def test_weights_are_of_the_classes_that_are_meant():
    import torch

    names, ids = ["0", "Card", "true"], torch.tensor([0, 1, 2, 2])
    for choice in ({"0.0": 2, "card": 3}, {0: 2, " Card\u00a0": 3}, {0.0: 2, "CARD": 3, True: 1}):
        check_class_names(choice, names)
        assert torch.equal(class_weights(choice, ids, names), class_weights({"0": 2, "Card": 3, "true": 1}, ids, names))
    with pytest.raises(ValueError, match=r"^optim.class_weights names one class by 0, 0\.0: give it one weight$"):
        check_class_names({"0": 2, "0.0": 1}, names)


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(normalise_name).filter(bool), unique=True
    )
)
def test_joined_names_are_read_back(names):
    assert split_names(join_names(names)) == names


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("""['joy', "it's", 'a|b']""", ["joy", "it's", "a|b"]),
        (' [ "joy" ]', ["joy"]),
        (r"""['it\'s "so"', "a\\b",]""", ['it\'s "so"', "a\\b"]),
        (r'["\u00e9", "a\/b"]', ["é", "a/b"]),
        (r"['\x00']", [r"['\x00']"]),
        ("[" + "'a'," * 50_000, ["[" + "'a'," * 50_000]),
        ("[]", []),
        ("[joy]|['fear']", ["[joy]", "['fear']"]),
        ("[27]", ["27"]),
        ('[2, 5, "joy"]', ["2", "5", "joy"]),
        ("[true, 1]", ["[true, 1]"]),
        ("['joy', 1]", ["['joy', 1]"]),
        ("['joy'", ["['joy'"]),
        ("[" * 100_000, ["[" * 100_000]),
    ],
)
def test_lists_as_python_and_json_write_them_are_read(cell, names):
    assert split_names(cell) == names


def test_a_name_with_a_bar_is_read_back_from_a_list():
    assert join_names(["R&D | research", "billing"]) == '["R&D | research", "billing"]'
    assert join_names(["billing", "account"]) == "billing|account"
    joined = [join_names(names) for names in ([], ["a"], ["[a]"], ["a|b"])]
    assert joined == ["", "a", '["[a]"]', '["a|b"]']


def test_what_is_no_name_stays_one_fault_a_cell():
    names, faults = label_names(["ok", "\u200b", "\u00a0 ", float("nan"), Decimal("NaN"), ["a", "a\u200b"]], None)
    assert names == ["ok", "", "", "", "", "a"]
    assert sorted(faults) == [1, 2, 3, 4]
    assert ClassLookup(["a", "A"], any_case=True).find("á") == "á"


@pytest.mark.parametrize(
    ("cell", "name"), [(" card ", "Card"), (" 1.0 ", "1"), (" stars:  2.0", "stars: 2"), (" c", "c")]
)
def test_white_space_around_a_name_does_not_count_however_it_is_spelled(cell, name):
    assert ClassLookup(["Card", "1", "stars: 2"], any_case=True).find(cell) == name


def test_what_databases_write_for_null_is_no_label(tmp_path):
    path = written(tmp_path, "csv", [*"abab" * 5, "\\N"])
    with pytest.raises(ValueError, match=r"^rows\.csv, row 22: the label is empty; correct it"):
        read(path)
    assert read(path, on_bad_row=OnBadRow.drop).labels == ["a", "b"]
    multi = read(written(tmp_path, "tsv", ["a|b", "a", "\\N", "b"] * 5, "labels"))
    assert (multi.labels, {*multi.train.sets}) == (["a", "b"], {(0, 1), (0,), (1,), ()})
