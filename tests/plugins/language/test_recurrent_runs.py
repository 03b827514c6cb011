"""`manyheads train model=rnn_attention`: trained, shipped and asked again."""

import csv

import pytest

import manyheads
from manyheads.cli.main import main

TINY = ["debug=fast", "hardware=cpu", "hardware.precision=fp32", "model.dropout=0", "model.dropout_tokens=0"]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], marks=pytest.mark.slow),
        ["model.encoder=lstm", "model.score=general", "model.bidirectional=false"],
    ],
)
def test_a_recurrent_run_learns_is_shipped_and_predicts(more, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    rows = [(f"number {n} {('purrs', 'barks')[n % 2]}", ("cat", "dog")[n % 2]) for n in range(60)]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    run = tmp_path / "run"
    words = [f"data.path={tmp_path / 'rows.csv'}", f"output={run}", *TINY, "trainer.max_epochs=25", "optim.lr=1e-2"]
    words.append("trainer.check_val_every_n_epoch=5")
    assert main(["train", "model=rnn_attention", *words, *more]) == 0
    predictor = manyheads.load(run)
    texts, labels = zip(*rows[-20:], strict=True)
    answers = predictor.predict(list(texts))
    assert sum(one.label == label for one, label in zip(answers, labels, strict=True)) >= 18
    alone = predictor.predict([texts[0]])[0]
    assert alone.probabilities["cat"] == pytest.approx(answers[0].probabilities["cat"], abs=1e-5)
    assert "recurrent encoder" in (run / "model" / "README.md").read_text()
