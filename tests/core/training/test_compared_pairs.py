"""Pairs of texts, few rows and an encoder of sentences: `model.pair=auto` compares the vectors of the texts."""

import re
import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from tokenizers import processors
from torch.nn import functional as F

import manyheads
from manyheads import compose
from manyheads.cli.main import main
from manyheads.config import ModelConfig, OptimConfig, PairKind, RunConfig
from manyheads.data.datamodule import TextData
from manyheads.data.prepare_tokens import prepare_tokens
from manyheads.data.rows import Rows, Splits
from manyheads.distributed import faults
from manyheads.errors import UserError
from manyheads.evaluation import results
from manyheads.inference.origin import with_pair
from manyheads.linear.fit import logistic
from manyheads.nn.pairs import comparison
from manyheads.runs.config_file import read_run
from manyheads.runs.resolve import with_resolved
from manyheads.training.build import optim_of
from manyheads.training.guard import Guard
from manyheads.training.module import LitModule
from tests.conftest import word_tokenizer


@pytest.fixture
def sentences(model_folder, tmp_path):
    """A run of ours as sentence-transformers would publish it."""
    folder = shutil.copytree(model_folder, tmp_path / "sentences")
    (folder / "model" / "modules.json").write_text("[]")
    return folder


def pairs_file(path, n=40):
    lines = [f"a good film {at},a {('good', 'bad')[at % 2]} one {at},{('same', 'other')[at % 2]}" for at in range(n)]
    path.write_text("\n".join(["text,text_pair,label", *lines]), encoding="utf-8")
    return path


def splits_of(n_rows, pairs=True):
    texts = ["a film"] * n_rows
    labels, numbers = np.arange(n_rows) % 2, np.arange(n_rows)
    rows = Rows(texts=texts, pairs=texts if pairs else None, labels=labels, source="rows.csv", numbers=numbers)
    return Splits(labels=["other", "same"], train=rows, validation=rows, test=None)


@pytest.mark.parametrize(
    ("words", "given", "expected"),
    [
        ([], {}, PairKind.compare),
        ([], {"n_rows": 400}, PairKind.compare),
        ([], {"n_rows": 401}, PairKind.joint),  # more than four times optim.few=50 of two classes
        ([], {"pairs": False}, PairKind.auto),  # nothing reads it
        (["model.pair=joint"], {}, PairKind.joint),
        (["model.pair=cross"], {"n_rows": 101}, PairKind.cross),
        (["model.pair=compare"], {"n_rows": 401}, PairKind.compare),
        (["optim.few=0"], {}, PairKind.joint),
    ],
)
def test_what_auto_comes_to(words, given, expected, sentences, model_folder):
    splits = splits_of(**({"n_rows": 100} | given))
    run = compose("train", [f"init_from={sentences}", "data.path=rows.csv", *words])
    assert with_pair(run, splits).model.pair is expected
    other = compose("train", [f"init_from={model_folder}", "data.path=rows.csv"])  # no encoder of sentences
    for run in (other, compose("train", ["optim.few=50"])):
        assert with_pair(run, splits_of(100)).model.pair is PairKind.joint


def test_compared_vectors_change_slowly_and_their_head_is_penalised_less():
    joint, compare = ModelConfig(), ModelConfig(pair=PairKind.compare)
    optim, typed = OptimConfig(lr=0.5), OptimConfig(lr=0.5, compare_rate=1.0, few_strength=3.0)
    for model, rate, strength in ((joint, 0.5, 0.1), (compare, 0.05, 10.0)):
        run = RunConfig(model=model, optim=optim, init_from="weights")
        assert (optim_of(run).lr, optim.strength_of(model)) == (rate, strength)
        assert (optim_of(replace(run, optim=typed)), typed.strength_of(model)) == (typed, 3.0)
        assert optim_of(replace(run, init_from="")).lr == 0.5, "a head that is not fitted learns at the whole rate"


def test_a_run_that_diverges_names_a_smaller_rate(tmp_path):
    """Of the rate that is typed, not of the tenth that the network learns at."""
    run = RunConfig(model=ModelConfig(pair=PairKind.compare), optim=OptimConfig(lr=0.5), init_from="weights")
    module = LitModule(torch.nn.Linear(2, 2), None, optim=optim_of(run))
    with pytest.raises(UserError, match=r"smaller rate, such as optim\.lr=0\.05,"):
        Guard(run)._end(None, module, "in step 1")


def test_a_trainer_of_your_own_reads_two_texts_alike(sentences, tmp_path):
    words = [f"data.path={pairs_file(tmp_path / 'rows.csv')}", f"init_from={sentences}", "hardware=cpu"]
    for typed, width, rate in (([], 3, 0.1), (["model.pair=joint"], 0, 1.0)):
        run = compose("train", [*words, "hardware.precision=fp32", *typed])
        module = LitModule.from_run(run, TextData.from_run(run))
        d_model = module.network.words.weight.size(1)
        assert module.network.head.in_features == (width * d_model + 1 if width else d_model)
        assert module.optim.lr == pytest.approx(rate * run.optim.lr)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["optim.compare_rate=0.5", "model.pair=compare"], "optim.compare_rate=0.5 does nothing without init_from"),
        (["optim.compare_rate=0.5", "model.pair=joint", "init_from=x"], "add model.pair=compare, or remove it"),
        (["optim.few_strength=3", "optim.few=0", "model.pair=joint"], "add optim.few=50, or remove it"),
    ],
)
def test_what_no_comparison_reads_is_refused(words, sentence, sentences):
    words = [word.replace("=x", f"={sentences}") for word in words]
    with pytest.raises(UserError, match=re.escape(sentence)):
        compose("train", ["data.path=rows.csv", *words])


@pytest.mark.parametrize(("pair", "refused"), [("compare", True), ("cross", True), ("joint", False)])
def test_texts_without_a_first_mark_are_not_read_apart(pair, refused, tmp_path):
    """The second text would get a copy of the first word of the other."""
    made = word_tokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B:1 [SEP]:1", special_tokens=[("[SEP]", 3)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    words = [f"tokenizer.path={tmp_path / 'tokenizer.json'}", f"model.pair={pair}", f"data.cache={tmp_path}"]
    run = compose("train", ["data.path=x.csv", *words])
    said = rf"does not put one mark before a text and another after it, as model\.pair={pair} needs"
    with pytest.raises(UserError, match=said) if refused else nullcontext():
        prepare_tokens(splits_of(9), run)


def test_the_penalty_of_a_comparison_is_read_of_any_number_of_rows(sentences):
    words = [f"init_from={sentences}", "optim.few=0", "model.pair=compare", "optim.few_strength=3"]
    assert compose("train", ["data.path=rows.csv", *words, "optim.compare_rate=0.5"]).optim.few_strength == 3.0


def test_a_run_from_before_there_was_a_comparison_is_resumed():
    """It has two texts joined, the penalty as a number, and no `compare_rate`, which is then the default."""
    saved = RunConfig(optim=OptimConfig(few_strength=0.1), model=ModelConfig(pair=PairKind.joint))
    typed = RunConfig(optim=OptimConfig(compare_rate=1.0))  # as optim=static has it
    assert with_resolved(typed, saved) == saved
    compared = replace(saved, model=ModelConfig(pair=PairKind.compare))
    assert with_resolved(typed, compared).optim.compare_rate == 1.0, "read, so a difference is named"


@pytest.mark.slow  # tests/plugins/fewshot/test_contrast.py has the same of another choice
def test_all_folds_and_the_run_on_all_rows_read_two_texts_alike(sentences, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    # 48 rows are more than 4 x 5 of two classes, the 32 or so that a fold learns from are not.
    words = [f"data.path={pairs_file(tmp_path / 'rows.csv', 48)}", f"init_from={sentences}", "hardware=cpu"]
    words += ["optim.few=5", "linear=false", "trainer.max_epochs=1", "data.folds=2", "refit=true"]
    assert main(["train", *words, f"output={tmp_path / 'cv'}"]) == 0
    kinds = {read_run(tmp_path / "cv" / name).model.pair for name in ("", "fold-1", "fold-2", "all-rows")}
    assert kinds == {PairKind.joint}
    for config in (tmp_path / "cv").rglob("config.yaml"):  # as it was before
        config.write_text(re.sub(r"few_strength: \S+", "few_strength: 0.1", config.read_text()))
    assert main(["train", *words, "resume=auto", f"output={tmp_path / 'cv'}"]) == 0


def test_a_fitted_head_finds_what_is_in_the_differences():
    """As scikit-learn's does; the cosine is the largest feature, and a strong penalty would leave the others out."""
    drawn = torch.Generator().manual_seed(0)
    a_nD = torch.randn(300, 32, generator=drawn) + 1
    b_nD = a_nD + 0.4 * torch.randn(300, 32, generator=drawn)
    labels = (b_nD - a_nD)[:, 0].gt(0).long()  # not a matter of the angle
    x_nD = comparison(torch.cat([a_nD, b_nD]))
    weight_CD, bias_C = logistic(x_nD[:200], labels[:200], 2, strength=10.0)
    ours = F.linear(x_nD[200:], weight_CD, bias_C).argmax(1).eq(labels[200:]).float().mean()
    size = float(x_nD[:200].norm(dim=1).mean())
    # Two columns of softmax share the penalty of the one that scikit-learn has for two classes.
    theirs = LogisticRegression(C=20.0, max_iter=5000).fit(x_nD[:200] / size, labels[:200])
    assert float(ours) == pytest.approx(theirs.score(x_nD[200:] / size, labels[200:]), abs=0.02)
    assert float(ours) > 0.7


def test_a_run_is_resumed_as_it_began(sentences, tmp_path, monkeypatch):
    """Stopped and resumed it comes to the same bits; what it learnt is opened, asked and begun from."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    words = [f"data.path={pairs_file(tmp_path / 'rows.csv')}", f"init_from={sentences}", "hardware=cpu"]
    words += ["hardware.precision=fp32", "linear=false", "resume=auto", "trainer.max_epochs=2"]
    assert main(["train", *words, f"output={tmp_path / 'whole'}"]) == 0
    log = (tmp_path / "whole" / "run.log").read_text()
    assert "model.pair=auto: compare" in log
    assert "by contrast" not in log, "which pairs are alike says nothing of their texts"
    assert read_run(tmp_path / "whole").model.pair is PairKind.compare

    monkeypatch.setenv(faults.VARIABLE, "step:1:term")
    faults.reset_counts()
    assert main(["train", *words, f"output={tmp_path / 'stopped'}"]) == 143
    monkeypatch.delenv(faults.VARIABLE)
    assert main(["train", *words, f"output={tmp_path / 'stopped'}"]) == 0
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "stopped"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)

    model = manyheads.load(tmp_path / "whole")
    assert model.predict(["a good film"], ["a bad one"])[0].label in ("same", "other")
    again = [
        f"data.path={tmp_path / 'rows.csv'}",
        f"init_from={tmp_path / 'whole'}",
        "hardware=cpu",
        "trainer.max_epochs=1",
        "optim.few=0",
    ]
    assert main(["train", *again, f"output={tmp_path / 'again'}"]) == 0
    assert read_run(tmp_path / "again").model.pair is PairKind.compare, "as in the run that it begins from"
    run = compose("train", [*again, "model.pair=joint"])
    assert with_pair(run, splits_of(100)).model.pair is PairKind.joint
