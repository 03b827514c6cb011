"""Whole runs on small data: what they learn, leave behind and repeat."""

import csv
import json
import re
from pathlib import Path

import pytest
import torch

import manyheads
from manyheads.cli.compose import compose
from manyheads.config.facts import replace_settings
from manyheads.runs.config_file import read_run
from manyheads.training_run import train

TINY = [
    "model.d_model=16", "model.d_k=8", "model.d_v=8", "model.n_heads=2", "model.d_ff=32", "model.n_layers=1",
    "tokenizer.vocab_size=200", "hardware=cpu", "hardware.precision=fp32",
]  # fmt: skip


def write_csv(path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = ("text", "label")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def animals(tmp_path, monkeypatch):
    """A folder of three splits of forty rows, told apart by one word."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "animals"
    folder.mkdir()
    words = {"cat": ["purrs", "meows"], "dog": ["barks", "growls"]}
    for at, split in enumerate(("train", "validation", "test")):
        rows = [
            (f"number {40 * at + n} {words[label][n % 2]} near the house", label)
            for n in range(20)
            for label in ("cat", "dog")
        ]
        write_csv(folder / f"{split}.csv", rows)
    return folder


def run(folder, output, *more):
    return compose("train", [f"data.path={folder}", f"output={output}", *TINY, *more])


@pytest.mark.drawn
def test_a_run_leaves_the_folder_the_plan_promises(animals, tmp_path):
    output = tmp_path / "run"
    config = run(animals, output, "trainer.max_epochs=40", "trainer.check_val_every_n_epoch=10", "optim.lr=0.02")
    summary = train(config)
    names = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    saved = {name for name in names if name.startswith("checkpoints/step-")}
    assert {name.partition("/step-00000040/")[2] for name in saved} >= {"manifest.json", "weights.safetensors"}
    assert names - saved == {
        "config.yaml", "summary.json", "metrics.csv", "run.log", "report.html", "checkpoints/best.safetensors",
        "model/model.safetensors", "model/config.json", "model/tokenizer.json", "model/labels.json", "model/README.md",
        "model/linear.safetensors",
    }  # fmt: skip
    config = replace_settings(config, {"checkpoint.metric": "accuracy"})  # what auto is of classes
    assert read_run(output / "config.yaml") == config
    written = json.loads((output / "summary.json").read_text())
    assert written["test"]["accuracy"]["value"] == summary.test["accuracy"].value == 1.0
    assert written["linear"] == manyheads.load(output).share
    assert written["rows"] == {"train": 40, "validation": 40, "test": 40}
    assert written["real_tokens_per_s"] > 0
    assert 0 <= written["padding_share"] < 0.2
    assert written["steps"] == 40
    assert set(written["baselines"]) == {"most frequent class", "linear model"}
    card = (output / "model" / "README.md").read_text()
    assert "| test accuracy | 1.0000 (0.912 to 1.000) |" in card
    assert "test accuracy of the linear model" in card
    assert re.search(r"Trained on animals until \d{4}-\d\d-\d\d \(UTC\); rows: 40 for train, 40 for validation", card)
    (warning,) = written["warnings"]
    assert warning.startswith("few rows: test has 40 rows, so intervals are up to ±15 points wide")
    assert warning[1:] in card
    assert warning[1:] in (output / "report.html").read_text()
    assert list(written["members"]["test"])[-2:] == ["network", "linear model"]
    assert manyheads.load(output).predict(["it barks"])[0].label == "dog"


def test_the_same_seed_gives_the_same_weights_and_neither_config_nor_test_split_is_touched(animals, tmp_path):
    (animals / "test.csv").write_bytes(b"\xff\xfe not a table")

    def weights(name, seed):
        config, copy = (
            run(animals, tmp_path / name, "trainer.max_epochs=1", f"seed={seed}", "test=false") for _ in range(2)
        )
        summary = train(config)
        assert config == copy
        assert summary.test == {}
        assert summary.judged_on == "validation"
        return (tmp_path / name / "model" / "model.safetensors").read_bytes()

    first = weights("a", 1)
    assert weights("b", 1) == first
    assert weights("c", 2) != first


def test_a_dry_run_writes_nothing(animals, tmp_path, capsys):
    output = tmp_path / "run"
    assert train(run(animals, output, "dry=true")) is None
    assert not output.exists()
    shown = capsys.readouterr().out
    for word in ("parameters", "FLOPs a token", "steps", "memory", "device", "rows"):
        assert word in shown


def test_eight_texts_are_learned_by_heart(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    letters = "abcdefgh"
    rows = [(f"{letters[n]} {letters[(3 * n) % 8]} text {n}", str(n % 4)) for n in range(8)]
    folder = tmp_path / "eight"
    folder.mkdir()
    for split in ("train", "validation"):
        write_csv(folder / f"{split}.csv", rows)
    summary = train(
        run(folder, tmp_path / "run", "trainer.max_epochs=60", "optim.lr=0.02", "model.dropout=0", "test=false",
            "model.dropout_tokens=0", "trainer.check_val_every_n_epoch=20")
    )  # fmt: skip
    assert summary.validation["accuracy"].value == 1.0
    assert summary.validation["loss"].value < 0.1


@pytest.mark.parametrize("pair", ["joint", "cross", "compare"])
def test_pairs_are_trained_as_pairs(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    colours = ("red", "blue", "green", "black")
    rows = [(a, b, "same" if a == b else "other") for a in colours for b in colours for _ in range(3)]
    rows = [(f"{a} {n}", f"{b} thing", label) for n, (a, b, label) in enumerate(rows)]
    file = write_csv(tmp_path / "pairs.csv", rows, ("text", "text_pair", "label"))
    train(run(file, tmp_path / "run", "trainer.max_epochs=1", f"model.pair={pair}"))
    shipped = manyheads.load(tmp_path / "run")
    assert shipped.pairs
    read_apart = pair != "joint"
    assert (shipped.network.embeddings.segments is None) == read_apart
    assert (shipped.network.cross is not None) == read_apart
    assert shipped.predict(["red 1"], ["red thing"])[0].label in ("same", "other")


def test_the_last_epoch_ends_with_the_steps_and_is_validated(animals, tmp_path):
    output = tmp_path / "run"
    summary = train(run(animals, output, "batch.rows=10", "trainer.max_epochs=9", "trainer.max_steps=6", "test=false"))
    assert summary.steps == 6
    with (output / "metrics.csv").open() as file:
        validated = [int(row["step"]) for row in csv.DictReader(file) if row["validation_loss"]]
    assert validated == [3, 5]


def test_patience_stops_a_run_that_gets_no_better(animals, tmp_path):
    summary = train(
        run(animals, tmp_path / "run", "trainer.max_epochs=30", "optim.lr=1e-9", "checkpoint.patience=2", "test=false")
    )
    assert summary.epochs == 3


def test_a_linear_model_answers_beside_the_network_unless_told_otherwise(tmp_path):
    """Words alone tell these rows, and a network of two steps has learnt nothing."""
    lines = [f"{'bark' if at % 2 else 'purr'} number{at},{'dog' if at % 2 else 'cat'}" for at in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    words = [f"data.path={tmp_path / 'rows.csv'}", "debug=fast", "hardware=cpu", "model=tiny", "optim.few=0"]
    shares = {}
    for linear in ("true", "false"):
        output = tmp_path / linear
        summary = train(compose("train", [*words, "trainer.max_steps=2", f"output={output}", f"linear={linear}"]))
        assert summary is not None
        shares[linear] = summary.linear
        assert (output / "model" / "linear.safetensors").is_file() == (linear == "true")
        assert (output / "baseline.safetensors").is_file() == (linear == "false")
        assert summary.baselines["linear model"]["accuracy"].value == 1.0
    assert shares["true"] > 0.5
    assert shares["false"] == 0
    both, alone = (manyheads.load(tmp_path / linear) for linear in ("true", "false"))
    assert (both.members, alone.members) == (("network", "linear"), ("network",))
    assert both.predict(["bark", "purr"])[0].label == "dog"
    judged = json.loads((tmp_path / "true" / "summary.json").read_text())["test"]
    assert judged["accuracy"]["value"] == 1.0


@pytest.mark.slow  # tests/core/training/test_classify.py has the optimum of such a loss
def test_balanced_weights_of_smoothed_labels_do_not_teach_the_rare_class_to_every_row(tmp_path):
    """One word tells the classes, of which one has a row in a hundred."""
    rows = [
        (f"{'odd' if at % 100 == 0 else 'even'} {at % 7} {at % 11}", "rare" if at % 100 == 0 else "frequent")
        for at in range(4000)
    ]
    words = ["debug=fast", "data.rows=0", "batch.rows=64", "trainer.max_epochs=3", "optim.lr=2e-2", "linear=false"]
    words += ["optim.class_weights=balanced", "optim.label_smoothing=0.1", f"data.cache={tmp_path / 'cache'}"]
    words += ["hardware=cpu", f"output={tmp_path / 'run'}"]
    train(compose("train", [f"data.path={write_csv(tmp_path / 'rows.csv', rows)}", *words]))
    judged = json.loads((tmp_path / "run" / "summary.json").read_text())["test"]
    assert judged["accuracy"]["value"] > 0.99
    assert judged["macro_recall"]["value"] > 0.99


@pytest.mark.parametrize(
    "words",
    [
        ["budget=6ktok", "model.dropout=0.3", "batch.tokens=auto"],
        pytest.param(["optim.few_epochs=3", "optim.few=50", "trainer.max_steps=-1"], marks=pytest.mark.slow),
        pytest.param(["data.folds=2", "trainer.max_epochs=2"], marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_trained_again_ends_with_the_same_bits(words, animals, tmp_path):
    train_again("train", words, animals, tmp_path)


def train_again(verb, words, animals, tmp_path):
    is_limited = any(one.startswith(("budget", "trainer.max")) for one in words)
    fast = [*TINY, "seed=3"] if is_limited else [*TINY, "seed=3", "trainer.max_epochs=2"]
    path = animals / "train.csv" if "data.folds=2" in words else animals

    def shipped(name: str) -> dict[Path, bytes]:
        return {file.relative_to(tmp_path / name): file.read_bytes() for file in (tmp_path / name).rglob("model.saf*")}

    train(compose(verb, [f"data.path={path}", f"output={tmp_path / 'first'}", *fast, *words]))
    train(compose(verb, [f"again={tmp_path / 'first'}", f"output={tmp_path / 'second'}"]))
    assert shipped("second") == shipped("first") != {}
    train(compose(verb, [f"again={tmp_path / 'second'}", f"output={tmp_path / 'third'}", "seed=4"]))
    assert shipped("third").keys() == shipped("first").keys()
    assert shipped("third") != shipped("first")
