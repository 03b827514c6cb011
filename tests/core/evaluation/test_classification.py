"""A classifier evaluated: its answers, baselines, report and predictions.csv."""

import csv
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from manyheads.data.rows import Rows
from manyheads.data.table import RawTable, Unread
from manyheads.evaluation.answered import LogitStore, answer_rows, write_predictions
from manyheads.evaluation.classification import (
    CLASSES,
    details,
    evaluate_classifier,
    reported,
    verdict,
)
from manyheads.evaluation.evaluation import Setup
from manyheads.evaluation.metrics import Scores, score_answers
from manyheads.inference import classifier as module
from manyheads.inference.folder import load
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import LinearBaseline
from manyheads.runs.summary import LINEAR, NETWORK, Interval
from tests.core.evaluation.drawn_answers import judged

TEXTS = ["good", "bad\x85film", "", "line\nbreak", 'quote " and, comma', "carriage\rreturn", "=1+1"]


def rows(pairs: bool = False) -> Rows:
    return Rows(TEXTS, TEXTS[::-1] if pairs else None, [0, 1, 2, 0, 1, 2, 0], "rows.csv", range(2, 9))


def predictions(folder: Path, some: Rows) -> LogitStore:
    return answer_rows(load(folder), some, Setup())


def scored() -> Scores:
    return judged()[0]


def test_members_and_baselines_are_evaluated_on_the_same_rows(model_folder: Path) -> None:
    train = Rows(["good film", "a bad film", "so so"] * 9, None, [1, 0, 2] * 9, "train.csv", range(27))
    linear = fit_linear(train, 3)
    assert linear is not None
    baseline, some = LinearBaseline(linear), Rows(["good", "so bad", "film"], None, [1, 0, 2], "x.csv", range(3))
    setup = Setup(train=train, baseline=baseline)
    found = evaluate_classifier(load(model_folder), some, setup)
    answers = baseline.logits(some.texts, None).argmax(-1).tolist()
    expected = score_answers(some.labels, answers, 3)
    assert list(found.members) == [NETWORK, LINEAR]
    assert found.baselines[LINEAR] == {name: expected[name] for name in ("accuracy", "macro_f1")}
    assert found.baselines[CLASSES.most_frequent]["accuracy"].value == 1 / 3
    assert found.members[LINEAR]["accuracy"] == expected["accuracy"]
    for name, lead in found.leads.items():
        own, theirs = found.members[NETWORK]["accuracy"].value, found.baselines[name]["accuracy"].value
        assert lead["accuracy"].value == pytest.approx(own - theirs)
    assert found.scores["accuracy"]["value"] == found.members[NETWORK]["accuracy"].value
    assert found.size == "3 rows, 3 classes"
    assert "not part of the answers" in found.note
    alone = evaluate_classifier(load(model_folder), some, Setup(baseline=baseline, compare=False))
    assert (alone.members, alone.baselines, alone.leads) == (found.members, {}, {})
    known = evaluate_classifier(load(model_folder), some, replace(setup, label_counts=[1, 0, 1]))
    assert known.baselines[CLASSES.most_frequent]["accuracy"].value == 1 / 3  # of class 0, the first of equals
    of_train = Rows(["good"], None, [2], "train.csv", range(1))
    judged = Rows(["good", "so bad"], None, [0, 2], "x.csv", range(2))
    for setup, value in ((Setup(train=of_train), 0.5), (Setup(label_counts=[0, 9, 1]), 0.0), (Setup(), 0.5)):
        found = evaluate_classifier(load(model_folder), judged, setup)
        assert found.baselines[CLASSES.most_frequent]["accuracy"].value == value


@pytest.mark.parametrize(
    ("rival", "words"),
    [
        (0.80, "beats the linear model by 10.0 points (95 % interval 9.0 to 11.0)."),
        (0.95, "falls short of the linear model by 5.0 points (95 % interval -6.0 to -4.0)."),
        (0.89, "is not significantly different from the linear model: +1.0 points (95 % interval 0.0 to 2.0)."),
        (0.20, "beats the most frequent class by 60.0 points (95 % interval 59.0 to 61.0)."),
    ],
)
def test_the_verdict_is_of_the_strongest_rival(rival: float, words: str) -> None:
    scores = scored()
    scores.figures["accuracy"] = Interval(0.9, 0.88, 0.92)
    rivals = {CLASSES.most_frequent: 0.3, LINEAR: rival}
    baselines = {name: {"accuracy": Interval(at, at - 0.02, at + 0.02)} for name, at in rivals.items()}
    leads = {name: {"accuracy": Interval(0.9 - at, 0.89 - at, 0.91 - at)} for name, at in rivals.items()}
    right = "90.0% of 90 rows are answered right (95 % interval 88.0% to 92.0%)"
    assert verdict(scores, baselines, leads) == f"{right}; on the same rows the model {words}"
    assert verdict(scores, {}, {}) == f"{right}."


def test_the_report_shows_all_figures_and_classes() -> None:
    scores, _ = judged()
    classes, trust, figures = details(scores)
    assert (trust.title, [one.name for one in trust.pictures]) == ("", ["reliability"])
    assert (classes.folded, figures.folded) == (False, True)
    expected = [[name, *(f"{one:.4f}" for one in (of.value, of.low, of.high))] for name, of in reported(scores).items()]
    assert figures.table.rows == expected
    assert len(expected) == 10
    assert [row[:4] for row in classes.table.rows] == [
        [one.name, *(f"{value:.3f}" for value in (one.precision, one.recall, one.f1))] for one in scores.per_class
    ]


def test_of_many_classes_the_worst_are_shown_and_all_are_folded() -> None:
    scores, _ = judged(30, 4000)
    worst, every, *_ = details(scores)
    f1 = [one.f1 for one in scores.per_class]
    assert [float(row[3]) for row in worst.table.rows] == [round(one, 3) for one in sorted(f1)[: len(worst.table.rows)]]
    assert (worst.title, worst.folded) == ("The 12 worst of 30 classes", False)
    assert (every.title, every.folded, len(every.table.rows)) == ("All classes", True, 30)


def test_chunks_change_nothing(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(model_folder)
    (whole,), done = [one.probabilities_nC for one in answer_rows(model, rows(), Setup()).answers()], []
    monkeypatch.setattr(module, "CHUNK", 3)
    stored = answer_rows(model, rows(), Setup(progress=done.append))
    assert [one.rows.texts for one in stored.answers()] == [TEXTS[:3], TEXTS[3:6], TEXTS[6:]]
    chunked = np.concatenate([one.probabilities_nC for one in stored.answers()])
    np.testing.assert_allclose(chunked, whole, atol=1e-5)
    assert done == [3, 3, 1]
    np.testing.assert_allclose(whole, model.logits(TEXTS).double().softmax(-1))


@pytest.mark.parametrize("pairs", [False, True])
def test_the_file_holds_every_row_as_it_is(model_folder: Path, pair_folder: Path, tmp_path: Path, pairs: bool) -> None:
    stored = predictions(pair_folder if pairs else model_folder, rows(pairs))
    write_predictions(tmp_path / "predictions.csv", stored)
    (judged,) = stored.answers()
    with (tmp_path / "predictions.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["text"] for row in read] == TEXTS
    assert [row["row"] for row in read] == [str(number) for number in range(2, 9)]
    if pairs:
        assert [row["text_pair"] for row in read] == TEXTS[::-1]
    for row, label, answer, probabilities in zip(
        read, rows().labels, judged.probabilities_nC.argmax(1), judged.probabilities_nC.tolist(), strict=True
    ):
        assert row["label"] == judged.names[label]
        assert row["prediction"] == judged.names[answer]
        assert [float(row[f"p_{name}"]) for name in judged.names] == pytest.approx(probabilities, abs=1e-6)
    assert [one.name for one in tmp_path.iterdir()] == ["predictions.csv"]


def test_cells_that_are_no_text_or_number_are_written_as_json(model_folder: Path, tmp_path: Path) -> None:
    cells = {"ids": [[1, "é"], None, {"a": 1}], "when": [date(2026, 1, 2), 3, 1.5]}
    table = RawTable(["ids", "when", "text"], cells.__getitem__, range(1, 4), "x.jsonl", positions=[5, 7, 9])
    some = Rows(TEXTS[:3], None, [0, 1, 2], "x.jsonl", [1, 2, 3], unread=Unread(table, ["ids", "when"], range(3)))
    write_predictions(tmp_path / "predictions.csv", predictions(model_folder, some.pick([0, 2, 1])))
    with (tmp_path / "predictions.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["ids"] for row in read] == ['[1, "é"]', '{"a": 1}', ""]
    assert [row["when"] for row in read] == ["2026-01-02", "1.5", "3"]
    assert [row["index"] for row in read] == ["5", "9", "7"]
