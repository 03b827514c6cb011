"""The verb `evaluate`, whole: files, figures, refusals."""

import csv
import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table as read_parquet
from safetensors.torch import load_file, save_file
from sklearn import metrics

from manyheads.config import (
    Accelerator,
    DataConfig,
    EvaluateConfig,
    InferenceHardware,
    OnBadRow,
    PredictConfig,
    Predictions,
    RunConfig,
    run_data,
)
from manyheads.data.rows import Rows
from manyheads.data.sources import read_splits
from manyheads.distributed import faults
from manyheads.evaluation import classification
from manyheads.evaluation import logits as logits_file
from manyheads.evaluation.evaluate import evaluate
from manyheads.inference import classifier
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.inference.predict import predict
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import LinearBaseline, write_baseline
from manyheads.runs.config_file import read_run, save_run

LABELS = ["bad", "good", "so-so"]
FILES = ["metrics.json", "predictions.csv", "reliability.png", "report.html"]


def written(folder: Path) -> list[str]:
    """The files of a folder, but for the one that the plugin review adds."""
    return sorted(one.name for one in folder.iterdir() if one.name != "risk.png")


@pytest.fixture
def run(tmp_path: Path, model_folder: Path) -> Path:
    """A run folder with its data beside it."""
    data = tmp_path / "films"
    data.mkdir()
    for split in ("train", "validation", "test"):
        rows = [(f"{word} {split} film {at}", LABELS[at % 3]) for at in range(20) for word in ("good", "bad")]
        with (data / f"{split}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    shutil.copytree(model_folder / "model", tmp_path / "run" / "model")
    save_run(RunConfig(data=DataConfig(source="files", path=str(data))), tmp_path / "run" / "config.yaml")
    return tmp_path / "run"


def fit_baseline(run: Path) -> None:
    """As training leaves it in the run folder."""
    texts = [f"film {at} {name}" for at in range(20) for name in LABELS]
    linear = fit_linear(Rows(texts, None, [0, 1, 2] * 20, "train.csv", range(60)), 3)
    assert linear is not None
    write_baseline(run, LinearBaseline(linear))


def config(run: Path, **typed: Any) -> EvaluateConfig:
    hardware = InferenceHardware(accelerator=Accelerator.cpu)
    return EvaluateConfig(run=str(run), hardware=hardware, **typed)


def test_a_run_is_judged_on_its_own_test_split(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "metrics.csv").write_text("step,train_loss\n1,0.5\n2,0.4\n")
    fit_baseline(run)
    returned = evaluate(config(run))
    folder = run / "evaluate" / "films-test"
    assert written(folder) == sorted([*FILES, "loss.png"])
    figures = json.loads((folder / "metrics.json").read_text())
    assert figures == json.loads(json.dumps(returned))
    with (folder / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    truth, answers = [row["label"] for row in rows], [row["prediction"] for row in rows]
    assert figures["accuracy"]["value"] == pytest.approx(metrics.accuracy_score(truth, answers))
    assert figures["macro_f1"]["value"] == pytest.approx(metrics.f1_score(truth, answers, average="macro"))
    assert set(figures["loss"]) == {"value", "low", "high"}
    assert (figures["n_rows"], figures["split"], figures["data"], figures["labels"]) == (40, "test", "films", LABELS)
    assert set(figures["baselines"]) == {"most frequent class", "linear model"}
    expected = load(run).predict([row["text"] for row in rows])
    assert answers == [one.label for one in expected]
    printed = capsys.readouterr().out
    assert "accuracy" in printed
    assert str(folder / "report.html") in printed
    assert "films, test" in printed


def test_answers_are_found_again_in_the_file_and_keep_its_columns(run: Path, tmp_path: Path) -> None:
    """A single file of which test was carved out, with a blank line, a row that is left out, and names of ours."""
    lines = ["id,text,label,split note,prediction,p_good"]
    lines += [f'k{at},"film {at}",{LABELS[at % 3]},"a, b",{at / 2},' for at in range(60)]
    lines[7] = ""
    lines[9] = "k8,,bad,no text,,"
    (tmp_path / "one.csv").write_text("\n".join(lines) + "\n")
    data = DataConfig(source="files", path=str(tmp_path / "one.csv"), on_bad_row=OnBadRow.drop)
    save_run(RunConfig(data=data), run / "config.yaml")
    for more, n_rows, folder in (
        ({}, 6, "one-test"),
        ({"data": run_data(path=data.path, on_bad_row=OnBadRow.drop)}, 58, "one-all"),
    ):
        evaluate(config(run, **more))
        with (run / "evaluate" / folder / "predictions.csv").open(newline="") as file:
            answered = list(csv.DictReader(file))
        assert list(answered[0]) == [
            "row", "index", "text", "id", "split note", "input_prediction", "input_p_good",
            "label", "prediction", "p_bad", "p_good", "p_so-so",
        ]  # fmt: skip
        with (tmp_path / "one.csv").open(newline="") as file:
            in_file = list(csv.DictReader(file))  # which knows no blank line, as pandas
        assert len(answered) == n_rows
        for one in answered:
            of_file = in_file[int(one["index"])]
            assert one["text"] == of_file["text"] == f"film {int(one['row']) - 2}"
            kept = one["id"], one["label"], one["split note"], one["input_prediction"], one["input_p_good"]
            assert kept == tuple(of_file[name] for name in ("id", "label", "split note", "prediction", "p_good"))


@pytest.mark.parametrize("predictions", Predictions)
def test_columns_called_as_parts_of_an_answer_are_kept(run: Path, tmp_path: Path, predictions: Predictions) -> None:
    """Such as those of what `predict` wrote, and notes whose name begins as that of a probability."""
    with (tmp_path / "more.csv").open("w", newline="") as file:
        lines = [("p_notes", "probabilities", "text", "label")]
        csv.writer(file).writerows(lines + [(f"by {name}", '{"bad": 1}', f"film {name}", name) for name in LABELS])
    evaluate(config(run, data=run_data(path=str(tmp_path / "more.csv")), predictions=predictions))
    written = run / "evaluate" / "more-all" / f"predictions.{predictions.name}"
    if predictions is Predictions.parquet:
        rows = read_parquet(written).to_pylist()
    else:
        with written.open(newline="") as file:
            rows = list(csv.DictReader(file))
    assert [row["p_notes"] for row in rows] == ["by bad", "by good", "by so-so"]
    assert [row["probabilities"] for row in rows] == ['{"bad": 1}'] * 3


def test_an_evaluation_may_be_repeated(run: Path) -> None:
    first = evaluate(config(run, split="validation"))
    assert evaluate(config(run / "model", split="validation")) == first
    assert [one.name for one in (run / "evaluate").iterdir()] == ["films-validation"]


def test_a_moved_model_is_judged_on_named_data(run: Path, tmp_path: Path) -> None:
    alone = shutil.move(run / "model", tmp_path / "moved")
    data = run_data(path=str(tmp_path / "films" / "test.csv"))
    metrics = evaluate(config(alone, data=data, output=str(tmp_path / "new" / "results")))
    assert written(tmp_path / "new" / "results") == FILES
    assert set(metrics["baselines"]) == {"most frequent class"}
    assert (metrics["data"], metrics["split"]) == ("films-test", "all")


def test_the_linear_model_of_training_is_judged_on_named_data(run: Path, tmp_path: Path) -> None:
    fit_baseline(run)
    rows = [(f"film {name}", name) for name in LABELS]
    with (tmp_path / "more.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    metrics = evaluate(config(run, data=run_data(path=str(tmp_path / "more.csv"))))
    assert metrics["baselines"]["linear model"]["accuracy"]["value"] == 1.0
    assert "linear model" in metrics["leads"]


def test_rows_that_the_model_was_chosen_on_are_said_to_be(run: Path, tmp_path: Path, capsys) -> None:
    """Of the run's own splits, and of a file that turns out to hold the same rows."""
    fit_baseline(run)
    splits = read_splits(DataConfig(source="files", path=str(tmp_path / "films")), 0)
    digests = {name: rows.digest(LABELS) for name, rows in splits.by_name().items()}
    written = {"digests": digests, "label_counts": {name: name == "so-so" for name in LABELS}}
    (run / "summary.json").write_text(json.dumps(written))
    file = run_data(path=str(tmp_path / "films" / "validation.csv"))
    for more in ({"split": "validation"}, {"data": file}):
        found = evaluate(config(run, **more))
        warnings = found["warnings"]
        assert warnings[0].startswith("the epoch was chosen on these validation rows, so the figures are optimistic")
        assert f"warning: {warnings[0]}\n" in capsys.readouterr().out
    assert found["baselines"]["most frequent class"]["accuracy"]["value"] == 12 / 40  # of so-so, as in training
    assert "trained on these rows" in evaluate(config(run, split="train"))["warnings"][0]
    assert not any("chosen on these" in one for one in evaluate(config(run))["warnings"])
    (run / "summary.json").unlink()
    saved = read_run(run)
    save_run(replace(saved, data=replace(saved.data, validation_split="train")), run / "config.yaml")
    assert "trained on these rows" in evaluate(config(run, split="validation"))["warnings"][0]


def test_other_rows_that_the_model_learnt_from_are_said_to_be(run: Path, tmp_path: Path, capsys) -> None:
    rows = (tmp_path / "films" / "train.csv").read_text().splitlines()
    (tmp_path / "more.csv").write_text("\n".join([*rows[:31], "a new film,good"]) + "\n")
    (said, *_) = evaluate(config(run, data=run_data(path=str(tmp_path / "more.csv"))))["warnings"]
    assert said.startswith(
        "30 of 31 texts of more.csv are also in what the model learnt from (first: row 2 is row 2 of"
    )
    assert f"warning: {said}\n" in capsys.readouterr().out
    (tmp_path / "new.csv").write_text("text,label\na new film,good\n")
    found = evaluate(config(run, data=run_data(path=str(tmp_path / "new.csv"))))
    assert not any("learnt from" in one for one in found["warnings"])
    guessed = "the most frequent class is that of these rows, as the training rows are not known"
    assert guessed in found["warnings"]
    (run / "summary.json").write_text(json.dumps({"label_counts": dict.fromkeys(LABELS, 1)}))
    found = evaluate(config(run, data=run_data(path=str(tmp_path / "new.csv"))))
    assert guessed not in found["warnings"]


def test_results_of_a_single_file_lie_in_a_folder_that_says_all(run: Path, tmp_path: Path) -> None:
    data = run_data(path=str(tmp_path / "films" / "test.csv"))
    evaluate(config(run, split="train", data=data))
    assert [one.name for one in (run / "evaluate").iterdir()] == ["films-test-all"]


def test_results_are_replaced_whole_and_nothing_else_is(run: Path, tmp_path: Path, monkeypatch) -> None:
    out = tmp_path / "out"
    evaluate(config(run, output=str(out), split="validation"))
    with pytest.raises(
        ValueError, match=r"out exists .*: name a new folder, or replace these results of evaluate by over"
    ):
        evaluate(config(run, output=str(out)))
    (out / "f1.png").write_bytes(b"an old picture")
    before = {one.name: one.read_bytes() for one in out.iterdir()}
    with monkeypatch.context() as patch:

        def full(path: Path, content: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("manyheads.evaluation.results.write_json", full)  # the last that is written
        with pytest.raises(ValueError, match="No space left on device"):
            evaluate(config(run, output=str(out), overwrite=True))
    assert {one.name: one.read_bytes() for one in out.iterdir()} == before
    found = evaluate(config(run, output=str(out), overwrite=True, predictions=Predictions.parquet))
    assert json.loads((out / "metrics.json").read_text()) == found
    assert {"f1.png", "predictions.csv"}.isdisjoint(one.name for one in out.iterdir())
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]
    (out / "notes.txt").write_text("mine")
    strangers = {out: "notes.txt", tmp_path / "films": "", run: ""}
    for folder, strange in strangers.items():
        kept = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
        with pytest.raises(
            ValueError, match=rf"holds {strange}.*nothing but results of evaluate is replaced: name a new"
        ):
            evaluate(config(run, output=str(folder), overwrite=True))
        assert {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()} == kept


def test_a_typed_output_that_is_not_empty_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"output=\S+films exists and is not empty: name a new folder"):
        evaluate(config(run, output=str(tmp_path / "films")))
    with pytest.raises(ValueError, match=r"output=\S+config.yaml is a file: name a new folder"):
        evaluate(config(run, output=str(run / "config.yaml")))
    with pytest.raises(ValueError, match=r"output=\S+x.csv names a file, but a folder is written: name a new folder"):
        evaluate(config(run, output=str(tmp_path / "x.csv")))


def test_mistakes_are_found_before_torch_is_imported(run: Path) -> None:
    program = f"""
import sys
from manyheads.config import EvaluateConfig
from manyheads.evaluation.evaluate import evaluate
try:
    evaluate(EvaluateConfig(run={str(run)!r}, split="test", output={str(run)!r}))
except ValueError:
    print("torch" in sys.modules)
(p := __import__("pathlib").Path({str(run.parent / "films" / "test.csv")!r})).write_text("text,label\\na,unheard of\\n")
try:
    evaluate(EvaluateConfig(run={str(run)!r}))
except ValueError as error:
    print("torch" in sys.modules, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "False"
    assert second.startswith("False ")
    assert "unheard of" in second


def test_a_folder_that_cannot_be_written_to_is_one_sentence(run: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "manyheads.evaluation.results", None)  # no row is answered
    (run / "evaluate").write_text("a file where a folder should be")
    with pytest.raises(ValueError, match=r"output=\S+films-test: \S+evaluate is a file: name another place by output="):
        evaluate(config(run))


def test_an_answer_that_is_no_number_is_said_of_its_row(run: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(classifier, "CHUNK", 4)
    (tmp_path / "new.csv").write_text("text,label\n" + "good film,good\n" * 9 + "bad film,bad\n")
    file = run / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["embeddings.words.weight"][load(run).tokenizer.token_to_id("bad")] = 1e30  # whose square is infinite
    save_file(tensors, file)
    with pytest.raises(ValueError, match=r"new\.csv, row 11: what the network answers is not finite numbers"):
        evaluate(config(run, data=run_data(path=str(tmp_path / "new.csv"))))
    assert not list(run.rglob("metrics.json"))
    asked = PredictConfig(run=str(run), text="bad film", output=str(tmp_path / "out.csv"))
    with pytest.raises(ValueError, match="what is answered to the text 'bad film' is not finite numbers, as the weig"):
        predict(asked)
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("kind", [Predictions.csv, Predictions.parquet])
def test_a_killed_command_goes_on_and_asks_no_row_twice(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: Predictions
) -> None:
    monkeypatch.setattr(classifier, "CHUNK", 8)
    monkeypatch.setattr(logits_file, "EVERY", 0.0)
    expected = evaluate(config(run, output=str(tmp_path / "whole"), predictions=kind))
    monkeypatch.setattr(classification, "from_parts", lambda *given: [])  # which may ask for parts of texts
    asked: list[str] = []
    logits = TextClassifier.logits

    def counted(self, texts, *rest, **more):
        asked.extend(texts)
        return logits(self, texts, *rest, **more)

    monkeypatch.setattr(TextClassifier, "logits", counted)
    again = config(run, output=str(tmp_path / "out"), predictions=kind)
    for point in ("chunk:3:fail", "chunk:4:fail"):  # among the rows; of the file of predictions
        with monkeypatch.context() as patch:
            patch.setenv(faults.VARIABLE, point)
            with pytest.raises(RuntimeError):
                evaluate(again)
        faults.reset_counts()
        assert {".answers.part", ".answers.part.json"} <= {one.name for one in (tmp_path / "out").iterdir()}
        assert not (tmp_path / "out" / "metrics.json").exists()
    found = evaluate(again)
    assert "evaluate: resuming after 40 of 40 rows, which are answered" in capsys.readouterr().err
    assert Counter(asked) == Counter(dict.fromkeys(asked, 1) | dict.fromkeys(asked[16:24], 2))  # one chunk was lost
    assert found == expected | {"source": found["source"]}
    name = f"predictions.{kind.name}"
    assert written(tmp_path / "out") == sorted([*FILES[:1], *FILES[2:], name])
    if kind is Predictions.csv:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        return
    table = read_parquet(tmp_path / "out" / name)
    assert table.equals(read_parquet(tmp_path / "whole" / name))
    assert table.column("row").to_pylist() == list(range(2, 42))
    assert table.schema.field("p_good").type == "double"
