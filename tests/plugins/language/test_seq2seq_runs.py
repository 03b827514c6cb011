"""Whole runs of texts for texts: from a file of two columns to answers."""

import csv
import json

import pytest

import manyheads
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.runs.config_file import read_run
from manyheads.training_run import train

TINY = [
    "model.d_model=32", "model.n_layers=1", "model.dropout=0", "tokenizer.kind=characters", "hardware=cpu",
    "hardware.precision=fp32", "optim.average=0",
]  # fmt: skip
ATTENTIVE = ["model.d_k=8", "model.d_v=8", "model.d_ff=64", "model.positions=learned"]
LETTERS = "abcdefgh"


@pytest.fixture
def reversed_words(tmp_path, monkeypatch):
    """A file of three letters and the same in reverse: order and source both count."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    texts = [a + b + c for a in LETTERS[:4] for b in LETTERS for c in LETTERS[2:]]
    with (tmp_path / "words.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("source", "target"), *((text, text[::-1]) for text in texts)])
    return ["task=seq2seq", f"data.path={tmp_path / 'words.csv'}", *TINY]


@pytest.mark.parametrize(
    ("more", "epochs"),
    [(ATTENTIVE, 20), pytest.param(["model=rnn_attention"], 40, marks=pytest.mark.slow)],
    ids=["transformer", "gru"],
)
def test_words_are_learnt_in_reverse_and_the_folder_answers(more, epochs, reversed_words, tmp_path, capsys):
    output = tmp_path / "run"
    more = [*more, f"trainer.max_epochs={epochs}", "optim.lr=0.01", "batch.rows=16"]
    more.append("trainer.check_val_every_n_epoch=10")
    config = compose("train", [*reversed_words, *more, f"output={output}"])
    summary = train(config)
    assert summary is not None
    assert summary.test["exact_match"].value >= 0.9
    assert summary.best["metric"] == "exact_match"
    assert {path.name for path in output.iterdir()} == {
        "config.yaml", "summary.json", "metrics.csv", "run.log", "report.html", "checkpoints", "model",
    }  # fmt: skip
    assert read_run(output / "config.yaml") == config
    written = json.loads((output / "summary.json").read_text())
    assert written["rows"] == {"train": 154, "validation": 19, "test": 19}
    assert set(written["validation"]) == {"exact_match", "token_accuracy", "loss"}
    with (output / "metrics.csv").open() as file:
        columns = next(csv.reader(file))
    assert {"train_token_accuracy", "validation_exact_match", "validation_loss"} <= set(columns)
    assert "exact match" in (output / "run.log").read_text()
    capsys.readouterr()
    assert main(["predict", f"run={output}", "text=abc", "generate.max_length=2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"text": "abc", "generated": manyheads.load(output).generate(["abc"], max_length=2)[0]}
    assert main(["evaluate", f"run={output}", "split=test"]) == 0
    metrics = json.loads((output / "evaluate" / "words-test" / "metrics.json").read_text())
    assert metrics["exact_match"] == written["test"]["exact_match"]


def test_a_dry_run_says_the_sizes(reversed_words, capsys):
    assert main(["train", *reversed_words, "dry=true"]) == 0
    said = capsys.readouterr().out
    assert "vocabulary" in said
    assert "154" in said
    assert "classes" not in said


MISTAKES = [
    (
        "data.target=answer",
        "words.csv has no column 'answer' (data.target): its columns are source, target; name one by",
    ),
    (
        "data.max_length=4",
        "words.csv, row 2: the target has 5 tokens with its marks, more than data.max_length=4: use data.max_length=5",
    ),
    ("data.target=source", "data.text=source and data.target=source name one column of words.csv twice"),
]


@pytest.mark.parametrize(("word", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence_and_nothing_is_written(word, sentence, reversed_words, tmp_path, capsys):
    assert main(["train", *reversed_words, word, f"output={tmp_path / 'run'}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(sentence)
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow  # tests/core/test_runs.py has it of classes
def test_the_same_seed_gives_the_same_figures(reversed_words, tmp_path):
    words = [*reversed_words, "trainer.max_epochs=1"]
    runs = [train(compose("train", [*words, f"output={tmp_path / name}"])) for name in ("one", "two")]
    assert runs[0].validation == runs[1].validation
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]
