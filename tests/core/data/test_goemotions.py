"""goemotions has any number of labels a row: each row keeps all of its own."""

import csv
from dataclasses import replace
from pathlib import Path

import datasets
import pytest

from manyheads.cli.compose import compose
from manyheads.config import DataConfig, OnBadRow
from manyheads.data.formats import hub
from manyheads.data.sources import read_split, read_splits

NAMES = ["anger", "joy", "neutral"]
ROWS = [["anger"], ["joy"], ["neutral"]] * 8 + [["joy", "anger"], [], ["neutral"]]


def preset(*words: str) -> DataConfig:
    return compose("train", ["data=goemotions", *words]).data


def complaint(data: DataConfig) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        read_splits(data, 0)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A local copy: labels joined by |, an empty cell for none."""
    for split in ("train", "validation", "test"):
        with (tmp_path / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = [(f"{split} text {at}", "|".join(labels)) for at, labels in enumerate(ROWS)]
            csv.writer(file).writerows([("text", "labels"), *rows])
    return tmp_path


ANSWERS = [(0,), (1,), (2,)] * 8 + [(0, 1), (), (2,)]
NOTE = (
    "{}: 1 with several and 1 with none of the 3 labels among 27 rows (first: row {}: {}), so each label is "
    "answered by itself"
)


def test_the_preset_reads_lists_of_labels():
    data = preset()
    assert (data.hub, data.hub_config, data.label) == ("google-research-datasets/go_emotions", "simplified", "labels")
    assert data.on_bad_row is OnBadRow["raise"]


def test_a_local_copy_joins_its_labels(folder):
    for data in (preset(f"data.path={folder}"), DataConfig(path=str(folder))):
        splits = read_splits(data, 0)
        assert splits.multi
        assert splits.labels == NAMES
        assert splits.train.sets == splits.test.sets == ANSWERS
        assert splits.notes[0] == NOTE.format("train.csv", 26, "anger, joy")
        assert read_split(data, "test", NAMES, multi=True).sets == ANSWERS


def test_rows_are_carved_by_the_rarest_of_their_labels(folder):
    splits = read_splits(DataConfig(path=str(folder)), 0)
    assert list(splits.train.labels) == [0, 1, 2] * 8 + [
        0,
        3,
        2,
    ]  # of joy and anger, nine rows each, the first; 3 is none


def test_one_label_a_training_row_is_a_class_like_any_other(folder):
    (folder / "train.csv").write_text("text,labels\na,joy\nb,anger\nc,neutral\n")
    assert complaint(DataConfig(path=str(folder))) == (
        "validation.csv, row 26: has 2 labels, but one is needed (1 more row is bad); "
        "correct it, or leave such rows out by data.on_bad_row=drop"
    )
    splits = read_splits(DataConfig(path=str(folder), on_bad_row=OnBadRow["drop"]), 0)
    assert not splits.multi
    assert list(splits.train.labels) == [1, 0, 2]
    assert splits.test.sets is None


@pytest.mark.parametrize(
    ("file", "line", "said"),
    [
        ("test", "d,joy|pride", "test.csv, row 29: the label 'pride' has no row in the training split"),
        ("validation", ",joy|anger", "validation.csv, row 29: the text is empty"),
    ],
)
def test_a_mistake_names_file_and_row(folder, file, line, said):
    with (folder / f"{file}.csv").open("a") as file:
        file.write(f"{line}\n")
    data = DataConfig(path=str(folder))
    assert complaint(data) == f"{said}; correct it, or leave such rows out by data.on_bad_row=drop"
    data = replace(data, on_bad_row=OnBadRow["drop"])
    splits = read_splits(data, 0)
    assert splits.train.sets == splits.validation.sets == splits.test.sets == ANSWERS


@pytest.mark.parametrize("line", ["d,joy|anger|joy", "d,joy| anger |anger"])
def test_a_label_that_is_named_twice_counts_once(folder, line):
    with (folder / "train.csv").open("a") as file:
        file.write(f"{line}\n")
    splits = read_splits(DataConfig(path=str(folder)), 0)
    assert splits.train.sets == [*ANSWERS, (0, 1)]
    assert splits.notes[0] == "train.csv: 1 row names a label twice, which counts once (first: row 29)"


def test_a_label_named_twice_makes_no_set_of_a_class(folder):
    for name in ("train", "validation", "test"):
        (folder / f"{name}.csv").write_text("text,labels\na,joy|joy\nb,anger\nc,neutral\nd,joy\n")
    splits = read_splits(DataConfig(path=str(folder)), 0)
    assert not splits.multi
    assert list(splits.train.labels) == [1, 0, 2, 1]
    assert splits.notes[0] == "train.csv: 1 row names a label twice, which counts once (first: row 2)"


def test_no_label_at_all_is_one_sentence(folder):
    (folder / "train.csv").write_text("text,labels\na,\nb,\n")
    assert complaint(DataConfig(path=str(folder))) == (
        "train.csv has no row with a label: a classifier needs at least one; check data.label"
    )


def test_one_file_is_carved_so_that_every_label_stays_in_train(tmp_path):
    sets = ["a", "b", "a|b", "", "c"] * 12 + ["a|rare", "b|rare", "c|rare"]
    rows = [(f"text {at}", labels) for at, labels in enumerate(sets)]
    with (tmp_path / "all.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "labels"), *rows])
    splits = read_splits(DataConfig(path=str(tmp_path / "all.csv"), validation_share=0.3, test_share=0.3), 0)
    assert splits.labels == ["a", "b", "c", "rare"]
    assert {label for one in splits.train.sets for label in one} == {0, 1, 2, 3}
    texts = [text for rows in splits.by_name().values() for text in rows.texts]
    assert sorted(texts) == sorted(text for text, _ in rows)
    for rows in splits.by_name().values():
        assert [sets[int(text.split()[1])] for text in rows.texts] == [
            "|".join(splits.labels[label] for label in one) for one in rows.sets
        ]


def test_a_column_of_another_name_is_never_cut(tmp_path):
    rows = "".join(f"text {at},{'either|or' if at % 2 else 'both'}\n" for at in range(40))
    (tmp_path / "a.csv").write_text(f"text,label\n{rows}")
    assert read_splits(DataConfig(path=str(tmp_path / "a.csv")), 0).labels == ["both", "either|or"]


@pytest.fixture
def copy() -> datasets.DatasetDict:
    """The hub's form: lists of class ids."""
    features = datasets.Features(
        {"text": datasets.Value("string"), "labels": datasets.Sequence(datasets.ClassLabel(names=[*NAMES, "pride"]))}
    )
    cells = {"text": [f"text {at}" for at in range(len(ROWS))], "labels": [[*map(NAMES.index, one)] for one in ROWS]}
    names = ("train", "validation", "test")
    return datasets.DatasetDict({name: datasets.Dataset.from_dict(cells, features=features) for name in names})


def test_the_hubs_lists_of_class_ids(monkeypatch, copy):
    asked = []
    monkeypatch.setattr(hub, "can_connect", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append(args) or copy)
    splits = read_splits(preset(), 0)
    assert asked == [("google-research-datasets/go_emotions", "simplified")]
    assert splits.labels == NAMES  # no row has pride
    assert splits.train.sets == ANSWERS
    assert NOTE.format("google-research-datasets/go_emotions/train", 25, "anger, joy") in splits.notes


@pytest.mark.parametrize("kind", ["parquet", "saved"])
def test_copies_of_the_hubs_files_keep_their_class_names(tmp_path, copy, kind):
    if kind == "saved":
        copy.save_to_disk(tmp_path)
    else:
        for name, split in copy.items():
            split.to_parquet(tmp_path / f"{name}-00000-of-00001.parquet")
    splits = read_splits(preset(f"data.path={tmp_path}"), 0)
    assert splits.labels == NAMES
    assert splits.train.sets == ANSWERS
