"""Texts to learn from: those of train, never those a run is judged on."""

import csv
from dataclasses import replace

import pytest

from manyheads.config import DataConfig
from manyheads.data.sources import read_splits
from manyheads.plugins.language.texts import read_texts


def test_texts_are_not_validated_on_themselves(tmp_path, write, two_classes):
    write(tmp_path / "train.csv", two_classes(40))
    for label in ("label", ""):
        with pytest.raises(ValueError, match=r"data\.validation_split=train leaves no text to learn from"):
            read_texts(DataConfig(path=str(tmp_path), validation_split="train", label=label), 0, [])


def write(path, rows, header=("text", "label")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def labelled(tmp_path):
    rows = [(f"text {at}", "ab"[at % 2]) for at in range(60)]
    return DataConfig(source="files", path=str(write(tmp_path / "one.csv", rows)))


def test_the_rows_are_those_that_training_would_learn_from_and_validate_on(labelled):
    ours, theirs = read_texts(labelled, 3, []), read_splits(labelled, 3)
    assert ours.train.texts == theirs.train.texts
    assert ours.validation.texts == theirs.validation.texts
    assert set(ours.train.labels) == {0}
    assert (ours.labels, ours.test) == ([], None)


def test_texts_that_a_run_is_judged_on_are_never_learnt_from(labelled, tmp_path):
    theirs = read_splits(labelled, 3)
    assert theirs.test is not None
    judged = [*theirs.validation.texts, *theirs.test.texts]
    more = write(tmp_path / "more.csv", [(text,) for text in [*judged, "one more"]], ["text"])
    ours = read_texts(labelled, 3, [str(more)])
    assert not set(ours.train.texts) & set(judged)
    assert ours.train.texts[-1] == "one more"
    assert any(
        f"{len(judged)} of {len(theirs.train) + len(judged) + 1} texts are left out" in one for one in ours.notes
    )


def test_a_file_without_labels_and_one_whose_labels_are_not_read(labelled, tmp_path):
    bare = DataConfig(
        source="files", path=str(write(tmp_path / "bare.csv", [(f"t{at}",) for at in range(20)], ["text"]))
    )
    splits = read_texts(bare, 0, [])
    assert (len(splits.train), len(splits.validation)) == (18, 2)
    labelled = replace(labelled, label="")
    splits = read_texts(labelled, 0, [])
    assert (len(splits.train), len(splits.validation)) == (54, 6)


def test_lines_of_a_text_file_are_texts(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\n\n two \r\nthree\u2028still three\n" + "".join(f"line {at}\n" for at in range(20)))
    splits = read_texts(DataConfig(source="files", path=str(path)), 0, [])
    texts = {*splits.train.texts, *splits.validation.texts}
    assert {"one", " two ", "three\u2028still three"} <= texts
    assert len(texts) == 23


def test_further_texts_of_a_folder_are_those_of_its_training_split(labelled, tmp_path):
    folder = tmp_path / "more"
    folder.mkdir()
    for name in ("train", "test"):
        write(folder / f"{name}.csv", [(f"{name} {at}",) for at in range(5)], ["text"])
    found = read_texts(labelled, 0, [str(folder)]).train.texts
    assert [text for text in found if text.startswith(("train", "test"))] == [f"train {at}" for at in range(5)]


def test_pairs_stay_pairs_and_take_further_pairs_but_no_single_texts(tmp_path):
    rows = [(f"a{at}", f"b{at}", "xy"[at % 2]) for at in range(40)]
    data = DataConfig(source="files", path=str(write(tmp_path / "p.csv", rows, ["text", "text_pair", "label"])))
    alone = read_texts(data, 0, [])
    judged = alone.validation.texts[0], alone.validation.pairs[0]
    more = str(write(tmp_path / "more.csv", [("c", "d"), judged], ["text", "text_pair"]))
    both = read_texts(data, 0, [more]).train
    assert (both.texts, both.pairs) == ([*alone.train.texts, "c"], [*alone.train.pairs, "d"])
    single = str(write(tmp_path / "single.csv", [("c",)], ["text"]))
    with pytest.raises(ValueError, match=r"pretrain.also=single.csv adds single texts, but p.csv holds pairs"):
        read_texts(data, 0, [more, single])
    data = replace(data, text_pair="")
    assert read_texts(data, 0, [more, single]).train.texts[-2:] == ["c", "c"]  # of more.csv the first texts alone


def test_fewer_rows_are_fewer_of_everything(labelled, tmp_path):
    labelled = replace(labelled, rows=5)
    more = write(tmp_path / "more.csv", [(f"more {at}",) for at in range(30)], ["text"])
    splits = read_texts(labelled, 0, [str(more)])
    assert (len(splits.train), len(splits.validation)) == (10, 5)


@pytest.mark.parametrize("column", ["label", "labels"])
def test_labels_that_nothing_can_be_trained_on_are_left_unread_if_asked(column, tmp_path):
    path = write(
        tmp_path / "one.csv", [(f"t{at}", "a" if column == "label" else "") for at in range(20)], ("text", column)
    )
    data = DataConfig(source="files", path=str(path))
    with pytest.raises(ValueError, match=r"; or read the texts without their labels by data.label=$"):
        read_texts(data, 0, [])
    data = replace(data, label="")
    assert len(read_texts(data, 0, []).train) == 18


def test_a_text_that_is_missing_is_no_matter_of_labels(tmp_path):
    path = write(tmp_path / "labels.csv", [(f"t{at}" if at else "", "ab"[at % 2]) for at in range(20)])
    with pytest.raises(ValueError, match=r"labels\.csv, row 2: the text is empty") as caught:
        read_texts(DataConfig(source="files", path=str(path)), 0, [])
    assert "without their labels" not in str(caught.value)


def test_files_that_are_not_read_are_told_without_labels_too(tmp_path):
    for name in ("train", "valid_data"):
        write(tmp_path / f"{name}.csv", [(f"{name} {at}",) for at in range(20)], ["text"])
    data = DataConfig(source="files", path=str(tmp_path))
    assert read_texts(data, 0, []).notes[0] == (
        "not read, as its name is that of no split: valid_data.csv; name it by data.validation_split=valid_data"
    )
    data = replace(data, test_split="nix")
    with pytest.raises(ValueError, match=r"^data\.test_split=nix is the name of no file in data\.path="):
        read_texts(data, 0, [])


def test_further_texts_that_cannot_be_opened_are_named_by_their_setting(labelled, tmp_path):
    folder = tmp_path / "data.path=more"
    folder.mkdir()
    for name in ("a", "b"):
        write(folder / f"{name}.csv", [(name,)], ["text"])
    with pytest.raises(ValueError, match=r"^pretrain") as caught:
        read_texts(labelled, 0, [str(folder)])
    assert str(caught.value) == (
        f"pretrain.also={folder} has no training split: it holds a.csv, b.csv; name one of them train, or give one "
        "file by pretrain.also=[<file>]"
    )
