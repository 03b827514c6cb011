"""Several processes answer and judge as one does: every row once, to the last bit, also where a process has no row."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from manyheads.config import Accelerator, EvaluateConfig, InferenceHardware, PredictConfig, run_data
from manyheads.evaluation.evaluate import evaluate
from manyheads.inference.predict import predict

PROGRAM = Path(__file__).with_name("sharing.py")
ROWS = (1, 2, 3, 4, 7, 17)  # as in sharing.py
SEVERAL = [2, pytest.param(3, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=SEVERAL)
def n_ranks(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def done(
    n_ranks: int,
    python: Any,
    tmp_path_factory: pytest.TempPathFactory,
    model_folder: Path,
    pair_folder: Path,
) -> Path:
    return shared(python, PROGRAM, tmp_path_factory.mktemp("sharing"), n_ranks, model_folder, pair_folder)


def shared(python: Any, program: Path, folder: Path, n_ranks: int, *runs: Path) -> Path:
    """What one and `n_ranks` processes left: a folder for each number, in it one for each process."""
    environment = {name: word for name, word in os.environ.items() if not name.startswith(("SLURM_", "RANK", "WORLD"))}
    words = ("-W", "ignore", program, folder, n_ranks, *runs)
    run = python.run(*words, env=environment | {"TOKENIZERS_PARALLELISM": "false"})
    assert run.returncode == 0, run.stderr
    return folder


def found(done: Path, n_ranks: int, rank: int = 0) -> dict[str, Any]:
    return json.loads((done / str(n_ranks) / str(rank) / "found.json").read_text())


def test_every_row_is_answered_once(done: Path, n_ranks: int) -> None:
    check_rows(done, n_ranks, {"classes": 1, "pairs": 1})


def check_rows(done: Path, n_ranks: int, times: dict[str, int]) -> None:
    """Of each kind of model, which is asked as often as said."""
    of_ranks = [found(done, n_ranks, rank)["seen"] for rank in range(n_ranks)]
    for kind, asked in times.items():
        by_question = list(zip(*(seen[kind] for seen in of_ranks), strict=True))
        assert len(by_question) == asked * len(ROWS)
        for at, parts in enumerate(by_question):
            assert sorted(row for part in parts for row in part) == list(range(ROWS[at // asked]))
        assert sum(not part for part in by_question[0]) == n_ranks - 1  # a single row: the others have none
        assert all(by_question[-1])


@pytest.mark.parametrize("kind", ["classes", "pairs"])
def test_answers_are_those_of_one_process(done: Path, n_ranks: int, kind: str) -> None:
    assert [len(one) for one in check_answers(done, n_ranks, kind)] == list(ROWS)


def check_answers(done: Path, n_ranks: int, kind: str) -> list[Any]:
    alone = found(done, 1)["answers"][kind]
    assert found(done, n_ranks)["answers"][kind] == alone
    assert all(found(done, n_ranks, rank)["answers"][kind] is None for rank in range(1, n_ranks))
    return alone


def test_files_are_those_of_one_process(done: Path, n_ranks: int) -> None:
    """Answers to 1,100 lines, more than one chunk, to what is typed; figures, pictures, pages."""
    names = check_files(done, n_ranks, {"in.txt", "rows.csv", "broken.txt"})
    assert {"classes.jsonl", "typed.jsonl", "classes/metrics.json", "classes/report.html"} <= names
    alone, shared = done / "1" / "0", done / str(n_ranks) / "0"
    for one, other in zip(*([*map(json.loads, (at / "typed.jsonl").open())] for at in (alone, shared)), strict=True):
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=2e-6)  # lines met in other batches
    assert len((shared / "classes.jsonl").read_bytes().splitlines()) == 1100
    assert [json.loads(line)["text"] for line in (shared / "typed.jsonl").open()] == ["good", *typed(2)]


def check_files(done: Path, n_ranks: int, read: set[str]) -> set[str]:
    """Names of what the first process leaves, alone or not; the others leave what they have `read`."""
    alone, shared = done / "1" / "0", done / str(n_ranks) / "0"
    names = {str(file.relative_to(alone)) for file in alone.rglob("*") if file.is_file()}
    assert {str(file.relative_to(shared)) for file in shared.rglob("*") if file.is_file()} == names
    for name in names - {"found.json", "typed.jsonl"}:
        one, other = (re.sub(rb'"digest": "\w{8}"', b"", (at / name).read_bytes()) for at in (alone, shared))
        assert one == other, name  # the digest is of an absolute path, of which each has its own
    for rank in range(1, n_ranks):
        left = {file.name for file in (done / str(n_ranks) / str(rank)).iterdir()}
        assert left == {"found.json", "said.txt", *read}
        assert not (done / str(n_ranks) / str(rank) / "said.txt").read_bytes()
    return names


def typed(n: int) -> list[str]:
    words = ["good", "bad", "fine", "awful", "film", "very", "not", "so"]
    return [" ".join(words[(at + step) % 8] for step in range(1 + at * 5 % 9)) for at in range(1, n + 1)]


def test_a_mistake_is_said_by_the_first_process_alone(done: Path, n_ranks: int) -> None:
    said = found(done, n_ranks)["mistakes"]
    assert said == found(done, 1)["mistakes"]
    assert "row 1101: byte 0x" in said["a line"]
    assert set(said) == {"a line", "no run", "no folder"}
    assert all(found(done, n_ranks, rank)["mistakes"] == {} for rank in range(1, n_ranks))


def test_validation_within_training_counts_every_row_once(done: Path, n_ranks: int) -> None:
    """Figures are of all processes, and the same in each."""
    of_ranks = [found(done, n_ranks, rank)["validations"] for rank in range(n_ranks)]
    for n, alone, *shared in zip(ROWS, found(done, 1)["validations"], *of_ranks, strict=True):
        assert alone.pop("rows of this process") == n
        assert sum(one.pop("rows of this process") for one in shared) == n
        assert all(one == shared[0] for one in shared)
        assert shared[0].keys() == alone.keys() >= {"validation_loss", "validation_accuracy"}
        assert shared[0].pop("validation_loss") == pytest.approx(alone.pop("validation_loss"), abs=1e-6)
        assert shared[0] == alone  # quotients of counts


@pytest.mark.parametrize("how", ["silent", "ended"])
def test_a_lost_process_ends_the_first_with_one_sentence(done: Path, how: str) -> None:
    said = (done / f"{how}-0.txt").read_text()
    assert said.startswith("another process of this command has ended, or gave no answer for hardware.timeout=")


@pytest.mark.slow
def test_processes_are_started_where_several_devices_are_asked_for(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in typed(17)))
    words: dict[str, Any] = {"run": str(model_folder), "input": str(tmp_path / "in.txt")}
    for n in (1, 2):
        hardware = InferenceHardware(accelerator=Accelerator.cpu, devices=n)
        assert predict(PredictConfig(**words, output=str(tmp_path / f"{n}.jsonl"), hardware=hardware)) == 17
    assert (tmp_path / "2.jsonl").read_bytes() == (tmp_path / "1.jsonl").read_bytes()


@pytest.mark.slow
def test_an_evaluation_in_processes_of_its_own_returns_its_figures(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run = str(shutil.copytree(model_folder, tmp_path / "run"))
    labels = ("bad", "good", "so-so")
    rows = [f"{text},{labels[at % 3]}\n" for at, text in enumerate(typed(17))]
    (tmp_path / "rows.csv").write_text("".join(["text,label\n", *rows]))
    data = run_data(path=str(tmp_path / "rows.csv"))
    found, said = {}, {}
    for n in (1, 2):
        hardware = InferenceHardware(accelerator=Accelerator.cpu, devices=n)
        found[n] = evaluate(EvaluateConfig(run=run, data=data, hardware=hardware))
        said[n] = capfd.readouterr().out
    assert json.loads(json.dumps(found[1])) == found[2]
    assert said[1] == said[2] != ""


def test_other_devices_than_were_started_are_refused(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, word in {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, word)
    hardware = InferenceHardware(accelerator=Accelerator.cpu, devices=2)
    with pytest.raises(ValueError, match=r"hardware\.devices=2, but torchrun started processes for 1: give"):
        predict(PredictConfig(run=str(model_folder), text="good", hardware=hardware))
