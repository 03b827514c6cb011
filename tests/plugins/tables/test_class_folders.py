"""A folder for each class, a text a file: read as the splits they lie in."""

import shutil
from dataclasses import replace

import pytest

from manyheads.config import DataConfig, OnBadRow
from manyheads.data.sources import read_splits


@pytest.fixture
def reviews(tmp_path):
    for split, classes in {"train": ("neg", "pos", "unsup"), "test": ("neg", "pos")}.items():
        for name in classes:
            (tmp_path / split / name).mkdir(parents=True)
            for at in range(20):
                (tmp_path / split / name / f"{at}_7.txt").write_text(f"{split} {name}\nreview {at}\n")
        (tmp_path / split / "urls_pos.txt").write_text("not a review\n")
    (tmp_path / "imdbEr.txt").write_text("0.1\n")
    return tmp_path


def test_folders_of_classes_are_read_but_for_texts_without_one(reviews):
    splits = read_splits(DataConfig(path=str(reviews)), 0)
    assert splits.labels == ["neg", "pos"]
    assert {name: (len(rows), rows.source) for name, rows in splits.by_name().items()} == {
        "train": (36, "train"),
        "validation": (4, "train"),
        "test": (40, "test"),
    }
    assert splits.train.texts[0].startswith("train neg\nreview ")
    assert splits.notes[0] == "train/unsup: 20 texts without a class are not read"


def test_one_folder_of_classes_holds_everything(reviews):
    splits = read_splits(DataConfig(path=str(reviews / "train")), 0)
    assert [len(rows) for rows in splits.by_name().values()] == [32, 4, 4]


def test_a_folder_that_is_judged_on_is_not_validated_on(reviews):
    (reviews / "test").rename(reviews / "dev")
    splits = read_splits(DataConfig(path=str(reviews), test_split="dev"), 0)
    sizes = {name: (len(rows), rows.source) for name, rows in splits.by_name().items()}
    assert sizes == {"train": (36, "train"), "validation": (4, "train"), "test": (40, "dev")}


def test_a_folder_of_classes_may_be_called_as_it_is_typed(reviews, complaint):
    (reviews / "test").rename(reviews / "holdout")
    shutil.copytree(reviews / "holdout", reviews / "test")
    shutil.copytree(reviews / "holdout", reviews / "val")
    splits = read_splits(DataConfig(path=str(reviews), test_split="holdout"), 0)
    assert [rows.source for rows in splits.by_name().values()] == ["train", "val", "holdout"]
    (reviews / "train").rename(reviews / "learn")
    splits = read_splits(DataConfig(path=str(reviews), train_split="learn"), 0)
    assert [rows.source for rows in splits.by_name().values()] == ["learn", "val", "test"]
    assert complaint(DataConfig(path=str(reviews), train_split="learn", test_split="nope")) == (
        f"data.test_split=nope is the name of no folder of classes in data.path={reviews}: its folders are named "
        "holdout, learn, test, val; choose one of them"
    )


def test_folders_of_classes_that_are_not_read_are_named(reviews):
    for label in ("neg", "pos"):
        (reviews / "extra" / label).mkdir(parents=True)
        (reviews / "extra" / label / "1.txt").write_text("one more")
    said = read_splits(DataConfig(path=str(reviews)), 0).notes[0]
    assert said.startswith("not read, as its name is that of no split: extra")


def test_an_empty_name_takes_the_role_from_a_folder(reviews):
    shutil.copytree(reviews / "test", reviews / "val")
    splits = read_splits(DataConfig(path=str(reviews), validation_split=""), 0)
    assert [(len(rows), rows.source) for rows in splits.by_name().values()] == [
        (36, "train"), (4, "train"), (40, "test"),
    ]  # fmt: skip
    splits = read_splits(DataConfig(path=str(reviews), validation_split="", test_split=""), 0)
    assert [(len(rows), rows.source) for rows in splits.by_name().values()] == [
        (32, "train"), (4, "train"), (4, "train"),
    ]  # fmt: skip


def test_an_empty_file_is_named(reviews, complaint):
    empty = reviews / "train" / "pos" / "3_7.txt"
    empty.write_text("\n")
    data = DataConfig(path=str(reviews))
    assert complaint(data) == (
        f"train, row 34: the file {empty} is empty; correct it, or leave such rows out by data.on_bad_row=drop"
    )
    data = replace(data, on_bad_row=OnBadRow["drop"])
    assert sum(len(rows) for rows in read_splits(data, 0).by_name().values()) == 79


def test_tables_beside_them_win(reviews, write, two_classes):
    (reviews / "imdbEr.txt").unlink()
    write(reviews / "train.csv", two_classes(40))
    assert read_splits(DataConfig(path=str(reviews)), 0).train.source == "train.csv"


def test_a_table_beside_the_folders_of_classes_is_not_the_data(reviews):
    (reviews / "train" / "metadata.csv").write_text("file,author\n0_7.txt,someone\n")
    assert read_splits(DataConfig(path=str(reviews)), 0).labels == ["neg", "pos"]


def test_files_of_classes_that_are_not_read_are_named(reviews):
    (reviews / "train/neg/0_7.txt").rename(reviews / "train/neg/0_7.TXT")  # as Windows may call it
    (reviews / "train/pos/more").mkdir()
    (reviews / "train/pos/more/1.txt").write_text("a review")
    (reviews / "train/pos/0.html").write_text("a review")
    (reviews / "train/pos/.DS_Store").write_text("")
    splits = read_splits(DataConfig(path=str(reviews / "train")), 0)
    assert sum(map(len, splits.by_name().values())) == 40
    assert splits.notes[0] == ("train: not read, as they are no .txt: 2 in the folders of classes (first: pos/0.html)")
