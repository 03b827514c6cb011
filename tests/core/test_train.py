"""The story of `train`: mistakes before anything is written, nothing left open, no half model after divergence."""

import csv
import io
import json
import logging
import os
import sys

import pytest
import torch

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.runs.folder import OUTPUT_VARIABLE
from manyheads.training_run import train

TINY = [
    "debug=fast", "hardware=cpu", "hardware.precision=fp32", "model.dropout=0", "model.dropout_tokens=0",
]  # fmt: skip


@pytest.fixture
def words(tmp_path, monkeypatch) -> list[str]:
    """A command line over forty rows; the folder it would write is `tmp_path / "run"`."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        rows = [(f"number {n} {('purrs', 'barks')[n % 2]}", ("cat", "dog")[n % 2]) for n in range(40)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return ["train", f"data.path={tmp_path / 'rows.csv'}", f"output={tmp_path / 'run'}", *TINY]


MISTAKES = [
    (
        "trainer={max_epochs: -1, max_steps: -1}",
        "trainer.max_epochs=-1 and trainer.max_steps=-1 leave training without an end: set one of them",
    ),
    (
        "optim.class_weights={bird: 2}",
        "optim.class_weights names the class 'bird', which is not in the data: the classes are cat, dog",
    ),
    (
        "model.pair=cross",
        "model.pair=cross compares two texts, but the data has no second text: name its column by data.text_pair, "
        "or use model.pair=joint",
    ),
    (
        "hardware.precision=fp16",
        "hardware.precision=fp16 needs a GPU, but this run computes on the CPU: "
        "use hardware.precision=bf16 or hardware.precision=fp32",
    ),
    (
        "trainer.max_epochs=-2",
        "trainer.max_epochs=-2 trains nothing: give 1 or more, or -1 for no such limit",
    ),
    pytest.param(
        "hardware.accelerator=gpu",
        "hardware.accelerator=gpu, but torch sees no GPU on this machine: use hardware=cpu, "
        "or install a build of torch for your GPU",
        marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
    ),
]


@pytest.mark.parametrize("dry", ["dry=false", "dry=true"])
@pytest.mark.parametrize(("word", "sentence"), MISTAKES)
def test_a_mistake_is_found_before_anything_is_written(word, sentence, dry, words, tmp_path, capsys):
    assert main([*words, word, dry]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"{sentence}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_nothing_is_left_open_or_handed_on(words, tmp_path):
    log = logging.getLogger("manyheads")
    mine = logging.NullHandler()
    log.addHandler(mine)
    before = (log.handlers[:], log.level, log.propagate)
    for name in ("one", "two"):
        train(compose("train", [*words[1:], f"output={tmp_path / name}"]))
        assert (log.handlers, log.level, log.propagate) == before
        assert OUTPUT_VARIABLE not in os.environ
    log.removeHandler(mine)
    for name in ("one", "two"):
        assert (tmp_path / name / "run.log").read_text().count("epoch 1, step ") == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_run_ends_well_on_a_screen_that_lacks_its_signs(encoding, words, tmp_path, monkeypatch, capsys):
    with io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) as screen:
        monkeypatch.setattr(sys, "stdout", screen)
        assert main([*words, f"output={tmp_path / 'Läufe ≈'}"]) == 0
        shown = screen.buffer.getvalue().decode(encoding)
    log = (tmp_path / "Läufe ≈" / "run.log").read_text("utf-8")
    warning = next(line for line in log.splitlines() if "so intervals are up to ±" in line)
    for line in (warning, next(line for line in log.splitlines() if line.startswith("result: "))):
        assert line in log
        assert line.encode(encoding, "backslashreplace").decode(encoding) in shown.splitlines()


def test_more_micro_batches_than_rows(words, tmp_path):
    assert main([*words, "batch.accumulate=100", "batch.rows=4", "trainer.max_epochs=2"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["steps"], summary["epochs"]) == (2, 2)
    with (tmp_path / "run" / "metrics.csv").open() as file:
        assert sum(bool(row["train_loss"]) for row in csv.DictReader(file)) == 2


@pytest.mark.parametrize("accumulate", [1, 100])
def test_a_dry_run_has_a_largest_batch(accumulate, words, capsys):
    assert main([*words, f"batch.accumulate={accumulate}", "dry=true"]) == 0
    assert "activations of the largest batch" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_training_that_diverges_ends_at_once_in_one_sentence(words, tmp_path, capsys):
    assert main([*words, "optim.lr=1e30", "trainer.max_epochs=50", "batch.rows=4"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    sentence = (
        "training diverged at step 2: the loss is nan and the norm of the gradient nan, at a learning rate of "
        "8.33e+28; use a smaller rate, such as optim.lr=1e+29, in a new folder, or leave such steps out "
        f"by guard.nonfinite=skip: {tmp_path / 'run'} keeps the figures so far and holds no model"
    )
    assert said.err.splitlines()[-1] == sentence
    assert (tmp_path / "run" / "run.log").read_text().splitlines()[-1].endswith(f" {sentence}")
    assert "epoch 1, step" not in said.err
    left = ["config.yaml", "metrics.csv", "nonfinite.json", "run.log"]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == left
    assert OUTPUT_VARIABLE not in os.environ


@pytest.mark.parametrize(("interval", "validated"), [(1000, []), (8, [7, 15])])
def test_validation_every_so_many_batches_counts_over_the_epochs(words, tmp_path, interval, validated):
    flags = [f"trainer.val_check_interval={interval}", "trainer.max_epochs=3", "batch.rows=5"]
    assert main([*words, *flags]) == 0
    with (tmp_path / "run" / "metrics.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file) if row.get("validation_loss")] == validated
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["validation"]["accuracy"]["value"] >= 0


def test_a_tokenizer_with_gaps_in_its_ids_is_trained_with(words, tmp_path):
    assert main(words) == 0
    content = json.loads((tmp_path / "run" / "model" / "tokenizer.json").read_text())
    content["model"]["vocab"]["purrs"] = 3000
    (tmp_path / "gaps.json").write_text(json.dumps(content))
    again = [word for word in words if not word.startswith("output=")]
    assert main([*again, f"output={tmp_path / 'again'}", f"tokenizer.path={tmp_path / 'gaps.json'}"]) == 0
    config = json.loads((tmp_path / "again" / "model" / "config.json").read_text())
    assert config["vocab_size"] == 3001
