"""A column `split` of one table says which rows are of which split."""

from dataclasses import replace

import pytest

from manyheads.config import DataConfig
from manyheads.data.sources import read_split, read_splits

HEADER = ("text", "label", "split")


def rows_of(**counts):
    return [(f"{name} {at}", "ab"[at % 2], name) for name, n_rows in counts.items() for at in range(n_rows)]


def test_rows_go_to_the_split_they_name(tmp_path, write):
    data = DataConfig(path=str(write(tmp_path / "all.csv", rows_of(Train=40, dev=6, Testing=8), HEADER)))
    splits = read_splits(data, 0)
    for name, rows in {"Train": splits.train, "dev": splits.validation, "Testing": splits.test}.items():
        assert rows is not None
        assert {text.split()[0] for text in rows.texts} == {name}
    assert list(splits.validation.numbers) == [42, 43, 44, 45, 46, 47]
    assert splits.notes == [
        "all.csv: its column split says which rows are train (40), validation (6), test (8); "
        "rename it to have them drawn"
    ]
    assert read_split(data, "test", ["a", "b"]).texts == [f"Testing {at}" for at in range(8)]


def test_a_split_that_is_missing_is_carved_out_of_train(tmp_path, write):
    splits = read_splits(DataConfig(path=str(write(tmp_path / "a.csv", rows_of(train=40, test=8), HEADER))), 0)
    assert [len(rows) for rows in splits.by_name().values()] == [36, 4, 8]


def test_a_broken_row_keeps_its_number(tmp_path, write, complaint):
    rows = [*rows_of(train=40, test=8), ("short",), ("", "a", "test")]
    assert complaint(DataConfig(path=str(write(tmp_path / "a.csv", rows, HEADER)))).startswith(
        "a.csv, row 50: has 1 cell"
    )
    del rows[-2]
    assert complaint(DataConfig(path=str(write(tmp_path / "a.csv", rows, HEADER)))).startswith(
        "a.csv, row 50: the text"
    )


def test_the_rows_of_another_split_can_be_judged(tmp_path, write):
    file = write(tmp_path / "all.csv", rows_of(train=40, dev=6, test=8), HEADER)
    splits = read_splits(DataConfig(path=str(file), test_split="validation"), 0)
    assert {name: {text.split()[0] for text in rows.texts} for name, rows in splits.by_name().items()} == {
        "train": {"train"}, "validation": {"train"}, "test": {"dev"},
    }  # fmt: skip


def test_a_typed_split_is_that_of_the_rows_that_name_it(tmp_path, write, complaint):
    file = write(tmp_path / "all.csv", rows_of(train=40, dev=6, test=8, Holdout=10), HEADER)
    data = DataConfig(path=str(file), test_split="Holdout")
    splits = read_splits(data, 0)
    assert [(len(rows), rows.texts[0].split()[0]) for rows in splits.by_name().values()] == [
        (40, "train"), (6, "dev"), (10, "Holdout"),
    ]  # fmt: skip
    assert "train (40), validation (6), test (8), Holdout (10)" in splits.notes[0]
    for role in ("train", "validation", "test"):
        assert complaint(replace(data, **{"test_split": "test", f"{role}_split": "nope"})) == (
            f"data.{role}_split=nope is in no row of the column split of data.path={file}: its rows are of dev, "
            "holdout, test, train; choose one of them"
        )


def test_an_empty_name_takes_the_role_from_the_rows(tmp_path, write):
    data = DataConfig(path=str(write(tmp_path / "a.csv", rows_of(train=40, dev=6, test=8), HEADER)))
    for typed, sizes in (
        ({"validation_split": ""}, [36, 4, 8]),
        ({"test_split": ""}, [40, 6]),
        ({"validation_split": "", "test_split": ""}, [32, 4, 4]),
        ({"validation_split": "test", "test_split": ""}, [40, 8]),
    ):
        assert [len(rows) for rows in read_splits(replace(data, **typed), 0).by_name().values()] == sizes


@pytest.mark.parametrize("counts", [{"train": 40}, {"test": 20, "dev": 20}, {"left": 20, "right": 20}])
def test_other_columns_of_that_name_are_none(counts, tmp_path, write):
    splits = read_splits(DataConfig(path=str(write(tmp_path / "a.csv", rows_of(**counts), HEADER))), 0)
    assert [len(rows) for rows in splits.by_name().values()] == [32, 4, 4]
    assert "column split" not in " ".join(splits.notes)


def test_the_label_may_be_called_so_and_what_is_not_followed_is_said(tmp_path, write):
    data = DataConfig(path=str(write(tmp_path / "a.csv", rows_of(train=20, test=20, extra=20), HEADER)))
    assert read_splits(data, 0).notes[0] == "a.csv: its column split is not followed, as it also holds extra"
    data = replace(data, label="split")
    assert read_splits(data, 0).labels == ["extra", "test", "train"]


def test_its_name_may_be_a_large_one(tmp_path, write):
    path = write(tmp_path / "a.csv", rows_of(train=40, test=8), ("text", "label", "Split"))
    splits = read_splits(DataConfig(path=str(path)), 0)
    assert [len(rows) for rows in splits.by_name().values()] == [36, 4, 8]
    assert splits.notes[0].startswith("a.csv: its column Split says which rows are train (40), test (8);")
