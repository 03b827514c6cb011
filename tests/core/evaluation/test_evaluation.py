"""What all tasks share: leads in words, warnings, the page of an evaluation."""

import re
from typing import Any

import pytest

from manyheads.data.rows import Rows
from manyheads.evaluation.evaluation import Evaluation, Finding, compared, few_rows, seen_rows
from manyheads.evaluation.report import Advice, ReportSection, render
from manyheads.runs.summary import LINEAR, Interval, lead_words, strongest

MAJORITY = "most frequent class"
CHANCE = "their figures, and with them macro F1, are uncertain"


def rows(*counts: int, sets: bool = False) -> Rows:
    labels = [label for label, n in enumerate(counts) for _ in range(n)]
    marks = [(label,) for label in labels] if sets else None
    return Rows(["x"] * len(labels), None, labels, "x.csv", range(len(labels)), sets=marks)


def figures(accuracy: float) -> dict[str, Interval]:
    return dict.fromkeys(("accuracy", "macro_f1"), Interval(accuracy, accuracy - 0.02, accuracy + 0.02))


def evaluation(**more: Any) -> Evaluation:
    given = {"title": "t", "size": "9 rows", "scores": {}, "members": {"network": figures(0.5)}, "baselines": {}}
    given |= {"verdict": "Good.", "tiles": {}, "comparison": [], "write": lambda path: None}
    return Evaluation(**(given | more))


@pytest.mark.parametrize(
    ("lead", "words"),
    [
        (Interval(0.031, 0.02, 0.042), "beats the words by 3.1 points (95 % interval 2.0 to 4.2)"),
        (Interval(-0.05, -0.06, -0.01), "falls short of the words by 5.0 points (95 % interval -6.0 to -1.0)"),
        (
            Interval(0.01, 0.0, 0.02),
            "is not significantly different from the words: +1.0 points (95 % interval 0.0 to 2.0)",
        ),
    ],
)
def test_a_lead_is_claimed_where_its_interval_leaves_out_zero(lead: Interval, words: str) -> None:
    assert lead_words(lead, "words") == words


def test_the_strongest_baseline_is_the_last_of_equals() -> None:
    assert strongest({"a": figures(0.5), "b": figures(0.7), "c": figures(0.6)}, "accuracy") == "b"
    assert strongest({"a": figures(0.5), "b": figures(0.5)}, "macro_f1") == "b"
    assert strongest({}, "accuracy") == ""


def test_models_are_compared_best_first() -> None:
    models = {"both": figures(0.5), MAJORITY: figures(0.2), LINEAR: figures(0.9)}
    (section,) = compared("Beside", models, "accuracy", "macro_f1", note="a < b")
    assert section.table is not None
    assert [row[0] for row in section.table.rows] == [LINEAR, "both", MAJORITY]
    assert (section.table.columns, section.table.kinds) == (["model", "accuracy", "from 0 to 1", "macro F1"], "wibi")
    assert section.table.own == 1
    assert '<p class="soft">a &lt; b</p>' in render(evaluation(comparison=[section]).page("t", "s"))
    assert compared("Beside", {"network": figures(0.5)}, "accuracy") == []
    (section,) = compared("Beside", models, "accuracy", ranked=False)
    assert section.table is not None
    assert [row[0] for row in section.table.rows] == [*models]


def test_the_report_has_everything_in_its_order() -> None:
    found = evaluation(
        comparison=[ReportSection("Beside")],
        mistakes=lambda: [ReportSection("Confusion")],
        advise=lambda training: [Advice("Label more rows", f"{training['epochs']} epochs")],
        findings=[Finding("slices", [], [ReportSection("Slices")])],
        details=lambda: [ReportSection("Details", folded=True), ReportSection("Classes")],
    )
    curves = [{"step": 1.0, "train_loss": 2.0}, {"step": 2.0, "train_loss": 1.0}]
    more = {"facts": {"a": "b"}, "notes": ["n"], "config": {"seed": 1}, "training": {"epochs": 3}}
    page = found.page("t", "s", curves=curves, **more)
    titles = [section.title for section in page.sections]
    assert titles == [
        *("Confusion", "Beside", "Slices", "Classes", "Training and confidence"),
        *("Details", "Notes on the data", "Run", "Settings", "Versions"),
    ]
    assert re.findall("<h2>(.*?)</h2>", render(page)) == ["What to do next", *titles]
    assert re.findall("<summary><h2>(.*?)</h2>", render(page)) == titles[5:]
    assert "<b>Label more rows.</b> 3 epochs." in render(page)
    assert [section.title for section in evaluation().page("t", "s").sections] == ["Versions"]


@pytest.mark.parametrize(
    ("judged", "validation", "said"),
    [
        (rows(200, 10), rows(90, 10), []),
        (
            rows(4, 1),
            None,
            [
                "test has 5 rows, so intervals are up to ±33 points wide",
                f"test has fewer than 10 rows of a (4), b (1): {CHANCE}",
            ],
        ),
        (
            rows(1, 0),
            None,
            [
                "test has 1 row, so intervals are up to ±40 points wide",
                "test has no row of b, of which nothing is measured",
                f"test has fewer than 10 rows of a (1): {CHANCE}",
            ],
        ),
        (rows(200, 10), rows(80, 10), ["validation has only 90 rows: what was chosen on them is partly chance"]),
        (
            rows(200, 10),
            rows(100, 9, sets=True),
            ["the thresholds of b (9) come from fewer than 10 validation rows each"],
        ),
    ],
)
def test_few_rows_are_one_warning(judged: Rows, validation: Rows | None, said: list[str]) -> None:
    assert few_rows(judged, "test", ["a", "b"], validation) == ([f"few rows: {'; '.join(said)}"] if said else [])


def test_of_many_rare_classes_some_are_named() -> None:
    (said,) = few_rows(rows(200, *[3] * 9), "test", list("abcdefghij"))
    assert "b (3), c (3), d (3), e (3), f (3) and 4 more:" in said


def test_rows_that_the_model_was_chosen_on_are_named_as_such() -> None:
    assert seen_rows("test", linear=True, multi=True) == seen_rows("", linear=True, multi=True) == []
    (all_of_it,) = seen_rows("validation", linear=True, multi=True)
    assert all_of_it.startswith(
        "the epoch, the weight of the linear model and thresholds were chosen on these validation rows, so the "
    )
    (alone,) = seen_rows("validation", linear=False, multi=False)
    assert alone.startswith("the epoch was chosen on these validation rows, so the figures are optimistic")
    (learnt,) = seen_rows("train", linear=False, multi=False)
    assert "trained on these rows" in learnt
