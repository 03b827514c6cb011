"""A figure of a user is in tables, `require` and `checkpoint.metric` like those of core."""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, matthews_corrcoef

from manyheads import api
from manyheads.cli.main import main
from manyheads.config.figures import limits_of
from manyheads.distributed import faults
from manyheads.errors import UserError
from manyheads.evaluation.metrics import Outcomes
from manyheads.plugin import unregister
from manyheads.training.state import share_out

TINY = ["debug=fast", "hardware=cpu", "hardware.precision=fp32", "linear=false", "data.path=rows.csv"]
ONE_CLASS = ("classes",)


def balanced_accuracy(counts: Any) -> Any:
    return counts.macro(answered=0, labelled=1)


def matthews(labels: np.ndarray, probabilities_nC: np.ndarray) -> float:
    """As `matthews_corrcoef` of two classes, in a fortieth of its time: it is asked of thousands of samples."""
    answers = probabilities_nC.argmax(1)
    spread = labels.std() * answers.std()
    return float(((labels * answers).mean() - labels.mean() * answers.mean()) / spread) if spread else 0.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    counted = {"of": "counts", "rows": ONE_CLASS, "table": ONE_CLASS, "is_share": True}
    parts = [
        api.Part("figure", "balanced_accuracy", balanced_accuracy, facts=counted),
        # what validation may choose the epoch by is in the tables, too
        api.Part("figure", "matthews", matthews, facts={"rows": ONE_CLASS, "checkpoint": ONE_CLASS}),
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = [(f"{'good' if at % 3 else 'bad'} film {at}", "ab"[at % 3 == 0]) for at in range(90)]
        csv.writer(file).writerows([("text", "label"), *rows])
    api.register(api.Plugin("mine", parts=parts))
    yield tmp_path
    unregister("mine")


@pytest.mark.filterwarnings("ignore:A single label was found")
def test_own_figures_are_where_those_of_core_are(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *TINY, "output=run", "checkpoint.metric=matthews"]
    assert main([*words, "require=[matthews.low>-2,balanced_accuracy>=0]"]) == 0
    summary = json.loads((home / "run" / "summary.json").read_text())
    assert summary["best"]["metric"] == "matthews"
    assert summary["best"]["value"] == pytest.approx(summary["validation"]["matthews"]["value"], abs=1e-6)
    assert main(["evaluate", "run=run", "hardware=cpu", "split=test"]) == 0
    out = capsys.readouterr().out
    assert "balanced" in out
    folder = next((home / "run" / "evaluate").iterdir())
    with (folder / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels, answers = [one["label"] for one in rows], [one["prediction"] for one in rows]
    found = json.loads((folder / "metrics.json").read_text())
    assert found["balanced_accuracy"]["value"] == pytest.approx(balanced_accuracy_score(labels, answers))
    assert found["matthews"]["value"] == pytest.approx(matthews_corrcoef(labels, answers))
    assert found["balanced_accuracy"] == found["macro_recall"] or len({*answers} | {*labels}) > len({*labels})
    assert found["matthews"]["low"] <= found["matthews"]["value"] <= found["matthews"]["high"]


def test_a_figure_without_its_plugin_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unregister("mine")
    assert main(["train", *TINY, "output=never", "require=[matthews>0]"]) == 2
    assert main(["train", *TINY, "output=never", "checkpoint.metric=matthews"]) == 2
    assert "checkpoint.metric=matthews" in capsys.readouterr().err
    assert not (home / "never").exists()


@pytest.mark.filterwarnings("ignore:A single label was found")
def test_a_run_that_is_measured_by_a_figure_of_a_plugin_resumes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", *TINY, "output=run", "checkpoint.metric=matthews", "checkpoint.every=1", "resume=auto"]
    faults.reset_counts()
    monkeypatch.setenv(faults.VARIABLE, "step:2:term")
    assert main(words) == 143
    monkeypatch.delenv(faults.VARIABLE)
    assert main(words) == 0
    assert json.loads((home / "run" / "summary.json").read_text())["best"]["metric"] == "matthews"
    assert "resumed at step" in (home / "run" / "run.log").read_text()


def test_what_a_metric_keeps_of_each_row_is_shared_out_with_its_counts() -> None:
    one = {"figures": {"f": (1, {"n": torch.tensor(2), "rows": [torch.ones(3)]})}, "callbacks": {}, "random": {}}
    first, second = (share_out([one, one], rank)["figures"]["f"] for rank in (0, 1))
    assert first[0] == 2
    assert int(first[1]["n"]) == 4
    assert [len(rows) for rows in first[1]["rows"]] == [3, 3]
    assert second == (0, {"n": torch.tensor(0), "rows": []})


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"of": "counts", "checkpoint": ONE_CLASS}, 'of="counts" and checkpoint'),
        ({"of": "rows", "checkpoint": ONE_CLASS}, 'of="rows" and checkpoint'),
        ({"of": "count"}, 'use "counts" or "rows"'),
        ({"rows": "classes"}, "rows='classes'"),
        ({"checkpoint": True}, "checkpoint=True"),
    ],
)
def test_facts_by_which_a_figure_would_be_called_wrongly_are_refused(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        api.register(api.Plugin("wrong", parts=[api.Part("figure", "f", len, facts=facts)]))


def test_a_figure_that_is_not_defined_for_rows_is_one_sentence(home: Path) -> None:
    outcomes = Outcomes.of(np.array([0, 1]), np.array([0, 1]), np.eye(2))
    outcomes.probabilities_nC = np.eye(2)
    api.register(api.Plugin("mine", parts=[api.Part("figure", "ratio", lambda labels, probabilities_nC: math.nan)]))
    with pytest.raises(UserError, match=r"^figure ratio of plugin mine is nan on these rows: return a finite number"):
        outcomes.figures(["ratio"])


def test_resamples_without_a_class_do_not_count() -> None:
    """Of two rows among 60 one resample in eight has none, of which AUROC is not defined."""

    def auroc(labels: np.ndarray, scores: np.ndarray) -> float:
        higher = scores[labels][:, None] > scores[~labels]  # pairs of a positive and a negative row, in the right order
        return float(higher.mean()) if labels.any() else math.nan

    labels, scores = np.arange(60) < 2, np.random.default_rng(1).random(60)
    found, random, drawn = api.bootstrap(auroc, labels, scores), np.random.default_rng(2), []
    for _ in range(1000):
        rows = random.integers(60, size=60)
        drawn.append(auroc(labels[rows], scores[rows]))
    assert found.value == auroc(labels, scores)
    assert 80 < np.isnan(drawn).sum() < 180
    assert (found.low, found.high) == pytest.approx(np.nanpercentile(drawn, (2.5, 97.5)), abs=0.05)


def test_what_a_figure_can_be(home: Path) -> None:
    assert limits_of("balanced_accuracy") == limits_of("accuracy") == (0, 1)
    assert limits_of("loss") == (0, math.inf)
    assert limits_of("matthews") == (-math.inf, math.inf)
