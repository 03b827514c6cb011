"""What becomes of probabilities: promises and costs, counted by hand."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from manyheads.data.rows import Rows
from manyheads.evaluation.answered import LogitStore, answer_rows
from manyheads.evaluation.evaluation import Setup
from manyheads.evaluation.intervals import share_interval
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.inference.rules import AnswerRule
from manyheads.plugins.judge.abstain import Rules, likelier, of_label, set_bounds
from manyheads.plugins.judge.checks import read_costs
from manyheads.plugins.judge.decisions import least_costs, outlier_rows, promises_kept
from manyheads.plugins.judge.outliers import fit_outliers
from manyheads.runs.summary import NETWORK
from tests.core.evaluation.drawn_answers import NAMES, drawn


def test_promises_are_measured_on_rows_they_were_not_set_on() -> None:
    stored, likely, labels = drawn()
    right = of_label(likelier(likely), labels)[:450]
    bounds = set_bounds(right, labels[:450], likely.shape[1], 0.9, by_class=True)
    rules = Rules(500, 0.1, 0.8, 0.4, 0.9, True, bounds)
    finding = promises_kept(stored, rules)
    answered = likely.max(1) >= 0.8
    wrong = (likely.argmax(1) != labels)[answered]
    assert finding.content["abstain"]["answered"]["value"] == pytest.approx(answered.mean())
    assert finding.content["abstain"]["wrong"]["value"] == pytest.approx(wrong.mean())
    sets = rules.sets(likely)
    held = sets[np.arange(900), labels]
    assert finding.content["sets"]["held"]["value"] == pytest.approx(held.mean())
    assert finding.content["sets"]["mean_size"] == pytest.approx(sets.sum(1).mean())
    for at, one in enumerate(finding.content["sets"]["per_class"]):
        assert one["held"]["value"] == pytest.approx(held[labels == at].mean())


def test_decisions_by_cost_cost_less(tmp_path: Path) -> None:
    (tmp_path / "costs.csv").write_text("true,c,a,b\nb,9,1,0\na,5,0,1\nc,0,1,2\n")
    costs = np.array(read_costs(str(tmp_path / "costs.csv"), NAMES))
    assert costs.tolist() == [[0, 1, 5], [1, 0, 9], [1, 2, 0]]
    stored, likely, labels = drawn()
    found = least_costs(stored, costs).content
    cheapest = np.array([[one @ costs[:, answer] for answer in range(3)] for one in likely]).argmin(1)
    usual, least = costs[labels, likely.argmax(1)], costs[labels, cheapest]
    assert found["likeliest"]["value"] == pytest.approx(usual.mean())
    assert found["least_cost"]["value"] == pytest.approx(least.mean())
    assert found["changed"] == (cheapest != likely.argmax(1)).sum()
    spread = 1.96 * (least - usual).std() / 30
    change = found["change"]
    assert (change["low"], change["high"]) == pytest.approx(
        (change["value"] - spread, change["value"] + spread), abs=0.15 * spread
    )
    assert change["value"] < 0


def test_costs_that_no_row_had_are_not_ruled_out() -> None:
    """All of 60 rows are right: the interval is that of a share of none, times the dearest mistake."""
    labels = [at % 3 for at in range(60)]
    logits = 9 * np.eye(3, dtype=np.float32)[labels]
    rows = Rows(["x"] * 60, None, labels, "x.csv", range(60))
    finding = least_costs(
        LogitStore(rows, NAMES, {NETWORK: None}, {NETWORK: logits}),
        np.array([[0, 1, 5], [1, 0, 7], [1, 2, 0.0]]),
    )
    ends = 7 * share_interval(0, 60).high
    for name in ("likeliest", "least_cost"):
        assert finding.content[name] == pytest.approx({"value": 0, "low": 0, "high": ends}, abs=1e-6)
    assert finding.content["change"] == pytest.approx({"value": 0, "low": -ends, "high": ends}, abs=1e-6)
    assert "0.0000 to 0.0000" not in finding.lines[0]
    assert f"likeliest class (0.0000 to {ends:.4f})" in finding.lines[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("true,a,b\na,0,1\nb,1,0\n", "its header names a, b, but the classes are a, b, c"),
        (",a,b,c\na,0,1,1\nb,1,0,1\nc,1,1,0\n", r"has no name in the header: give it one, .* index_label='true'\)"),
        ("true,a,b,c\na,0,1,1\nb,1,0,1\n", "its first column names a, b, but the classes are a, b, c"),
        ("true,a,b,c\na,0,1,x\nb,1,0,1\nc,1,1,0\n", "'x' of a answered as c is not a number up to 1e\\+12"),
        ("true,a,b,c\na,0,1,1e308\nb,1,0,1\nc,1,1,0\n", "'1e308' of a answered as c is not a number up to"),
        (
            "true,a,b,c\na,0,1,1\nb,1,0,1,9\nc,1,1,0\n",
            "costs.csv, row 3: has 5 cells, but the header has 4: .*correct it",
        ),
    ],
)
def test_a_file_of_costs_that_is_not_whole_is_one_sentence(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "costs.csv").write_text(content)
    with pytest.raises(ValueError, match=said):
        read_costs(str(tmp_path / "costs.csv"), NAMES)


def test_the_rows_that_are_marked_are_counted_and_shown(model_folder: Path) -> None:
    classifier = load(model_folder, TextClassifier)
    like = [f"{'good ' * (at % 4)}film {'so ' * (at % 5)}" for at in range(60)]
    some = Rows(["фильм", *like[:19]], None, [0] * 20, "x.csv", range(2, 22))
    outliers = fit_outliers(classifier, replace(some, texts=like), replace(some, texts=like))
    rule = AnswerRule(apply=lambda *_: None, mark=outliers.answers)
    stored = answer_rows(classifier, some, Setup(rules=[rule]))
    finding = outlier_rows(stored, (outliers, 0.1), stored.marks[0])
    p_n = outliers.answers(classifier, some.texts, None)[1].numpy()
    np.testing.assert_allclose(stored.marks[0], p_n)
    share = share_interval(int((p_n <= 0.1).sum()), 20)
    assert finding.content == {"false_alarms": 0.1, "validation_rows": 60, "marked": asdict(share)}
    (section,) = finding.sections
    assert section.examples[0].texts == ["фильм"]
    assert section.examples[0].place == f"p = {1 / 61:.4f}, row 2"
    assert len(section.examples) == min(10, (p_n <= 0.1).sum())
