"""The verb `calibrate`: fits against SciPy and scikit-learn, the file, and what the model answers with it."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss

import manyheads
import manyheads.plugin as plugin
from manyheads.cli import main as cli
from manyheads.cli.verbs import VERBS
from manyheads.config import (
    Accelerator,
    DataConfig,
    EvaluateConfig,
    InferenceHardware,
    RunConfig,
    run_data,
)
from manyheads.evaluation.evaluate import evaluate
from manyheads.inference.folder import load
from manyheads.inference.format import open_folder
from manyheads.linear.calibration import read_calibration
from manyheads.plugins.judge import calibration_fit
from manyheads.plugins.judge.calibrate import calibrate
from manyheads.plugins.judge.calibration_fit import fit_calibration
from manyheads.plugins.judge.config import CalibrateConfig, CalibrationMethod
from manyheads.runs.config_file import save_run
from manyheads.runs.summary import Interval

LABELS = ["bad", "good", "so-so"]
CPU = InferenceHardware(accelerator=Accelerator.cpu)
temperature, vector, isotonic = CalibrationMethod


def too_sure(n: int = 1500) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(0)
    logits = random.normal(size=(n, 3))
    likely = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = [random.choice(3, p=one) for one in likely]
    return torch.tensor(3 * logits), torch.tensor(labels)


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def test_the_temperature_is_scipys() -> None:
    logits, labels = too_sure()
    found = minimize_scalar(lambda one: log_loss(labels, softmax(logits.numpy() / one)), bounds=(0.1, 10))
    fitted = fit_calibration(temperature, logits, labels)
    assert 1 / fitted.scale_C.numpy() == pytest.approx([found.x] * 3, rel=1e-3)
    assert found.x == pytest.approx(3, abs=0.4)
    mapped = fitted.of(logits, multi=False).softmax(-1)
    np.testing.assert_allclose(mapped, softmax(logits.numpy() / found.x), atol=1e-3)


@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("method", [temperature, vector])
def test_few_rows_that_are_all_right_make_nobody_certain(method: CalibrationMethod, multi: bool) -> None:
    """None of fifty is wrong: that says no more than that about one of a hundred may be."""
    labels = torch.arange(50) % 2
    marks = torch.nn.functional.one_hot(labels, 2).double()
    logits = 12 * marks - 6
    wrong = 1 - fit_calibration(method, logits, marks if multi else labels).of(logits, multi=multi)[0].softmax(-1)[0]
    if multi:
        wrong = 1 - fit_calibration(method, logits, marks).of(logits, multi=True)[0, 0].sigmoid()
    assert wrong.item() == pytest.approx(0.25 / 50.5, rel=0.3)


def test_the_vector_is_as_likely_as_scipys() -> None:
    logits, labels = too_sure()
    logits[:, 1] += 1.5

    def loss(both: np.ndarray) -> float:
        return log_loss(labels, softmax(logits.numpy() * np.exp(both[:3]) + both[3:]))

    best = minimize(loss, np.zeros(6)).fun
    assert log_loss(labels, fit_calibration(vector, logits, labels).of(logits, multi=False).softmax(-1)) < best + 2e-3


def test_the_line_is_scikit_learns() -> None:
    logits, labels = too_sure()
    likely, fitted = softmax(logits.numpy()), fit_calibration(isotonic, logits, labels)
    lines = [
        IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        .fit(likely[:, at], labels == at)
        .predict(likely[:, at])
        for at in range(3)
    ]
    expected = 0.999 * np.clip(np.stack(lines, 1), 1e-6, 1 - 1e-6) + 0.001 * likely  # so that it rises
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(fitted.of(logits, multi=False).softmax(-1), expected, atol=1e-9)


@pytest.mark.parametrize("method", CalibrationMethod)
def test_labels_are_given_to_the_same_texts(method: CalibrationMethod) -> None:
    logits, labels = too_sure()
    marks, logits = torch.nn.functional.one_hot(labels, 3).double(), logits.float().double()
    fitted = fit_calibration(method, logits, marks)
    mapped = fitted.of(logits.float(), multi=True).double().sigmoid()  # as a model has them
    loss = torch.nn.functional.binary_cross_entropy
    assert loss(mapped, marks) < loss(logits.sigmoid(), marks)
    given = mapped >= torch.tensor(fitted.thresholds([0.3, 0.5, 0.7]), dtype=torch.float64)
    before = logits.sigmoid() >= torch.tensor([0.3, 0.5, 0.7], dtype=torch.float64)
    assert (given == before).double().mean() > 0.999  # but for those that are next to a threshold


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    logits = torch.tensor([[0.01, 0.0], [0.0, 0.01]], dtype=torch.float64).repeat(50, 1)  # all right, and hardly sure
    for method in CalibrationMethod:
        fitted = fit_calibration(method, logits, torch.arange(2).repeat(50))
        (tmp_path / "calibration.json").write_text(json.dumps(fitted.as_json()))
        assert read_calibration(tmp_path / "calibration.json", 2) is not None


@pytest.fixture
def run(model_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(model_folder, tmp_path / "run")
    for name, shift in (("fit", 0), ("new", 1000)):
        texts = [f"{'good ' * (at % 4)}{'bad ' * (at % 3)}film {'so ' * (at % 5)}{at + shift}" for at in range(600)]
        likely = (load(model_folder).logits(texts).double() / 3).softmax(-1).numpy()  # it is three times too sure
        labels = [LABELS[np.random.default_rng(at + shift).choice(3, p=one)] for at, one in enumerate(likely)]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    return tmp_path / "run"


def calibrated(run: Path, method: CalibrationMethod, **typed: Any) -> dict[str, Any]:
    data = run_data(path=str(run.parent / "fit.csv"))
    return calibrate(CalibrateConfig(run=str(run), method=method, data=data, hardware=CPU, **typed))


def test_rows_that_were_learnt_from_fit_nothing(run: Path, capsys) -> None:
    save_run(RunConfig(data=DataConfig(path=str(run.parent / "fit.csv"))), run / "config.yaml")
    with pytest.raises(ValueError, match=r"^480 of 600 texts of fit\.csv are also in .*: calibrate it on others$"):
        calibrated(run, temperature)
    assert not (run / "model" / "calibration.json").exists()
    lines = (run.parent / "new.csv").read_text().splitlines()
    (run.parent / "fit.csv").rename(run.parent / "learnt.csv")
    save_run(RunConfig(data=DataConfig(path=str(run.parent / "learnt.csv"))), run / "config.yaml")
    known = (run.parent / "learnt.csv").read_text().splitlines()[1:11]
    (run.parent / "fit.csv").write_text("\n".join([*lines, *known]) + "\n")
    assert calibrated(run, temperature)["rows"] == 610
    assert "of 610 texts of fit.csv are also in what the model learnt from" in capsys.readouterr().out


def judged(run: Path, name: str, output: str) -> dict[str, Any]:
    data = run_data(path=str(run.parent / f"{name}.csv"))
    return evaluate(EvaluateConfig(run=str(run), data=data, output=str(run.parent / output), hardware=CPU))


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (one is not CalibrationMethod.vector))  # which holds temperature's
        for one in CalibrationMethod
    ],
)
def test_the_folder_answers_by_what_was_fitted(run: Path, method: CalibrationMethod, capsys) -> None:
    plain = load(run)
    before = judged(run, "new", "before")
    found = calibrated(run, method)
    assert found == json.loads((run / "model" / "calibration.json").read_text())
    assert found["rows"] == 600
    assert found["before"]["calibration_error"]["value"] > found["after"]["calibration_error"]["value"]
    assert f"{method.name} on 600 rows" in capsys.readouterr().out
    texts = ["a good film", "bad", "so so"]
    fitted = read_calibration(run / "model" / "calibration.json", 3)
    torch.testing.assert_close(load(run).logits(texts), fitted.of(plain.logits(texts), multi=False))
    after = judged(run, "new", "after")
    if method is not isotonic:  # whose line may be 0 where few rows are
        assert after["loss"]["value"] < before["loss"]["value"]
    assert after["calibration_error"]["value"] < before["calibration_error"]["value"]


def test_a_calibration_is_written_into_the_run_or_a_new_folder(run: Path) -> None:
    method = CalibrationMethod.vector
    found = calibrated(run, method)
    texts, elsewhere = ["a good film", "bad", "so so"], run.parent / "elsewhere"
    assert calibrated(run, method, output=str(elsewhere)) == found
    torch.testing.assert_close(load(elsewhere).logits(texts), load(run).logits(texts))
    with pytest.raises(ValueError, match="elsewhere is there already: name a new folder"):
        calibrated(run, method, output=str(elsewhere))
    assert calibrated(run, method, output=str(elsewhere), overwrite=True) == found
    with pytest.raises(ValueError, match="is the model of run: remove output"):
        calibrated(run, method, output=str(run / "model"), overwrite=True)
    shutil.copytree(run / "model", run.parent / "another")  # calibrated where it was: its weights may be the only ones
    with pytest.raises(ValueError, match="nothing but results of calibrate is replaced"):
        calibrated(run, method, output=str(run.parent / "another"), overwrite=True)
    assert calibrated(run, method) == found  # it is fitted on what the model says without it
    with pytest.raises(ValueError, match=r"fit.csv holds the rows that calibrate was fitted on"):
        judged(run, "fit", "same")


@pytest.mark.parametrize("multi", [False, True])
def test_a_class_that_no_row_has_keeps_its_probability(multi: bool) -> None:
    torch.manual_seed(0)
    labels = torch.randint(3, (400,))
    logits = torch.randn(400, 4, dtype=torch.float64) + 2 * torch.nn.functional.one_hot(labels, 4)
    fitted = fit_calibration(isotonic, logits, torch.nn.functional.one_hot(labels, 4).double() if multi else labels)
    of_rare = torch.tensor([[3.0, -4.0, -4.0, 4.0]], dtype=torch.float64)
    mapped = fitted.of(of_rare, multi=multi)
    if multi:
        torch.testing.assert_close(mapped[0, 3], of_rare[0, 3])
    else:
        assert mapped.argmax() == 3


def test_a_calibration_that_does_not_help_is_said_to(run: Path, capsys) -> None:
    lines = (run.parent / "fit.csv").read_text().splitlines()
    (run.parent / "fit.csv").write_text("\n".join(lines[:51]) + "\n")  # too few for lines of three classes
    warned = "the loss is higher after isotonic than before it"
    for method, is_worse in ((isotonic, True), (temperature, False)):
        found = calibrated(run, method)
        assert (found["after"]["loss"]["value"] > found["before"]["loss"]["value"]) is is_worse
        assert (warned in capsys.readouterr().out) is is_worse


def test_of_many_rows_some_are_drawn_and_all_are_known(run: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(calibration_fit, "MOST", 200)
    found = calibrated(run, temperature)
    assert (found["rows"], found["of"]) == (200, 600)
    assert "temperature on 200 rows of 600, drawn" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"fit.csv holds the rows that calibrate was fitted on"):
        judged(run, "fit", "same")


def test_what_cannot_be_fitted_or_read_is_one_sentence(run: Path) -> None:
    (run.parent / "fit.csv").write_text("text,label\ngood,good\n")
    with pytest.raises(ValueError, match=r"fit.csv has 1 rows, too few to fit anything that holds: give 50 or more"):
        calibrated(run, temperature)
    for content in (
        '{"scale": [1, 1], "shift": [0, 0]}',
        '{"scale": [1, 1, -1], "shift": [0, 0, 0]}',
        '{"scale": [1, 1, true], "shift": [0, 0, 0]}',
        '{"knots": [[[0, 1], [0, 1]]]}',
        '{"knots": [[[1, 0], [0, 1]], [[0, 1], [0, 1]], [[0, 1], [0, 1]]]}',
        "[]",
    ):
        (run / "model" / "calibration.json").write_text(content)
        with pytest.raises(ValueError, match=r"calibration\.json must hold"):
            load(run)


@pytest.mark.parametrize("multi", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_card_report_and_what_is_pushed_say_what_the_model_is_now(
    multi: bool, tmp_path: Path, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = {"cat": ["purrs", "meows"], "dog": ["barks", "digs"], "cow": ["moos", "chews"]}
    for name, n in (("rows", 90), ("new", 70)):
        draw = np.random.default_rng(n)
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["text", "labels" if multi else "label"])
            for at in range(n):
                of = sorted(draw.choice([*words], size=draw.integers(1, 3) if multi else 1, replace=False).tolist())
                table.writerow([f"it {' and '.join(words[one][at % 2] for one in of)} {n}-{at}", "|".join(of)])
    small = ["model.d_model=16", "model.d_ff=16", "model.n_layers=1", "model.n_heads=1", "trainer.max_epochs=2"]
    assert cli.main(["train", "data.path=rows.csv", "output=run", "hardware=cpu", *small]) == 0
    assert cli.main(["evaluate", "run=run", "data.path=new.csv", "output=early", "hardware.accelerator=cpu"]) == 0
    card, summary = Path("run/model/README.md"), json.loads(Path("run/summary.json").read_text())
    kept, old = ("micro_f1" if multi else "accuracy"), [Interval(**summary["test"]["loss"]).words]
    assert f"| test loss | {old[0]} |" in card.read_text()
    asked = ["calibrate", "run=run", "data.path=new.csv", "hardware.accelerator=cpu"]
    for method in ("isotonic", "temperature"):  # a second time, too
        assert cli.main([*asked, f"method={method}"]) == 0
        found = json.loads(Path("run/model/calibration.json").read_text())
        after, said = Interval(**found["after"]["loss"]).words, card.read_text()
        assert old[-1] not in said
        assert said.count(" after calibrate |") == len(found["after"])
        assert said.count(f"Calibrated by {method} on 70 rows of new.csv") == said.count("Calibrated by") == 1
        assert f"| loss after calibrate | {after} |\n" in said
        stays = f"| test {kept.replace('_', ' ').replace('f1', 'F1')} | {Interval(**summary['test'][kept]).words} |"
        assert (stays in said) is (multi or method == "temperature")  # which change no answer
        given = zip(sorted(words), manyheads.load("run").thresholds or (), strict=False)
        assert all(f"- {name}, from {one:.3f} on" in said for name, one in given)
        old.append(after)
        capsys.readouterr()
        assert cli.main(["report", "run=run"]) == 0
        report = capsys.readouterr().out
        of_others = [line for line in report.splitlines() if not line.startswith("| linear model")]
        assert not any(old[0] in line for line in of_others)  # the linear model may have answered alone
        assert after in report
        assert f"## Calibrated by {method} on 70 rows of new.csv" in report
        assert cli.main(["report", "run=run", "format=json"]) == 0
        plain = json.loads(capsys.readouterr().out)
        assert "loss" not in plain["figures"]
        assert "loss" not in plain["splits"]["test"]
        assert plain["calibration"]["after"]["loss"] == found["after"]["loss"]
        assert (kept in plain["figures"]) is (multi or method == "temperature")
        assert plain["run"]["finished"]
        assert "are left out: calibrate has changed the model since they were measured" in plain["warnings"][-1]
        if "push" in VERBS:
            assert cli.main(["push", "run=run", "repo=me/it", "dry=true"]) == 0
            card_of = plugin.resolve("manyheads.plugins.hub.card:card_of")
            pushed = card_of(open_folder("run"), "me/it", "main")
            assert old[0] not in pushed
            assert f"interval {summary['test']['loss']['low']:.4f}" not in pushed
            assert f"loss (after calibrate, by five folds, 95 % interval {found['after']['loss']['low']:.4f}" in pushed
    assert cli.main(["evaluate", "run=run", "data.path=rows.csv", "split=test", "output=late"]) == 0
    capsys.readouterr()
    for name, has in (("late", True), ("early", True)):  # which lie in no run that could be other since
        assert cli.main(["report", f"run={name}", "format=json"]) == 0
        assert ("loss" in json.loads(capsys.readouterr().out)["figures"]) is has
    for name in ("late", "early"):
        Path("run/evaluate").mkdir(exist_ok=True)
        Path(name).rename(f"run/evaluate/{name}")
        assert cli.main(["report", f"run=run/evaluate/{name}", "format=json"]) == 0
        assert ("loss" in json.loads(capsys.readouterr().out)["figures"]) is (name == "late")
    assert cli.main(["report", "run=run", "format=html", "output=page.html"]) == 0
    assert "report.html: loss" in capsys.readouterr().err


@pytest.mark.parametrize("method", CalibrationMethod)
def test_a_label_of_every_text_and_one_of_none_stay_so_when_probabilities_are_calibrated(method):
    logits_nC, marks_nC = torch.linspace(-9, 9, 601)[:, None].repeat(1, 2).double(), torch.zeros(601, 2)
    marks_nC[torch.arange(601) % 100 < torch.arange(601) / 6] = 1.0
    fitted = fit_calibration(method, logits_nC, marks_nC)
    moved = torch.tensor(fitted.thresholds([0.0, 1.0]), dtype=torch.float64)
    answers = (fitted.of(logits_nC, multi=True).sigmoid() >= moved).numpy()
    assert answers.mean(0).tolist() == [1.0, 0.0]


def test_a_rare_label_is_given_to_the_same_texts_by_a_threshold_below_a_thousandth():
    """Isotonic regression alone maps all probabilities below the lowest of a text that has the label to 0."""
    logits_nC = torch.linspace(-12, 3, 1501)[:, None]
    marks_nC = (logits_nC > 0).double()
    fitted = fit_calibration(isotonic, logits_nC.double(), marks_nC)
    for threshold in (0.0003, 0.0008, 0.5, 0.9):
        given = fitted.of(logits_nC, multi=True).double().sigmoid() >= torch.tensor(fitted.thresholds([threshold]))
        before = logits_nC.double().sigmoid() >= threshold
        assert int((given != before).sum()) <= 1, threshold  # the one that is next to it
