"""Whole runs that learn from texts, and trainings that begin with them."""

import csv
import json
import re
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

import manyheads
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.cli.verbs import VERBS
from manyheads.distributed import faults
from manyheads.distributed.signals import Stopped
from manyheads.plugins.language.pieces import held_out
from manyheads.plugins.language.predictors import MaskedLMPredictor
from manyheads.runs.config_file import read_run
from manyheads.training_run import train

TINY = [
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_k=8", "model.d_v=8", "model.d_ff=32"),
    *("model.dropout=0", "tokenizer.vocab_size=120", "data.max_length=16", "batch.tokens=512", "hardware=cpu"),
    *("hardware.precision=fp32", "optim.average=0"),
]
ENDINGS = {"dull": "bad", "slow": "bad", "bright": "good", "quick": "good"}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A file of 200 sentences that say which of two classes they are of, and the words that every run is given."""
    home = tmp_path_factory.mktemp("texts")
    patch = pytest.MonkeyPatch()
    patch.setenv("MANYHEADS_CACHE", str(home / "cache"))
    rows = [
        (f"the {noun} of day {day} was {word} and the {noun} stayed {word}", label)
        for day in range(10)
        for noun in ("film", "song", "walk", "game", "talk")
        for word, label in ENDINGS.items()
    ]
    with (home / "texts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    yield [f"data.path={home / 'texts.csv'}", *TINY]
    patch.undo()


@pytest.fixture(scope="module")
def pretrained(texts, tmp_path_factory):
    """The folder of a pretraining, and its summary."""
    output = tmp_path_factory.mktemp("run") / "read"
    return output, train(compose("pretrain", [*texts, "budget=60ktok", "optim.lr=0.01", f"output={output}"]))


def test_a_run_learns_from_texts_alone(pretrained):
    output, summary = pretrained
    assert {path.name for path in output.iterdir()} == {
        "config.yaml", "summary.json", "metrics.csv", "run.log", "report.html", "checkpoints", "model",
    }  # fmt: skip
    assert summary.validation["masked_accuracy"].value > 0.5
    counted = summary.baselines["how often tokens occur"]
    assert summary.validation["perplexity"].high < counted["perplexity"].low
    assert summary.rows == {"train": 160, "validation": 20}
    assert summary.test == {}
    assert summary.best["metric"] == "loss"
    assert "perplexity" in (output / "report.html").read_text()
    assert "masked accuracy" in (output / "run.log").read_text()


def test_of_many_validation_texts_a_part_is_judged(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "manyheads.plugins.language.pieces.held_out", partial(held_out, most=100)
    )  # of more than 200 tokens
    summary = train(compose("pretrain", [*texts, "budget=10ktok", "optim.lr=0.01", f"output={tmp_path / 'read'}"]))
    assert summary.rows == {"train": 160, "validation": 20}
    assert 0 < summary.validation["masked_accuracy"].value < 1


def test_what_is_judged_is_what_training_validated(pretrained):
    _, summary = pretrained
    assert summary.validation["loss"].value == pytest.approx(summary.best["value"], rel=1e-4)
    perplexity = summary.validation["perplexity"].value
    assert perplexity == pytest.approx(torch.tensor(summary.best["value"]).exp().item(), rel=1e-3)


def test_the_budget_is_written_down_as_steps(pretrained, texts):
    output, summary = pretrained
    run = read_run(output)
    assert run.budget == "60ktok"
    assert run.trainer["max_steps"] == summary.steps
    with (output / "metrics.csv").open() as file:
        validated = [row for row in csv.DictReader(file) if row.get("validation_loss")]
    assert len(validated) == run.trainer["max_steps"] // run.trainer["val_check_interval"]
    assert 15 <= len(validated) <= 20
    assert (
        train(compose("pretrain", [*texts, "budget=60ktok", "optim.lr=0.01", f"output={output}", "resume=auto"]))
        is None
    )


def test_the_folder_tells_hidden_words(pretrained, capsys):
    output, _ = pretrained
    guesser = manyheads.load(output)
    assert isinstance(guesser, MaskedLMPredictor)
    (guess,) = guesser.fill(["the film of day 3 was dull and the film stayed [MASK]"], n=3)[0]
    assert len(guess.words) == 3
    assert set(guess.words) <= set(ENDINGS)
    assert guess.probabilities == sorted(guess.probabilities, reverse=True)
    with pytest.raises(ValueError, match=r"n=10000000 words are asked for, but the vocabulary has 1 to \d+"):
        guesser.fill(["the [MASK]"], n=10**7)
    assert main(["predict", f"run={output}", "text=the [MASK] of day 3 was [MASK]"]) == 0
    assert len(json.loads(capsys.readouterr().out)["hidden"]) == 2
    assert main(["predict", f"run={output}", "text=no word"]) == 2
    said = capsys.readouterr().err
    assert said == "the text 'no word' hides no word: write [MASK] where the model should predict one\n"
    lines = ["the [MASK] of day 3 was [MASK] [SEP]", "the [MASK] of day 3 was [MASK] (SEP)"]
    both = guesser.fill(lines, n=2)
    assert [len(one) for one in both] == [2, 2], "a mask alone of all marks is read in a text"
    cut = f"[MASK] {'film ' * guesser.max_length}[MASK] [MASK]"
    with pytest.raises(ValueError, match=rf"is cut to the {guesser.max_length} tokens .* and 2 of its 3 \[MASK\] with"):
        guesser.fill([lines[0], cut])
    assert main(["predict", f"run={output}", f"text={cut}"]) == 2
    assert "2 of its 3 [MASK] with the rest: shorten it, or split it" in capsys.readouterr().err
    if "look" not in VERBS:
        return
    assert main(["look", f"run={output}", "text=a"]) == 2
    assert "has task=pretrain, but look shows the attention of classifiers: name a run with" in capsys.readouterr().err


def test_it_is_evaluated_on_its_own_and_on_other_texts(pretrained, texts, tmp_path, capsys):
    output, summary = pretrained
    assert main(["evaluate", f"run={output}", "split=validation"]) == 0
    metrics = json.loads((output / "evaluate" / "texts-validation" / "metrics.json").read_text())
    assert metrics["loss"]["value"] == pytest.approx(summary.validation["loss"].value, rel=1e-5)
    (tmp_path / "other.txt").write_text("the film was dull\nthe song of day 3 was quick\n" * 10)
    assert main(["evaluate", f"run={output}", f"data.path={tmp_path / 'other.txt'}"]) == 0
    assert (
        (output / "evaluate" / "other-all" / "predictions.csv")
        .read_text()
        .startswith('"piece","hidden","right","loss"\n')
    )
    capsys.readouterr()
    assert main(["evaluate", f"run={output}"]) == 2
    assert "choose split=validation" in capsys.readouterr().err


def test_a_training_begins_with_it(pretrained, texts, tmp_path):
    output, _ = pretrained
    words = [word for word in texts if not word.startswith("tokenizer.")]
    words += [f"init_from={output}", "trainer.max_steps=1", "optim.lr=1e-9", "optim.warmup=0"]
    assert train(compose("train", [*words, f"output={tmp_path / 'run'}"])) is not None
    before, after = (load_file(folder / "model" / "model.safetensors") for folder in (output, tmp_path / "run"))
    same = [name for name in before if name.startswith(("embeddings.", "encoder."))]
    assert same == [name for name in after if name.startswith(("embeddings.", "encoder."))]
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in same)
    tokenizers = [(folder / "model" / "tokenizer.json").read_text() for folder in (output, tmp_path / "run")]
    assert tokenizers[0] == tokenizers[1]


def test_a_pretraining_goes_on_exactly_where_it_stopped(texts, tmp_path, monkeypatch):
    words = [*texts, "trainer.max_steps=8", "trainer.val_check_interval=4", "checkpoint.every=3"]
    whole = train(compose("pretrain", [*words, f"output={tmp_path / 'whole'}"]))
    words.append(f"output={tmp_path / 'parts'}")
    faults.reset_counts()
    monkeypatch.setenv(faults.VARIABLE, "step:5:term")
    with pytest.raises(Stopped):
        train(compose("pretrain", words))
    monkeypatch.delenv(faults.VARIABLE)
    faults.reset_counts()
    parts = train(compose("pretrain", [*words, "resume=must"]))
    assert parts is not None
    assert whole is not None
    assert parts.validation == whole.validation
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("pretrain.mask_share=1", r"pretrain.mask_share=1.0 is out of range: it must be above 0.0 and below 1.0"),
        ("pretrain.also=[nowhere.csv]", r"pretrain.also=.*nowhere.csv does not exist"),
        ("task=classify", r"task=classify .*what train does"),
    ],
)
def test_a_mistake_is_one_sentence(word, sentence, texts, capsys):
    assert main(["pretrain", *texts, word]) == 2
    said = capsys.readouterr().err
    assert re.match(sentence, said), said
    assert said.count("\n") == 1


def test_a_plan_says_what_is_hidden(texts, capsys):
    assert main(["pretrain", *texts, "trainer.max_steps=2", "budget=", "dry=true"]) == 0
    said = capsys.readouterr().out
    assert "15.0% of the tokens" in said
    assert "classes" not in said
