"""The verb `predict`: JSON lines in input order, and one sentence for every mistake."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyheads.cli.compose import compose
from manyheads.config import Accelerator, InferenceHardware, OnBadText, Precision, PredictConfig, TextColumns
from manyheads.data.formats.kinds import KINDS_IN_WORDS
from manyheads.data.opening import read_file
from manyheads.inference import chunks as lines
from manyheads.inference.answers import n_written, parquet_bytes, write_parquet
from manyheads.inference.folder import load_to_answer as load
from manyheads.inference.predict import predict

TEXTS = ["a good film", "", "bad\x85bad\u2028bad", "naïve 爱 🙂", "tab\there", "so " * 50]


def config(run: Path, **typed: Any) -> PredictConfig:
    return PredictConfig(run=str(run), hardware=InferenceHardware(accelerator=Accelerator.cpu), **typed)


def predicted(run: Path, tmp_path: Path, content: bytes, name: str = "in.txt") -> list[dict[str, Any]]:
    (tmp_path / name).write_bytes(content)
    output = tmp_path / "out.jsonl"
    output.unlink(missing_ok=True)
    assert predict(config(run, input=str(tmp_path / name), output=str(output))) == output.read_bytes().count(b"\n")
    return [json.loads(line) for line in output.read_bytes().split(b"\n")[:-1]]


def test_every_line_has_its_answer_in_order(model_folder: Path, tmp_path: Path) -> None:
    rows = predicted(model_folder, tmp_path, "".join(f"{text}\n" for text in TEXTS).encode())
    assert [row["text"] for row in rows] == TEXTS
    assert (rows[1]["label"], {*rows[1]["probabilities"].values()}) == (None, {None})
    answered = [row for row in rows if row["text"]]
    for row, expected in zip(answered, load(model_folder).predict([text for text in TEXTS if text]), strict=True):
        assert row["label"] == expected.label
        assert row["probabilities"] == pytest.approx(expected.probabilities, abs=2e-6)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", exclude_categories=["Cs"])), max_size=8))
def test_output_lines_are_input_lines(model_folder: Path, tmp_path: Path, texts: list[str]) -> None:
    rows = predicted(model_folder, tmp_path, "".join(f"{text}\n" for text in texts).encode())
    assert [row["text"] for row in rows] == texts
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8") if texts else ""
    assert len(written.splitlines()) == len(texts)  # also for readers that break at U+0085 and U+2028


def test_long_input_crosses_chunks(model_folder: Path, tmp_path: Path) -> None:
    words = ["good", "bad", "fine", "not so"]
    rows = predicted(model_folder, tmp_path, "".join(f"{words[at % 4]}\n" for at in range(2500)).encode())
    answers = {word: answer.label for word, answer in zip(words, load(model_folder).predict(words), strict=True)}
    assert [row["label"] for row in rows] == [answers[words[at % 4]] for at in range(2500)]


def test_a_tsv_is_read_by_its_columns(model_folder: Path, tmp_path: Path) -> None:
    rows = predicted(model_folder, tmp_path, b"index\ttext\n0\tgood, film\n1\tbad\n", "test.tsv")
    assert [(row["index"], row["text"]) for row in rows] == [("0", "good, film"), ("1", "bad")]


def test_pairs_stand_beside_a_tab(pair_folder: Path, tmp_path: Path) -> None:
    (row,) = predicted(pair_folder, tmp_path, b"good film\tbad\n")
    assert (row["text"], row["text_pair"]) == ("good film", "bad")
    assert row["label"] == load(pair_folder).predict(["good film"], ["bad"])[0].label


def test_columns_of_a_csv_are_kept(model_folder: Path, pair_folder: Path, tmp_path: Path) -> None:
    content = b'id,label,text\n7,true one,"a\nfilm"\n8,,bad\n'
    rows = predicted(model_folder, tmp_path, content, "in.csv")
    assert [list(row) for row in rows] == [["id", "input_label", "text", "label", "probabilities"]] * 2
    assert (rows[0]["id"], rows[0]["input_label"], rows[0]["text"]) == ("7", "true one", "a\nfilm")
    (row,) = predicted(pair_folder, tmp_path, b"text_pair,text\nbad,good film\n", "in.csv")
    assert row["label"] == load(pair_folder).predict(["good film"], ["bad"])[0].label


def test_columns_of_json_lines_are_kept(model_folder: Path, pair_folder: Path, tmp_path: Path) -> None:
    content = b'{"id": 7, "label": ["true"], "text": "a\\nfilm"}\n\n{"id": null, "text": "bad"}\n'
    rows = predicted(model_folder, tmp_path, content, "in.JSONL")
    assert list(rows[0]) == ["id", "input_label", "text", "label", "probabilities"]
    assert (rows[0]["id"], rows[0]["input_label"], rows[0]["text"]) == (7, ["true"], "a\nfilm")
    assert [row["label"] for row in rows] == [one.label for one in load(model_folder).predict(["a\nfilm", "bad"])]
    (row,) = predicted(pair_folder, tmp_path, b'{"text_pair": "bad", "text": "good film"}', "in.jsonl")
    assert row["label"] == load(pair_folder).predict(["good film"], ["bad"])[0].label


def test_the_columns_of_the_texts_can_be_named(model_folder: Path, pair_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,body,more\ngood,bad,so\n")
    single = load(model_folder).predict(["bad"])[0].label
    words = [f"run={model_folder}", f"input={tmp_path / 'in.csv'}", "data.text=body", "hardware=cpu"]
    predict(compose("predict", [*words, f"output={tmp_path / 'a.jsonl'}"]))
    (row,) = map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())
    assert (row["text"], row["body"], row["label"]) == ("good", "bad", single)
    both = TextColumns(text="body", text_pair="more")
    predict(config(pair_folder, input=str(tmp_path / "in.csv"), output=str(tmp_path / "b.jsonl"), data=both))
    (row,) = map(json.loads, (tmp_path / "b.jsonl").read_text().splitlines())
    assert row["label"] == load(pair_folder).predict(["bad"], ["so"])[0].label
    for run, typed, said in (
        (model_folder, {"data": TextColumns(text="nix")}, "has no column 'nix', .* name one by data.text=<column>$"),
        (model_folder, {"data": both}, "^data.text_pair=more does nothing, as the model of run takes single texts"),
        (
            model_folder,
            {"data": TextColumns(text="b"), "input": "-"},
            "^data.text=b names a column, but input=- has none",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            predict(config(run, **{"input": str(tmp_path / "in.csv"), **typed}))


def test_the_first_line_of_a_table_is_neither_lost_nor_answered_by_mistake(
    model_folder: Path, pair_folder: Path, tmp_path: Path
) -> None:
    for name in ("in.csv", "in.tsv"):
        rows = predicted(model_folder, tmp_path, b"a very good film!\nbad\n", name)
        assert [row["text"] for row in rows] == ["a very good film!", "bad"]
        (tmp_path / name).write_text("good\nbad\n")
        with pytest.raises(
            ValueError, match=r"in\..sv begins with 'good', .* on top, else name one by data.text=<column>$"
        ):
            predict(config(model_folder, input=str(tmp_path / name)))
    rows = predicted(pair_folder, tmp_path, b"a very good film!\tbad\nso\tfilm\n", "pairs.tsv")
    assert [row["text"] for row in rows] == ["a very good film!", "so"]
    for typed in (TextColumns(text="nix"), TextColumns(text_pair="nix")):  # whose first line then names columns
        with pytest.raises(
            ValueError, match=r"pairs.tsv has no column '\w+', which the model reads: its columns are a"
        ):
            predict(config(pair_folder, input=str(tmp_path / "pairs.tsv"), data=typed))
    (tmp_path / "named.tsv").write_text("premise\thypothesis\na good film\tbad\n")
    with pytest.raises(
        ValueError, match=r"begins with 'premise' and 'hypothesis', which may be the names of its columns"
    ):
        predict(config(pair_folder, input=str(tmp_path / "named.tsv")))
    named = TextColumns(text="premise", text_pair="hypothesis")
    predict(config(pair_folder, input=str(tmp_path / "named.tsv"), data=named, output=str(tmp_path / "n.jsonl")))
    assert [json.loads(line)["premise"] for line in (tmp_path / "n.jsonl").read_text().splitlines()] == ["a good film"]


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        pytest.param(kind, end, marks=[pytest.mark.slow] * ((at - of) % 3 != 0))
        for at, kind in enumerate([".csv", ".tsv", ".jsonl", ".parquet", ".txt"])
        for of, end in enumerate([".jsonl", ".csv", ".parquet"])
    ],
)
def test_a_row_without_a_text_has_a_null_answer_and_is_counted(
    model_folder: Path, tmp_path: Path, kind: str, end: str, capfd: pytest.CaptureFixture[str]
) -> None:
    texts = ["", "good film", " \u3000", "bad", "", "fine"]
    file, output = tmp_path / f"in{kind}", tmp_path / f"out{end}"
    if kind == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table({"text": [text or None for text in texts]}), file)
    elif kind == ".jsonl":
        file.write_text("".join(json.dumps({"text": text or None}) + "\n" for text in texts))
    else:
        head = "" if kind == ".txt" else "text\n"
        file.write_text(head + "".join(f"{text}\n" if kind == ".txt" else f'"{text}"\n' for text in texts))
    assert predict(config(model_folder, input=str(file), output=str(output))) == 6
    if end == ".parquet":
        rows = pyarrow.parquet.read_table(output).to_pylist()
    elif end == ".csv":
        rows = list(csv.DictReader(output.open(newline="")))
    else:
        rows = [row | row["probabilities"] for row in map(json.loads, output.read_text().splitlines())]
    expected = {one: answer.label for one in texts if one.strip() for answer in load(model_folder).predict([one])}
    assert [row["label"] or None for row in rows] == [expected.get(text) for text in texts]
    shares = [[row[name] for name in row if name.startswith("p_") or name in expected.values()] for row in rows]
    assert all(any(one) != (not text.strip()) for one, text in zip(shares, texts, strict=True))
    place = "row 2" if kind in (".csv", ".tsv") else "row 1"
    assert f"3 of 6 answers are null (first: {place}: the text is empty)\n" in capfd.readouterr().err
    output.unlink()
    raising = TextColumns(on_bad_row=OnBadText["raise"])
    with pytest.raises(ValueError, match=f"{place}: the text is empty; correct it, or have such rows answered by null"):
        predict(config(model_folder, input=str(file), output=str(output), data=raising))
    assert not output.exists()


def test_a_file_that_begins_with_thousands_of_empty_texts_keeps_its_types(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,text\n" + "1,\n" * 1500 + "2,good film\n")
    for top_k in (0, 2):
        output = tmp_path / f"out{top_k}.parquet"
        predict(config(model_folder, input=str(tmp_path / "in.csv"), output=str(output), top_k=top_k))
        table = pyarrow.parquet.read_table(output)
        shares = [str(one.type) for one in table.schema if one.name.startswith("p_")]
        assert shares == ["double"] * (top_k or 3)
        assert table["label"].null_count == 1500


def test_rows_that_cannot_be_read_have_null_answers_where_they_are_dropped(
    model_folder: Path, pair_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    drop = TextColumns(on_bad_row=OnBadText.drop)
    for name, content, where in (
        (
            "in.jsonl",
            '{"text"\n{"text": "good"}\n{"text": 7}\n{"b": "x"}\n[1]\n{"text": "\\ud83d"}\n',
            "row 1: is not JSON",
        ),
        ("in.csv", "text,n\nbad,1,2\ngood,1\n,\nfine\n", "row 2: has 3 cells, but the header has 2"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=rf"{name}, {where}"):
            predict(config(model_folder, input=str(tmp_path / name), output=str(tmp_path / "out.jsonl")))
        predict(config(model_folder, input=str(tmp_path / name), output=str(tmp_path / f"{name}.jsonl"), data=drop))
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert [row["label"] is None for row in rows] == [row.get("text") != "good" for row in rows]
        assert sum(row["label"] is not None for row in rows) == 1
        assert f"{len(rows) - 1} of {len(rows)} answers are null (first: {where}" in capfd.readouterr().err
    (tmp_path / "in.tsv").write_text("text\ttext_pair\ngood\t\nbad\tgood\n")
    predict(config(pair_folder, input=str(tmp_path / "in.tsv"), output=str(tmp_path / "p.jsonl")))
    assert [json.loads(line)["label"] is None for line in (tmp_path / "p.jsonl").read_text().splitlines()] == [
        True,
        False,
    ]
    assert "1 answer is null (first: row 2: the second text is empty)" in capfd.readouterr().err


def test_an_empty_text_is_refused_where_it_is_asked_alone(model_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^text: the text is only white space; type one$"):
        predict(config(model_folder, text=" "))
    with pytest.raises(ValueError, match=r"^text: the text has only signs that cannot be seen; type one$"):
        predict(config(model_folder, text="\u200b"))
    with pytest.raises(ValueError, match=r"^texts\[1\] is empty, and an empty text has no answer: leave it out$"):
        load(model_folder).predict(["good", ""])


def test_json_that_is_not_finite_is_read_as_training_reads_it(model_folder: Path, tmp_path: Path) -> None:
    rows = predicted(model_folder, tmp_path, b'{"text": "NaN", "n": NaN, "m": [-Infinity, 1e999, 2]}\n', "in.jsonl")
    assert [(row["text"], row["n"], row["m"]) for row in rows] == [("NaN", None, [None, None, 2])]
    assert read_file(tmp_path / "in.jsonl").column("text") == ["NaN"]


def test_labels_of_fasttext_are_no_part_of_a_text(model_folder: Path, pair_folder: Path, tmp_path: Path) -> None:
    for content in (
        "good film __label__x\nbad __label__x __label__y\n",
        "__label__x good film\n__label__x __label__y bad\n",
    ):
        rows = predicted(model_folder, tmp_path, content.encode(), "in.txt")
        table = read_file(tmp_path / "in.txt")
        assert [(row["text"], row["labels"]) for row in rows] == [("good film", ["x"]), ("bad", ["x", "y"])]
        assert [row["text"] for row in rows] == table.column("text")
        assert [row["labels"] for row in rows] == table.column("labels")
    (row,) = predicted(pair_folder, tmp_path, b"good film\tbad __label__x\n", "in.txt")
    assert (row["text"], row["text_pair"]) == ("good film", "bad")


@pytest.mark.parametrize("name", ["a.ods", "a.json", "a.txt", "a.JSON", "a.feather"])
def test_no_file_is_written_of_a_kind_that_is_not_known(model_folder: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^output=\S+{name} .*: name a .csv, .tsv, .jsonl or .parquet$"):
        predict(config(model_folder, text="good", output=str(tmp_path / name)))
    assert not [*tmp_path.iterdir()]
    predict(config(model_folder, text="good", output="/dev/null"))
    predict(config(model_folder, text="good", output=str(tmp_path / "answers")))
    assert json.loads((tmp_path / "answers").read_text())["text"] == "good"


@pytest.mark.parametrize(("name", "why"), [("a.ods", "is a spreadsheet"), ("a.ndjson", "holds JSON lines")])
def test_a_file_of_another_kind_is_not_read_as_lines(model_folder: Path, tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / name).write_text('{"text": "good"}\n')
    with pytest.raises(ValueError, match=rf"^input=\S+{name} {why}"):
        predict(config(model_folder, input=str(tmp_path / name)))


TABLE = b'id,label,text\n7,true one,"a\nfilm"\n8,,bad\n'


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet"])
@pytest.mark.parametrize("top_k", [0, 2])
def test_answers_are_written_as_the_name_of_the_file_says(
    model_folder: Path, tmp_path: Path, kind: str, top_k: int, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_bytes(TABLE)
    output = tmp_path / f"out{kind}"
    assert predict(config(model_folder, input=str(tmp_path / "in.csv"), output=str(output), top_k=top_k)) == 2
    if kind == ".parquet":
        rows = pyarrow.parquet.read_table(output).to_pylist()
    else:
        with output.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter="," if kind == ".csv" else "\t"))
    answers = load(model_folder).predict(["a\nfilm", "bad"])
    assert [(row["id"], row["input_label"], row["text"]) for row in rows] == [
        ("7", "true one", "a\nfilm"),
        ("8", "", "bad"),
    ]
    assert [row["label"] for row in rows] == [one.label for one in answers]
    for row, answer in zip(rows, answers, strict=True):
        likeliest = sorted(answer.probabilities.items(), key=lambda one: -one[1])
        expected = {f"p_{name}": value for name, value in answer.probabilities.items()}
        if top_k:
            expected = {f"p_{at}": value for at, (_, value) in enumerate(likeliest[:2], 1)}
            assert [row["label_1"], row["label_2"]] == [name for name, _ in likeliest[:2]]
        assert {name: float(row[name]) for name in row if name.startswith("p_")} == pytest.approx(expected, abs=2e-6)
    assert n_written(str(output)) == 2
    said = capfd.readouterr().err
    assert re.fullmatch(rf"{output}: 2 rows in \d+\.\d s \([\d,]+ a second\), answered by the network\n", said)


def test_the_likeliest_classes_come_first(model_folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    predict(config(model_folder, text="good film", top_k=2))
    found = json.loads(capfdbinary.readouterr().out)["probabilities"]
    expected = sorted(load(model_folder).predict(["good film"])[0].probabilities.items(), key=lambda one: -one[1])
    assert list(found) == [name for name, _ in expected[:2]]


def test_tables_hold_the_columns_of_json_lines(label_folder: Path, tmp_path: Path) -> None:
    content = b'{"id": 7, "text": "good", "tags": {"a": 1}}\n{"n": 0.5, "id": 8, "text": "bad film"}\n'
    (tmp_path / "in.jsonl").write_bytes(content)
    for kind in (".csv", ".parquet"):
        predict(config(label_folder, input=str(tmp_path / "in.jsonl"), output=str(tmp_path / f"out{kind}")))
    answers = load(label_folder).predict(["good", "bad film"])
    rows = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["id"], row["n"], row["tags"]) for row in rows] == [(7, None, '{"a": 1}'), (8, 0.5, None)]
    assert [row["labels"] for row in rows] == [one.labels for one in answers]
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["n"], row["tags"]) for row in rows] == [("7", "", '{"a": 1}'), ("8", "0.5", "")]
    assert [row["labels"] for row in rows] == ["|".join(one.labels) for one in answers]


def test_rows_that_fit_no_table_are_refused(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_CHARACTERS", 0)  # a chunk a row
    for kind, more, said in (
        (
            ".csv",
            '"n": 1, "m": 2',
            "has the columns of its first rows, but row 2 has m, too: name a .jsonl, whose rows",
        ),
        (
            ".parquet",
            '"n": "one"',
            "has one type a column, and that of 'n' is int64 by its first rows, but a later cell",
        ),
    ):
        (tmp_path / "in.jsonl").write_text(f'{{"text": "good", "n": 1}}\n{{"text": "bad", {more}}}\n')
        with pytest.raises(ValueError, match=rf"^output=\S+out\{kind} {said}"):
            predict(config(model_folder, input=str(tmp_path / "in.jsonl"), output=str(tmp_path / f"out{kind}")))
        assert [one.name for one in tmp_path.iterdir()] == ["in.jsonl"]


def written(tmp_path: Path, *parts: list[Any]) -> list[Any]:
    """A column of a parquet, of which each part is written for itself."""
    columns = {"n": ""}
    streams = [
        parquet_bytes([{"n": cell} for cell in cells], columns, "output=n.parquet", first=not at)
        for at, cells in enumerate(parts)
    ]
    (tmp_path / "part").write_bytes(b"".join(streams))
    write_parquet(tmp_path / "part", tmp_path / "n.parquet")
    return pyarrow.parquet.read_table(tmp_path / "n.parquet")["n"].to_pylist()


@pytest.mark.parametrize(
    ("first", "later", "kind"),
    [
        ([1], 2.5, "int64"),
        ([["a"]], "abc", "list<.*>"),
        ([1.5], "2", "double"),
        (["a"], 3, "string"),
        ([1], True, "int64"),
    ],
)
def test_no_later_cell_of_parquet_is_bent_to_the_type_of_its_column(
    tmp_path: Path, first: list[Any], later: Any, kind: str
) -> None:
    with pytest.raises(ValueError, match=rf"that of 'n' is {kind} by its first rows, but a later cell is of another"):
        written(tmp_path, first, [later])
    assert written(tmp_path, first, [None], first) == [*first, None, *first]


def test_a_column_of_parquet_that_no_type_holds_is_text(tmp_path: Path) -> None:
    assert written(tmp_path, [1, "s"], [2.5, ["a"]]) == ["1", "s", "2.5", '["a"]']
    assert written(tmp_path, [2**70], [3]) == [str(2**70), "3"]
    assert written(tmp_path, [2**60, 1.5]) == [str(2**60), "1.5"]
    assert written(tmp_path, [None, None], [3, "é"]) == [None, None, "3", "é"]
    assert written(tmp_path, [1, 1.5, None], [2]) == [1.0, 1.5, None, 2.0]


def test_rows_are_counted_whatever_the_length_of_their_texts(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "film " * 40_000}) + "\n")
    for kind in ("csv", "tsv"):
        predict(config(model_folder, input=str(tmp_path / "in.jsonl"), output=str(tmp_path / f"out.{kind}")))
        csv.field_size_limit(2**17)  # as in a process that read no rows itself
        assert n_written(str(tmp_path / f"out.{kind}")) == 1


def test_a_column_has_one_name_in_all_rows(model_folder: Path, tmp_path: Path) -> None:
    rows = [{"label": 1, "input_label": 2}, {"input_label": 2, "label": 1}, {"label": 1}, {"input_label": 2}]
    content = "".join(json.dumps({"text": "good", **row}) + "\n" for row in rows)
    answered = predicted(model_folder, tmp_path, content.encode(), "in.jsonl")
    found = [(row.get("input_label"), row.get("input_input_label")) for row in answered]
    assert found == [(1, 2), (1, 2), (1, None), (None, 2)]


def test_a_pipe_is_answered_as_a_file_to_the_last_bit(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"".join(b"good film %d\n" % at for at in range(1500))
    (tmp_path / "in.txt").write_bytes(content)
    bf16 = InferenceHardware(accelerator=Accelerator.cpu, precision=Precision.bf16)
    predict(replace(config(model_folder, input=str(tmp_path / "in.txt"), output=str(tmp_path / "file")), hardware=bf16))
    ends = os.pipe()
    command = ["bash", "-c", f"head -c 5000 {tmp_path}/in.txt; sleep 0.3; tail -c +5001 {tmp_path}/in.txt"]
    with os.fdopen(ends[0], "rb") as read, subprocess.Popen(command, stdout=ends[1]):
        os.close(ends[1])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(read))
        predict(replace(config(model_folder, output=str(tmp_path / "pipe")), hardware=bf16))
    assert (tmp_path / "pipe").read_bytes() == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("in.ods", "is a spreadsheet: save it as .csv, or as .xlsx"),
        ("in.zip", "is an archive: unpack it, and give the file or the folder that was in it"),
        ("in.gz", f"is not a kind of file that is read: give {KINDS_IN_WORDS}"),
    ],
)
def test_kinds_that_are_not_read_are_refused(model_folder: Path, tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared whole
        predict(config(model_folder, input=str(tmp_path / name)))
    assert str(caught.value) == f"input={tmp_path / name} {words}"


def test_nothing_in_a_text_steers_the_terminal(model_folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = "a\x1b[2J\x7f\x9b2J\x85\u2028"
    predict(config(model_folder, text=text))
    printed = capfdbinary.readouterr().out.decode()
    assert printed.removesuffix("\n").isprintable()
    assert json.loads(printed)["text"] == text


def test_a_single_text_prints_a_single_line(model_folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert predict(config(model_folder, text="good\nfilm")) == 1
    row = json.loads(capfdbinary.readouterr().out)
    assert row["text"] == "good\nfilm"
    assert set(row) == {"text", "label", "probabilities"}


def test_standard_input_to_standard_output(
    model_folder: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\r\n\r\nbad"), encoding="ascii"))
    assert predict(config(model_folder)) == 3
    assert [json.loads(line)["text"] for line in capfdbinary.readouterr().out.splitlines()] == ["good", "", "bad"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"good\nb\xe9d\n", r"in.txt, row 2: byte 0xe9 at position 6 is not UTF-8"),
        (b"good\0\xff", r"in.txt, row 1: byte 0xff at position 5 is not UTF-8"),
    ],
)
def test_a_broken_line_is_named_and_no_file_is_left(
    model_folder: Path, tmp_path: Path, content: bytes, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        predicted(model_folder, tmp_path, content)
    assert [one.name for one in tmp_path.iterdir()] == ["in.txt"]


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write anywhere
    monkeypatch.setitem(sys.modules, "manyheads.inference.answering", None)
    with pytest.raises(
        ValueError, match=rf"^output=\S+x\.csv: {tmp_path} may not be written to: name another place by "
    ):
        predict(config(model_folder, text="good", output=str(tmp_path / "x.csv")))
    assert not [*tmp_path.iterdir()]


def test_mistakes_are_one_sentence_each(model_folder: Path, tmp_path: Path) -> None:
    full, there = tmp_path / "full.jsonl", tmp_path / "in.txt"
    full.write_text("precious")
    there.write_text("good\n")
    link = tmp_path / "link"
    link.symlink_to("nowhere/x")
    for typed, words in (
        ({"input": str(tmp_path)}, r"input=\S+ is a folder: name a file"),
        ({"input": str(there), "text": "good"}, r"text and input=\S+in.txt are both given"),
        ({"text": "good", "output": str(full)}, r"output=\S+full.jsonl exists and is not empty: name another file"),
        ({"text": "good", "output": "x.csv.gz"}, "^output=x.csv.gz would be compressed, but answers are written plain"),
        ({"text": "good", "output": str(tmp_path)}, r"output=\S+ is a folder: name a file in a folder that exists"),
        ({"text": "good", "output": str(tmp_path / "no" / "x")}, r"output=\S+x lies in \S+no, which is no folder"),
        ({"text": "good", "output": str(there / "x")}, r"output=\S+x lies in \S+in.txt, which is no folder"),
        ({"text": "good", "output": str(link)}, r"output=\S+link lies in \S+nowhere, which is no folder"),
        ({"text": "b\udce9d"}, "text is not UTF-8"),
    ):
        with pytest.raises(ValueError, match=words):
            predict(config(model_folder, **typed))
    assert full.read_text() == "precious"


def test_a_reader_that_leaves_is_exit_code_141(model_folder: Path, python: Any, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("".join(f"{n}\n" for n in range(20000)))
    read, write = os.pipe()
    with (tmp_path / "texts").open() as texts, (tmp_path / "said").open("w+") as said, os.fdopen(read) as reader:
        with os.fdopen(write, "w") as output:
            words = ("-W", "ignore", "-m", "manyheads", "predict", f"run={model_folder}")
            process = python.start(*words, stdin=texts, stdout=output, stderr=said)
        assert json.loads(reader.readline())["text"] == "0"
    assert process.wait(120) == 141
    assert (tmp_path / "said").read_text() == ""


def test_devices_are_written_to_not_replaced(model_folder: Path) -> None:
    assert predict(config(model_folder, text="good", output="/dev/null")) == 1
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(("kind", "top_k"), [("csv", 0), ("tsv", 2), ("parquet", 0)])
def test_a_table_without_rows_has_the_columns_of_one_with_rows(model_folder, tmp_path, kind, top_k, capsys):
    with_rows, without = tmp_path / "with.csv", tmp_path / "without.csv"
    with_rows.write_text("id,label,text\n7,so,good\n")
    without.write_text("id,label,text\n")
    for file in (with_rows, without):
        output = file.with_name(f"{file.stem}-out.{kind}")
        assert predict(config(model_folder, input=str(file), output=str(output), top_k=top_k)) == n_written(str(output))
    assert f"{without} has no rows\n" in capsys.readouterr().err
    one, other = (read_file(tmp_path / f"{name}-out.{kind}") for name in ("with", "without"))
    assert one.names == other.names
    assert (len(one.numbers), len(other.numbers)) == (1, 0)
    assert predict(config(model_folder, input=str(without), output=str(tmp_path / "out.jsonl"))) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b""
