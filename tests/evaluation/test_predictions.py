"""Answers to a split, its worst mistakes, and predictions.csv."""

import csv
from datetime import date
from pathlib import Path

import pytest
import torch

from manyheads.data.rows import Rows, Table, Unread
from manyheads.evaluation.answers import Predictions, judge_rows, worst_mistakes, write_predictions_csv
from manyheads.inference import classifier as module
from manyheads.inference.folder import load

TEXTS = ["good", "bad\x85film", "", "line\nbreak", 'quote " and, comma', "carriage\rreturn", "=1+1"]


def rows(pairs: bool = False) -> Rows:
    return Rows(TEXTS, TEXTS[::-1] if pairs else None, [0, 1, 2, 0, 1, 2, 0], "rows.csv", range(2, 9))


def test_chunks_change_nothing(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(model_folder)
    whole, done = judge_rows(model, rows()), []
    monkeypatch.setattr(module, "CHUNK", 3)
    chunked = judge_rows(model, rows(), progress=done.append)
    torch.testing.assert_close(chunked.logits_nC, whole.logits_nC, atol=1e-5, rtol=1e-5)
    assert done == [3, 3, 1]
    torch.testing.assert_close(whole.logits_nC, model.logits(TEXTS))


def test_mistakes_come_surest_first() -> None:
    logits = torch.tensor([[9.0, 0], [0, 3], [5, 0], [0, 8], [2, 0]])
    judged = Predictions(Rows(list("abcde"), None, [0, 0, 1, 0, 1], "x.csv", range(2, 7)), ["no", "yes"], logits)
    mistakes = worst_mistakes(judged)
    assert [(one.text, one.number, one.label, one.answer) for one in mistakes] == [
        ("d", 5, "no", "yes"),
        ("c", 4, "yes", "no"),
        ("b", 3, "no", "yes"),
        ("e", 6, "yes", "no"),
    ]
    assert mistakes[0].confidence == pytest.approx(float(torch.tensor([0.0, 8]).softmax(0).max()))
    assert len(worst_mistakes(judged, 2)) == 2
    assert worst_mistakes(Predictions(Rows(["a"], None, [0], "x.csv", [2]), ["no", "yes"], logits[:1])) == []


@pytest.mark.parametrize("pairs", [False, True])
def test_the_file_holds_every_row_as_it_is(model_folder: Path, pair_folder: Path, tmp_path: Path, pairs: bool) -> None:
    judged = judge_rows(load(pair_folder if pairs else model_folder), rows(pairs))
    write_predictions_csv(tmp_path / "predictions.csv", judged)
    with (tmp_path / "predictions.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["text"] for row in read] == TEXTS
    assert [row["row"] for row in read] == [str(number) for number in range(2, 9)]
    if pairs:
        assert [row["text_pair"] for row in read] == TEXTS[::-1]
    for row, label, answer, probabilities in zip(
        read, rows().labels, judged.answers, judged.probabilities_nC.tolist(), strict=True
    ):
        assert row["label"] == judged.names[label]
        assert row["prediction"] == judged.names[answer]
        assert [float(row[f"p_{name}"]) for name in judged.names] == pytest.approx(probabilities, abs=1e-6)
    assert [one.name for one in tmp_path.iterdir()] == ["predictions.csv"]


def test_cells_that_are_no_text_or_number_are_written_as_json(model_folder: Path, tmp_path: Path) -> None:
    cells = {"ids": [[1, "é"], None, {"a": 1}], "when": [date(2026, 1, 2), 3, 1.5]}
    table = Table(["ids", "when", "text"], cells.__getitem__, range(1, 4), "x.jsonl", positions=[5, 7, 9])
    some = Rows(TEXTS[:3], None, [0, 1, 2], "x.jsonl", [1, 2, 3], unread=Unread(table, ["ids", "when"], range(3)))
    write_predictions_csv(tmp_path / "predictions.csv", judge_rows(load(model_folder), some.pick([0, 2, 1])))
    with (tmp_path / "predictions.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["ids"] for row in read] == ['[1, "é"]', '{"a": 1}', ""]
    assert [row["when"] for row in read] == ["2026-01-02", "1.5", "3"]
    assert [row["index"] for row in read] == ["5", "9", "7"]
