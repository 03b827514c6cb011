"""A file of answers is resumed after a kill or an interrupt; rows of parquet."""

import json
import math
import os
import tracemalloc
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from manyheads.config import Accelerator, InferenceHardware, PredictConfig
from manyheads.data.formats.parquet import stream_parquet
from manyheads.distributed import faults
from manyheads.inference import answers, chunks
from manyheads.inference.predict import predict

KINDS = (".csv", ".jsonl", ".parquet")
ROWS = [{"id": at, "text": f"good film {'very ' * (at % 7)}", "share": at / 4} for at in range(12)]


def write_input(folder: Path, kind: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    file = folder / f"in{kind}"
    if kind == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    elif kind == ".jsonl":
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        lines = [",".join(map(str, row.values())) for row in rows]
        file.write_text("\n".join([",".join(rows[0]), *lines, ""]))
    return file


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk a row, and a record after each, which no test needs on the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(chunks, "MOST_CHARACTERS", 0)
    monkeypatch.setattr(answers, "EVERY", 0.0)


def answer(run: Path, file: Path, output: Path, **typed: Any) -> int:
    hardware = InferenceHardware(accelerator=Accelerator.cpu)
    return predict(PredictConfig(run=str(run), input=str(file), output=str(output), hardware=hardware, **typed))


def interrupted(run: Path, file: Path, output: Path, point: str, monkeypatch: pytest.MonkeyPatch, **typed: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(faults.VARIABLE, point)
        with pytest.raises((RuntimeError, OSError)):
            answer(run, file, output, **typed)
    faults.reset_counts()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_where_it_was_to_the_same_bytes(
    model_folder: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, whole, output = write_input(tmp_path, kind), tmp_path / f"whole{kind}", tmp_path / f"out{kind}"
    assert answer(model_folder, file, whole) == len(ROWS)
    for point, n_rows in (("chunk:5:fail", 4), ("chunk:3:full", 6), ("rename:1:fail", 12)):
        interrupted(model_folder, file, output, point, monkeypatch)
        record = json.loads((tmp_path / f".out{kind}.part.json").read_text())
        assert (record["chunks"], record["rows"]) == (n_rows, n_rows)
    capsys.readouterr()
    (tmp_path / f".out{kind}.part.new").write_text("{")  # of a process that was killed as it wrote the record
    assert answer(model_folder, file, output) == len(ROWS)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"{output}: resuming after 12 answered rows"
    assert said[1].startswith(f"{output}: 12 rows in ")
    assert output.read_bytes() == whole.read_bytes()
    assert {one.name for one in tmp_path.iterdir()} == {file.name, whole.name, output.name}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("changed", ["the input", "the model", "the settings"])
def test_another_input_model_or_setting_begins_anew_and_says_so(
    ship_model, tmp_path: Path, changed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ship_model(tmp_path / "run" / "model").parent
    file, whole, output = write_input(tmp_path, ".csv"), tmp_path / "whole.csv", tmp_path / "out.csv"
    interrupted(run, file, output, "chunk:5:fail", monkeypatch)
    typed = {"top_k": 1} if changed == "the settings" else {}
    if changed == "the input":
        write_input(tmp_path, ".csv", [{"id": 0, "text": "bad film", "share": 1}, *ROWS[1:]])
    elif changed == "the model":
        os.utime(run / "model" / "model.safetensors", (1, 1))
    capsys.readouterr()
    answer(run, file, output, **typed)
    said = capsys.readouterr().err.splitlines()[0]
    assert said == f"{output}: begun anew, as {changed} changed since it was begun"
    answer(run, file, whole, **typed)
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("small")
def test_the_record_of_other_settings_never_speaks_of_what_was_begun_anew(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, whole, output = write_input(tmp_path, ".csv"), tmp_path / "whole.csv", tmp_path / "out.csv"
    interrupted(model_folder, file, output, "chunk:5:fail", monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(answers, "EVERY", 100.0)  # it is killed before it writes its own record
        interrupted(model_folder, file, output, "chunk:11:fail", monkeypatch, top_k=1)
    for one in (output, whole):
        answer(model_folder, file, one)
    assert output.read_bytes() == whole.read_bytes()


@pytest.mark.usefixtures("small")
def test_what_is_broken_leaves_nothing_and_is_no_start(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, output = write_input(tmp_path, ".jsonl", [*ROWS[:4], {"id": 5}]), tmp_path / "out.jsonl"
    for _ in range(2):
        with pytest.raises(ValueError, match=r"in.jsonl, row 5: 'text' is missing"):
            answer(model_folder, file, output)
        assert [one.name for one in tmp_path.iterdir()] == ["in.jsonl"]
    write_input(tmp_path, ".jsonl")
    interrupted(model_folder, file, output, "chunk:5:fail", monkeypatch)
    for name, content in ((".out.jsonl.part", b""), (".out.jsonl.part.json", b"{"), (".out.jsonl.part.json", b"{}")):
        (tmp_path / name).write_bytes(content)
        interrupted(model_folder, file, output, "chunk:5:fail", monkeypatch)
        assert json.loads((tmp_path / ".out.jsonl.part.json").read_text())["rows"] == 4
    (tmp_path / ".out.jsonl.part").unlink()
    (tmp_path / ".out.jsonl.part").symlink_to(tmp_path / "in.jsonl")
    with pytest.raises(OSError, match="symbolic links"):
        answer(model_folder, file, output)
    assert file.stat().st_size


def test_two_processes_never_write_to_one_file(model_folder: Path, tmp_path: Path) -> None:
    file, output = write_input(tmp_path, ".csv"), tmp_path / "out.csv"
    with (
        answers.opened_answers(str(output)),
        pytest.raises(ValueError, match=r"output=\S+out.csv is being written by another process: wait for its end"),
    ):
        answer(model_folder, file, output)


def test_what_another_process_finishes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, part = tmp_path / "out.csv", tmp_path / ".out.csv.part"
    part.write_text("its answers")
    with monkeypatch.context() as patch:  # between opening the part and locking it
        patch.setattr(answers.fcntl, "flock", lambda *_: os.replace(part, output))
        with (
            pytest.raises(ValueError, match="is being written by another process"),
            answers.opened_answers(str(output)),
        ):
            pass
    with pytest.raises(ValueError, match="exists and is not empty"), answers.opened_answers(str(output)):
        pass
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("out.csv", "its answers")]


def test_the_name_that_is_typed_says_the_kind_also_of_a_link(model_folder: Path, tmp_path: Path) -> None:
    file = write_input(tmp_path, ".csv")
    for name, linked, start in (("a.parquet", "a.data", b"PAR1"), ("b.csv", "b.parquet", b'"id"')):
        (tmp_path / name).symlink_to(tmp_path / linked)
        assert answer(model_folder, file, tmp_path / name) == len(ROWS)
        assert (tmp_path / linked).read_bytes()[:4] == start


PROGRAM = """
import os, random, signal, sys, time
from pathlib import Path
from manyheads.config import Accelerator, InferenceHardware, PredictConfig
from manyheads.inference import answers, chunks, folder, predict

chunks.MOST_CHARACTERS, answers.EVERY, os.fsync = 0, 0.0, lambda descriptor: None
run, files = sys.argv[1], [Path(one) for one in sys.argv[2:]]
chance = random.Random(0)

def killed(file, output, fault, seconds):
    child = os.fork()
    if not child:
        os.environ["MANYHEADS_FAULT"] = fault
        predict.predict(PredictConfig(run=run, input=str(file), output=str(output), hardware=InferenceHardware(
            accelerator=Accelerator.cpu, threads=1)))
        os._exit(0)
    end = time.monotonic() + seconds
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(ended[1])

for file in files:
    assert killed(file, file.with_name(f"whole{file.suffix}"), "", 100) == 0
    for fault in ("chunk:5", "rename"):
        assert killed(file, file.with_name(f"out{file.suffix}"), fault, 100) == -signal.SIGKILL, fault
    assert killed(file, file.with_name(f"out{file.suffix}"), "", 100) == 0
    n_killed = 0
    while killed(file, file.with_name(f"random{file.suffix}"), "", chance.uniform(0, 0.2) * (1 + n_killed)):
        n_killed += 1
"""


@pytest.mark.parametrize("kind", [".csv", pytest.param(".parquet", marks=pytest.mark.slow)])
def test_a_killed_command_repeated_loses_and_doubles_no_row(
    model_folder: Path, python: Any, tmp_path: Path, kind: str
) -> None:
    """JSON lines are added to their part as a csv is."""
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
    command = ["-W", "ignore", "-c", PROGRAM, model_folder, write_input(tmp_path, kind)]
    done = python.run(*command, env=environment)
    assert done.returncode == 0, done.stderr
    whole = (tmp_path / f"whole{kind}").read_bytes()
    assert (tmp_path / f"out{kind}").read_bytes() == (tmp_path / f"random{kind}").read_bytes() == whole
    assert not [one.name for one in tmp_path.iterdir() if one.name.startswith(".")]
    if kind == ".parquet":
        assert len(pyarrow.parquet.read_table(tmp_path / "out.parquet")) == len(ROWS)


def test_any_column_of_parquet_is_kept(model_folder: Path, tmp_path: Path) -> None:
    cells = {
        "day": date(2026, 1, 2),
        "parts": [1, 2],
        "about": {"a": "é", "b": [0.5, math.nan]},
        "raw": b"\xff",
        "none": None,
    }
    rows = [{"text": "good", "n": float("nan"), **cells}, {"text": "bad", "n": 0.5, **cells}]
    file, output = write_input(tmp_path, ".parquet", rows), tmp_path / "out.jsonl"
    assert answer(model_folder, file, output) == 2
    first, second = map(json.loads, output.read_text().splitlines())
    assert (first["n"], second["n"], first["day"], first["parts"]) == (None, 0.5, "2026-01-02", [1, 2])
    assert (first["about"], first["none"], first["raw"]) == ({"a": "é", "b": [0.5, None]}, None, "b'\\xff'")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"text": b"good"}], "in.parquet, row 1: the text is not a string but bytes; correct it, or have such rows"),
        ([{"text": date(2026, 1, 2)}], "in.parquet, row 1: the text is not a string but of type date; correct it"),
        (
            pyarrow.table([["good"], ["bad"]], names=["text", "text"]),
            "in.parquet has the column 'text' twice: name every column once",
        ),
        ([{"body": "good", "n": 1}], "in.parquet has no column 'text', which the model reads: its columns are"),
    ],
)
def test_mistakes_in_parquet_are_one_sentence(model_folder: Path, tmp_path: Path, rows: Any, said: str) -> None:
    file = tmp_path / "in.parquet"
    if isinstance(rows, pyarrow.Table):
        pyarrow.parquet.write_table(rows, file)
    else:
        write_input(tmp_path, ".parquet", rows)
    with pytest.raises(ValueError, match=said):
        answer(model_folder, file, tmp_path / "out.jsonl")
    assert [one.name for one in tmp_path.iterdir()] == ["in.parquet"]


def test_memory_of_parquet_is_bounded_however_often_a_text_occurs(tmp_path: Path) -> None:
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2000, pyarrow.int32()), ["x" * 2**21])
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "in.parquet", compression="zstd")
    names, rows = stream_parquet(tmp_path / "in.parquet")
    before = pyarrow.total_allocated_bytes()
    lengths = [len(row["text"]) for row, _ in zip(rows, range(1500), strict=False)]
    assert pyarrow.total_allocated_bytes() - before < 2**26
    assert (names, set(lengths), len(lengths)) == (["text"], {2**21}, 1500)


def test_what_was_read_of_a_parquet_is_let_go(tmp_path: Path) -> None:
    texts = [os.urandom(2**9).hex() for _ in range(16_000)]  # 16 MB, of which nothing can be compressed away
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "in.parquet", row_group_size=1000)
    names, rows = stream_parquet(tmp_path / "in.parquet")
    tracemalloc.start()
    try:
        assert all(row["text"] == text for row, text in zip(rows, texts, strict=True))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert names == ["text"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_replaced_and_nothing_else_is(
    kind: str, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, output = write_input(tmp_path, kind), tmp_path / f"out{kind}"
    answer(model_folder, file, output)
    old = output.read_bytes()
    with pytest.raises(ValueError, match="replace these answers by overwrite=true"):
        answer(model_folder, file, output)
    interrupted(model_folder, file, output, "chunk:5:fail", monkeypatch, overwrite=True, top_k=1)
    assert output.read_bytes() == old
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]
    assert answer(model_folder, file, output, overwrite=True, top_k=1) == len(ROWS)
    answer(model_folder, file, tmp_path / f"new{kind}", top_k=1)
    assert output.read_bytes() == (tmp_path / f"new{kind}").read_bytes() != old
    before = file.read_bytes()
    with pytest.raises(ValueError, match="holds no answers of predict, and nothing else is replaced"):
        answer(model_folder, output, file, overwrite=True)
    with pytest.raises(ValueError, match="is what input names, which is read: name another file"):
        answer(model_folder, output, output, overwrite=True)
    assert (file.read_bytes(), output.read_bytes()) == (before, (tmp_path / f"new{kind}").read_bytes())


@pytest.mark.usefixtures("small")
def test_what_is_begun_is_not_resumed_by_overwrite(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = write_input(tmp_path, ".jsonl"), tmp_path / "out.jsonl"
    interrupted(model_folder, file, output, "chunk:5:fail", monkeypatch)
    assert (tmp_path / ".out.jsonl.part.json").is_file()
    assert answer(model_folder, file, output, overwrite=True) == len(ROWS)
    assert "resuming after" not in capsys.readouterr().err
    assert [json.loads(line)["id"] for line in output.read_text().splitlines()] == [row["id"] for row in ROWS]
