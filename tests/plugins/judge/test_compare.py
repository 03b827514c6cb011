"""Models compared on the same rows: the verb, whole; its figures against SciPy and a simulation."""

import csv
import fcntl
import json
import os
import shutil
import sys
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom

from manyheads.cli.main import main
from manyheads.config import (
    Accelerator,
    DataConfig,
    EvaluateConfig,
    InferenceHardware,
    PredictConfig,
    Predictions,
    RunConfig,
    run_data,
)
from manyheads.data.class_names import split_names
from manyheads.data.rows import Rows
from manyheads.data.sources import read_rows, read_split
from manyheads.evaluation.evaluate import evaluate
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.inference.folder import load
from manyheads.inference.predict import predict
from manyheads.plugins.judge import comparison
from manyheads.plugins.judge.calibrate import calibrate
from manyheads.plugins.judge.compare import compare_models
from manyheads.plugins.judge.comparison import (
    ComparedModel,
    answer_words,
    compare_answers,
    comparison_tables,
    mcnemar,
    pair_verdict,
    rows_needed,
)
from manyheads.plugins.judge.config import CalibrateConfig, CalibrationMethod, CompareConfig
from manyheads.runs.config_file import save_run
from manyheads.runs.summary import Interval, names_of

LABELS = ["bad", "good", "so-so"]
CPU = InferenceHardware(accelerator=Accelerator.cpu)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with (tmp_path / "films.csv").open("w", newline="") as file:
        lines = [(f"{word} film {at}", LABELS[at % 3]) for at in range(20) for word in ("good", "bad")]
        csv.writer(file).writerows([("text", "label"), *lines])
    return tmp_path / "films.csv"


def run(runs: list[Path], data: Path, output: Path, **typed: Any) -> dict[str, Any]:
    names = [str(one) for one in runs]
    return compare_models(
        CompareConfig(runs=names, data=run_data(path=str(data)), output=str(output), hardware=CPU, **typed)
    )


def test_runs_and_a_file_of_anybodys_predictions_are_compared(ship_model, data: Path, tmp_path: Path, capsys) -> None:
    first = ship_model(tmp_path / "a" / "model").parent
    with data.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with (tmp_path / "theirs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "prediction"), *((one["text"], one["label"]) for one in rows)])
    shutil.copytree(first, tmp_path / "b")
    found = run([first, tmp_path / "b", tmp_path / "theirs.csv"], data, tmp_path / "out")
    assert found == json.loads((tmp_path / "out" / "compare.json").read_text())
    own = [one.label for one in load(first).predict([one["text"] for one in rows])]
    right = np.array([answer == one["label"] for answer, one in zip(own, rows, strict=True)])
    assert found["models"]["a"] == found["models"]["b"]
    assert found["models"]["a"]["accuracy"]["value"] == right.mean()
    assert found["models"]["theirs.csv"]["accuracy"]["value"] == 1
    same, better, _ = found["pairs"]
    assert (same["won"], same["lost"], same["changed"], same["p"], same["rows_needed"]) == (0, 0, 0, 1.0, None)
    n_wrong = int((~right).sum())
    assert (better["won"], better["lost"], better["changed"]) == (n_wrong, 0, n_wrong)
    assert better["p_holm"] == pytest.approx(3 * 2 * 0.5**n_wrong)
    models, pairs = comparison_tables(found)
    assert [row[1].value for row in models.rows] == [one["accuracy"]["value"] for one in found["models"].values()]
    assert pairs.rows[0][3:] == [0, 0, 0, 1.0, None]
    assert pairs.rows[1][1] == Interval(**better["change"]["accuracy"])
    assert pairs.in_words()[1][3:6] == [f"{n_wrong:,}", "0", f"{n_wrong:,}"]
    with (tmp_path / "out" / "changed.csv").open(newline="") as file:
        changed = list(csv.DictReader(file))
    assert [one["text"] for one in changed] == [
        one["text"] for one, is_right in zip(rows, right, strict=True) if not is_right
    ]
    assert all(one["label"] == one["prediction of theirs.csv"] != one["prediction of a"] for one in changed)
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"theirs.csv is right, a is wrong: {n_wrong} rows" in page
    assert "Settings that differ" not in page
    assert "<h2>Classes, those that differ most first</h2>" in page
    assert "theirs.csv is better than a: the accuracy of theirs.csv is" in capsys.readouterr().out


def test_a_comparison_leaves_all_files_or_none_and_keeps_others_out(ship_model, data, tmp_path, monkeypatch) -> None:
    first = ship_model(tmp_path / "a" / "model").parent
    shutil.copytree(first, tmp_path / "b")
    (tmp_path / "out").mkdir()
    held = os.open(tmp_path / "out", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)  # as another process does
    with pytest.raises(ValueError, match="out is written by a command in progress: wait for its end"):
        run([first, tmp_path / "b"], data, tmp_path / "out")
    os.close(held)

    def full(*_):
        raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(comparison, "write_json", full)
        with pytest.raises(ValueError, match="No space left"):
            run([first, tmp_path / "b"], data, tmp_path / "out")
    assert not any("out" in one.name for one in tmp_path.iterdir())
    run([first, tmp_path / "b"], data, tmp_path / "out")


def test_a_model_of_any_number_of_labels_is_compared_by_all_of_them(label_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_text("text,labels\na good film,good\nbad film,\nso so,bad|so-so\n")
    (tmp_path / "theirs.csv").write_text("prediction\ngood\n\nso-so|bad\n".replace("\n\n", '\n""\n'))
    (tmp_path / "others.csv").write_text("prediction\ngood|so-so\nso-so\nbad\n")
    runs = [label_folder, tmp_path / "theirs.csv", tmp_path / "others.csv"]
    found = run(runs, tmp_path / "films.csv", tmp_path / "out")
    assert found["models"]["theirs.csv"]["micro_f1"]["value"] == 1
    *_, pair = found["pairs"]
    assert (pair["won"], pair["lost"], pair["changed"]) == (0, 3, 3)
    assert len((tmp_path / "out" / "changed.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("multi", [False, True])
def test_our_own_predictions_are_joined_by_their_rows(
    request, data: Path, tmp_path: Path, kind: str, multi: bool
) -> None:
    """In whatever order their lines are, as a spreadsheet sorts them: a model is level with its own predictions."""
    import pandas as pd

    folder = request.getfixturevalue("label_folder" if multi else "model_folder")
    lines = [line.split(",") for line in data.read_text().splitlines()[1:]]
    lines = [(text, label if at % 3 else "|".join(LABELS[: 2 * multi])) for at, (text, label) in enumerate(lines)]
    with data.open("w", newline="") as file:
        rows = [(text, label or "good", f"a {at}") for at, (text, label) in enumerate(lines)]
        csv.writer(file).writerows([("text", "labels" if multi else "label", "row"), *rows])
    asked = {"data": run_data(path=str(data)), "output": str(tmp_path / "judged"), "predictions": Predictions[kind]}
    evaluate(EvaluateConfig(run=str(folder), hardware=CPU, **asked))
    frame = getattr(pd, f"read_{kind}")(tmp_path / "judged" / f"predictions.{kind}").drop(columns="text")
    assert {"row", "index", "input_row"} <= {*frame}
    for name, turned in (("sorted", frame.sort_values("p_good")), ("turned", frame[::-1])):
        path = tmp_path / f"{name}.{kind}"
        getattr(turned, f"to_{kind}")(path, index=False)
        pair = run([folder, path], data, tmp_path / name)["pairs"][0]
        assert (pair["changed"], pair["won"], pair["lost"]) == (0, 0, 0)
        one = turned.drop(columns=["row"])
        getattr(one, f"to_{kind}")(path, index=False)
        assert run([folder, path], data, tmp_path / f"{name}-index")["pairs"][0]["changed"] == 0
    for changed in (frame.assign(index=frame["index"] + 1), frame.assign(row=7)):
        getattr(changed, f"to_{kind}")(tmp_path / f"others.{kind}", index=False)
        with pytest.raises(ValueError, match="has the columns index and row, as predictions of evaluate have, but"):
            run([folder, tmp_path / f"others.{kind}"], data, tmp_path / "out")


def test_a_column_called_index_that_is_of_something_else_is_not_followed(model_folder, data, tmp_path) -> None:
    answers = "".join(f"{LABELS[at % 3]},{at * 3}\n" for at in range(20) for _ in "ab")
    (tmp_path / "theirs.csv").write_text(f"prediction,index\n{answers}")
    found = run([model_folder, tmp_path / "theirs.csv"], data, tmp_path / "out")
    assert found["models"]["theirs.csv"]["accuracy"]["value"] == 1


def test_labels_with_a_bar_in_their_name_are_read_back(ship_model, tmp_path: Path) -> None:
    names = ["R&D | research", "billing", "account"]
    folder = ship_model(tmp_path / "run" / "model", thresholds=[0.34, 0.33, 0.32])
    (folder / "labels.json").write_text(json.dumps(names))
    draw = np.random.default_rng(0)
    words = ["good", "bad", "fine", "awful", "film", "very", "not"]
    rows = [
        {"text": f"{' '.join(draw.choice(words, 4))} {at}", "labels": [name for name in names if draw.random() < 0.5]}
        for at in range(40)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "judged"
    asked = {"data": run_data(path=str(tmp_path / "rows.jsonl")), "output": str(out)}
    judged = evaluate(EvaluateConfig(run=str(folder), hardware=CPU, **asked))
    pair = run([folder, out / "predictions.csv"], tmp_path / "rows.jsonl", tmp_path / "compared")["pairs"][0]
    assert pair["changed"] == 0

    def read_back(path: Path, label: str) -> Any:
        to = {"output": str(tmp_path / f"{path.name}-{label}"), "hardware": CPU}
        return evaluate(EvaluateConfig(run=str(folder), data=run_data(path=str(path), label=label), **to))["micro_f1"]

    assert read_back(out / "predictions.csv", "labels") == judged["micro_f1"]
    assert read_back(out / "predictions.csv", "prediction")["value"] == 1
    held = []
    for kind in ("jsonl", "csv", "parquet"):
        path = tmp_path / f"answers.{kind}"
        predict(PredictConfig(run=str(folder), input=str(tmp_path / "rows.jsonl"), output=str(path), hardware=CPU))
        held.append(read_split(DataConfig(path=str(path), label="labels"), "all", names, multi=True).sets)
    given = [json.loads(line)["labels"] for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [{names[label] for label in one} for one in held[0]] == [{*one} for one in given]
    assert [*held[0]] == [*held[1]] == [*held[2]]


def test_predictions_are_read_as_labels_are(model_folder: Path, pair_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_text("text,label\na good film,good\nbad film,bad\n")
    (tmp_path / "theirs.jsonl").write_text('{"prediction": ["good"]}\n{"prediction": " bad"}\n')
    found = run([model_folder, tmp_path / "theirs.jsonl"], tmp_path / "films.csv", tmp_path / "out")
    assert found["models"]["theirs.jsonl"]["accuracy"]["value"] == 1
    (tmp_path / "pairs.csv").write_text("text,text_pair,label\na film,good,good\na film,bad,bad\n")
    (tmp_path / "turned.csv").write_text("text,text_pair,prediction\na film,bad,bad\na film,good,good\n")
    with pytest.raises(ValueError, match=r"turned.csv, row 2 has another text than pairs.csv, row 2.*'text_pair'"):
        run([pair_folder, tmp_path / "turned.csv"], tmp_path / "pairs.csv", tmp_path / "pairs")


def test_a_row_that_cannot_be_read_is_not_a_row_without_labels(label_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_text("text,labels\na good film,good\nbad film,\n")
    (tmp_path / "theirs.jsonl").write_text('{"prediction": ["good"]}\n{"prediction": ["bad"\n')
    with pytest.raises(ValueError, match=r"theirs.jsonl, row 2: is not JSON .*; correct it"):
        run([label_folder, tmp_path / "theirs.jsonl"], tmp_path / "films.csv", tmp_path / "out")


def test_numbers_of_declared_classes_are_predictions(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_text("text,label\na good film,good\nbad film,bad\n")
    classes = {"info": {"features": {"prediction": {"names": ["good", "bad"], "_type": "ClassLabel"}}}}
    table = pa.table({"prediction": [0, 1]}).replace_schema_metadata({"huggingface": json.dumps(classes)})
    pq.write_table(table, tmp_path / "theirs.parquet")
    found = run([model_folder, tmp_path / "theirs.parquet"], tmp_path / "films.csv", tmp_path / "out")
    assert found["models"]["theirs.parquet"]["accuracy"]["value"] == 1


def test_rows_that_decided_an_answer_are_not_compared_on(ship_model, data: Path, tmp_path: Path) -> None:
    first, other = ship_model(tmp_path / "a" / "model").parent, ship_model(tmp_path / "b" / "model").parent
    rows = data.read_text().splitlines()
    data.write_text("\n".join([*rows, *(f"so {one}" for one in rows[1:])]) + "\n")
    for method, refused in ((CalibrationMethod.temperature, False), (CalibrationMethod.isotonic, True)):
        calibrate(CalibrateConfig(run=str(other), method=method, data=run_data(path=str(data)), hardware=CPU))
        if refused:
            with pytest.raises(ValueError, match=r"films.csv holds the rows on which calibrate was fitted"):
                run([first, other], data, tmp_path / method.name)
        else:
            assert run([first, other], data, tmp_path / method.name)["n_rows"] == 80


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text,answer\n", "theirs.csv has no column 'prediction', but text, answer: name that of the answers so"),
        ("prediction\ngood\n", "theirs.csv has 1 rows, but films.csv has 40: give one for each"),
        ("prediction\n" + "fine\n" * 40, "theirs.csv, row 2: the prediction 'fine' is not a class of the models"),
        ("text,prediction\n" + "x,good\n" * 40, "theirs.csv, row 2 has another text than films.csv, row 2"),
        ("prediction\n" + "good\n" * 39 + "good,bad\n", "theirs.csv, row 41: has 2 cells, but the header has 1"),
        ("prediction,id\n" + "good,1\n" * 38 + "good,1,x\ngood,1\n", "theirs.csv, row 40: has 3 cells, but the header"),
    ],
)
def test_a_file_of_other_rows_is_one_sentence(model_folder: Path, data: Path, tmp_path: Path, content, said) -> None:
    (tmp_path / "theirs.csv").write_text(content)
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        run([model_folder, tmp_path / "theirs.csv"], data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["compare", "calibrate", "probe"])
@pytest.mark.parametrize("output", ["output=out", ""])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    verb, output, ship_model, data: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    models = [ship_model(tmp_path / name) for name in ("run", "other")]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    for name in ("comparison", "calibration_fit", "behaviour"):  # which do the work
        monkeypatch.setitem(sys.modules, f"manyheads.plugins.judge.{name}", None)
    asked = f"runs=[{models[0]},{models[1]}]" if verb == "compare" else f"run={models[0]}"
    assert main([verb, asked, f"data.path={data}", "hardware=cpu", *output.split()]) == 2
    assert "may not be written to: name another place by output=" in capsys.readouterr().err


def test_what_cannot_be_compared_is_one_sentence(model_folder, pair_folder, label_folder, data, tmp_path) -> None:
    for runs, said in (
        ([model_folder], "is one model, but two or more are compared"),
        ([data, data], "are files alone"),
        ([model_folder, pair_folder], "takes or gives pairs of texts"),
        ([model_folder, label_folder], "takes or gives any number of labels"),
        ([model_folder, model_folder], "names one model twice"),
        ([model_folder, tmp_path / "nowhere"], r"^runs=.*nowhere is not a run folder"),
    ):
        with pytest.raises(ValueError, match=said):
            run(runs, data, tmp_path / "out")
    config = CompareConfig(runs=[str(model_folder), str(tmp_path / "films.csv")], output=str(tmp_path / "out"))
    with pytest.raises(ValueError, match=r"^runs=.* is a model without its run folder"):
        compare_models(config)


def test_a_run_that_learnt_from_the_judged_rows_is_named(ship_model, data: Path, tmp_path: Path, capsys) -> None:
    homes = [ship_model(tmp_path / name / "model").parent for name in "ab"]
    splits = []
    for seed, home in enumerate(homes):
        config = RunConfig(seed=seed, data=DataConfig(path=str(data), train_share=0.5))
        save_run(config, home / "config.yaml")
        splits.append(read_rows(config, with_test=True))
        digests = {name: one.digest(splits[-1].labels) for name, one in splits[-1].by_name().items()}
        (home / "summary.json").write_text(json.dumps({"digests": digests}))
        (home / "metrics.csv").write_text("step,validation_loss\n1,0.5\n2,0.25\n")
    judged, learnt = splits[0].test, {*splits[1].train.texts}
    n_seen = sum(text in learnt for text in judged.texts)
    found = compare_models(CompareConfig(runs=[*map(str, homes)], output=str(tmp_path / "out"), hardware=CPU))
    (said,) = found["warnings"]
    assert 0 < n_seen <= len(judged) / 2
    assert f"{n_seen} of {len(judged)} texts of films.csv are also in what {homes[1]} learnt from" in said
    assert f"warning: {said}" in capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text()
    assert '<td class="name">seed</td><td class="name">0</td><td class="name">1</td>' in "".join(page.splitlines())
    assert "validation loss of the networks over steps" in page
    shutil.copytree(homes[0], tmp_path / "c")
    config = RunConfig(seed=1, data=DataConfig(path=str(data)))
    save_run(config, tmp_path / "c" / "config.yaml")
    (tmp_path / "c" / "summary.json").unlink()
    n_seen = sum(text in {*read_rows(config, with_test=True).train.texts} for text in judged.texts)
    assert n_seen > len(judged) / 2
    runs = [str(homes[0]), str(tmp_path / "c")]
    with pytest.raises(
        ValueError, match=rf"/c learnt from {n_seen} of the {len(judged)} rows of films\.csv, which cannot"
    ):
        compare_models(CompareConfig(runs=runs, output=str(tmp_path / "refused"), hardware=CPU))
    assert not (tmp_path / "refused").exists()
    shutil.copytree(homes[0], tmp_path / "d")
    same = [str(homes[0]), str(tmp_path / "d")]
    assert compare_models(CompareConfig(runs=same, output=str(tmp_path / "same"), hardware=CPU))["warnings"] == []


def test_names_are_as_short_as_tells_them_apart() -> None:
    assert names_of(["outputs/a", "outputs/b"]) == ["a", "b"]
    assert names_of(["x/a/model", "x/b/model"]) == ["a/model", "b/model"]


@pytest.mark.parametrize(("won", "lost"), [(12, 3), (0, 0), (5, 5), (0, 9)])
def test_mcnemars_test_is_that_of_the_binomial_distribution(won: int, lost: int) -> None:
    expected = min(1.0, 2 * binom.cdf(min(won, lost), won + lost, 0.5))
    assert mcnemar(won, lost) == pytest.approx(expected)


@pytest.mark.parametrize(("won", "lost", "n"), [(60, 30, 600), (8, 31, 500), (3, 10, 500), (10, 10, 100)])
def test_on_the_rows_needed_four_of_five_samples_tell_a_difference(won: int, lost: int, n: int) -> None:
    random, needed = np.random.default_rng(0), rows_needed(won, lost, n)
    if won == lost:
        assert needed is None
        return
    assert needed is not None
    drawn = random.multinomial(needed, [won / n, lost / n, 1 - (won + lost) / n], size=10_000)
    wins, apart = drawn[:, 0], drawn[:, 0] + drawn[:, 1]
    p = np.minimum(1, 2 * binom.cdf(np.minimum(wins, apart - wins), apart, 0.5))  # the exact test that is reported
    assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.015)


def test_differences_are_those_of_a_paired_bootstrap() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(3, size=900)
    one, other = (np.where(random.random(900) < share, truth, (truth + 1) % 3) for share in (0.7, 0.8))
    rows = Rows(["x"] * 900, None, truth.tolist(), "x.csv", range(900))
    data = EvaluationData(rows, "x", "test")
    (pair,) = compare_answers([ComparedModel("a", one), ComparedModel("b", other)], data, LABELS)["pairs"]
    gain = (other == truth).astype(float) - (one == truth)
    spread = 1.96 * gain.std() / 30
    change = pair["change"]["accuracy"]
    assert change["value"] == pytest.approx(gain.mean())
    assert (change["low"], change["high"]) == pytest.approx((gain.mean() - spread, gain.mean() + spread), abs=4e-3)
    assert pair_verdict(pair, 900).startswith("b is better" if pair["p_holm"] < 0.05 else "b and a do not differ")


def test_a_class_is_written_by_its_name_and_labels_as_they_are_read_back():
    labels = ["R&D | research", "[other]"]
    assert [answer_words(np.int32(at), labels) for at in range(2)] == labels
    assert [split_names(answer_words(np.array(one, dtype=bool), labels)) for one in ([1, 0], [1, 1], [0, 0])] == [
        labels[:1],
        labels,
        [],
    ]


@pytest.mark.drawn
def test_curves_name_their_runs_whatever_these_are_called(monkeypatch) -> None:
    from manyheads.config import RunConfig
    from manyheads.plugins.judge import comparison

    monkeypatch.setattr(comparison, "read_run", lambda home: RunConfig())
    monkeypatch.setattr(comparison, "read_metrics_csv", lambda path: [{"step": 1, "validation_loss": 0.5}])
    models = [comparison.ComparedModel(name, np.zeros(1), Path(name)) for name in ("_a", "$b$", "c", "d", "e")]
    *_, curves = comparison.run_sections(models)
    (picture,) = curves.pictures
    assert picture.caption == "validation loss of the first 4 networks over steps"
    texts = picture.figure.axes[0].get_legend().get_texts()
    assert [one.get_text() for one in texts] == [" _a", r"\$b\$", "c", "d"]
