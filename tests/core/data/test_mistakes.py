"""The mistakes data can hold, each as its exact sentence, found before torch is imported."""

import json
import subprocess
import sys

import pytest

from manyheads.config import DataConfig, MergeLabels, OnBadRow
from manyheads.data.sources import read_splits
from manyheads.inference.reading import check_input


def test_a_folder_that_is_not_clear_is_refused(tmp_path, write, two_classes, complaint):
    data = DataConfig(path=str(tmp_path))
    kinds = "csv, tsv, jsonl, json, txt or parquet (the text kinds also as .gz, .bz2, .xz)"
    assert complaint(data) == (
        f"data.path={tmp_path} holds no data file: put files of {kinds} into it, or texts of classes, such as "
        "train/pos/1.txt"
    )
    write(tmp_path / "reviews.csv", two_classes(40))
    assert len(read_splits(data, 0).train) == 32
    write(tmp_path / "more.csv", two_classes(40))
    assert complaint(data) == (
        f"data.path={tmp_path} has no training split: it holds more.csv, reviews.csv; name one of them train, "
        "or give one file by data.path=<file>"
    )
    write(tmp_path / "train.csv", two_classes(40))
    write(tmp_path / "val.csv", two_classes(40))
    write(tmp_path / "dev.csv", two_classes(40))
    assert complaint(data) == (
        f"data.path={tmp_path} holds dev.csv and val.csv: both would be the validation split; keep one"
    )
    write(tmp_path / "train.tsv", two_classes(40))
    assert complaint(data) == f"{tmp_path} holds train.csv and train.tsv: two files of one name; keep one"


def test_missing_files_are_named(tmp_path, write, two_classes, complaint):
    write(tmp_path / "reviews.csv", two_classes(4))
    kinds = "csv, tsv, jsonl, json, txt or parquet (the text kinds also as .gz, .bz2, .xz)"
    assert complaint(DataConfig(path=str(tmp_path / "review.csv"))) == (
        f"data.path={tmp_path / 'review.csv'} does not exist: did you mean {tmp_path / 'reviews.csv'}?"
    )
    (tmp_path / "link.csv").symlink_to("gone.csv")
    assert complaint(DataConfig(path=str(tmp_path / "link.csv"))) == (
        f"data.path={tmp_path / 'link.csv'} does not exist: it is a link to gone.csv, which is not there"
    )
    assert complaint(DataConfig(path="/no/such/place")) == (
        f"data.path=/no/such/place does not exist: give a file of {kinds}, or a folder"
    )
    for name, why in (
        ("a.docx", f"is not a kind of file that is read: give {kinds}"),
        ("a.ods", "is a spreadsheet: save it as .csv, or as .xlsx"),
        ("a.ndjson", "holds JSON lines: let its name end with .jsonl"),
    ):
        (tmp_path / name).write_bytes(b"PK")
        assert complaint(DataConfig(path=str(tmp_path / name))) == f"data.path={tmp_path / name} {why}"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (("", "no"), "the text is empty"),
        (("  ", "no"), "the text is only white space"),
        (("\u200b\u200d \x7f", "no"), "the text has only signs that cannot be seen"),
        (("hi", ""), "the label is empty"),
        (("hi",), "has 1 cell, but the header has 2: quote texts that hold a line end"),
    ],
)
def test_bad_rows_stop_or_are_left_out(tmp_path, row, fault, write, two_classes, complaint):
    path = write(tmp_path / "a.csv", [*two_classes(40), row])
    assert complaint(DataConfig(path=str(path))) == (
        f"a.csv, row 42: {fault}; correct it, or leave such rows out by data.on_bad_row=drop"
    )
    splits = read_splits(DataConfig(path=str(path), on_bad_row=OnBadRow["drop"]), 0)
    assert len(splits.train) + len(splits.validation) + len(splits.test or []) == 40
    assert splits.notes[0] == f"a.csv: 1 of 41 rows left out (first: row 42: {fault})"


def test_nulls_and_lists_in_json_are_bad_rows(tmp_path, two_classes, complaint):
    path = tmp_path / "a.jsonl"
    good = [json.dumps({"text": text, "label": label}) for text, label in two_classes(40)]
    for bad, fault in {
        '{"text": null, "label": "no"}': "the text is empty",
        '{"label": "no"}': "the text is empty",
        '{"text": 7, "label": "no"}': "the text is not a string but a number",
        '{"text": "a"}': "the label is empty",
        '{"text": "a", "label": ["no", "yes"]}': "has 2 labels, but one is needed",
        '{"text": "a", "label": []}': "has no label, but one is needed",
        '{"text": "a", "label": [["no"]]}': "the label is a list, but a row has one class",
        '{"text": "a", "label": {"no": 1}}': "the label is an object, but a row has one class",
        '{"text": "\\ud83d", "label": "no"}': (
            "the text holds half a character (a lone surrogate), which UTF-8 cannot write"
        ),
    }.items():
        path.write_text("\n".join([*good, bad]))
        assert complaint(DataConfig(path=str(path))) == (
            f"a.jsonl, row 41: {fault}; correct it, or leave such rows out by data.on_bad_row=drop"
        )


def test_a_header_in_the_middle_is_a_bad_row(tmp_path, write, two_classes, complaint):
    """As `cat` leaves it of two tables."""
    write(tmp_path / "rows.csv", [*two_classes(40), ("text", "label"), *two_classes(40, "b")])
    assert complaint(DataConfig(path=str(tmp_path / "rows.csv"))) == (
        "rows.csv, row 42: repeats the header; correct it, or leave such rows out by data.on_bad_row=drop"
    )
    write(tmp_path / "rows.csv", [*two_classes(40), ("text", "no"), ("a text", "label")])
    assert read_splits(DataConfig(path=str(tmp_path / "rows.csv")), 0).labels == ["label", "no", "yes"]
    rows = [(text, "body", label) for text, label in two_classes(40)]
    write(tmp_path / "rows.csv", [*rows, ("title", "text", "label"), *rows], ("title", "text", "label"))
    said = complaint(DataConfig(path=str(tmp_path / "rows.csv"), text=["title", "text"]))
    assert said.startswith("rows.csv, row 42: repeats the header; ")


def test_a_class_of_another_case_is_said_to_be_known(tmp_path, write, two_classes, complaint):
    write(tmp_path / "train.csv", [("a text", "ham"), *two_classes(40)])
    write(tmp_path / "test.csv", [("hi", "Ham")])
    assert complaint(DataConfig(path=str(tmp_path))).startswith(
        "test.csv, row 2: the label 'Ham' has no row in the training split, but 'ham' has: merge them by "
        "data.merge_labels=case; "
    )
    splits = read_splits(DataConfig(path=str(tmp_path), merge_labels=MergeLabels.case), 0)
    assert [splits.labels[label] for label in splits.test.labels] == ["ham"]


def test_a_class_without_a_training_row_is_a_bad_row(tmp_path, write, two_classes, complaint):
    write(tmp_path / "train.csv", two_classes(40))
    write(tmp_path / "test.csv", [*two_classes(4, "t"), ("hi", "maybe")])
    assert complaint(DataConfig(path=str(tmp_path))) == (
        "test.csv, row 6: the label 'maybe' has no row in the training split; "
        "correct it, or leave such rows out by data.on_bad_row=drop"
    )
    splits = read_splits(DataConfig(path=str(tmp_path), on_bad_row=OnBadRow["drop"]), 0)
    assert (len(splits.test or []), splits.labels) == (4, ["no", "yes"])


def test_notes_show_control_characters_instead_of_obeying_them(tmp_path, write, two_classes):
    rows = [("same text", "no"), ("same text", "\x1b[31myes\n"), *two_classes(40), ("x", "\x1b[31myes\n")]
    notes = read_splits(DataConfig(path=str(write(tmp_path / "a\x1bb.csv", rows))), 0).notes
    assert all(note.isprintable() for note in notes)
    assert any("a\\x1bb.csv" in note for note in notes)
    assert any("\\x1b[31myes and no" in note for note in notes)


def test_mistakes_are_found_before_torch_and_within_a_second(tmp_path, write):
    write(tmp_path / "train.csv", [*((f"text {i} of many", i % 5) for i in range(20_000)), ("", 1)])
    code = f"""
import sys, time
start = time.process_time()
from manyheads.config import DataConfig
from manyheads.data.sources import read_splits
from manyheads.inference.reading import check_input
try:
    read_splits(DataConfig(path={str(tmp_path)!r}), 0)
except ValueError as problem:
    print(problem)
heavy = {{"torch", "pandas", "datasets", "lightning"}} & set(sys.modules)
print(sorted(heavy), time.process_time() - start < 1)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        "train.csv, row 20002: the text is empty; correct it, or leave such rows out by data.on_bad_row=drop",
        "[] True",
    ]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.csv",
            '{"text": "good", "label": "a"}\n{"text": "bad", "label": "b"}\n',
            "holds JSON lines: .* with .jsonl",
        ),
        ("a.tsv", '\ufeff[\n  {"text": "good", "label": "a"}]', "holds JSON: let its name end with .json"),
        ("a.parquet", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "is a pointer of Git LFS"),
        ("a.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "is a pointer of Git LFS"),
        ("a.csv.gz", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "is a pointer of Git LFS"),
        ("a.json", "\n<!DOCTYPE html>\n<html></html>", "is a web page"),
        ("a.csv", '<HTML lang="en">\n', "is a web page"),
    ],
)
def test_what_a_download_left_in_place_of_a_file_is_named(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_text(content)
    for read in (
        lambda: read_splits(DataConfig(source="files", path=str(path)), 1),
        lambda: check_input("", str(path)),
    ):
        with pytest.raises(ValueError, match=said):
            read()
