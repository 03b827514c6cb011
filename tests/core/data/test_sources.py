"""From settings to checked splits: every place data can lie."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from manyheads.config import DataConfig, MergeLabels, OnBadRow
from manyheads.data.sources import read_split, read_splits


def test_the_demo_needs_nothing():
    splits = read_splits(DataConfig(), seed=5)
    assert (len(splits.train), len(splits.validation), len(splits.test or [])) == (4000, 500, 1000)
    assert splits.labels[0] == "check-bank"
    assert splits.notes == []
    assert splits.train.texts == read_splits(DataConfig(), seed=6).train.texts


def test_one_file_is_split_by_class_and_seed(tmp_path, write, two_classes):
    data = DataConfig(path=str(write(tmp_path / "all.csv", two_classes(200))))
    splits = read_splits(data, 0)
    assert splits.test is not None
    assert Counter(splits.test.labels) == {0: 10, 1: 10}
    assert Counter(splits.validation.labels) == {0: 10, 1: 10}, "80 / 10 / 10, not a tenth of what the test left"
    assert len(splits.train) == 160
    numbers = [*splits.train.numbers, *splits.validation.numbers, *splits.test.numbers]
    assert sorted(numbers) == list(range(2, 202))
    assert splits.notes == [
        "test: 20 of 200 rows held out by class (data.test_share=0.1)",
        "validation: 20 of 200 rows held out by class (data.validation_share=0.1)",
    ]
    assert list(read_splits(data, 0).validation.numbers) == list(splits.validation.numbers)
    assert list(read_splits(data, 1).validation.numbers) != list(splits.validation.numbers)
    without = read_splits(data, 0, with_test=False)
    assert without.test is None
    assert without.train.texts == splits.train.texts


def test_carved_shares_are_of_all_rows_and_leave_some(tmp_path, write, two_classes, complaint):
    data = DataConfig(path=str(write(tmp_path / "all.csv", two_classes(200))), validation_share=0.3, test_share=0.4)
    assert [len(rows) for rows in read_splits(data, 0).by_name().values()] == [60, 60, 80]
    data = replace(data, validation_share=0.6)
    assert complaint(data) == (
        "data.test_share=0.4 and data.validation_share=0.6 leave no row of all.csv to learn from: use smaller ones"
    )


def test_a_folder_gives_one_file_a_split(tmp_path, write, two_classes):
    write(tmp_path / "train.csv", two_classes(40))
    (tmp_path / "dev.jsonl").write_text("\n".join(json.dumps({"text": f"d{i}", "label": "yes"}) for i in range(3)))
    write(tmp_path / "test.csv", two_classes(6, "t"))
    (tmp_path / "README.md").write_text("not data")
    splits = read_splits(DataConfig(path=str(tmp_path)), 0)
    assert splits.test is not None
    assert [len(splits.train), len(splits.validation), len(splits.test)] == [40, 3, 6]
    assert [splits.train.source, splits.validation.source, splits.test.source] == ["train.csv", "dev.jsonl", "test.csv"]
    assert list(splits.validation.labels) == [1, 1, 1]
    assert splits.notes == []


def test_an_unread_test_split_may_even_be_broken(tmp_path, write, two_classes, complaint):
    write(tmp_path / "train.csv", two_classes(40))
    (tmp_path / "test.csv").write_bytes(b"\xff\xff")
    data = DataConfig(path=str(tmp_path))
    splits = read_splits(data, 0, with_test=False)
    assert (len(splits.train), len(splits.validation), splits.test) == (36, 4, None)
    assert complaint(data).startswith(f"{tmp_path / 'test.csv'}, row 1: byte 0xff at position 0 is not UTF-8")


def test_a_folder_without_test_is_judged_on_validation(tmp_path, write, two_classes):
    write(tmp_path / "train.csv", two_classes(40))
    write(tmp_path / "valid.csv", two_classes(4, "v"))
    splits = read_splits(DataConfig(path=str(tmp_path)), 0)
    assert splits.test is None
    assert splits.notes == ["train.csv has no test split: the run is judged on its validation split alone"]


def test_a_split_that_one_table_cannot_have_is_refused(tmp_path, write, two_classes, complaint):
    path = write(tmp_path / "rows.csv", two_classes(40))
    for role in ("train", "validation", "test"):
        assert complaint(DataConfig(path=str(path), **{f"{role}_split": "dev"})) == (
            f"data.{role}_split=dev is the name of no split of data.path={path}, which is one table without a column "
            "split: remove it, or give a folder with a file for each split"
        )
        said = complaint(DataConfig(**{f"{role}_split": "dev"}))
        assert said.startswith(f"data.{role}_split=dev is not a split of data=demo: its splits are train, validation")
    judged = read_splits(DataConfig(test_split="validation"), 0)
    assert judged.test is not None
    assert judged.test.source == "demo/validation"


def test_files_of_no_split_are_told_and_read_once_they_are_named(tmp_path, write, two_classes, complaint):
    for name, n_rows in {"train": 40, "test_data": 6, "valid_data": 4, "latest": 2}.items():
        write(tmp_path / f"{name}.csv", two_classes(n_rows, name))
    data = DataConfig(path=str(tmp_path))
    assert read_splits(data, 0).notes[0] == (
        "not read, as their names are those of no split: latest.csv, test_data.csv, valid_data.csv; "
        "name them by data.validation_split=valid_data data.test_split=test_data"
    )
    data = replace(data, validation_split="valid_data")
    (tmp_path / "latest.csv").unlink()
    assert read_splits(data, 0).notes[0] == (
        "not read, as its name is that of no split: test_data.csv; name it by data.test_split=test_data"
    )
    write(tmp_path / "test.csv", two_classes(8, "other"))
    splits = read_splits(replace(data, test_split="test_data"), 0)
    assert splits.test is not None
    assert [part.source for part in splits.by_name().values()] == ["train.csv", "valid_data.csv", "test_data.csv"]
    assert splits.notes == []
    assert complaint(replace(data, test_split="tests")) == (
        f"data.test_split=tests is the name of no file in data.path={tmp_path}: its files are named test, test_data, "
        "train, valid_data; choose one of them"
    )


def test_a_folder_may_be_validated_on_its_training_rows(tmp_path, write, two_classes):
    write(tmp_path / "train.csv", two_classes(40))
    write(tmp_path / "test.csv", two_classes(6, "t"))
    splits = read_splits(DataConfig(path=str(tmp_path), validation_split="train"), 0)
    assert [len(part) for part in splits.by_name().values()] == [40, 40, 6]


def test_shards_of_a_downloaded_dataset_belong_together(tmp_path, write, two_classes, complaint):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train-00000-of-00002.csv", two_classes(20))
    write(tmp_path / "data" / "train-00001-of-00002.csv", [*two_classes(20, "b"), ("", "no")])
    write(tmp_path / "data" / "test-00000-of-00001.csv", two_classes(4, "t"))
    assert complaint(DataConfig(path=str(tmp_path))) == (
        "train-00000-of-00002.csv and 1 more, row 41: the text is empty; "
        "correct it, or leave such rows out by data.on_bad_row=drop"
    )
    splits = read_splits(DataConfig(path=str(tmp_path), on_bad_row=OnBadRow["drop"]), 0)
    assert len(splits.train) + len(splits.validation) == 40


@pytest.fixture
def saved(tmp_path) -> Path:
    import datasets

    features = datasets.Features(
        {"sentence": datasets.Value("string"), "gold": datasets.ClassLabel(names=["yes", "no", "x"])}
    )

    def split(n_rows: int, mark: str, label: int | None = None) -> datasets.Dataset:
        cells = {
            "sentence": [f"{mark}{i}" for i in range(n_rows)],
            "gold": [i % 2 if label is None else label for i in range(n_rows)],
        }
        return datasets.Dataset.from_dict(cells, features=features)

    splits = datasets.DatasetDict({"train": split(40, "a"), "validation": split(6, "b"), "test": split(6, "c", -1)})
    splits.save_to_disk(str(tmp_path / "saved"))
    splits["train"].select(range(39, -1, -1)).save_to_disk(str(tmp_path / "one"))
    return tmp_path


def test_a_saved_dataset_keeps_its_class_order(saved):
    data = DataConfig(
        path=str(saved / "saved"), text="sentence", label="gold", validation_split="", test_split="validation"
    )
    splits = read_splits(data, 0)
    assert splits.labels == ["yes", "no"]
    assert splits.test is not None
    assert splits.test.texts == [f"b{i}" for i in range(6)]
    assert list(splits.test.labels) == [0, 1] * 3
    assert splits.notes[0] == "saved/train: 1 of 3 declared classes have no training row and are left out: x"
    one = read_splits(DataConfig(path=str(saved / "one"), text="sentence", label="gold"), 0)
    assert len(one.train) + len(one.validation) + len(one.test or []) == 40
    assert sorted(zip(one.train.texts, one.train.numbers, strict=True))[0] == ("a0", 40)


def test_a_saved_split_that_is_the_test_split_is_not_validated_on(saved):
    splits = read_splits(
        DataConfig(path=str(saved / "saved"), text="sentence", label="gold", test_split="validation"), 0
    )
    assert splits.test is not None
    assert splits.test.texts == [f"b{i}" for i in range(6)]
    assert (len(splits.train), len(splits.validation)) == (36, 4)
    assert {text[0] for text in splits.validation.texts} == {"a"}
    assert splits.notes[-1].startswith("validation: 4 of 40 rows held out by class")


def test_one_split_has_one_role():
    with pytest.raises(
        ValueError, match=r"^data\.validation_split=dev and data\.test_split=dev name one split for two "
    ):
        DataConfig(validation_split="dev", test_split="dev")


def test_saved_labels_that_are_hidden_are_named(saved, complaint):
    data = DataConfig(path=str(saved / "saved"), text="sentence", label="gold")
    assert complaint(data) == (
        "saved/test is without labels: 'gold' of all its 6 rows is -1, which stands for none; leave the split unread "
        "by test=false, or be judged on another by data.test_split=validation"
    )
    data = DataConfig(path=str(saved / "saved"), text="sentence", label="gold", test_split="unseen")
    assert complaint(data) == (
        f"data.test_split=unseen is not a split of data.path={saved / 'saved'}: its splits are train, validation, test"
    )


def test_a_damaged_saved_folder_is_one_sentence(saved, complaint):
    for arrow in (saved / "saved" / "train").glob("*.arrow"):
        arrow.write_bytes(b"nothing")
    assert complaint(DataConfig(path=str(saved / "saved"))).startswith(
        f"{saved / 'saved'} cannot be read as a save_to_disk folder ("
    )


def test_pairs_are_read_as_pairs(tmp_path, write, two_classes, complaint):
    rows = [(f"a{i}", f"b{i}", ("no", "yes")[i % 2]) for i in range(20)]
    write(tmp_path / "train.csv", rows, ("text", "text_pair", "label"))
    splits = read_splits(DataConfig(path=str(tmp_path / "train.csv")), 0)
    assert splits.train.pairs == [text.replace("a", "b") for text in splits.train.texts]
    write(tmp_path / "test.csv", two_classes(4))
    assert complaint(DataConfig(path=str(tmp_path))) == (
        "test.csv has no column 'text_pair' (data.text_pair), which the training split has: its columns are text, label"
    )


def test_labels_that_are_numbers_are_ordered_by_value(tmp_path, write):
    path = write(tmp_path / "a.csv", [(f"t{i}", i % 11) for i in range(220)])
    assert read_splits(DataConfig(path=str(path)), 0).labels == [str(i) for i in range(11)]


def test_rows_limits_every_split(tmp_path, write):
    write(tmp_path / "train.csv", [(f"t{i}", i % 11) for i in range(220)])
    write(tmp_path / "test.csv", [(f"u{i}", i % 11) for i in range(30)])
    splits = read_splits(DataConfig(path=str(tmp_path), rows=12), 0)
    assert (len(splits.train), len(splits.validation), len(splits.test or [])) == (12, 12, 12)
    assert set(splits.train.labels) == set(range(11))
    assert splits.notes[-1] == "data.rows=12: 12 of 198 training rows are used"


def test_one_split_is_read_for_a_model(tmp_path, write, two_classes):
    write(tmp_path / "train.csv", two_classes(40))
    test = write(tmp_path / "test.csv", [("hi", "yes"), ("ho", "yes")])
    for data in (DataConfig(path=str(tmp_path)), DataConfig(path=str(test))):
        rows = read_split(data, "test", ["yes", "maybe", "no"])
        assert (rows.texts, list(rows.labels), rows.source, list(rows.numbers)) == (
            ["hi", "ho"],
            [0, 0],
            "test.csv",
            [2, 3],
        )
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        read_split(DataConfig(path=str(tmp_path)), "validation", ["yes", "no"])
    assert str(caught.value) == "split=validation is not in the data, which holds train, test: choose one of them"
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        read_split(DataConfig(path=str(tmp_path)), "test", ["spam", "ham"])
    assert str(caught.value) == (
        "test.csv has labels the model does not know: the data's labels are yes, the model's are spam, ham; "
        "the first is in row 2; rename the data's labels, or choose another column by data.label"
    )
    with pytest.raises(
        ValueError, match=r"the first is in row 2; they differ by case only: merge them by data.merge_l"
    ):
        read_split(DataConfig(path=str(tmp_path)), "test", ["YES", "no"])
    assert [*read_split(DataConfig(path=str(tmp_path), merge_labels=MergeLabels.case), "test", ["YES"]).labels] == [
        0,
        0,
    ]
    with pytest.raises(ValueError, match=r"the first is in row 2; rename the data's labels"):  # it may be either
        read_split(DataConfig(path=str(tmp_path)), "test", ["YES", "Yes"])
    assert len(read_split(DataConfig(), "test", read_splits(DataConfig(), 0).labels)) == 1000


def test_a_preset_reads_a_local_copy(tmp_path, write, two_classes):
    write(tmp_path / "train.csv", two_classes(40))
    write(tmp_path / "validation.csv", two_classes(4, "v"))
    preset = {"source": "hub", "hub": "stanfordnlp/sst2", "text": "sentence", "validation_split": ""}
    data = DataConfig(path=str(tmp_path), test_split="validation", **preset)
    splits = read_splits(data, 0)
    assert splits.test is not None
    assert (splits.test.source, splits.validation.source, len(splits.validation)) == ("validation.csv", "train.csv", 4)
    write(tmp_path / "test.csv", [(f"t{i}", -1) for i in range(6)])
    splits = read_splits(data, 0)
    assert splits.test is not None
    assert (splits.test.source, splits.validation.source) == ("validation.csv", "train.csv")
    assert splits.notes[0] == "not read, as the preset has data.test_split=validation: test.csv"
    (tmp_path / "validation.csv").rename(tmp_path / "dev.csv")
    splits = read_splits(data, 0)
    assert splits.test is not None
    assert splits.test.source == "dev.csv"


def test_an_empty_name_takes_the_role_from_a_file(tmp_path, write, two_classes):
    for name, n_rows in {"train": 40, "dev": 6, "test": 8}.items():
        write(tmp_path / f"{name}.csv", two_classes(n_rows, name))
    data = DataConfig(path=str(tmp_path))
    for typed, sources in (
        ({"validation_split": ""}, ["train.csv", "train.csv", "test.csv"]),
        ({"test_split": ""}, ["train.csv", "dev.csv"]),
        ({"validation_split": "", "test_split": ""}, ["train.csv"] * 3),
        ({"validation_split": "", "hub": "stanfordnlp/imdb"}, ["train.csv", "train.csv", "test.csv"]),
        # of mnli, whose local copy may call its splits as others do
        ({"validation_split": "", "test_split": "matched", "hub": "a/b"}, ["train.csv", "dev.csv", "test.csv"]),
    ):
        splits = read_splits(replace(data, **typed), 0)
        assert [rows.source for rows in splits.by_name().values()] == sources


@pytest.mark.parametrize("label", [-1, ""])
@pytest.mark.parametrize("on_bad_row", OnBadRow)
def test_a_test_split_without_labels_is_told_from_one_with_bad_rows(
    label, on_bad_row, tmp_path, write, two_classes, complaint
):
    write(tmp_path / "train.csv", two_classes(40))
    write(tmp_path / "test.csv", [(f"t{i}", label) for i in range(6)])
    said = (
        f"test.csv is without labels: 'label' of all its 6 rows is {'empty' if label == '' else ''}"
        f"{'-1, which stands for none' if label else ''}; leave the split unread by test=false"
    )
    data = DataConfig(path=str(tmp_path), on_bad_row=on_bad_row)
    assert complaint(data) == said
    write(tmp_path / "dev.csv", two_classes(4, "v"))
    assert complaint(data) == f"{said}, or be judged on another by data.test_split=validation"
    splits = read_splits(replace(data, test_split="validation"), 0)
    assert splits.test is not None
    assert splits.test.source == "dev.csv"
    with pytest.raises(ValueError, match=r"^test\.csv is without .*; name another split by split=validation, or get"):
        read_split(data, "test", ["no", "yes"])
    for path, split in ((tmp_path / "test.csv", "test"), (tmp_path, "validation")):
        write(tmp_path / "dev.csv", [(f"t{i}", label) for i in range(6)])
        with pytest.raises(ValueError, match=r" is without labels: [^;]*; get the labels of these by predict$"):
            read_split(replace(data, path=str(path)), split, ["no", "yes"])
    assert complaint(data).endswith("; hold rows out of train instead by data.validation_split=")


def test_minus_one_may_be_a_class(tmp_path, write):
    write(tmp_path / "train.csv", [(f"text {i}", (-1, 1)[i % 2]) for i in range(40)])
    write(tmp_path / "test.csv", [(f"t{i}", -1) for i in range(6)])
    assert len(read_splits(DataConfig(path=str(tmp_path)), 0).test or []) == 6


def test_rows_of_labels_that_a_model_does_not_know_are_left_out_if_asked(tmp_path, write, two_classes, warned):
    path = write(tmp_path / "a.csv", [*two_classes(4), ("hi", "maybe"), ("ho", "never"), ("ha", "never")])
    data = DataConfig(path=str(path))
    with pytest.raises(ValueError, match=r"by data\.label, or leave such rows out by data\.on_bad_row=drop$"):
        read_split(data, "test", ["no", "yes"])
    rows = read_split(replace(data, on_bad_row=OnBadRow["drop"]), "test", ["yes", "no"])
    assert (list(rows.labels), list(rows.numbers)) == ([1, 0, 1, 0], [2, 3, 4, 5])
    assert "a.csv: 3 of 7 rows left out, as the model does not know their labels: maybe, never" in warned
    write(path, [("a", "yes|no"), ("b", "yes|maybe"), ("c", "")], ("text", "labels"))
    rows = read_split(replace(data, on_bad_row=OnBadRow["drop"]), "test", ["no", "yes"], multi=True)
    assert (rows.texts, rows.sets) == (["a", "c"], [(0, 1), ()])


def test_texts_that_are_answered_by_texts(tmp_path, write):
    rows = [(f"question {i}", f"answer {i % 3}", "ignored") for i in range(40)]
    data = DataConfig(path=str(write(tmp_path / "all.csv", rows, ("source", "target", "label"))), text="source")
    splits = read_splits(data, 0, answer="target")
    assert splits.test is not None
    assert (len(splits.train), len(splits.validation), len(splits.test), splits.labels) == (32, 4, 4, [])
    for part in splits.by_name().values():
        assert part.targets == [f"answer {int(text.split()[1]) % 3}" for text in part.texts]
        assert list(part.labels) == [0] * len(part)
    assert splits.notes[0] == "test: 4 of 40 rows held out (data.test_share=0.1)"
    whole = read_split(data, "test", [])
    assert (whole.targets or [])[:4] == ["answer 0", "answer 1", "answer 2", "answer 0"]
    assert len(read_splits(replace(data, rows=5), 0, answer="target").train.targets or []) == 5


@pytest.mark.parametrize(
    ("rows", "header", "sentence"),
    [
        (
            [("a", "b")],
            ("source", "answer"),
            "all.csv has no column 'target' (data.target): its columns are source, answer; name one by "
            "data.target=<column>",
        ),
        (
            [("a", "b"), ("c", "")],
            ("source", "target"),
            "all.csv, row 3: the target is empty; correct it, or leave such rows out by data.on_bad_row=drop",
        ),
        (
            [("a", "b"), (" ", "c")],
            ("source", "target"),
            "all.csv, row 3: the text is only white space; correct it, or leave such rows out by data.on_bad_row=drop",
        ),
    ],
)
def test_mistakes_in_target_texts(rows, header, sentence, tmp_path, write):
    data = DataConfig(path=str(write(tmp_path / "all.csv", rows, header)), text="source")
    with pytest.raises(ValueError, match=r"^all\.csv") as refused:
        read_splits(data, 0, answer="target")
    assert str(refused.value) == sentence
    if "on_bad_row" in sentence:
        more = [*rows, *((f"t{i}", "x") for i in range(9))]
        write(tmp_path / "all.csv", more, header)
        dropped = read_splits(replace(data, on_bad_row=OnBadRow["drop"]), 0, answer="target")
        assert sum(map(len, dropped.by_name().values())) == 10


def test_one_text_with_two_targets_is_said(tmp_path, write):
    rows = [("same", "one"), ("same", "two"), *((f"t{i}", "x") for i in range(20))]
    data = DataConfig(path=str(write(tmp_path / "all.csv", rows, ("source", "target"))), text="source")
    notes = read_splits(data, 0, answer="target").notes
    assert "train (all.csv): 1 text carries more than one target (first: row 2, one and two)" in notes


def shards(folder, first, second):
    for at, table in enumerate((first, second)):
        pyarrow.parquet.write_table(table, folder / f"train-0000{at}-of-00002.parquet")
    return DataConfig(path=str(folder))


def test_shards_may_have_their_columns_in_any_order(tmp_path):
    one = {"text": [f"a{at}" for at in range(20)], "label": ["x", "y"] * 10}
    data = shards(tmp_path, pyarrow.table(one), pyarrow.table(dict(reversed(one.items()))))
    assert len(read_splits(data, 0).train) == 32


def test_shards_whose_classes_have_other_numbers_are_refused(tmp_path, complaint):
    import datasets

    tables = []
    for names in (["neg", "pos"], ["pos", "neg"]):
        features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
        rows = {"text": [f"{names[at % 2]} {at}" for at in range(9)], "label": [at % 2 for at in range(9)]}
        tables.append(datasets.Dataset.from_dict(rows, features=features).data.table.replace_schema_metadata(None))
        tables[-1] = tables[-1].replace_schema_metadata(
            {"huggingface": json.dumps({"info": {"features": features.to_dict()}})}
        )
    assert complaint(shards(tmp_path, *tables)) == (
        "train-00001-of-00002.parquet declares the classes pos, neg of 'label', but train-00000-of-00002.parquet neg, "
        "pos: files of one split must give their classes the same numbers; write them from one dataset"
    )


def test_what_is_written_about_data_is_no_data(tmp_path, write, two_classes):
    (tmp_path / "data").mkdir()
    for name in ("dataset_infos.json", "LICENSE.txt", "README.txt"):
        (tmp_path / name).write_text('{"default": {"features": {}}}')
    write(tmp_path / "data" / "train-00000-of-00001.csv", two_classes(40))
    assert read_splits(DataConfig(path=str(tmp_path)), 0).train.source == "train-00000-of-00001.csv"


def test_files_in_folders_called_like_splits_are_read(tmp_path, write, two_classes, complaint):
    for name, n_rows in (("train", 40), ("test", 8)):
        (tmp_path / "default" / name).mkdir(parents=True)
        write(tmp_path / "default" / name / "0000.csv", two_classes(n_rows, name))
    write(tmp_path / "default" / "train" / "0001.csv", two_classes(10, "more"))
    found = read_splits(DataConfig(path=str(tmp_path / "default")), 0)
    assert [len(rows) for rows in found.by_name().values()] == [46, 4, 8]
    assert complaint(DataConfig(path=str(tmp_path))) == (
        f"data.path={tmp_path} holds no data file: they lie in its folder default: give "
        f"data.path={tmp_path / 'default'}"
    )


def test_names_that_look_like_splits_are_told_as_settings(tmp_path, write, two_classes, complaint):
    for name in ("Corona_train", "Corona_test"):
        write(tmp_path / f"{name}.csv", two_classes(40, name))
    assert complaint(DataConfig(path=str(tmp_path))) == (
        f"data.path={tmp_path} has no training split: it holds Corona_test.csv, Corona_train.csv; name one of them "
        "train, or type data.train_split=Corona_train data.test_split=Corona_test, or give one file by data.path=<file>"
    )
    data = DataConfig(path=str(tmp_path), train_split="Corona_train", test_split="Corona_test")
    assert [len(rows) for rows in read_splits(data, 0).by_name().values()] == [36, 4, 40]


def test_what_lies_deeper_is_named_where_it_is_clear(tmp_path, write, two_classes, complaint):
    data = DataConfig(path=str(tmp_path))
    (tmp_path / "my own").mkdir()
    write(tmp_path / "my own" / "train.csv", two_classes(40))
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "a.txt").write_text("one\n")
    said = f"data.path={tmp_path} holds no data file: they lie in its folder my own: give '{data.path}"
    assert complaint(data) == said.replace("give '", "give 'data.path=") + "/my own'"
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "one.csv", two_classes(40))
    write(tmp_path / "other" / "one.tsv", two_classes(40))
    assert "they lie" not in complaint(data)


def test_a_class_called_like_a_split_is_named(tmp_path, complaint):
    for name in ("bus", "train", "test"):
        (tmp_path / name).mkdir()
        for at in range(10):
            (tmp_path / name / f"{at}.txt").write_text(f"about a {name} {at}\n")
    assert complaint(DataConfig(path=str(tmp_path))) == (
        f"data.path={tmp_path} holds no data file: its folder test has the name of a split, in which each class has a "
        f"folder: move the folders of all classes into {tmp_path / 'train'}"
    )
    (tmp_path / "inner").mkdir()
    for name in ("bus", "train", "test"):
        (tmp_path / name).rename(tmp_path / "inner" / name)
    (tmp_path / "inner").rename(tmp_path / "train")
    found = read_splits(DataConfig(path=str(tmp_path)), 0)
    assert found.labels == ["bus", "test", "train"]


def test_a_file_of_ones_own_wins_over_a_folder_called_data(tmp_path, write, two_classes):
    write(tmp_path / "reviews.csv", two_classes(40))
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "test.csv", two_classes(40))
    assert read_splits(DataConfig(path=str(tmp_path)), 0).train.source == "reviews.csv"


def test_folders_called_by_typed_names_are_read(tmp_path, write, two_classes):
    for name in ("learn", "judge"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "0.csv", two_classes(20, name))
    data = DataConfig(path=str(tmp_path), train_split="learn", test_split="judge")
    assert [len(rows) for rows in read_splits(data, 0).by_name().values()] == [18, 2, 20]
