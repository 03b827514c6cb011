"""The linear model beside a network: as scikit-learn has it."""

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from manyheads.data.rows import Rows
from manyheads.data.terms import number_of, terms_of
from manyheads.fit import linear
from manyheads.fit.linear import MANY, OF_LABELS, STRENGTH, TOLERANCE, fit_linear
from manyheads.ship.linear import linear_logits

TEXTS = ["a good film", "so bad", "The awful film, bad!", "good good fun", "a film", "an awful bore so bad"] * 4
LABELS = [0, 1, 1, 0, 2, 1] * 4
ASKED = ["good", "bad bad film", "never seen words", "", "The awful film"]


def rows(labels=LABELS, texts=TEXTS, pairs=None, sets=None) -> Rows:
    return Rows(texts, pairs, labels, "x.csv", range(1, 1 + len(texts)), sets=sets)


def reference(labels, least=1, **more):
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\w+", min_df=least)
    return make_pipeline(words, LogisticRegression(**more))


@pytest.mark.parametrize("labels", [LABELS, [one % 2 for one in LABELS]])
def test_classes_have_the_probabilities_of_scikit_learn(labels):
    model = fit_linear(rows(labels), 3)
    assert model is not None
    found = linear_logits(model, ASKED, None).softmax(-1).numpy()
    theirs = reference(labels, C=STRENGTH, max_iter=200, tol=TOLERANCE).fit(TEXTS, labels).predict_proba(ASKED)
    np.testing.assert_allclose(found[:, : theirs.shape[1]], theirs, atol=2e-4)


def test_labels_have_each_its_own():
    sets = [(0,), (1, 2), (1,), (0, 2), (), (1,)] * 4
    model = fit_linear(rows([0] * 24, sets=sets), 5)
    assert model is not None
    found = linear_logits(model, ASKED, None).sigmoid().numpy()
    for label in range(3):
        marks = [label in one for one in sets]
        solver = {"C": OF_LABELS, "solver": "liblinear", "tol": 10 * TOLERANCE, "random_state": 0}
        theirs = reference(marks, **solver).fit(TEXTS, marks).predict_proba(ASKED)[:, 1]
        np.testing.assert_allclose(found[:, label], theirs, atol=1e-4)
    assert (found[:, 3:] < 1e-4).all(), "labels that no row has"


def test_classes_that_no_row_has_are_not_answered():
    model = fit_linear(rows(), 5)
    assert model is not None
    assert linear_logits(model, ASKED, None).softmax(-1)[:, 3:].max() < 1e-3


def test_pairs_are_told_by_what_they_share():
    firsts = [f"the {one} runs" for one in ("dog", "cat", "cow", "hen")] * 6
    seconds = [
        f"the {one} runs" if at % 2 else "a boat is still" for at, one in enumerate(("dog", "cat", "cow", "hen") * 6)
    ]
    model = fit_linear(rows([at % 2 for at in range(24)], texts=firsts, pairs=seconds), 2)
    assert model is not None
    asked = linear_logits(
        model, ["the pig sings loud", "the pig sings loud"], ["the pig sings loud", "no more of it here"]
    )
    assert asked.argmax(-1).tolist() == [1, 0]


@pytest.mark.parametrize("rows", [rows([1] * 24), rows(texts=["!", "?"] * 12)])
def test_without_two_classes_or_a_term_there_is_none(rows):
    assert fit_linear(rows, 3) is None


def test_terms_of_a_single_row_count_where_rows_are_few():
    texts = [f"{'good' if at % 2 else 'bad'} word{at}" for at in range(MANY + 2)]
    labels = [at % 2 for at in range(MANY + 2)]
    few = fit_linear(rows(labels[:100], texts=texts[:100]), 2)
    many = fit_linear(rows(labels, texts=texts), 2)
    assert few is not None
    assert many is not None
    assert (len(few.terms_U), len(many.terms_U)) == (2 + 200, 2)


def test_of_very_many_rows_and_terms_a_part_will_do(monkeypatch):
    monkeypatch.setattr(linear, "MOST_ROWS", 5)
    monkeypatch.setattr(linear, "MOST_VOTES", 12)
    model = fit_linear(rows(), 3)
    assert model is not None
    assert model.votes_UC.shape == (4, 3)
    assert model.terms_U.numel() <= len({number_of(term) for text in TEXTS for term in terms_of(text)})


def test_rows_of_a_part_are_drawn_as_classes_may_come_in_turn(monkeypatch):
    monkeypatch.setattr(linear, "MOST_ROWS", 50)
    texts, labels = ["good", "bad", "dull", "great"] * 25, [0, 1, 2, 3] * 25
    model = fit_linear(rows(labels, texts=texts), 4)
    assert model is not None
    assert linear_logits(model, texts[:4], None).argmax(-1).tolist() == [0, 1, 2, 3]


def test_fitting_draws_nothing():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = fit_linear(rows(), 3), fit_linear(rows(), 3)
    assert first is not None
    assert second is not None
    assert all(one.equal(other) for one, other in zip(first.buffers(), second.buffers(), strict=True))
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("multi", [False, True])
def test_classes_count_by_their_weights(multi):
    """As if the rows of a class, or what rows have of a label, were there as often."""
    weights_C = np.array([3.0, 1.0, 2.0])
    sets = [(label,) for label in LABELS] if multi else None
    weighed = fit_linear(rows(sets=sets), 3, weights_C)
    assert weighed is not None
    found = linear_logits(weighed, ASKED, None)
    for label in range(3) if multi else [0]:
        own = [int(one == label) for one in LABELS] if multi else LABELS
        each = [weights_C[label] if one else 1.0 for one in own] if multi else weights_C[LABELS]
        of_label = {"solver": "liblinear", "C": OF_LABELS, "tol": 10 * TOLERANCE, "random_state": 0}
        theirs = reference(own, **(of_label if multi else {"C": STRENGTH, "max_iter": 200, "tol": TOLERANCE}))
        theirs.fit(TEXTS, own, logisticregression__sample_weight=each)
        chance = theirs.predict_proba(ASKED)
        ours = found[:, label].sigmoid().numpy() if multi else found.softmax(-1).numpy()
        np.testing.assert_allclose(ours, chance[:, 1] if multi else chance, atol=5e-4)
