"""What is left of an evaluation: the same figures in summary.json or metrics.json, on the screen and in the page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import accuracy_score

from manyheads.config import EvaluateConfig, RunConfig
from manyheads.config.figures import figures_of
from manyheads.data.rows import Rows, Splits
from manyheads.evaluation.classification import CLASSES
from manyheads.evaluation.evaluation import Setup
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.evaluation.results import evaluate_rows, evaluate_run, write_evaluation
from manyheads.evaluation.tables import cell, show_figures, show_summary
from manyheads.inference.folder import load
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import BASELINE, LinearBaseline, write_baseline
from manyheads.runs.summary import LINEAR, NETWORK, Interval, Summary, facts, read_summary
from manyheads.terminal import console

LABELS = ["bad", "good", "so-so"]
FIGURE = Interval(0.5, 0.25, 0.75)
TRAINING = {
    "parameters": 9,
    "epochs": 1,
    "steps": 2,
    "seconds": 0.5,
    "wall_seconds": 1.0,
    "real_tokens_per_s": 10.0,
    "padding_share": 0.0,
    "truncated_share": 0.0,
    "precision": "32-true",
    "best": {},
    "train": {"accuracy": 0.5},
}


def rows_of(split: str, n: int) -> Rows:
    texts = [f"{('good', 'bad', 'so')[at % 3]} film {at}" for at in range(n)]
    return Rows(texts, None, [(1, 0, 2)[at % 3] for at in range(n)], f"{split}.csv", range(2, n + 2))


def splits(*, test: bool) -> Splits:
    judged = rows_of("test", 12) if test else None
    return Splits(rows_of("train", 30), rows_of("validation", 9), judged, LABELS, ["a <note>"])


@pytest.mark.parametrize("test", [True, False])
def test_the_split_judged_last_is_the_one_reported(model_folder: Path, tmp_path: Path, test: bool) -> None:
    data, model = splits(test=test), load(model_folder)
    linear = fit_linear(data.train, 3)
    assert linear is not None
    write_baseline(tmp_path, LinearBaseline(linear))
    summary = evaluate_run(data, model, TRAINING, {"seed": 3}, tmp_path)
    assert summary.judged_on == ("test" if test else "validation")
    assert bool(summary.test) == test
    assert summary.rows == {"train": 30, "validation": 9} | ({"test": 12} if test else {})
    assert set(summary.baselines) == {CLASSES.most_frequent, LINEAR}
    answers = [one.label for one in model.predict(data.validation.texts)]
    truth = [data.labels[label] for label in data.validation.labels]
    assert summary.validation["accuracy"].value == pytest.approx(accuracy_score(truth, answers))
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["validation"]["accuracy"]["value"] == summary.validation["accuracy"].value
    page = (tmp_path / "report.html").read_text()
    assert f"{summary.judged_on}.csv, {summary.judged_on} split" in page
    assert "a &lt;note&gt;" in page
    assert sorted(one.name for one in tmp_path.iterdir()) == [*BASELINE[::-1], "report.html", "summary.json"]
    same = evaluate_run(replace(data, validation=data.train, test=None), model, TRAINING, {}, tmp_path)
    assert same.warnings[0].startswith("the model was trained on these rows")


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
        "validation": dict.fromkeys(figures_of("classes", "table"), FIGURE),
        "test": {},
        "judged_on": "validation",
        "baselines": {CLASSES.most_frequent: {"accuracy": FIGURE, "macro_f1": FIGURE}},
        "versions": {"torch": "2"},
    }
    return Summary(**(values | typed))


def test_the_file_holds_every_figure(tmp_path: Path) -> None:
    summary().write(tmp_path / "summary.json")
    written = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert written["validation"]["accuracy"] == {"value": 0.5, "low": 0.25, "high": 0.75}
    assert written["baselines"][CLASSES.most_frequent]["macro_f1"]["value"] == 0.5
    assert (written["steps"], written["output"], written["test"]) == (4000, "/tmp/x[/b]\x1b[2J", {})
    assert [one.name for one in tmp_path.iterdir()] == ["summary.json"]


def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], **typed: Any) -> tuple[str, str]:
    """What the screen shows of a summary, and what run.log is given."""
    capsys.readouterr()
    log = tmp_path / "run.log"
    log.write_text("what was said before\n")
    show_summary(summary(**typed), RunConfig(), log)
    return capsys.readouterr().out, log.read_text(encoding="utf-8")


def test_what_to_type_next_names_the_plugins_of_the_run(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("manyheads.evaluation.tables.plugin_words", lambda *, here: ["plugins=[/home/me/my parts.py]"])
    said, _ = shown(tmp_path, capsys, output="/tmp/x")
    assert "next: manyheads evaluate 'plugins=[/home/me/my parts.py]' run=/tmp/x data.path=NEW.csv\n" in said


def test_the_screen_shows_figures_and_what_to_type_and_never_obeys_a_path(tmp_path: Path, capsys) -> None:
    said, log = shown(tmp_path, capsys)
    for words in (
        "0.500 (0.250-0.750)",
        "95 % intervals; in report.html: calibration error, macro precision, macro recall\n",
        "trained: 3 epochs in 1 s; best epoch: 2, network's validation accuracy 0.5000\n",
        "report: /tmp/x[/b]\\x1b[2J/report.html\n",
        "next: manyheads predict 'run=/tmp/x[/b]\\x1b[2J' text=\"...\"\n",
    ):
        assert words in said
    assert said.count("\nnext: ") == 3
    assert "test" not in said
    assert log.startswith("what was said before\n")
    for words in (
        "95 % intervals\n",
        "parameters: 1,234\n",
        "speed: 56,789 real tokens/s in bf16-mixed\n",
        "padding: 5.1% of the attention grids\n",
        "wall time: 9.5 s\n",
        "model: /tmp/x[/b]\\x1b[2J/model\n",
    ):
        assert words in log
        assert words not in said
    assert "\x1b" not in said + log


def test_the_test_split_is_shown_where_it_was_judged(tmp_path: Path, capsys) -> None:
    test = dict.fromkeys(figures_of("classes", "table"), FIGURE)
    rows = {"train": 9, "validation": 5, "test": 7}
    said, log = shown(tmp_path, capsys, test=test, judged_on="test", best={}, rows=rows)
    assert "test: 7 rows" in said
    assert "validation: 5 rows" not in said
    assert "validation: 5 rows" in log
    assert "best epoch: the last one\n" in said


def test_the_lead_over_the_strongest_is_said_and_read_back(tmp_path: Path, capsys) -> None:
    lead, far = Interval(0.02, 0.01, 0.03), Interval(0.4, 0.3, 0.5)
    strong = {"accuracy": Interval(0.6, 0.5, 0.7)}
    ahead = {
        "leads": {LINEAR: {"accuracy": lead}, CLASSES.most_frequent: {"accuracy": far}},
        "baselines": {CLASSES.most_frequent: {"accuracy": FIGURE}, LINEAR: strong},
        "members": {"validation": {NETWORK: {"accuracy": FIGURE}, LINEAR: strong}},
        "terms": "words",
        "warnings": ["few rows"],
    }
    beats = "in accuracy on validation the model beats the linear model by 2.0 points (95 % interval 1.0 to 3.0)\n"
    for text in shown(tmp_path, capsys, **ahead):
        assert f"\nresult: {beats}" in text
        assert "\nwarning: few rows\n" in text
    linear = "linear model: logistic regression on TF-IDF of words; not part of the answers, which are the network's\n"
    assert linear in text
    summary(**ahead).write(tmp_path / "summary.json")
    assert read_summary(tmp_path / "summary.json") == summary(**ahead)


def test_the_table_says_of_each_figure_which_model_has_it(tmp_path: Path, capsys) -> None:
    """A train figure of the network next to a test figure of both was 0.36 next to 0.78, and nothing said why."""
    of = {"both": 0.7, NETWORK: 0.36, LINEAR: 0.71}
    models = {
        name: dict.fromkeys(figures_of("classes", "table"), Interval(value, value - 0.1, value + 0.1))
        for name, value in of.items()
    }
    said, log = shown(
        tmp_path,
        capsys,
        members={"validation": models, "test": models},
        validation=models["both"],
        test=models["both"],
        judged_on="test",
        rows={"train": 1000, "validation": 10, "test": 20},
        baselines={CLASSES.most_frequent: {"accuracy": FIGURE}, LINEAR: {"accuracy": FIGURE}},
        best={"metric": "accuracy", "value": 0.3833, "epoch": 2, "step": 20},
        linear=0.35,
        terms="words",
    )
    assert all(len(line) <= 80 for line in said.partition("95 %")[0].splitlines())
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "both 0.700 (0.600-0.800) 0.700 (0.600-0.800) 0.700 (0.600-0.800)" in lines
    assert "both: each answer is 65% network and 35% linear model" in lines
    order = [log.index(word) for word in ("test: 20 rows", "both ", "most frequent class", "validation: 10 rows")]
    assert order == sorted(order)
    assert "training, with dropout" in log
    assert "network, epoch 2" in log
    assert "best epoch: 2, network's validation accuracy 0.3600\n" in said


def test_a_run_of_one_file_fills_no_more_than_a_screen(tmp_path: Path, capsys) -> None:
    """24 lines of 80 columns, of which the log has 5: data, model, what was chosen, and at least two epochs."""
    of_test = dict.fromkeys(figures_of("classes", "table"), Interval(0.8, 0.75, 0.84))
    said, _ = shown(
        tmp_path,
        capsys,
        output="outputs/2026-11-27_05-54-11-157f",
        members={"test": dict.fromkeys(("both", NETWORK, LINEAR), of_test)},
        test=of_test,
        judged_on="test",
        linear=0.35,
        terms="words",
        rows={"train": 1000, "validation": 100, "test": 200},
        leads={LINEAR: {"accuracy": Interval(0.02, 0.01, 0.03)}},
        baselines={CLASSES.most_frequent: {"accuracy": FIGURE}, LINEAR: {"accuracy": FIGURE}},
    )
    assert sum(-(-len(line) // 80) or 1 for line in said.splitlines()) <= 24 - 7


def test_a_cell_is_a_figure_its_interval_or_nothing() -> None:
    assert cell(None) == ""
    assert cell(0.12345) == "0.123"
    assert cell(FIGURE) == "0.500 (0.250-0.750)"
    assert cell(Interval(160.04, 137.03, 186.84)) == "160.0 (137.0-186.8)"
    assert cell(Interval(1234.5, 999.9, 2345.6)) == "1234 (1000-2346)"
    assert cell(Interval(0.5, 0.5, 0.5)) == "0.500"
    assert facts(summary())["rows"] == "train 1,000, validation 10"


def test_an_interval_to_one_side_is_explained(capsys) -> None:
    leaning, other = Interval(0.486, 0.477, 0.593), Interval(0.99, 0.9, 1.0)
    assert cell(leaning, averaged=True) == "0.486 (0.477-0.593)*"
    assert (leaning.leans, other.leans, FIGURE.leans, Interval(0.5, 0.5, 0.5).leans) == (True, False, False, False)
    show_figures(console(), {"test": {"network": {"macro_f1": leaning}}}, ["macro_f1"], "report.html")
    assert "\n* " in capsys.readouterr().out
    show_figures(console(), {"test": {"network": {"loss": leaning}}}, ["loss"], "report.html")
    assert "*" not in capsys.readouterr().out


NAMED = EvaluationData(
    Rows(["a good film", "bad", "so so", "not very good"] * 3, None, [1, 0, 2, 0] * 3, "new\x1b.csv", range(2, 14)),
    "new",
    "all",
)  # nothing is known of training


def written(
    model_folder: Path, folder: Path, data: EvaluationData = NAMED, baseline: LinearBaseline | None = None
) -> dict[str, Any]:
    model = load(model_folder)
    train = data.splits.train if data.splits else None
    found = evaluate_rows(model, data.rows, Setup(train=train, baseline=baseline))
    return write_evaluation(folder, found, data, EvaluateConfig(run="x"), model, None)


def test_data_that_was_named_has_no_baseline_to_fit(model_folder: Path, tmp_path: Path) -> None:
    metrics = written(model_folder, tmp_path)
    assert set(metrics["baselines"]) == {CLASSES.most_frequent}
    assert metrics["baselines"][CLASSES.most_frequent]["accuracy"]["value"] == 0.5
    about = (metrics["data"], metrics["split"], metrics["source"], metrics["n_rows"])
    assert about == ("new", "all", "new\x1b.csv", 12)
    page = (tmp_path / "report.html").read_text()
    assert "<dt>model.n_heads</dt>" in page


def test_a_network_that_settings_do_not_describe_is_named(model_folder: Path, tmp_path: Path) -> None:
    """Such as a graph with a user's own blocks, whose folder has default settings."""
    model = load(model_folder)
    model.settings.network = "my_parts"
    found = evaluate_rows(model, NAMED.rows, Setup(train=None, baseline=None))
    write_evaluation(tmp_path / "out", found, NAMED, EvaluateConfig(run="x"), model, None)
    page = (tmp_path / "out" / "report.html").read_text()
    assert ("<dt>model</dt><dd>my_parts</dd>" in page, "model.n_heads" in page) == (True, False)


@pytest.mark.parametrize("own", [True, False])
def test_the_linear_model_of_training_is_judged_on_whatever_rows(model_folder: Path, tmp_path: Path, own: bool) -> None:
    linear = fit_linear(NAMED.rows, 3)
    assert linear is not None
    splits = Splits(NAMED.rows, NAMED.rows, NAMED.rows, LABELS, ["carved out"])
    data = EvaluationData(NAMED.rows, "own", "test", RunConfig(), splits) if own else NAMED
    found = written(model_folder, tmp_path, data, LinearBaseline(linear))
    assert set(found["baselines"]) == set(found["leads"]) == {CLASSES.most_frequent, LINEAR}
    assert found["baselines"][LINEAR]["accuracy"]["value"] == 1.0
    page = (tmp_path / "report.html").read_text()
    assert ("<dt>run.model.n_heads</dt>" in page, "carved out" in page) == (own, own)


def test_every_file_is_written_with_the_same_figures(model_folder: Path, tmp_path: Path) -> None:
    metrics = written(model_folder, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == json.loads(json.dumps(metrics))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h1>new: all rows</h1>" in page
    assert f"{metrics['accuracy']['value']:.4f}" in page
    assert "\x1b" not in page
    files = {one.name for one in (tmp_path / "out").iterdir()} - {"risk.png"}  # which the plugin review adds
    assert files == {"metrics.json", "predictions.csv", "reliability.png", "report.html"}


def test_the_screen_of_an_evaluation_never_obeys_a_name(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "x[b]\x1b[2J"
    metrics = written(model_folder, folder, EvaluationData(NAMED.rows, "[/b]\x1b[2J:smile:", "all"))
    said = capsys.readouterr().out
    assert "[/b]\\x1b[2J:smile:, all: 12 rows" in said
    assert "x[b]\\x1b[2J/report.html\n" in said
    assert f"{metrics['accuracy']['value']:.3f}" in said
    assert "result: in accuracy on these rows the model" in said
    assert "\x1b" not in said


def test_a_folder_that_is_none_is_one_sentence(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"file/out cannot be written to \(Not a directory\): name another folder by"):
        written(model_folder, tmp_path / "file" / "out")
