"""goemotions has any number of labels a row: rows with exactly one are used, the others are bad rows."""

import csv
from pathlib import Path

import datasets
import pytest

from manyheads.compose import compose
from manyheads.config import DataConfig, OnBadRow
from manyheads.data import hub
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


def test_the_preset_leaves_rows_with_none_or_several_out():
    data = preset()
    assert (data.hub, data.hub_config, data.label) == ("google-research-datasets/go_emotions", "simplified", "labels")
    assert data.on_bad_row is OnBadRow["drop"]


def test_a_local_copy_joins_its_labels(folder):
    splits = read_splits(preset(f"data.path={folder}"), 0)
    assert splits.labels == NAMES
    assert splits.train.labels == [0, 1, 2] * 8 + [2]
    assert (splits.train.texts[-1], splits.train.numbers[-1]) == ("train text 26", 28)
    assert splits.notes == [
        f"{split}.csv: 2 of 27 rows left out (first: row 26: has 2 labels, but one is needed)"
        for split in ("train", "validation", "test")
    ]
    assert read_split(preset(f"data.path={folder}"), "test", NAMES).labels == [0, 1, 2] * 8 + [2]


def test_a_row_with_none_or_several_can_stop_the_run(folder):
    data = preset(f"data.path={folder}", "data.on_bad_row=raise")
    assert complaint(data) == (
        "train.csv, row 26: has 2 labels, but one is needed (1 more row is bad); "
        "correct it, or leave such rows out by data.on_bad_row=drop"
    )
    (folder / "train.csv").write_text("text,labels\na,joy\nb,\nc,anger\n")
    assert complaint(data) == (
        "train.csv, row 3: has no label, but one is needed; correct it, or leave such rows out by data.on_bad_row=drop"
    )


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
    assert splits.train.labels == [0, 1, 2] * 8 + [2]
    assert splits.notes[0] == (
        "google-research-datasets/go_emotions/train: 2 of 27 rows left out "
        "(first: row 25: has 2 labels, but one is needed)"
    )


@pytest.mark.parametrize("kind", ["parquet", "saved"])
def test_copies_of_the_hubs_files_keep_their_class_names(tmp_path, copy, kind):
    if kind == "saved":
        copy.save_to_disk(tmp_path)
    else:
        for name, split in copy.items():
            split.to_parquet(tmp_path / f"{name}-00000-of-00001.parquet")
    splits = read_splits(preset(f"data.path={tmp_path}"), 0)
    assert splits.labels == NAMES
    assert splits.train.labels == [0, 1, 2] * 8 + [2]
