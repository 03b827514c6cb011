"""The verb `predict`: JSON lines in input order, and one sentence for every mistake."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manyheads.config import Accelerator, InferenceHardware, PredictConfig
from manyheads.judge.predict import predict
from manyheads.ship.load import load_to_answer as load

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
    for row, expected in zip(rows, load(model_folder).predict(TEXTS), strict=True):
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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("in.parquet", "is parquet, of which predict reads no rows: write it as .csv or .jsonl first"),
        ("in.json", "is JSON as a whole, but predict reads rows: write one object a line, as .jsonl"),
        ("in.csv.gz", "is compressed, but predict reads rows as they are: decompress it first"),
        ("in.txt.XZ", "is compressed, but predict reads rows as they are: decompress it first"),
        ("in.jsonl.bz2", "is compressed, but predict reads rows as they are: decompress it first"),
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
        (b"good\nb\xe9d\n", r"in.txt, line 2 is not UTF-8: invalid continuation byte at byte 2"),
        (b"good\0\xff", r"in.txt, line 1 is not UTF-8"),
    ],
)
def test_a_broken_line_is_named_and_no_file_is_left(
    model_folder: Path, tmp_path: Path, content: bytes, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        predicted(model_folder, tmp_path, content)
    assert [one.name for one in tmp_path.iterdir()] == ["in.txt"]


def test_mistakes_are_one_sentence_each(model_folder: Path, tmp_path: Path) -> None:
    full, there = tmp_path / "full.jsonl", tmp_path / "in.txt"
    full.write_text("precious")
    there.write_text("good\n")
    for typed, words in (
        ({"input": str(tmp_path / "none.txt")}, r"input=\S+none.txt does not exist: name a file of one text a line"),
        ({"input": str(tmp_path)}, r"input=\S+ is a folder: name a file"),
        ({"input": str(there), "text": "good"}, r"text and input=\S+in.txt are both given"),
        ({"text": "good", "output": str(full)}, r"output=\S+full.jsonl exists and is not empty: name another file"),
        ({"text": "good", "output": str(tmp_path)}, r"output=\S+ is a folder: name a file in a folder that exists"),
        ({"text": "good", "output": str(tmp_path / "no" / "x")}, r"output=\S+x lies in \S+no, which does not exist"),
        ({"text": "b\udce9d"}, "text is not UTF-8"),
    ):
        with pytest.raises(ValueError, match=words):
            predict(config(model_folder, **typed))
    assert full.read_text() == "precious"
    with pytest.raises(ValueError, match=r"run=\S+ is not a run folder"):
        predict(config(tmp_path, text="good"))


PROGRAM = """
import sys
from manyheads.config import PredictConfig
from manyheads.judge.predict import predict
predict(PredictConfig(run=sys.argv[1]))
heavy = {"numpy", "sklearn", "datasets", "lightning", "matplotlib", "rich", "hydra", "torch._dynamo"} & set(sys.modules)
print(*sorted(heavy - {"numpy"}), file=sys.stderr)  # torch itself imports numpy
"""


def test_only_what_is_needed_is_imported_and_only_json_is_printed(model_folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(model_folder)], input=b"good\nbad\n", capture_output=True
    )
    assert done.stderr.strip() == b""
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == ["good", "bad"]


def test_a_reader_that_leaves_is_exit_code_141(model_folder: Path) -> None:
    command = 'seq 20000 | "$1" -W ignore -m manyheads.cli predict "run=$2" | head -1; exit "${PIPESTATUS[1]}"'
    done = subprocess.run(["bash", "-c", command, "bash", sys.executable, str(model_folder)], capture_output=True)
    assert json.loads(done.stdout)["text"] == "1"
    assert done.stderr == b""
    assert done.returncode == 141


def test_devices_are_written_to_not_replaced(model_folder: Path) -> None:
    assert predict(config(model_folder, text="good", output="/dev/null")) == 1
    assert Path("/dev/null").is_char_device()
