"""What answers that are texts are worth, by hand."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from manyheads.config import EvaluateConfig, PredictConfig
from manyheads.data.rows import Rows
from manyheads.evaluation.evaluate import evaluate
from manyheads.evaluation.report import Page, render
from manyheads.inference.folder import load
from manyheads.inference.predict import predict
from manyheads.plugins.language import evaluation as module
from manyheads.plugins.language.config import GenerateConfig
from manyheads.plugins.language.evaluation import (
    COPY,
    NEAREST,
    Generated,
    examples,
    generate,
    nearest_targets,
    score_texts,
    text_baselines,
    verdict_of_texts,
    write_generated,
)
from manyheads.plugins.language.predictors import Followed

TEXTS = ["a <b>good</b> film", "very bad", "so", "e\u0301"]
TARGETS = ["good", "so bad", "so", "é"]


def rows_of(texts=TEXTS, targets=TARGETS):
    return Rows(list(texts), None, [0] * len(texts), "t.csv", range(2, 2 + len(texts)), list(targets))


@pytest.fixture
def generated():
    followed = [Followed(2, 2, 0.1), Followed(3, 1, 2.0), Followed(2, 2, 0.2), Followed(3, 2, 0.5)]
    return Generated(rows_of(), ["good", 'bad, "so"', " so", "e\u0301"], followed)


def test_figures_are_those_of_the_rows(generated):
    assert generated.right == [True, False, True, True]
    scores = score_texts(generated)
    assert scores["exact_match"].value == 0.75
    assert scores["token_accuracy"].value == pytest.approx(7 / 10)
    assert scores["loss"].value == pytest.approx(0.7)
    moves = (np.array([2, 1, 2, 2]) - 0.7 * np.array([2, 3, 2, 3])) / 10  # of the share, by a row
    known = 4 * 0.7 * 0.3  # Wilson's interval of four rows, its variance drawn towards that of a share
    wider = (known * (moves @ moves) / (0.7 * 0.3 / 4) + 1.96**2) / (known + 1.96**2)
    doubt = 1.96**2 / 4 * wider
    middle, half = 0.7 + doubt / 2, np.sqrt(0.7 * 0.3 * doubt + doubt**2 / 4)
    assert (scores["token_accuracy"].low, scores["token_accuracy"].high) == pytest.approx(
        ((middle - half) / (1 + doubt), (middle + half) / (1 + doubt)), abs=1e-4
    )
    with pytest.raises(ValueError, match="there are no rows to judge"):
        score_texts(Generated(rows_of([], []), [], []))


def test_the_nearest_training_text_answers(monkeypatch):
    train = rows_of(["one film", "two films", "a very bad day", "so so"], ["1", "2", "3", "4"])
    rows = rows_of(["the one film", "bad days", "so"], ["1", "3", "so"])
    assert nearest_targets(train, rows) == ["1", "3", "4"]
    monkeypatch.setattr(module, "MOST_CELLS", 4)
    assert nearest_targets(train, rows) == ["1", "3", "4"]
    found = text_baselines(train, rows)
    assert {name: of["exact_match"].value for name, of in found.items()} == {
        COPY: pytest.approx(1 / 3), NEAREST: pytest.approx(2 / 3),
    }  # fmt: skip
    assert list(text_baselines(None, rows)) == [COPY]
    monkeypatch.setattr(module, "MOST_TEXTS", 2)
    assert nearest_targets(train, rows)[1] in ("1", "2")


def test_the_csv_holds_texts_as_they_are(generated, tmp_path):
    write_generated(tmp_path / "p.csv", generated)
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == TEXTS
    assert [row["prediction"] for row in rows] == generated.answers
    assert [row["right"] for row in rows] == ["1", "0", "1", "1"]
    assert [row["row"] for row in rows] == ["2", "3", "4", "5"]


def test_the_page_shows_wrong_answers_with_their_targets_and_texts_stay_texts(generated):
    sections = [*examples(generated, right=False), *examples(generated, right=True)]
    html = render(Page(title="t", subtitle="s", sections=sections))
    assert "&lt;b&gt;good&lt;/b&gt;" in html
    assert "<b>good" not in html
    assert "Wrong answers" in html
    assert "Right answers" in html
    assert html.count("so bad") == 1
    assert html.count("text second wrong") == 1


def test_the_verdict_names_the_best_rival(generated):
    train = rows_of(["x", "so"], ["y", "so"])
    match = score_texts(generated)["exact_match"]
    said = verdict_of_texts(match, 4, text_baselines(train, generated.rows))
    assert said.startswith("75.0% of 4 texts are answered with exactly the target")
    assert said.endswith("and the two intervals overlap.")
    assert COPY in said or NEAREST in said


def test_every_row_is_answered_and_told(text_folder, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    translator = load(text_folder)
    texts = ["a good film", "very bad", "so", "fine", "not so bad"]
    heard = []
    found = generate(translator, rows_of(texts, texts), GenerateConfig(max_length=4), progress=heard.append)
    assert found.answers == translator.generate(texts, max_length=4)
    assert np.array(found.followed) == pytest.approx(np.array(translator.follow(texts, texts)))
    assert heard == [3, 2]


def write(path: Path, rows: list[tuple[str, ...]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def data_of(path: str, **more):
    return replace(EvaluateConfig(run="x").data, path=path, **more)


def test_evaluate_of_a_file(text_folder, tmp_path, capsys):
    path = write(tmp_path / "new.csv", [("source", "target"), ("a good film", "good"), ("bad", "very bad")])
    metrics = evaluate(EvaluateConfig(run=str(text_folder), data=data_of(path), output=str(tmp_path / "out")))
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == metrics
    assert set(metrics) >= {"exact_match", "token_accuracy", "loss", "baselines", "data", "split", "generate"}
    assert (metrics["n_rows"], metrics["data"], metrics["split"]) == (2, "new", "all")
    assert metrics["exact_match"].keys() == {"value", "low", "high"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"metrics.json", "predictions.csv", "report.html"}
    assert "exact match" in capsys.readouterr().out


WRONG = [
    ("text_folder", {"label": "kind"}, {}, "data.label=kind does nothing here, as the model of run answers by texts"),
    (
        "model_folder",
        {"target": "kind"},
        {},
        "data.target=kind does nothing here, as the model of run answers by classes",
    ),
    (
        "model_folder",
        {},
        {"max_length": 2},
        "generate.max_length=2 does nothing here, as the model of run answers by classes",
    ),
    (
        "text_folder",
        {},
        {},
        "new.csv has no column 'target' (data.target): its columns are source, answer; name one by",
    ),
    ("model_folder", {}, {}, "new.csv has no column 'text' (data.text): its columns are source, answer; name one by"),
]


@pytest.mark.parametrize(("folder", "data", "generate", "sentence"), WRONG)
def test_settings_of_the_other_kind_are_one_sentence(folder, data, generate, sentence, tmp_path, request):
    path = write(tmp_path / "new.csv", [("source", "answer"), ("a good film", "good")])
    config = EvaluateConfig(
        run=str(request.getfixturevalue(folder)), data=data_of(path, **data), generate=GenerateConfig(**generate)
    )
    with pytest.raises(ValueError, match=re.escape(sentence)):
        evaluate(config)


def test_predict_writes_the_generated_text(text_folder, model_folder, tmp_path):
    path = write(tmp_path / "in.csv", [("source", "generated"), ("a good film", "x"), ("bad", "y")])
    out = tmp_path / "out.jsonl"
    config = PredictConfig(run=str(text_folder), input=path, output=str(out), generate=GenerateConfig(max_length=3))
    assert predict(config) == 2
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    expected = load(text_folder).generate(["a good film", "bad"], max_length=3)
    assert rows == [
        {"source": "a good film", "input_generated": "x", "generated": expected[0]},
        {"source": "bad", "input_generated": "y", "generated": expected[1]},
    ]
    with pytest.raises(ValueError, match=r"generate\.max_length=3 does nothing here"):
        predict(PredictConfig(run=str(model_folder), text="a", generate=GenerateConfig(max_length=3)))
    with pytest.raises(ValueError, match=r"generate\.max_length=99 is more than the 12 tokens"):
        predict(PredictConfig(run=str(text_folder), text="a", generate=GenerateConfig(max_length=99)))
