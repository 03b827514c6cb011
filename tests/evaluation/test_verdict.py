"""The end of a training run: what it shipped is judged on every split, beside cheap models."""

import json
from pathlib import Path

import pytest
from sklearn.metrics import accuracy_score

from manyheads.data.rows import Rows, Splits
from manyheads.evaluation.answers import LINEAR, MAJORITY
from manyheads.evaluation.masked_lm import score_guesses
from manyheads.evaluation.verdict import judge_run
from manyheads.inference.folder import load
from manyheads.inference.masked_lm import Guessed
from manyheads.linear.fit import fit_linear
from manyheads.linear.model import BASELINE, LinearBaseline, write_baseline

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


def rows(split: str, n: int) -> Rows:
    texts = [f"{('good', 'bad', 'so')[at % 3]} film {at}" for at in range(n)]
    return Rows(texts, None, [(1, 0, 2)[at % 3] for at in range(n)], f"{split}.csv", range(2, n + 2))


def splits(*, test: bool) -> Splits:
    labels = ["bad", "good", "so-so"]
    judged = rows("test", 12) if test else None
    return Splits(rows("train", 30), rows("validation", 9), judged, labels, ["a <note>"])


@pytest.mark.parametrize("test", [True, False])
def test_the_split_judged_last_is_the_one_reported(model_folder: Path, tmp_path: Path, test: bool) -> None:
    data, model = splits(test=test), load(model_folder)
    linear = fit_linear(data.train, 3)
    assert linear is not None
    write_baseline(tmp_path, LinearBaseline(linear))
    summary = judge_run(data, model, TRAINING, {"seed": 3}, tmp_path)
    assert summary.judged_on == ("test" if test else "validation")
    assert bool(summary.test) == test
    assert summary.rows == {"train": 30, "validation": 9} | ({"test": 12} if test else {})
    assert set(summary.baselines) == {MAJORITY, LINEAR}
    answers = [one.label for one in model.predict(data.validation.texts)]
    truth = [data.labels[label] for label in data.validation.labels]
    assert summary.validation["accuracy"].value == pytest.approx(accuracy_score(truth, answers))
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["validation"]["accuracy"]["value"] == summary.validation["accuracy"].value
    page = (tmp_path / "report.html").read_text()
    assert f"{summary.judged_on}.csv, {summary.judged_on} split" in page
    assert "a &lt;note&gt;" in page
    assert sorted(one.name for one in tmp_path.iterdir()) == [*BASELINE[::-1], "report.html", "summary.json"]


def test_texts_in_which_nothing_is_hidden_are_one_sentence():
    with pytest.raises(ValueError, match="too few and short to hide a word in them"):
        score_guesses([Guessed(0, 0, 0.0)])
