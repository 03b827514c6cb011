"""Runs with tokenizer.trim=train: their networks and what they leave, against runs with all entries."""

import csv
import json
from pathlib import Path

import pytest
import torch

from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.data.datamodule import TextData
from manyheads.data.tokenizer import kept_ids, load_tokenizer
from manyheads.data.tokens import encode
from manyheads.distributed import faults
from manyheads.inference.batching import network_logits
from manyheads.inference.folder import load
from manyheads.plugins.trim.changes import FIGURE, rows_that_differ
from manyheads.training.build import assemble_network

TINY = ["trainer.max_epochs=2", "batch.rows=16", "hardware=cpu", "hardware.precision=fp32", "optim.average=0"]
SHAPE = ["model.n_layers=1", "model.n_heads=2", "model.d_model=16", "model.d_k=4", "model.d_v=4", "model.d_ff=24"]
TRIM = ["tokenizer.trim=train", "tokenizer.reserve=0"]
PLACES = ["kitchen", "garden", "theatre", "station", "harbour", "library", "meadow", "workshop", "cellar", "balcony"]
THINGS = ["lantern", "kettle", "anchor", "ladder", "curtain", "hammer", "blanket", "compass", "mirror", "bucket"]


def write(path: Path, texts: list[str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [(text, ("up", "down")[at % 2]) for at, text in enumerate(texts)]
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """A run whose tokenizer has many words."""
    home = tmp_path_factory.mktemp("weights")
    rows = write(home / "rows.csv", [f"the {thing} of the {place}" for thing in THINGS for place in PLACES])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
        words = [f"data.path={rows}", "trainer.max_steps=2", "tokenizer.vocab_size=400", *TINY[2:], *SHAPE]
        assert main(["train", *words, f"output={home / 'run'}"]) == 0
    return home / "run"


@pytest.fixture
def words(weights, tmp_path, monkeypatch) -> list[str]:
    """Rows of few of its words, and of some that it does not have."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    few = write(tmp_path / "rows.csv", [f"the {THINGS[at % 3]} of the {PLACES[at % 2]} {at} ☃" for at in range(80)])
    return [f"init_from={weights}", f"data.path={few}", *TINY]


@pytest.mark.parametrize("prefix", ["", "query: "])
def test_logits_of_all_texts_of_the_run_are_the_same_to_the_bit(words, prefix):
    found = []
    for trim in ([], TRIM):
        run = compose("train", [*words, f"tokenizer.prefix={prefix}", *trim])
        data = TextData.from_run(run)
        network = assemble_network(run, data.splits, data.tokenizer).eval()
        found.append((network, network_logits(network, data.tokens["train"]), data.tokenizer))
    (whole, before, tokenizer), (small, after, trimmed) = found
    assert before.equal(after)
    assert small.words.num_embeddings == trimmed.get_vocab_size() < whole.words.num_embeddings
    kept = kept_ids(trimmed, tokenizer)
    assert kept is not None
    assert whole.words.weight[kept].equal(small.words.weight)
    assert any("tokenizer.trim=train keeps" in note for note in data.splits.notes)


def test_names_of_columns_are_read_as_before(words, tmp_path):
    pytest.importorskip("manyheads.plugins.columns")
    with (tmp_path / "titles.csv").open("w", newline="") as file:
        rows = [(f"the {THINGS[at % 3]}", f"{PLACES[at % 2]} {at}", ("up", "down")[at % 2]) for at in range(80)]
        csv.writer(file).writerows([("title", "little", "label"), *rows])
    asked = [words[0], f"data.path={tmp_path / 'titles.csv'}", "data.text=[title,little]", "data.text_names=true"]
    found = []
    for trim in ([], TRIM):
        run = compose("train", [*asked, *TINY, *trim])
        data = TextData.from_run(run)
        network = assemble_network(run, data.splits, data.tokenizer).eval()
        found.append(network_logits(network, data.tokens["train"]))
    assert found[0].equal(found[1])


def test_rows_that_differ_have_an_entry_that_is_gone(words):
    run = compose("train", [*words, *TRIM])
    small, whole = TextData.from_run(run).tokenizer, load_tokenizer(run.tokenizer.path)
    texts = [f"the {THINGS[0]}", f"the {THINGS[9]}", "☃", f"{THINGS[9]} {THINGS[8]}"]
    ids = torch.tensor(kept_ids(small, whole))
    tokens = [encode(one, texts, None, None, 32) for one in (small, whole)]
    assert rows_that_differ(*tokens, ids).tolist() == [1, 3]


def test_labels_that_change_are_those_that_are_given_by_thresholds(words, weights, tmp_path):
    """Of several labels a row, none of which is ever as likely as not."""
    for name in ("train", "validation", "test"):
        some = THINGS[:3] if name == "train" else THINGS
        often = [("up", "", ""), ("down", "", ""), ("", "", "left")]  # of what a text names, by its place
        rows = [(f"the {some[at % len(some)]} {at}", often[at % len(some) % 3][at // 3 % 3]) for at in range(90)]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("text", "labels"), *rows])
    asked = [words[0], f"data.path={tmp_path}", *TINY[1:], "trainer.max_epochs=6", "optim.lr=0.02", *TRIM]
    assert main(["train", *asked, f"output={tmp_path / 'run'}"]) == 0
    said = json.loads((tmp_path / "run" / "summary.json").read_text())["measured"][FIGURE]["value"]

    model, run = load(tmp_path / "run"), compose("train", asked[:-2])
    data = TextData.from_run(run)
    network = assemble_network(run, data.splits, data.tokenizer).eval()
    state = model.network.state_dict()
    vectors = network.words.weight.detach().clone()
    vectors[kept_ids(model.tokenizer, data.tokenizer)] = state["embeddings.words.weight"]
    network.load_state_dict(state | {"embeddings.words.weight": vectors})
    texts = [*data.splits.validation.texts]
    before = model.network_logits(texts, None, tokens=2048).sigmoid()
    after = network_logits(network, encode(data.tokenizer, texts, None, None, run.data.max_length)).sigmoid()
    limits = torch.tensor(model.alone("network").thresholds)
    changed = ((before >= limits) != (after >= limits)).any(1)
    assert not ((before >= 0.5) != (after >= 0.5)).any()
    assert said == pytest.approx(float(changed.float().mean()))
    assert said > 0


@pytest.mark.slow
def test_a_run_is_stopped_resumed_judged_asked_and_exported(words, weights, tmp_path, monkeypatch, capsys):
    command = ["train", *words, *TRIM]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main([*command, f"output={whole}"]) == 0
    assert FIGURE in capsys.readouterr().out
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["measured"][FIGURE].keys() == {"value", "low", "high"}
    faults.reset_counts()
    monkeypatch.setenv(faults.VARIABLE, "step:3:term")
    assert main([*command, f"output={parts}"]) == 143
    monkeypatch.delenv(faults.VARIABLE)
    assert main(["train", f"resume={parts}"]) == 0
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (whole / "model" / name).read_bytes() == (parts / "model" / name).read_bytes()
    model = load(whole)
    assert model.network.words.num_embeddings == model.tokenizer.get_vocab_size()
    assert model.network.words.num_embeddings < load(weights).network.words.num_embeddings
    assert main(["predict", f"run={whole}", "text=the unheard-of lantern"]) == 0
    assert main(["evaluate", f"run={whole}", f"data.path={tmp_path / 'rows.csv'}"]) == 0
    assert main(["train", f"init_from={whole}", *words[1:], *TRIM, f"output={tmp_path / 'on'}"]) == 0
    capsys.readouterr()
    assert main(["train", f"resume={parts}", "tokenizer.trim=none"]) == 2
    assert "tokenizer.trim" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (
            [*TRIM],
            "tokenizer.trim=train keeps a part of the tokenizer that comes with trained weights",
        ),
        (
            ["tokenizer.reserve=5"],
            "tokenizer.reserve=5 does nothing with tokenizer.trim=none: add tokenizer.trim=train",
        ),
        (["tokenizer.trim=some"], "tokenizer.trim=some"),
        (["tokenizer.trim=train", "tokenizer.reserve=-1"], "tokenizer.reserve=-1 is out of range"),
    ],
)
def test_what_makes_no_sense_is_refused(typed, sentence, capsys):
    assert main(["train", *typed]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.verb("audit")
def test_an_audit_trims_nothing(words, capsys):
    assert main(["audit", words[1], "tokenizer.trim=train"]) == 2
    assert capsys.readouterr().err.startswith("tokenizer.trim=train is a setting of train, not of audit: ")


def test_whole_words_of_a_run_are_refused_before_training(words, model_folder, tmp_path, capsys):
    output = tmp_path / "run"
    typed = [f"init_from={model_folder}", *words[1:], *TRIM, f"output={output}"]
    assert main(["train", *typed]) == 2
    assert "needs a tokenizer of pieces" in capsys.readouterr().err
    assert not output.exists()
