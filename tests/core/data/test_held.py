"""Rows that are held in memory: whatever they come as, a run learns from the same tokens as from a file of them."""

import csv

import datasets
import numpy
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import torch

from manyheads import TextData, compose
from manyheads.data.class_names import label_names
from manyheads.data.formats.fields import FIELD, join_cells, join_given, with_joined_text
from manyheads.data.opening import read_file, table_from
from manyheads.inference.chunks import WantedColumns
from manyheads.inference.records import chunks_of_objects, chunks_of_parquet, chunks_of_table

ROWS = [(f"{'good' if at % 3 else 'bad'} film number {at}", "yes" if at % 3 else "no") for at in range(60)]
COLUMNS = {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]}


def dataset():
    import datasets

    return datasets.Dataset.from_dict(COLUMNS)


KINDS = {
    "pairs": lambda: ROWS,
    "lists": lambda: [[*row] for row in ROWS],
    "columns": lambda: COLUMNS,
    "mappings": lambda: [{"text": text, "label": label} for text, label in ROWS],
    "DataFrame": lambda: pandas.DataFrame(COLUMNS),
    "Dataset": dataset,
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_read_as_from_a_file(kind, tmp_path):
    file = tmp_path / "rows.csv"
    with file.open("w", newline="") as opened:
        csv.writer(opened).writerows([("text", "label"), *ROWS])
    run = compose("train", [f"data.path={file}", f"data.cache={tmp_path}"])
    ours, theirs = TextData.from_rows(KINDS[kind](), run=run), TextData.from_run(run)
    assert ours.splits is not None
    assert theirs.splits is not None
    assert ours.splits.labels == theirs.splits.labels == ["no", "yes"]
    assert ours.tokens.keys() == theirs.tokens.keys() == {"train", "validation", "test"}
    for name, tokens in theirs.tokens.items():
        assert torch.equal(ours.tokens[name].ids_N, tokens.ids_N), name
        assert torch.equal(ours.tokens[name].labels, tokens.labels), name


def test_numbers_of_classes_get_their_names_and_splits_stay_apart():
    data = TextData.from_rows(
        [("a film", 1), ("a book", 0)] * 20, [("a film", 0)], [("a book", 1)], labels=["no", "yes"]
    )
    assert data.splits is not None
    assert data.splits.labels == ["no", "yes"]
    assert [len(data.tokens[name]) for name in ("train", "validation", "test")] == [40, 1, 1]
    assert data.tokens["validation"].labels.tolist() == [0]


def test_batches_may_be_looked_at_without_a_trainer():
    data = TextData.from_rows(ROWS)
    data.setup("fit")
    assert sorted(row for batch in data.train_dataloader() for row in batch.rows_B.tolist()) == list(range(48))


def test_rows_are_shown_by_their_numbers():
    """Printed, and at the end of a cell of a notebook."""
    data = TextData.from_rows(ROWS)
    assert str(data) == repr(data) == "TextData(rows: train 48, validation 6, test 6)"


@pytest.mark.parametrize("rows", [None, 3, []])
def test_no_rows_to_train_on_are_refused(rows):
    with pytest.raises(ValueError, match=r"^rows/train holds no rows that can be read: give a DataFrame"):
        TextData.from_rows(rows)


def test_a_column_split_is_followed_as_that_of_a_file():
    splits = TextData.from_rows({**COLUMNS, "split": ["train"] * 40 + ["dev"] * 12 + ["test"] * 8}).splits
    assert splits is not None
    assert {name: list(rows.texts) for name, rows in splits.by_name().items()} == {
        "train": COLUMNS["text"][:40],
        "validation": COLUMNS["text"][40:52],
        "test": COLUMNS["text"][52:],
    }


def test_rows_that_all_weigh_nothing_are_refused():
    run = compose("train", ["data.weight=trust"])
    with pytest.raises(ValueError, match=r"all 48 training rows of rows/train weigh 0"):
        TextData.from_rows({**COLUMNS, "trust": [0] * 60}, run=run)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([0, 1] * 20, ["data.label=stars"]),
        ([0.0, 1.0] * 20, ["data.label=stars"]),  # as pandas has them where others are missing
        (["no", "yes"] * 20, ["data.label=stars"]),
        ([numpy.int64(0), numpy.int64(1)] * 20, ["data.label=stars"]),
    ],
)
def test_numbers_are_those_of_classes_in_any_column(cells, words):
    rows = [{"text": f"film {at}", "stars": cell} for at, cell in enumerate(cells)]
    splits = TextData.from_rows(rows, run=compose("train", words), labels=["no", "yes"]).splits
    assert splits is not None
    assert splits.labels == ["no", "yes"]
    for split in splits.by_name().values():
        assert list(split.labels) == [(number - 1) % 2 for number in split.numbers]


def test_labels_that_are_no_class_are_refused():
    """Their rows had a class of no name."""
    with pytest.raises(ValueError, match=r"rows/train, row 3: the label 'maybe' is not a known class \(9 more"):
        TextData.from_rows([("a", "no"), ("b", "yes"), ("c", "maybe")] * 10, labels=["no", "yes"])
    rows = {"text": COLUMNS["text"], "votes": ["0:2|1:1", "1:3"] * 30}
    with pytest.raises(
        ValueError, match=r"labels=\[no, yes\] names no class of the rows, which has 0, 1: leave it out"
    ):
        TextData.from_rows(rows, run=compose("train", ["data.votes=votes"]), labels=["no", "yes"])


def test_a_missing_cell_is_a_mistake_of_its_row():
    frame = pandas.DataFrame({"text": ["a", None, "c"] * 10, "label": ["x", "y", "x"] * 10})
    with pytest.raises(ValueError, match=r"rows/train, row 2: the text is empty"):
        TextData.from_rows(frame)
    with pytest.raises(ValueError, match=r"rows/train, row 2: the label is empty"):
        TextData.from_rows([("a", "x"), ("b", pandas.NA), ("c", "y")] * 10)


def test_rows_of_a_source_of_ones_own(tmp_path):
    """A part of kind `source` gives splits; what names no source is refused."""
    import manyheads.plugin as plugin

    def mine(data):
        return {"train": ROWS, "test": ROWS[:6]}

    plugin.register(plugin.Plugin("mine", parts=[plugin.Part("source", "mine", mine)]))
    try:
        data = TextData.from_run(compose("train", ["data.source=mine", f"data.cache={tmp_path}"]))
        assert data.splits is not None
        assert [len(data.tokens[name]) for name in ("train", "validation", "test")] == [54, 6, 6]
    finally:
        plugin.unregister("mine")
    plugin.register(plugin.Plugin("mine", parts=[plugin.Part("source", "mine", lambda data: None)]))
    try:
        with pytest.raises(ValueError, match=r"data.source=mine gives a NoneType: it must give splits by name"):
            TextData.from_run(compose("train", ["data.source=mine"]))
    finally:
        plugin.unregister("mine")
    with pytest.raises(ValueError, match=r"data.source=mine is not a choice: choose demo"):
        compose("train", ["data.source=mine"])


def test_a_run_of_rows_that_were_given_says_so_when_they_are_asked_for():
    run = compose("train", ["data.source=memory"])
    with pytest.raises(ValueError, match=r"data=memory are rows that were given in Python.*data.path="):
        TextData.from_run(run)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "rows holds no rows that can be read"),
        ([("a", "b", "c", "d")], "rows holds no rows that can be read"),
        ([("a", "b"), "c"], "rows holds no rows that can be read"),
        (pandas.Series(["a", "b"]), "rows holds no rows that can be read"),
        ("rows.csv", "rows is 'rows.csv', not rows: give a file by data.path="),
        ({"text": ["a"], "label": []}, "rows has columns of different lengths"),
        (dataset().to_iterable_dataset(), "rows is a stream of datasets, whose rows are not counted: load it with"),
    ],
)
def test_what_is_no_table_is_refused(rows, sentence):
    with pytest.raises(ValueError, match=sentence):
        table_from(rows, "rows")


def test_times_of_a_frame_are_read_as_those_of_its_csv(tmp_path):
    """pandas writes no time where that is midnight in all rows of a column."""
    days = pandas.to_datetime(["2026-01-01", None, "2026-03-04"])
    whens = {"days": days, "hours": days + pandas.to_timedelta([0, 1, 2], "h"), "zoned": days.tz_localize("UTC")}
    frame = pandas.DataFrame({"text": list("abc"), **whens})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    of_frame, of_csv = table_from(frame, "rows"), read_file(tmp_path / "rows.csv")
    for name in frame:
        assert [cell or "" for cell in of_frame.column(name)] == list(of_csv.column(name))
    names = [*whens]
    row = frame.to_dict("records")[2]
    (given,) = join_given([{name: row[name] for name in names[:2]}], names[:2])
    assert given == join_cells([of_csv.column(name)[2] for name in names[:2]])


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_labels_of_low_precision_are_named_as_written(tmp_path, kind):
    """In parquet, Arrow, a mapping of arrays or series, and rows of NumPy's numbers."""
    cells = numpy.array([0.1, 1, 2.5, numpy.nan], kind)
    arrow = pyarrow.table({"text": list("abcd"), "label": pyarrow.array(cells, from_pandas=True)})
    pyarrow.parquet.write_table(arrow, tmp_path / "rows.parquet")
    series = pandas.Series(cells)
    held = [arrow, {"text": list("abcd"), "label": cells}, {"text": list("abcd"), "label": series}]
    held.append([{"text": text, "label": cell} for text, cell in zip("abcd", cells, strict=True)])
    for table in (read_file(tmp_path / "rows.parquet"), *(table_from(rows, "rows") for rows in held)):
        names, _ = label_names(table.column("label"), None)
        assert [*map(str, names)] == ["0.1", "1.0", "2.5", ""]


def test_numbers_in_single_precision_are_read_as_those_of_their_csv(tmp_path):
    cells = numpy.array([0.1, numpy.nan, 3, 1e-5, 16777, 2.5e20, 1 / 3], numpy.float32)
    frame = pandas.DataFrame({"text": list("abcdefg"), "label": cells, "amount": pandas.array(cells, "Float32")})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    made = datasets.Dataset.from_pandas(frame)
    held = {"frame": frame, "arrow": pyarrow.table(frame), "dataset": made}
    tables = {"parquet": read_file(tmp_path / "rows.parquet")}
    tables |= {kind: table_from(rows, "rows") for kind, rows in held.items()}
    names, of_csv = ["amount", "label"], read_file(tmp_path / "rows.csv")
    expected = [join_cells(row) for row in zip(*map(of_csv.column, names), strict=True)]
    for table in tables.values():
        assert [join_cells(row) for row in zip(*map(table.column, names), strict=True)] == expected
        read, of_label = label_names(table.column("label"), None), label_names(of_csv.column("label"), None)
        assert [*map(float, filter(None, read[0]))] == [*map(float, filter(None, of_label[0]))]
    wanted = WantedColumns(names, [], joins=True)
    assert [text for one in chunks_of_parquet(tmp_path / "rows.parquet", wanted) for text in one.texts] == expected
    given = [dict(zip(names, [cell, cell], strict=True)) for cell in cells]
    assert join_given(given, names) == expected


ISO = {"format": "ISO8601"}
SAME = {  # what stands in a column, and what is read of it, whatever the rest of the column holds
    "days": (pandas.to_datetime(["2026-03-04", None, "2026-03-05"]), ["2026-03-04", "", "2026-03-05"]),
    "hours": (
        pandas.to_datetime(["2026-03-04", None, "2026-03-04 09:30"], **ISO),
        ["2026-03-04", "", "2026-03-04 09:30:00"],
    ),
    "fractions": (
        pandas.to_datetime(["2026-03-04", "2026-03-04 09:30:00.250", "2026-03-04 09:30"], **ISO),
        ["2026-03-04", "2026-03-04 09:30:00.25", "2026-03-04 09:30:00"],
    ),
    "zoned": (
        pandas.to_datetime(["2026-03-04", None, "2026-03-04 09:30"], utc=True, **ISO),
        ["2026-03-04", "", "2026-03-04 09:30:00"],
    ),
    "null": (["low", r"\N", "high"], ["low", "", "high"]),
    "numbers": ([3.0, None, 0.25], ["3", "", "0.25"]),
    "words": (["3.0.1", "10:00:00", "2026-03"], ["3.0.1", "10:00:00", "2026-03"]),
}


@pytest.mark.parametrize("name", SAME)
def test_training_and_asking_read_a_cell_alike_whatever_the_format(name, tmp_path):
    cells, expected = SAME[name]
    frame, names = pandas.DataFrame({"title": list("abc"), "when": cells}), ["title", "when"]
    paths = {kind: tmp_path / f"rows.{kind}" for kind in ("csv", "jsonl", "parquet")}
    frame.to_csv(paths["csv"], index=False)
    frame.to_json(paths["jsonl"], orient="records", lines=True, date_format="iso")
    frame.to_parquet(paths["parquet"])
    records = frame.astype(object).where(~frame.isna(), None).to_dict("records")
    tables = {kind: read_file(path) for kind, path in paths.items()}
    held = {"frame": frame, "objects": frame.astype(object), "arrow": pyarrow.table(frame), "records": records}
    tables |= {kind: table_from(rows, "rows") for kind, rows in held.items()}
    trained = {kind: list(with_joined_text(one, names).column("title + when")) for kind, one in tables.items()}
    readers = {"csv": chunks_of_table, "jsonl": chunks_of_objects, "parquet": chunks_of_parquet}
    wanted = WantedColumns(names, [], joins=True)
    asked = {
        kind: [text for chunk in readers[kind](path, wanted) for text in chunk.texts] for kind, path in paths.items()
    }
    asked |= {"records": join_given(records, names), "given": join_given(frame.to_dict("records"), names)}
    want = [f"{title} {FIELD} {cell}".strip() for title, cell in zip("abc", expected, strict=True)]
    assert trained == dict.fromkeys(trained, want)
    assert asked == dict.fromkeys(asked, want)
