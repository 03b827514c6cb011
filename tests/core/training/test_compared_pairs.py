"""Pairs of texts, few rows and an encoder of sentences: `model.pair=auto` compares the vectors of the texts."""

import shutil

import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

import manyheads
from manyheads import compose
from manyheads.cli.main import main
from manyheads.config import ModelConfig, OptimConfig, PairKind
from manyheads.distributed import faults
from manyheads.evaluation import results
from manyheads.linear.fit import logistic
from manyheads.nn.pairs import comparison
from manyheads.runs.config_file import read_run
from manyheads.runs.resolve import with_data


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


@pytest.mark.parametrize(
    ("words", "given", "expected"),
    [
        ([], {}, PairKind.compare),
        ([], {"n_rows": 400}, PairKind.compare),
        ([], {"pairs": False}, PairKind.joint),
        ([], {"n_rows": 404}, PairKind.joint),  # more than four times optim.few=50 of two classes
        (["model.pair=joint"], {}, PairKind.joint),
        (["model.pair=cross"], {"n_rows": 101}, PairKind.cross),
        (["model.pair=compare"], {"n_rows": 101}, PairKind.compare),
        (["optim.few=0"], {}, PairKind.joint),
    ],
)
def test_what_auto_comes_to(words, given, expected, sentences, model_folder):
    of_rows = {"n_rows": 100, "n_classes": 2, "multi": False, "pairs": True} | given
    run = compose("train", [f"init_from={sentences}", "data.path=rows.csv", *words])
    assert with_data(run, **of_rows).model.pair is expected
    other = compose("train", [f"init_from={model_folder}", "data.path=rows.csv"])  # no encoder of sentences
    assert with_data(other, **of_rows).model.pair is PairKind.joint
    assert with_data(compose("train", ["optim.few=50"]), **of_rows).model.pair is PairKind.joint, "from scratch"


def test_compared_vectors_change_slowly_and_their_head_is_penalised_less():
    joint, compare = ModelConfig(), ModelConfig(pair=PairKind.compare)
    optim = OptimConfig(lr=0.5)
    assert (optim.of(joint).lr, optim.strength_of(joint)) == (0.5, 0.1)
    assert (optim.of(compare).lr, optim.strength_of(compare)) == (0.05, 10.0)
    typed = OptimConfig(lr=0.5, compare_rate=1.0, few_strength=3.0)
    assert typed.of(compare) == typed.of(joint) == typed
    assert typed.strength_of(compare) == typed.strength_of(joint) == 3.0


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
    ]
    assert main(["train", *again, f"output={tmp_path / 'again'}"]) == 0
