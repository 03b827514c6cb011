"""With few rows an encoder is fine-tuned by contrast before its head is fitted."""

import copy
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from manyheads import compose
from manyheads.cli.main import main
from manyheads.config import ModelConfig, Precision
from manyheads.data.batches import Planned, gather
from manyheads.data.rows import Rows, Splits
from manyheads.data.tokens import Tokens
from manyheads.distributed import faults
from manyheads.evaluation import results
from manyheads.nn import assemble
from manyheads.plugins.fewshot import contrast
from manyheads.plugins.fewshot.contrast import (
    ROWS,
    TEMPERATURE,
    begin,
    contrastive_loss,
    draw_rows,
    rate,
    rows_of_step,
)
from manyheads.plugins.fewshot.resolve import with_contrast
from manyheads.runs.config_file import read_run
from manyheads.training.build import fit_head

LABELS = ["a", "b", "c"]


def few_rows(n=12):
    """The first token of a text is that of its class."""
    labels = torch.arange(n) % len(LABELS)
    drawn = torch.Generator().manual_seed(0)
    ids_nM = torch.cat([labels[:, None], torch.randint(3, 20, (n, 4), generator=drawn)], 1)
    return Tokens(ids_nM.flatten().int(), 5 * torch.arange(n + 1), None, labels.int())


def network(**settings):
    torch.manual_seed(1)
    shape = ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, n_layers=1, dropout=0.1, **settings)
    return assemble(shape, vocab_size=20, max_length=8, n_classes=len(LABELS))


def run_with(**settings):
    run = compose("train", ["hardware=cpu", "hardware.precision=fp32"])
    return replace(run, init_from="weights", seed=3, optim=replace(run.optim, **{"contrast": 4, "few": 4, **settings}))


def test_the_loss_is_that_of_the_paper():
    """Khosla et al. (2020), equation 2, row by row in NumPy; a row that is alone in its class is not in the mean."""
    drawn = torch.Generator().manual_seed(0)
    vectors_BD, labels_B = torch.randn(6, 4, generator=drawn), torch.tensor([0, 1, 0, 2, 1, 0])
    z = vectors_BD.double().numpy()
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    losses = []
    for i in range(6):
        others = [j for j in range(6) if j != i]
        same = [j for j in others if labels_B[j] == labels_B[i]]
        total = sum(np.exp(z[i] @ z[j] / TEMPERATURE) for j in others)
        if same:
            losses.append(-np.mean([np.log(np.exp(z[i] @ z[j] / TEMPERATURE) / total) for j in same]))
    assert float(contrastive_loss(vectors_BD, labels_B)) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(contrastive_loss(vectors_BD[:2], labels_B[:2])) == 0.0


@pytest.mark.parametrize(("n_classes", "most_tokens", "n_rows"), [(8, 320, 16), (9, 320, 18), (77, 320, 64)])
def test_a_step_of_many_classes_has_more_rows_if_tokens_allow(n_classes, most_tokens, n_rows):
    tokens = few_rows()  # of five tokens each
    assert rows_of_step(tokens, n_classes, most_tokens) == n_rows
    assert rows_of_step(tokens, n_classes, 5 * 17) == min(n_rows, 17)
    assert rows_of_step(tokens, n_classes, 10) == ROWS


@pytest.mark.parametrize(
    ("n_classes", "n_rows", "classes", "each"), [(2, 16, 2, 8), (3, 16, 3, 5), (20, 16, 8, 2), (20, 40, 20, 2)]
)
def test_a_step_has_two_rows_of_a_class_at_least(n_classes, n_rows, classes, each):
    labels = torch.arange(200) % n_classes
    rows = draw_rows(labels, n_rows, torch.Generator().manual_seed(0))
    counts = labels[rows].bincount()
    assert counts[counts > 0].tolist() == [each] * classes
    assert len(rows.unique()) == len(rows) <= n_rows


def test_the_rate_rises_and_falls():
    rates = [rate(step, 60) for step in range(60)]
    assert rates[0] == pytest.approx(1 / 6)
    assert max(rates) == rates[6] == 1.0
    assert 0 < rates[-1] < 0.02
    assert rate(0, 1) <= 1.2


def test_texts_of_a_class_come_nearer():
    """The encoder alone learns, by the seed alone; torch's own random numbers are left as they were."""
    tokens, trained = few_rows(), network()
    first = copy.deepcopy(trained)
    state = torch.random.get_rng_state()
    begin(run_with(contrast_epochs=80, contrast_lr=3e-3), trained, tokens, LABELS, first=True)
    assert torch.equal(torch.random.get_rng_state(), state)
    again = copy.deepcopy(first)
    torch.manual_seed(9)
    begin(run_with(contrast_epochs=80, contrast_lr=3e-3), again, tokens, LABELS, first=True)
    for (name, one), other, before in zip(
        trained.named_parameters(), again.parameters(), first.parameters(), strict=True
    ):
        assert torch.equal(one, other), name
        assert name.startswith("encoder") or torch.equal(one, before), name
        assert one.grad is None, name
        assert one.requires_grad is name.startswith("head."), name
    losses = [vectors_loss(one, tokens) for one in (first, trained)]
    assert losses[1] < 0.6 * losses[0], "at least ln 3: each row has three others of its class"


def test_a_pooling_with_weights_learns_too():
    trained, first = network(pooling="attention"), network(pooling="attention")
    begin(run_with(contrast_epochs=4), trained, few_rows(), LABELS, first=True)
    assert not any(
        torch.equal(*of) for of in zip(trained.pooling.parameters(), first.pooling.parameters(), strict=True)
    )


def test_the_classes_of_a_teacher_are_not_contrasted_and_that_is_said(monkeypatch):
    tokens, trained = replace(few_rows(), probabilities_nC=torch.full((12, 3), 1 / 3)), network()
    said = []
    monkeypatch.setattr(contrast.log, "info", said.append)
    begin(run_with(), trained, tokens, LABELS, first=True)
    assert all(torch.equal(*both) for both in zip(trained.parameters(), network().parameters(), strict=True))
    assert all(one.requires_grad for one in trained.parameters())
    assert said == ["no contrast, as rows have probabilities of classes"]


def test_small_gradients_are_learnt_from_in_fp16_as_in_fp32(monkeypatch):
    """Most of these are 0 in fp16 where the loss is not scaled: the updates then have a cosine of .15."""
    monkeypatch.setattr(contrast, "TEMPERATURE", 1e5)
    updates = []
    for precision in (Precision.fp32, Precision.fp16):
        monkeypatch.setattr(contrast, "choose_precision", lambda *_, chosen=precision: chosen)  # a CPU is refused fp16
        trained, before = network(), network()
        contrast.learn(run_with(contrast_epochs=1), trained, few_rows(), [*trained.encoder.parameters()])
        pairs = zip(trained.encoder.parameters(), before.encoder.parameters(), strict=True)
        updates.append(torch.cat([(one.detach() - other.detach()).flatten() for one, other in pairs]))
    assert float(torch.cosine_similarity(*updates, dim=0)) > 0.999


def test_a_row_that_weighs_nothing_is_not_there():
    """Neither compared, to the bit, nor counted among the few."""
    without, whole, found = few_rows(12), few_rows(15), list[torch.nn.Module]()
    whole.labels[12:] = whole.labels[12:].flip(0)  # labels that are wrong
    whole.weights_n = (torch.arange(15) < 12) * 1.25
    for tokens in (without, whole):
        found.append(network())
        begin(run_with(contrast_epochs=8, contrast_lr=3e-3), found[-1], tokens, LABELS, first=True)
    for (name, one), other in zip(found[0].encoder.named_parameters(), found[1].encoder.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert not torch.equal(one, [*network().encoder.parameters()][-1])


def vectors_loss(classifier, tokens) -> float:
    batch = gather(tokens, Planned(torch.arange(len(tokens)), 1.0))
    with torch.no_grad():
        vectors_BD = classifier.eval().read(batch.ids_N, batch.layout, batch.segments_N)
        return float(contrastive_loss(vectors_BD, batch.labels_B))


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({"contrast": 3}, {}),  # four rows a class
        ({"contrast": 0}, {}),
        ({"contrast": None}, {}),  # a run from before the rows decided it
        ({}, {"labels": torch.arange(12).int()}),  # no class has two rows
    ],
)
def test_nothing_is_changed_where_rows_cannot_be_compared(settings, given):
    tokens, trained = few_rows(), network()
    first = copy.deepcopy(trained)
    tokens.labels = given.get("labels", tokens.labels)
    labels = [*"abcdefghijkl"][: 1 + int(tokens.labels.max())]
    begin(run_with(**settings), trained, tokens, labels, first=True)
    assert all(one.requires_grad for one in trained.parameters())
    assert all(torch.equal(one, other) for one, other in zip(trained.parameters(), first.parameters(), strict=True))


def rows_file(path, column="label", cells=("neg", "pos"), n=80):
    lines = [f"a {('bad', 'good')[at % 2]} film {at},{cells[at % len(cells)]}" for at in range(n)]
    path.write_text("\n".join([f"text,{column}", *lines]), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["optim.contrast=9"], r"optim\.contrast=9 does nothing without trained weights: name them by init_from="),
        (["optim.contrast_lr=0.1"], r"optim\.contrast_lr=0\.1 does nothing without trained weights"),
        (
            ["init_from={run}", "optim.contrast=0", "optim.contrast_epochs=9"],
            r"optim\.contrast_epochs=9 does nothing with optim\.contrast=0",
        ),
        (
            ["init_from={run}", "optim.contrast=9"],
            r"optim\.contrast=9 compares texts of one class with others, but rows of this data have any",
        ),
        (
            ["init_from={run}", "optim.contrast=9", "data.text_pair=labels", "data.label=other"],
            r"optim\.contrast=9 compares texts of one class with others, but rows of this data are pairs of texts",
        ),
        (["init_from={run}", "optim.contrast=-1"], r"optim\.contrast=-1 is out of range"),
    ],
)
def test_mistakes(words, sentence, model_folder, tmp_path, capsys):
    rows = rows_file(tmp_path / "rows.csv", "labels,other", ("a,x", "a|b,y", "b,x"))
    given = [word.replace("{run}", str(model_folder)) for word in words]
    assert main(["train", f"data.path={rows}", f"output={tmp_path / 'run'}", "hardware=cpu", *given]) == 2
    said = capsys.readouterr().err
    assert re.search(sentence, said), said
    assert not (tmp_path / "run").exists()


def test_a_run_as_it_is_typed(model_folder, tmp_path, monkeypatch):
    """Stopped and resumed it comes to the same bits."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    rows = rows_file(tmp_path / "rows.csv")
    words = [f"data.path={rows}", f"init_from={model_folder}", "optim.contrast=40", "optim.contrast_epochs=1"]
    words += ["hardware=cpu", "hardware.precision=fp32", "linear=false", "resume=auto", "trainer.max_epochs=1"]
    assert main(["train", *words, f"output={tmp_path / 'whole'}"]) == 0
    assert "fine-tuned by contrast for 4 steps" in (tmp_path / "whole" / "run.log").read_text()
    monkeypatch.setenv(faults.VARIABLE, "step:2:term")
    faults.reset_counts()
    assert main(["train", *words, f"output={tmp_path / 'stopped'}"]) == 143
    monkeypatch.delenv(faults.VARIABLE)
    assert main(["train", *words, f"output={tmp_path / 'stopped'}"]) == 0
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_all_folds_and_the_run_on_all_rows_begin_alike(sentences, tmp_path, monkeypatch, capsys):
    """48 rows are more than 4 x 5 of two classes, the 24 that a fold learns from are not. A plan says what is chosen,
    and what a run came to is kept where it is resumed."""
    monkeypatch.setenv("MANYHEADS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "write_page", lambda path, _: path.touch())
    words = [f"init_from={sentences}", "hardware=cpu", "optim.few=5", "linear=false", "trainer.max_epochs=1"]
    many, few = (f"data.path={rows_file(tmp_path / f'{n}.csv', n=n)}" for n in (48, 40))
    assert main(["train", *words, many, f"output={tmp_path / 'cv'}", "data.folds=2", "refit=true"]) == 0
    names = ("", "fold-1", "fold-2", "all-rows")
    assert {read_run(tmp_path / "cv" / name).optim.contrast for name in names} == {0}
    capsys.readouterr()
    assert main(["train", *words, many, "data.folds=2", "dry=true"]) == 0
    assert "optim.contrast" not in capsys.readouterr().out
    assert main(["train", *words, few, "dry=true"]) == 0
    assert "optim.contrast=20" in capsys.readouterr().out
    run = tmp_path / "run"
    assert main(["train", *words, few, f"output={run}", "resume=auto"]) == 0
    assert read_run(run).optim.contrast == 20
    assert re.search("chosen automatically: .*optim.contrast=20", (run / "run.log").read_text())
    assert main(["train", *words, few, f"output={run}", "resume=auto"]) == 0, "the same run, which is finished"


def test_it_says_that_it_lives(monkeypatch):
    """A process that is silent for long is given up."""
    beats = []
    monkeypatch.setattr(contrast, "beat", lambda: beats.append(1))
    begin(run_with(contrast_epochs=4), network(), few_rows(), LABELS, first=True)
    assert len(beats) == 3  # of 16 rows each


def test_a_resumed_run_freezes_the_same(tmp_path):
    tokens, one, other = few_rows(), network(), network()
    begin(run_with(contrast_epochs=1), one, tokens, LABELS, first=True)
    begin(run_with(contrast_epochs=1), other, tokens, LABELS, first=False)
    assert [each.requires_grad for each in one.parameters()] == [each.requires_grad for each in other.parameters()]
    assert all(torch.equal(each, of) for each, of in zip(other.parameters(), network().parameters(), strict=True))


def test_the_head_is_fitted_also_where_rows_are_not_few():
    """Training would not teach a random one in time."""
    tokens, classifier = few_rows(), network()
    begin(run_with(few=3, contrast_epochs=1), classifier, tokens, LABELS, first=True)
    fitted = copy.deepcopy(classifier)
    fit_head(run_with(), fitted, tokens)
    assert torch.equal(classifier.head.weight, fitted.head.weight)


@pytest.fixture
def sentences(model_folder, tmp_path):
    """A trained encoder that says it is one of sentences, as what sentence-transformers writes does."""
    folder = shutil.copytree(model_folder, tmp_path / "sentences")
    (folder / "model" / "modules.json").write_text("[]")
    return folder


def splits_of(n_rows, n_classes=3, **more):
    rows = Rows(["a film"] * n_rows, None, np.arange(n_rows) % n_classes, "rows.csv", np.arange(n_rows))
    labels = [f"class {at}" for at in range(n_classes)]
    return Splits(train=replace(rows, **more), validation=rows, test=None, labels=labels)


@pytest.mark.parametrize(
    ("splits", "settings", "found"),
    [
        (splits_of(60), {}, 20),  # four times optim.few of three classes
        (splits_of(61), {}, 0),
        (splits_of(61, weights=(np.arange(61) > 0).astype(float)), {}, 20),  # a row that weighs nothing is not there
        (splits_of(2000, 500), {}, 20),
        (splits_of(2001, 501), {}, 0),
        (splits_of(3, pairs=["a film"] * 3), {}, 0),
        (splits_of(3, sets=[(0,)] * 3), {}, 0),
        (splits_of(3, probabilities=np.full((3, 3), 1 / 3)), {}, 0),
        (splits_of(3), {"budget": "10s"}, 0),
        (splits_of(3), {"init_from": ""}, None),  # nothing reads it
    ],
)
def test_the_rows_decide_the_default(splits, settings, found, sentences, model_folder):
    run = replace(run_with(contrast=None, few=5), init_from=str(sentences))
    assert with_contrast(replace(run, **settings), splits).optim.contrast == found
    typed = run_with(contrast=7, few=5)
    if splits.train.pairs is None and splits.train.sets is None and splits.train.probabilities is None:
        assert with_contrast(typed, splits) == typed
    other = replace(run, **{"init_from": str(model_folder), **settings})  # no encoder of sentences
    assert not with_contrast(other, splits).optim.contrast


def test_a_teacher_leaves_a_typed_number(sentences):
    """Which is then said not to be used: only the rows of a training show that there is one."""
    splits = splits_of(6, probabilities=np.full((6, 3), 1 / 3))
    splits.own_train = splits_of(3).train
    typed = run_with(contrast=7)
    assert with_contrast(typed, splits) == typed
    assert with_contrast(replace(run_with(contrast=None), init_from=str(sentences)), splits).optim.contrast == 0


@pytest.mark.parametrize(
    ("limit", "steps"), [(7, 7), (-1, 60), *(pytest.param(one, 60, marks=pytest.mark.slow) for one in (None, 100))]
)
def test_contrast_has_no_more_steps_than_training(limit, steps, monkeypatch):
    made = []
    monkeypatch.setattr(contrast, "contrastive_loss", lambda *of: made.append(of) or contrastive_loss(*of))
    run = run_with(contrast_epochs=80)  # of 12 rows, 16 a step
    begin(replace(run, trainer=run.trainer | {"max_steps": limit}), network(), few_rows(), LABELS, first=True)
    assert len(made) == steps


def test_where_all_layers_are_frozen_nothing_is_learnt_by_contrast():
    trained = network()
    first = copy.deepcopy(trained)
    begin(run_with(freeze=1), trained, few_rows(), LABELS, first=True)
    assert all(torch.equal(one, other) for one, other in zip(trained.parameters(), first.parameters(), strict=True))
    assert {name for name, one in trained.named_parameters() if one.requires_grad} == {"head.weight", "head.bias"}
