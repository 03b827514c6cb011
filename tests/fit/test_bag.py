"""The votes of a bag before the first step, against scikit-learn."""

import copy

import pytest
import torch
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression

from manyheads.compose import compose
from manyheads.config import ModelConfig
from manyheads.data.batches import plan_evaluation
from manyheads.data.tokens import Tokens, Windows
from manyheads.fit import session
from manyheads.fit.bag import STRENGTH, begin_votes, counted, rarity, wide
from manyheads.layout import Packed
from manyheads.nn import assemble

LENGTHS = [3, 9, 4, 7, 1, 5, 6] * 8


def made(**model):
    torch.manual_seed(1)
    shape = ModelConfig(d_model=16, d_k=4, d_v=4, d_ff=32, **({"bag": 512, "dropout": 0.0} | model))
    return assemble(shape, vocab_size=20, n_classes=3, max_length=16)


def rows(multi=False, seed=0):
    """A token tells the class of two rows in three."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (len(LENGTHS),), generator=generator)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
    ids_N = torch.randint(5, 20, (int(offsets[-1]),), generator=generator, dtype=torch.int32)
    tells = torch.rand(len(LENGTHS), generator=generator) < 2 / 3
    ids_N[offsets[:-1][tells]] = labels[tells].int()
    marks = torch.stack([labels == 0, labels > 0, torch.ones_like(labels)], 1).to(torch.uint8)
    return Tokens(ids_N=ids_N, offsets=offsets, segments_N=None, labels=marks if multi else labels)


def run_with(*words):
    return compose("train", ["hardware=cpu", "hardware.precision=fp32", *words])


def logits(classifier, tokens):
    """Each row alone, as it is judged."""
    classifier.eval()
    found = []
    for row in range(len(tokens)):
        ids_N = tokens.ids_N[tokens.offsets[row] : tokens.offsets[row + 1]].long()
        found.append(classifier(ids_N, Packed(torch.tensor([0, len(ids_N)]), len(ids_N)))[0])
    return torch.stack(found).detach()


def begun(tokens, **model):
    classifier = made(**model)
    begin_votes(run_with("batch.rows=5"), classifier, classifier.bag, tokens)
    return classifier


def features(tokens):
    """What scikit-learn fits: TF-IDF of the same n-grams, rows in the order they are met."""
    classifier = made()
    x_nV, labels, _ = counted(run_with(), classifier, classifier.bag, tokens)
    dense = x_nV.to_dense()
    idf = TfidfTransformer(norm=None, smooth_idf=True).fit(dense.numpy()).idf_
    weighted = dense * torch.tensor(idf, dtype=torch.float32)
    return weighted / weighted.square().sum(1).mean().sqrt(), labels, idf


def order_of(tokens):
    """In which order the rows are met."""
    run = run_with()
    plan = plan_evaluation(tokens.lengths, tokens=run.batch.tokens, rows=run.batch.rows)
    return torch.cat([batch.rows for batch in plan])


def test_it_answers_as_logistic_regression_of_scikit_learn_on_tfidf_does():
    tokens = rows()
    x_nV, labels, _ = features(tokens)
    peer = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=10_000).fit(x_nV, labels)
    theirs = torch.tensor(peer.predict_proba(x_nV), dtype=torch.float32)
    ours = logits(begun(tokens), tokens).softmax(1)
    torch.testing.assert_close(ours[order_of(tokens)], theirs, atol=5e-3, rtol=0)
    assert (ours.argmax(1) == tokens.labels).float().mean() > 0.9


def test_each_of_several_labels_has_its_own():
    tokens = rows(multi=True)
    x_nV, marks, _ = features(tokens)
    ours = logits(begun(tokens), tokens).sigmoid()
    for label in range(2):
        peer = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=10_000).fit(x_nV, marks[:, label])
        theirs = torch.tensor(peer.predict_proba(x_nV)[:, 1], dtype=torch.float32)
        torch.testing.assert_close(ours[order_of(tokens), label], theirs, atol=5e-3, rtol=0)
    assert (ours[:, 2] > 0.9).all()  # what all rows have


def test_rare_is_as_scikit_learn_smooths_it():
    classifier, tokens = made(), rows()
    x_nV, _, used_V = counted(run_with(), classifier, classifier.bag, tokens)
    assert rarity(x_nV).tolist() == pytest.approx(features(tokens)[2].tolist(), abs=1e-5)
    assert used_V.equal(used_V.unique())


def test_votes_and_head_alone_change_and_no_generator():
    classifier, tokens = made(bag_dropout=0.5), rows()
    before, state = copy.deepcopy(classifier.state_dict()), torch.get_rng_state()
    begin_votes(run_with(), classifier, classifier.bag, tokens)
    changed = {name for name, value in classifier.state_dict().items() if not value.equal(before[name])}
    assert changed == {"head.weight", "head.bias", "bag.votes.weight"}
    assert torch.get_rng_state().equal(state)
    assert classifier.training
    assert classifier.bag.votes.weight.requires_grad


def test_a_text_in_windows_is_counted_as_it_is_answered():
    """Its logits are the mean over its windows, whose neighbours do not reach into each other."""
    classifier, tokens = made(), rows()
    torch.nn.init.normal_(classifier.bag.votes.weight)
    bounds = torch.tensor([0, *(part for n in LENGTHS for part in ([n - n // 2, n // 2] if n > 1 else [n]))]).cumsum(0)
    counts = torch.tensor([0, *(2 if n > 1 else 1 for n in LENGTHS)]).cumsum(0)
    tokens.windows = Windows(bounds, counts)
    layout = Packed.of_lengths([2, 1, 5, 4], counts=[2, 2])
    ids_N = tokens.ids_N[:12].long()
    classifier.bag.eval()
    expected = layout.pooled(classifier.bag(ids_N, layout))
    torch.testing.assert_close(classifier.bag.parts(ids_N, layout) @ classifier.bag.votes.weight, expected)
    x_nV, labels, _ = counted(run_with(), classifier, classifier.bag, tokens)
    assert len(x_nV) == len(labels) == len(LENGTHS)


@pytest.mark.parametrize(
    ("words", "fitted"),
    [
        ([], "votes"),
        (["optim.bag_first=55"], None),
        (["optim.bag_first=0"], None),
        (["model.bag=0", "optim.few=50"], "head"),
    ],
)
def test_votes_are_fitted_up_to_so_many_rows(words, fitted, monkeypatch):
    called = []
    monkeypatch.setattr(session, "begin_votes", lambda *_: called.append("votes"))
    monkeypatch.setattr(session, "begin_head", lambda *_: called.append("head"))
    run = run_with(*words)
    session.begin_linear(run, made(bag=run.model.bag), rows(), ["a", "b", "c"])
    assert called == ([fitted] if fitted else [])


def test_few_texts_without_tokens_are_no_obstacle():
    tokens = Tokens(
        ids_N=torch.empty(0, dtype=torch.int32),
        offsets=torch.zeros(3, dtype=torch.long),
        segments_N=None,
        labels=torch.tensor([0, 1]),
    )
    classifier = begun(tokens)
    assert all(value.isfinite().all() for value in classifier.state_dict().values())


@pytest.mark.parametrize("n_words", [3, 12])
def test_more_rows_than_n_grams_are_fitted_too(n_words):
    """Their products are singular, which single precision cannot tell from negative."""
    generator = torch.Generator().manual_seed(0)
    x_nV = torch.randint(0, 4, (900, n_words), generator=generator).float()
    x_nV /= x_nV.square().sum(1, keepdim=True).mean().sqrt()
    labels = torch.randint(0, 3, (900,), generator=generator)
    weight_VC, bias_C = wide(x_nV.to_sparse_coo().coalesce(), labels, 3)
    theirs = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=1000).fit(x_nV.numpy(), labels.numpy())
    torch.testing.assert_close(
        (x_nV @ weight_VC + bias_C).softmax(-1).double(),
        torch.from_numpy(theirs.predict_proba(x_nV.numpy())).double(),
        atol=2e-3,
        rtol=0,
    )
