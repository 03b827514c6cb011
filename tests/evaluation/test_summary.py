"""summary.json and the table at the end of training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyheads.evaluation.answers import LINEAR, MAJORITY, NETWORK, Baseline
from manyheads.evaluation.scores import Answers, Interval, score
from manyheads.evaluation.summary import (
    FIGURES,
    Summary,
    baseline_figures,
    cell,
    facts,
    headline,
    read_summary,
    show_summary,
)

FIGURE = Interval(0.5, 0.25, 0.75)


def summary(**typed: Any) -> Summary:
    values: dict[str, Any] = {
        "output": "/tmp/x[/b]\x1b[2J",
        "parameters": 1234,
        "epochs": 3,
        "steps": 4000,
        "seconds": 1.25,
        "wall_seconds": 9.5,
        "real_tokens_per_s": 56789.4,
        "padding_share": 0.051,
        "truncated_share": 0.0,
        "precision": "bf16-mixed",
        "rows": {"train": 1000, "validation": 10},
        "best": {"metric": "accuracy", "value": 0.5, "epoch": 2, "step": 20},
        "train": {"accuracy": 0.75, "loss": 0.125},
        "validation": dict.fromkeys(FIGURES, FIGURE),
        "test": {},
        "judged_on": "validation",
        "baselines": {MAJORITY: {"accuracy": FIGURE, "macro_f1": FIGURE}},
        "versions": {"torch": "2"},
    }
    return Summary(**(values | typed))


def test_the_file_holds_every_figure(tmp_path: Path) -> None:
    summary().write(tmp_path / "summary.json")
    written = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert written["validation"]["accuracy"] == {"value": 0.5, "low": 0.25, "high": 0.75}
    assert written["baselines"][MAJORITY]["macro_f1"]["value"] == 0.5
    assert (written["steps"], written["output"], written["test"]) == (4000, "/tmp/x[/b]\x1b[2J", {})
    assert [one.name for one in tmp_path.iterdir()] == ["summary.json"]


def test_the_screen_shows_figures_and_never_obeys_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    show_summary(summary())
    said = capsys.readouterr().out
    for words in (
        "0.5000",
        "0.250-0.750",
        "also in summary.json: macro precision, macro recall\n",
        "parameters: 1,234\n",
        "weights kept: epoch 2, for the network's validation accuracy of 0.5000\n",
        "speed: 56,789 real tokens/s in bf16-mixed\n",
        "padding: 5.1% of the attention grids\n",
        "wall time: 9.5 s\n",
        "model: /tmp/x[/b]\\x1b[2J/model\n",
        "report: /tmp/x[/b]\\x1b[2J/report.html\n",
    ):
        assert words in said
    assert "\x1b" not in said
    assert "test" not in said


def test_the_test_split_has_a_column_where_it_was_judged(capsys: pytest.CaptureFixture[str]) -> None:
    show_summary(
        summary(
            test=dict.fromkeys(FIGURES, FIGURE),
            judged_on="test",
            best={},
            rows={"train": 9, "validation": 5, "test": 7},
        )
    )
    said = capsys.readouterr().out
    assert "test" in said
    assert "weights kept: the last\n" in said


def test_the_lead_over_the_strongest_is_said_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lead, far = Interval(0.02, 0.01, 0.03), Interval(0.4, 0.3, 0.5)
    strong = {"accuracy": Interval(0.6, 0.5, 0.7)}
    ahead = summary(
        leads={LINEAR: {"accuracy": lead}, MAJORITY: {"accuracy": far}},
        baselines={MAJORITY: {"accuracy": FIGURE}, LINEAR: strong},
        members={"validation": {NETWORK: {"accuracy": FIGURE}, LINEAR: strong}},
        terms="words",
        warnings=["few rows"],
    )
    show_summary(ahead)
    said = capsys.readouterr().out
    assert (
        "lead: in accuracy on validation the model beats the linear model by 2.0 points (95 % interval 1.0 to 3.0)\n"
        in said
    )
    assert "\nwarning: few rows\n" in said
    assert "linear model: logistic regression on TF-IDF of words; it does not answer, the network does alone\n" in said
    ahead.write(tmp_path / "summary.json")
    assert read_summary(tmp_path / "summary.json") == ahead


def test_the_table_says_of_each_figure_which_model_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    """A train figure of the network beside a test figure of both was 0.36 beside 0.78, and nothing said why."""
    of = {"both": 0.7, NETWORK: 0.36, LINEAR: 0.71}
    models = {name: dict.fromkeys(FIGURES, Interval(value, value - 0.1, value + 0.1)) for name, value in of.items()}
    both = {"validation": models, "test": models}
    show_summary(
        summary(
            members=both,
            validation=models["both"],
            test=models["both"],
            judged_on="test",
            rows={"train": 1000, "validation": 10, "test": 20},
            baselines={MAJORITY: {"accuracy": FIGURE}, LINEAR: {"accuracy": FIGURE}},
            best={"metric": "accuracy", "value": 0.3833, "epoch": 2, "step": 20},
            linear=0.35,
            terms="words",
        )
    )
    said = capsys.readouterr().out
    assert all(len(line) <= 80 for line in said.partition("also in")[0].splitlines())
    lines = [line.split() for line in said.splitlines()]
    assert [line[0] for line in lines if len(line) == 5 and line[-1].startswith("0.")][:2] == ["both", "network"]
    order = [said.index(word) for word in ("test: 20 rows", "  both ", "  most frequent class", "validation: 10 rows")]
    assert order == sorted(order)
    assert "train, dropout on" in said
    assert "network, epoch 2" in said
    kept = "epoch 2, for the network's validation accuracy of 0.3600 (0.3833 when it was chosen, in bf16-mixed)\n"
    assert f"weights kept: {kept}" in said
    assert "it has 35% of each answer" in said


def test_figures_are_those_of_the_scores() -> None:
    labels = np.array([0, 1, 1, 0])
    scores = score(labels, np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.6, 0.4]]), ["a", "b"], n_resamples=5)
    made = headline(scores)
    assert made["accuracy"].value == 0.75
    assert set(made) == set(FIGURES)
    answers = Answers(FIGURE, FIGURE, FIGURE, FIGURE, FIGURE)
    assert baseline_figures([Baseline("x", answers)]) == {"x": {"accuracy": FIGURE, "macro_f1": FIGURE}}


def test_a_cell_is_a_figure_its_interval_or_nothing() -> None:
    assert cell(None) == ""
    assert cell(0.12345) == "0.1235"
    assert cell(FIGURE) == "0.5000\n0.250-0.750"
    assert facts(summary())["rows"] == "train 1,000, validation 10"


def test_a_file_is_given_the_same_and_one_epoch_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.log").write_text("what was said before\n")
    show_summary(summary(epochs=1, steps=1), tmp_path / "run.log")
    written = (tmp_path / "run.log").read_text(encoding="utf-8")
    assert written.startswith("what was said before\n")
    assert "trained: 1 epoch, 1 step, " in written
    assert "figures and their 95 % intervals" in written
    assert "trained: 1 epoch, 1 step, " in capsys.readouterr().out
