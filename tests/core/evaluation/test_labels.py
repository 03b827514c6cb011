"""A model of any number of labels, from its folder to what predict, evaluate and a report say of it."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from manyheads.config import Accelerator, DataConfig, EvaluateConfig, InferenceHardware, PredictConfig, RunConfig
from manyheads.data.rows import Rows, Splits
from manyheads.data.sources import read_splits
from manyheads.evaluation.classification import LABELS as KIND
from manyheads.evaluation.classification import evaluate_classifier
from manyheads.evaluation.evaluate import evaluate
from manyheads.evaluation.evaluation import Setup
from manyheads.evaluation.evaluation_data import find_data
from manyheads.evaluation.results import evaluate_run
from manyheads.inference.folder import load, load_to_answer
from manyheads.inference.format import read_settings
from manyheads.inference.predict import predict
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import LinearBaseline, write_baseline
from manyheads.runs.config_file import save_run
from manyheads.runs.summary import LINEAR, NETWORK
from tests.core.evaluation.test_results import TRAINING

LABELS = ["bad", "good", "so-so"]
SETS = [(0,), (1,), (), (0, 2), (1, 2)]
WORDS = ["awful bad film", "a good film", "the film", "bad , so so", "good , so so"]
CPU = InferenceHardware(accelerator=Accelerator.cpu)


def rows(split: str, n: int) -> Rows:
    texts = [f"{WORDS[at % 5]} {'very ' * (at % 3)}" for at in range(n)]
    sets = [SETS[at % 5] for at in range(n)]
    return Rows(texts, None, [0] * n, f"{split}.csv", range(2, n + 2), sets=sets)


def splits() -> Splits:
    return Splits(rows("train", 60), rows("validation", 30), rows("test", 40), LABELS)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file with a column of labels."""
    with (tmp_path / "films.csv").open("w", newline="") as file:
        lines = [
            [text, "|".join(LABELS[label] for label in one)] for text, one in zip(WORDS * 4, SETS * 4, strict=True)
        ]
        csv.writer(file).writerows([["text", "labels"], *lines])
    return tmp_path / "films.csv"


def test_python_gets_labels_and_probabilities(label_folder: Path) -> None:
    model = load_to_answer(label_folder)
    for said, text in zip(model.predict(WORDS), WORDS, strict=True):
        (alone,) = model.predict([text])
        assert alone.labels == said.labels
        by_name = zip(LABELS, model.thresholds, strict=True)
        assert set(said.labels) == {name for name, least in by_name if said.probabilities[name] >= least}
        assert said.labels == sorted(said.labels, key=lambda name: -said.probabilities[name])
    logits = load(label_folder).logits(WORDS)
    expected = torch.sigmoid(logits[0]).tolist()
    assert list(load(label_folder).predict(WORDS)[0].probabilities.values()) == pytest.approx(expected)


def test_predict_writes_a_list_of_labels_a_line(label_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,labels,text\n7,old,a good film\n8,,bad\n9,,\n")
    output = tmp_path / "out.jsonl"
    predict(PredictConfig(run=str(label_folder), input=str(tmp_path / "in.csv"), output=str(output), hardware=CPU))
    first, second, third = map(json.loads, output.read_text().splitlines())
    assert list(first) == ["id", "input_labels", "text", "labels", "probabilities"]
    expected = load_to_answer(label_folder).predict(["a good film", "bad"])
    assert [first["labels"], second["labels"]] == [one.labels for one in expected]
    assert (third["labels"], {*third["probabilities"].values()}) == (None, {None})
    assert first["probabilities"] == pytest.approx(expected[0].probabilities, abs=2e-6)


def evaluated(run: Path, output: Path, **typed: Any) -> dict[str, Any]:
    return evaluate(EvaluateConfig(run=str(run), output=str(output), hardware=CPU, **typed))


def test_evaluate_judges_a_file_by_scikit_learns_figures(label_folder: Path, data: Path, tmp_path: Path) -> None:
    figures = evaluated(label_folder, tmp_path / "out", data=DataConfig(path=str(data)))
    answers = [one.labels for one in load(label_folder).predict(WORDS * 4)]
    given = [[name in one for name in LABELS] for one in answers]
    marks = [[label in one for label in range(3)] for one in SETS * 4]
    assert figures["micro_f1"]["value"] == pytest.approx(f1_score(marks, given, average="micro"))
    per_label = f1_score(marks, given, average=None, zero_division=0)
    assert [one["f1"] for one in figures["per_class"]] == pytest.approx(list(per_label))
    assert [one["threshold"] for one in figures["per_class"]] == [0.5, 0.35, 0.6]
    assert {"accuracy", "macro_f1"} <= set(figures)
    assert set(figures["baselines"]) == {KIND.most_frequent}
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["micro_f1"] == figures["micro_f1"]
    with (tmp_path / "out" / "predictions.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [one["labels"] for one in written[:4]] == ["bad", "good", "", "bad|so-so"]
    in_order = ["|".join(sorted(one, key=LABELS.index)) for one in answers]
    assert [one["prediction"] for one in written] == in_order
    page = (tmp_path / "out" / "report.html").read_text()
    assert "micro F1" in page
    assert ">threshold<" in page


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("x,good|nice\n", "films.csv has labels the model does not know: the data's labels are good, nice"),
        (",good|good\n", "films.csv, row 2: the text is empty"),
    ],
)
def test_mistakes_of_the_data_are_one_sentence(label_folder, data, tmp_path, lines, said) -> None:
    data.write_text(f"text,labels\n{lines}")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared by its beginning
        evaluated(label_folder, tmp_path / "out", data=DataConfig(path=str(data)))
    assert str(caught.value).startswith(said)


def test_one_label_a_row_is_a_set_of_one(label_folder: Path, data: Path, tmp_path: Path) -> None:
    data.write_text("text,label\na good film,good\nawful,bad\n")
    figures = evaluated(label_folder, tmp_path / "out", data=DataConfig(path=str(data)))
    assert [one["support"] for one in figures["per_class"]] == [1, 1, 0]


def baseline(train: Rows) -> LinearBaseline:
    model = fit_linear(train, 3)
    assert model is not None
    return LinearBaseline(model, [0.5, 0.4, 0.3])


def given_by(linear: LinearBaseline, rows: Rows) -> Any:
    """The labels from its thresholds on."""
    return (linear.logits(rows.texts, rows.pairs).double().sigmoid() >= torch.tensor(linear.thresholds)).numpy()


def test_a_run_is_judged_beside_the_linear_model_that_it_fitted(label_folder, tmp_path) -> None:
    write_baseline(tmp_path, baseline(splits().train))
    summary = evaluate_run(splits(), load(label_folder), TRAINING, {"seed": 3}, tmp_path)
    assert list(summary.validation) == ["micro_f1", "macro_f1", "accuracy", "loss", "micro_precision", "micro_recall"]
    assert set(summary.baselines) == {KIND.most_frequent, LINEAR}
    tfidf, lead = summary.baselines[LINEAR]["micro_f1"], summary.leads[LINEAR]["micro_f1"]
    assert lead.value == pytest.approx(summary.test["micro_f1"].value - tfidf.value)
    page = (tmp_path / "report.html").read_text()
    assert "Compared with simpler models" in page
    assert "the linear model" in page
    assert list(summary.members["test"]) == [NETWORK, LINEAR]
    assert summary.members["test"][LINEAR]["micro_f1"] == tfidf


def test_words_that_tell_a_label_are_learnt_by_the_baseline() -> None:
    data = splits()
    given = given_by(baseline(data.train), data.test)
    marks = np.array([[label in one for label in range(3)] for one in data.test.sets])
    assert f1_score(marks, given, average="macro") > 0.95


def test_the_baseline_says_the_same_of_every_text_where_there_is_nothing_to_learn() -> None:
    data = splits()
    for part in data.by_name().values():
        part.sets = [(1,) if at % 2 else (1, 2) for at in range(len(part))]  # all have one, and none has another
    given = given_by(baseline(data.train), data.test)
    assert given[:, 1].all()
    assert not given[:, 0].any()


def test_a_folder_without_its_thresholds_is_one_sentence(ship_model, tmp_path: Path) -> None:
    folder = ship_model(tmp_path / "model", thresholds=[0.5] * 3)
    for content, said in (
        ("[0.5, 0.5]", "holds 2 numbers, but config.json has 3 classes"),
        ('[0.5, 0.5, "a"]', "must be a list of numbers between 0 and 1"),
        ("[0.5, 0.5, 1.5]", "must be a list of numbers between 0 and 1"),
        ("[0.5, 0.5, NaN]", "must be a list of numbers between 0 and 1"),
    ):
        (folder / "thresholds.json").write_text(content)
        with pytest.raises(ValueError, match=f"thresholds.json {said}"):
            load(folder)
    (folder / "thresholds.json").unlink()
    with pytest.raises(ValueError, match=r"thresholds\.json cannot be read: No such file"):
        load(folder)


def test_the_card_says_from_where_on_labels_are_given(label_folder: Path) -> None:
    card = (label_folder / "model" / "README.md").read_text()
    assert "says of texts which of 3 labels they have" in card
    assert "- good, from 0.350 on" in card


def test_data_that_has_changed_since_training_is_one_sentence(label_folder, data, tmp_path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    save_run(RunConfig(data=DataConfig(path=str(data))), home / "config.yaml")
    settings = read_settings(label_folder / "model" / "config.json")
    config = EvaluateConfig(run=str(home))
    task = find_data(config, home, settings, LABELS)
    assert task.splits is not None
    assert task.rows.sets == read_splits(DataConfig(path=str(data)), 0).test.sets
    with pytest.raises(ValueError, match="has changed since training, when each row had one class"):
        find_data(config, home, replace(settings, multi=False), LABELS)


def test_baselines_of_data_that_was_named_know_its_most_frequent_label(label_folder: Path) -> None:
    found = evaluate_classifier(load(label_folder), rows("test", 40), Setup())
    assert list(found.baselines) == list(found.leads) == [KIND.most_frequent]
    assert found.baselines[KIND.most_frequent]["micro_f1"].value == pytest.approx(2 * 16 / (40 + 48))


def test_figures_of_rows_that_thresholds_were_tuned_on_are_said_to_be_too_good(label_folder: Path, tmp_path) -> None:
    data = splits()
    for test, said in ((data.test, False), (None, True)):
        evaluate_run(replace(data, test=test, notes=[]), load(label_folder), TRAINING, {}, tmp_path)
        page = (tmp_path / "report.html").read_text()
        assert ("The epoch and thresholds were chosen on these validation rows" in page) is said
        assert ", 3 labels" in page
