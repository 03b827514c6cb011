"""Figures that must be reached: which words are understood, what they are compared with, and the exit code."""

import csv
import json
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyheads.plugin as plugin
from manyheads import train
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.config.figures import figures_of, measured_by
from manyheads.config.required import RequirementError, bounds_of, check_reached
from manyheads.evaluation.metrics import score_labels
from manyheads.runs.files import read_json
from tests.registry import SWEEPS

FAST = ["debug=fast", "hardware=cpu", "linear=false", "data.path=rows.csv"]
SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Rows and one run of theirs, whose labels are noise."""
    home = tmp_path_factory.mktemp("required")
    with (home / "rows.csv").open("w", newline="") as file:
        rows = [(f"text {at} of {at * 7919 % 13}", "ab"[at * 7919 % 11 % 2]) for at in range(60)]
        csv.writer(file).writerows([("text", "label"), *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        assert main(["train", *FAST, "output=run", "require=[accuracy>=0,loss.low<100]"]) == 0
    return home


@pytest.fixture
def there(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setenv("MANYHEADS_CACHE", str(home / "cache"))
    return home


@given(
    value=st.floats(0, 1),
    end=st.sampled_from(["", ".value", ".low", ".high"]),
    sign=st.sampled_from([*SIGNS]),
    number=st.floats(0, 1),
)
def test_a_bound_is_the_comparison_it_says(value, end, sign, number):
    figure = {"value": value, "low": value / 2, "high": (1 + value) / 2}
    compared = figure[end.removeprefix(".") or "value"]
    required = f"[accuracy{end}{sign}{number!r}]"
    if SIGNS[sign](compared, number):
        check_reached(required, {"accuracy": figure}, "test")
    else:
        with pytest.raises(RequirementError, match="accuracy"):
            check_reached(required, {"accuracy": figure}, "test")


def test_all_that_is_missed_is_said():
    figures = {name: {"value": 0.5, "low": 0.4, "high": 0.6} for name in ("accuracy", "macro_f1", "loss")}
    with pytest.raises(RequirementError) as found:
        check_reached("[accuracy.low>0.45, macro_f1>0.4, loss<0.1]", figures, "the test rows")
    assert "accuracy.low>0.45" in str(found.value)
    assert "loss<0.1" in str(found.value)
    assert "macro_f1" not in str(found.value)


@pytest.mark.parametrize(
    "required",
    ["acuracy>0.8", "accuracy=0.8", "accuracy>", "accuracy>high", "exact_match>0.5", "accuracy", "accuracy.p>0"],
)
def test_what_is_no_bound_is_refused_before_anything_is_read(required, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "data.path=missing.csv", f"require=[{required}]"]) == 2
    assert "require=" in capsys.readouterr().err


def test_every_figure_of_a_run_and_of_an_evaluation_can_be_required(there):
    summary = read_json(there / "run" / "summary.json")
    assert set(figures_of("classes", "table")) == set(summary["test"])
    assert main(["evaluate", "run=run", "hardware=cpu"]) == 0
    (judged,) = (there / "run" / "evaluate").glob("*/metrics.json")
    measured = {name for name, of in read_json(judged).items() if isinstance(of, dict) and "low" in of}
    assert set(figures_of("classes")) == measured


def test_every_figure_of_labels_can_be_required():
    marks_nC = np.random.default_rng(0).random((9, 3)) < 0.5
    found = set(score_labels(marks_nC, marks_nC * 0.8 + 0.1, list("abc"), [0.5] * 3).figures)
    assert set(figures_of("labels")) == found
    assert set(figures_of("labels", "table")) < found


def test_what_a_run_does_not_measure_is_refused_before_it_trains(there, capsys):
    assert main(["train", *FAST, "output=never", "require=[brier<1]"]) == 2
    assert "brier" in capsys.readouterr().err
    assert not (there / "never").exists()


def test_a_share_is_no_percentage():
    """Else it is found out after the training, with exit code 3."""
    known = figures_of("classes")
    for condition in ("accuracy>85", "accuracy.low>=1.5", "topic.macro_f1<-2"):
        with pytest.raises(
            ValueError, match=r"^require=\S+ compares with \S+, but .* is a share between 0 and 1: write"
        ):
            bounds_of(f"[{condition}]", [*known, "topic.macro_f1"])
    assert bounds_of("[loss<20,accuracy>1,change.accuracy.low>-0.02]", [*known, "change.accuracy"])


def test_figures_of_other_tasks_are_known():
    for task in plugin.names("task"):
        known = measured_by(task)
        assert bounds_of(f"[{known[0]}.low>0]", known)
        assert task == "classify" or "accuracy" not in known


def test_a_run_that_misses_ends_with_3_and_keeps_everything(there, capsys):
    words = ["train", *FAST, "output=run", "resume=auto"]
    before = (there / "run" / "summary.json").read_bytes()
    assert main([*words, "require=[accuracy<=1]"]) == 0
    assert main([*words, "require=[accuracy>1]"]) == 3
    value = read_json(there / "run" / "summary.json")["test"]["accuracy"]["value"]
    assert f"{value:.6g}" in capsys.readouterr().err
    assert (there / "run" / "summary.json").read_bytes() == before


def test_evaluate_is_a_gate(there):
    assert main(["evaluate", "run=run", "hardware=cpu", "require=[loss>0,accuracy.high<=1]"]) == 0
    assert main(["evaluate", "run=run", "hardware=cpu", "require=[loss<0]"]) == 3


def test_folds_of_labels_are_asked_for_no_figure_of_classes(there, capsys):
    rows = [json.dumps({"text": f"a {at}", "labels": ["x", "y"]}) for at in range(40)]
    (there / "labels.jsonl").write_text("\n".join(rows))
    words = ["train", *FAST, "data.path=labels.jsonl", "data.label=labels", "data.folds=2", "output=never-folded"]
    assert main([*words, "require=[calibration_error<0.1]"]) == 2
    assert "calibration_error<0.1 names no figure" in capsys.readouterr().err
    assert not (there / "never-folded").exists()


def test_what_a_shell_has_cut_is_answered_with_quotes(capsys):
    assert main(["train", "require=[accuracy.low"]) == 2
    assert "'require=[accuracy.low>0.85,macro_f1>0.8]', in quotes" in capsys.readouterr().err
    assert main(["train", "require=accuracy=>0.5"]) == 2
    assert "write accuracy>0.5 or accuracy<0.5" in capsys.readouterr().err


@SWEEPS
def test_a_figure_that_is_missed_ends_no_sweep(there, capsys):
    words = ["evaluate", "-m", "run=run", "split=test,validation", "hardware=cpu", "predictions=parquet"]
    assert main([*words, "require=[loss<0]"]) == 3
    assert capsys.readouterr().err.count("loss<0 is not met") == 2
    assert len([*(there / "run" / "evaluate").glob("*/predictions.parquet")]) == 2


def test_folds_are_a_gate_as_a_whole(there, capsys):
    words = ["train", *FAST, "data.folds=2", "output=folds"]
    assert main([*words, "require=[accuracy>1]"]) == 3
    assert len([*(there / "folds").glob("fold-*/summary.json")]) == 2
    assert "all rows" in capsys.readouterr().err


def test_python_gets_an_exception(there):
    with pytest.raises(RequirementError):
        train(compose("train", [*FAST, "output=run", "resume=auto", "require=[accuracy>1]"]))


@pytest.mark.slow
def test_two_processes_end_with_3(there):
    words = ["train", *FAST, "hardware=ddp", "hardware.accelerator=cpu", "hardware.devices=2", "hardware.threads=1"]
    assert main([*words, "output=two-processes", "require=[accuracy>1]"]) == 3
    assert (there / "two-processes" / "report.html").is_file()
