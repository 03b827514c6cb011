"""What an evaluation found: the same figures in metrics.json, on the screen and in the page."""

import json
from pathlib import Path

import pytest

from manyheads.config import EvaluateConfig, RunConfig
from manyheads.data.rows import Rows, Splits
from manyheads.evaluation.answers import LINEAR, MAJORITY
from manyheads.evaluation.evaluate import EvaluationData
from manyheads.evaluation.results import Results, as_metrics, judge_task, show_results, write_results
from manyheads.inference.folder import load
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import LinearBaseline

TEXTS = ["a good film", "bad", "so so", "not very good"] * 3
LABELS = ["bad", "good", "so-so"]


def rows() -> Rows:
    return Rows(TEXTS, None, [1, 0, 2, 0] * 3, "new\x1b.csv", range(2, 14))


def judged(model_folder: Path, task: EvaluationData) -> Results:
    return judge_task(task, load(model_folder), EvaluateConfig(run="x", bootstrap=100))


@pytest.fixture
def named(model_folder: Path) -> Results:
    """Data that was named: nothing is known of training."""
    return judged(model_folder, EvaluationData(rows(), "new", "all"))


def test_data_that_was_named_has_no_baseline_to_fit(named: Results) -> None:
    metrics = as_metrics(named)
    assert set(metrics["baselines"]) == {MAJORITY}
    assert metrics["baselines"][MAJORITY]["accuracy"]["value"] == 0.5
    assert (metrics["data"], metrics["split"], metrics["source"], metrics["n_rows"]) == (
        "new",
        "all",
        "new\x1b.csv",
        12,
    )
    assert set(named.settings) == {"evaluate", "model"}


@pytest.mark.parametrize("own", [True, False])
def test_the_linear_model_of_training_is_judged_on_whatever_rows(model_folder: Path, own: bool) -> None:
    linear = fit_linear(rows(), 3)
    assert linear is not None
    splits = Splits(rows(), rows(), rows(), LABELS, ["carved out"])
    task = EvaluationData(rows(), "own", "test", RunConfig(), splits) if own else EvaluationData(rows(), "new", "all")
    results = judge_task(task, load(model_folder), EvaluateConfig(run="x", bootstrap=100), LinearBaseline(linear))
    found = as_metrics(results)
    assert set(found["baselines"]) == set(found["leads"]) == {MAJORITY, LINEAR}
    assert found["baselines"][LINEAR]["accuracy"]["value"] == 1.0


def test_settings_of_the_run_are_shown(model_folder: Path) -> None:
    splits = Splits(rows(), rows(), rows(), LABELS, ["carved out"])
    results = judged(model_folder, EvaluationData(rows(), "own", "test", RunConfig(), splits))
    assert set(results.settings) == {"evaluate", "run"}


def test_every_file_is_written_with_the_same_figures(named: Results, tmp_path: Path) -> None:
    metrics = write_results(tmp_path / "out", named, None)
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == json.loads(json.dumps(metrics))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h1>new: all rows</h1>" in page
    assert f"{named.scores.accuracy.value:.4f}" in page
    assert "\x1b" not in page
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == [
        "confusion.png", "metrics.json", "predictions.csv", "reliability.png", "report.html"
    ]  # fmt: skip


def test_the_screen_never_obeys_a_path(named: Results, capsys: pytest.CaptureFixture[str]) -> None:
    named.task.name = "[/b]\x1b[2J:smile:"
    show_results(named, Path("/tmp/x[/b]\x1b[2J"))
    said = capsys.readouterr().out
    assert "[/b]\\x1b[2J:smile:, all: 12 rows" in said
    assert "\n/tmp/x[/b]\\x1b[2J/report.html\n" in said
    assert f"{named.scores.accuracy.value:.4f}" in said
    assert "\x1b" not in said


def test_a_folder_that_is_none_is_one_sentence(named: Results, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file/out cannot be written to \(Not a directory\): name another folder by"):
        write_results(tmp_path / "file" / "out", named, None)
