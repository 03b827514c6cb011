"""The head of trained weights before the first step, against scikit-learn's logistic regression."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from manyheads.cli.compose import compose
from manyheads.config import ModelConfig
from manyheads.data.tokens import Tokens, Windows
from manyheads.layout import Packed
from manyheads.linear.fit import logistic
from manyheads.nn import assemble
from manyheads.training import build as head
from manyheads.training import trainer
from manyheads.training.build import fit_head
from manyheads.training.context import RunContext

STRENGTH = 0.1


def vectors(n=60, width=5, n_classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, n_classes, (n,), generator=generator)
    middles = torch.randn(n_classes, width, generator=generator)
    return 3 + 2 * (middles[labels] + torch.randn(n, width, generator=generator)), labels


def scaled(x_nD):
    """As `logistic` sees them."""
    return (x_nD - x_nD.mean(0)) / x_nD.norm(dim=1).mean()


def test_it_is_the_logistic_regression_of_scikit_learn():
    x_nD, labels = vectors()
    weight_CD, bias_C = logistic(x_nD, labels, 3, strength=STRENGTH)
    peer = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=10_000).fit(scaled(x_nD), labels)
    theirs = torch.tensor(peer.predict_proba(scaled(x_nD)), dtype=torch.float32)
    torch.testing.assert_close(F.linear(x_nD, weight_CD, bias_C).softmax(1), theirs, atol=2e-3, rtol=0)


def test_each_of_several_labels_has_its_own():
    x_nD, classes = vectors()
    marks_nC = torch.stack([classes == 0, classes > 0], 1).to(torch.uint8)
    weight_CD, bias_C = logistic(x_nD, marks_nC, 2, multi=True, strength=STRENGTH)
    for label in range(2):
        peer = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=10_000).fit(scaled(x_nD), marks_nC[:, label])
        theirs = torch.tensor(peer.predict_proba(scaled(x_nD))[:, 1], dtype=torch.float32)
        ours = F.linear(x_nD, weight_CD, bias_C)[:, label].sigmoid()
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=0)


def test_it_learns_from_the_votes_of_a_row():
    """As from one row for each class, which weighs as much as its share of the votes."""
    classifier, tokens = made(), rows_of([3, 9, 4, 7, 1, 5, 6] * 4)
    shares_nC = torch.randn(28, 3, generator=torch.Generator().manual_seed(0)).mul(2).softmax(1)
    given = replace(tokens, labels=shares_nC.argmax(1).int(), probabilities_nC=shares_nC)
    fit_head(run_with(), classifier, given)
    x_nD = head.extract_features(run_with(), classifier, tokens, torch.arange(28))
    every_nD, classes = scaled(x_nD).repeat_interleave(3, 0), torch.arange(3).repeat(28)
    peer = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=10_000)
    peer.fit(every_nD, classes, sample_weight=shares_nC.flatten().numpy())
    theirs = torch.tensor(peer.predict_proba(scaled(x_nD)), dtype=torch.float32)
    torch.testing.assert_close(classifier.head(x_nD).softmax(1), theirs, atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    ("x_nD", "labels"),
    [
        (torch.zeros(4, 3), torch.tensor([0, 1, 0, 1])),  # texts without tokens
        (torch.randn(1, 3), torch.tensor([1])),
        (1e6 * torch.eye(3), torch.tensor([0, 1, 2])),
        (torch.randn(5, 3), torch.zeros(5, dtype=torch.long)),  # one class alone
    ],
)
def test_it_is_finite_whatever_the_rows(x_nD, labels):
    weight_CD, bias_C = logistic(x_nD, labels, 4, strength=STRENGTH)
    assert weight_CD.isfinite().all()
    assert bias_C.isfinite().all()
    loss = F.cross_entropy(F.linear(x_nD, weight_CD, bias_C), labels)
    assert loss < F.cross_entropy(torch.zeros(len(labels), 4), labels) + 1e-6


def rows_of(lengths, n_classes=3, seed=0):
    """A token of each class is the class's own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, n_classes, (len(lengths),), generator=generator)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    ids_N = torch.randint(5, 20, (int(offsets[-1]),), generator=generator, dtype=torch.int32)
    ids_N[offsets[:-1]] = labels.int()
    return Tokens(ids_N=ids_N, offsets=offsets, segments_N=None, labels=labels)


def made(**model):
    torch.manual_seed(1)
    shape = ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, **model)
    return assemble(shape, vocab_size=20, n_classes=3, max_length=16)


def run_with(*words):
    return compose("train", ["hardware=cpu", "hardware.precision=fp32", *words])


def test_the_head_alone_changes_and_no_generator():
    classifier, tokens = made(dropout=0.5), rows_of([3, 9, 4, 7, 1, 5, 6] * 8)
    before, state = copy.deepcopy(classifier.state_dict()), torch.get_rng_state()
    fit_head(run_with(), classifier, tokens)
    changed = {name for name, value in classifier.state_dict().items() if not value.equal(before[name])}
    assert changed == {"head.weight", "head.bias"}
    assert torch.get_rng_state().equal(state)
    assert classifier.training
    assert classifier.head.weight.requires_grad


def test_it_is_fitted_to_what_the_head_sees_of_each_row(monkeypatch):
    classifier, tokens, met = made(dropout=0.5), rows_of([3, 9, 4, 7, 1, 5, 6] * 8), []
    fit = lambda x_nD, *how, **more: met.append((x_nD, how[0])) or logistic(x_nD, *how, **more)  # noqa: E731
    monkeypatch.setattr(head, "logistic", fit)
    monkeypatch.setattr(head, "MOST_ROWS", 10)
    fit_head(run_with("batch.rows=4"), classifier, tokens)
    ((x_nD, labels),) = met
    classifier.eval()
    rows = [0, 5, 11, 16, 22, 28, 33, 39, 44, 50]  # of 56, at even distances
    for at, row in enumerate(rows):
        ids_N = tokens.ids_N[tokens.offsets[row] : tokens.offsets[row + 1]].long()
        alone = classifier.read(ids_N, Packed(torch.tensor([0, len(ids_N)]), len(ids_N)))
        torch.testing.assert_close(x_nD[at], alone[0], atol=1e-5, rtol=0)
    assert labels.equal(tokens.labels[rows])


def test_each_of_several_processes_fits_it(monkeypatch, tmp_path):
    """Where the others waited for the first, they would be given up after hardware.timeout seconds."""
    met = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(trainer, "prepare_weights", lambda *_, first: met.append(first) or 1 / 0)  # no further
    splits = SimpleNamespace(labels=["a", "b", "c"])
    context = RunContext(run=run_with(), typed=run_with(), splits=splits)  # pyright: ignore[reportArgumentType]
    context.network, context.tokens, context.folder = made(), {"train": rows_of([3, 9])}, tmp_path
    with pytest.raises(ZeroDivisionError):
        trainer.fit(context)
    assert met == [True]


def test_it_says_that_it_lives(monkeypatch):
    beats = []
    monkeypatch.setattr(head, "beat", lambda: beats.append(1))
    fit_head(run_with("batch.rows=4"), made(), rows_of([3, 9, 4, 7, 1, 5, 6] * 8))
    assert len(beats) >= 56 / 4


def test_of_a_text_in_windows_it_sees_their_mean():
    """Logits are the mean over windows, and the head is linear."""
    classifier, tokens = made(dropout=0.0), rows_of([8, 3] * 20)
    bounds = torch.tensor([0, *[4, 4, 3] * 20]).cumsum(0)
    tokens.windows = Windows(bounds, torch.tensor([0, *[2, 1] * 20]).cumsum(0))
    x_nD = head.extract_features(run_with(), classifier, tokens, torch.arange(len(tokens)))
    classifier.eval()
    parts = Packed(torch.tensor([0, 4, 8]), 4)
    both = classifier.read(tokens.ids_N[:8].long(), parts)
    torch.testing.assert_close(x_nD[0], both.mean(0), atol=1e-5, rtol=0)
