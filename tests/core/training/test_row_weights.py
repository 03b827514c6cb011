"""Weights of rows and shares of votes in what is learnt, against rows that are written several times."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from manyheads.data.batches import Planned, gather, n_bytes, tokens_on
from manyheads.data.rows import Rows
from manyheads.data.tokens import Tokens, multi_hot
from manyheads.linear.blend import TEMPERATURES, UNSURE, rows_of_shares, tune
from manyheads.linear.fit import fit_linear, logistic
from manyheads.linear.model import linear_logits
from manyheads.training.objectives import Classify, class_weights

LENGTHS = [3, 2, 4, 3, 5]
LABELS = [0, 1, 2, 1, 0]
WEIGHTS = [1.0, 2.0, 0.0, 3.0, 1.0]


def tokens(at, weights=None, multi=False):
    """Rows of which each has its own ids."""
    ids = [torch.arange(LENGTHS[row], dtype=torch.int32) + 7 * row for row in at]
    labels = torch.tensor([LABELS[row] for row in at], dtype=torch.int32)
    if multi:
        labels = multi_hot([((label,), (), (0, 2))[row % 3] for row, label in zip(at, labels.tolist(), strict=True)], 3)
    weights_n = None if weights is None else torch.tensor(weights).float() / np.mean(weights)
    offsets = torch.tensor([0, *np.cumsum([len(one) for one in ids])])
    return Tokens(torch.cat(ids), offsets, None, labels, weights_n=weights_n)


def gradient(rows, *, multi=False, balanced="none", probabilities=None):
    """Of the mean loss of all rows, by a table of one vector an id."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(40, 3)
    if probabilities is not None:
        rows = replace(rows, probabilities_nC=probabilities)
    weights_C = class_weights(balanced, rows.labels, ["a", "b", "c"], rows.weights_n)
    objective = Classify(weights_C, label_smoothing=0.1, multi=multi)
    batch = gather(rows, Planned(torch.arange(len(rows)), 1 / len(rows)))

    def classifier(ids_N, layout, segments_N):
        return torch.stack([table(part).mean(0) for part in ids_N.split(layout.lengths_B.tolist())])

    (objective.training_loss(classifier, batch).sum() * batch.scale).backward()
    return table.weight.grad


@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("balanced", ["none", "balanced"])
def test_a_weight_of_two_is_the_row_twice_and_one_of_zero_its_absence(multi, balanced):
    weighted = gradient(tokens(range(5), WEIGHTS, multi), multi=multi, balanced=balanced)
    written = gradient(tokens([0, 1, 1, 3, 3, 3, 4], multi=multi), multi=multi, balanced=balanced)
    torch.testing.assert_close(weighted, written, atol=1e-6, rtol=0)
    scaled = gradient(tokens(range(5), [1000 * one for one in WEIGHTS], multi), multi=multi, balanced=balanced)
    torch.testing.assert_close(scaled, weighted, atol=1e-6, rtol=0)
    assert not torch.allclose(weighted, gradient(tokens(range(5), multi=multi), multi=multi, balanced=balanced))


def test_shares_of_votes_are_rows_of_each_class():
    """A row of which three of four votes are for a class is that row three times, and once with the other."""
    shares = torch.tensor([[0.75, 0.25, 0.0], [0.0, 1.0, 0.0]])
    soft = gradient(tokens([0, 1]), probabilities=shares)
    hard = tokens([0, 0, 0, 0, 1, 1, 1, 1])
    hard.labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1], dtype=torch.int32)
    torch.testing.assert_close(soft, gradient(hard), atol=1e-6, rtol=0)


def test_validation_is_by_the_shares_of_votes():
    objective = Classify(torch.ones(3), label_smoothing=0.0)
    shares = torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.0, 0.5]])
    batch = gather(replace(tokens([0, 1]), probabilities_nC=shares), Planned(torch.arange(2), 1.0))
    logits = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0]])
    found = objective.validation_loss(lambda *given: logits, batch)
    x, p = logits.double().numpy(), shares.double().numpy()
    np.testing.assert_allclose(found, -(p * (x - np.log(np.exp(x).sum(1, keepdims=True)))).sum(1), atol=1e-6)


def test_weights_travel_with_their_rows():
    rows = tokens(range(5), WEIGHTS)
    batch = gather(rows, Planned(torch.tensor([3, 0]), 1.0)).to(torch.device("cpu"))
    torch.testing.assert_close(batch.weights_B, torch.tensor([3.0, 1.0]) / 1.4)
    assert n_bytes(rows) == n_bytes(tokens(range(5))) + 4 * 5
    moved = tokens_on(rows, torch.device("meta"))
    assert moved.weights_n is not None
    assert (moved.weights_n.device.type, moved.offsets.device.type, moved.segments_N) == ("meta", "cpu", None)


def many(n=60):
    """Texts of three kinds, whose classes disagree."""
    words, labels = ["good fine", "bad awful", "so so"], np.random.default_rng(0).integers(3, size=n)
    return [f"{words[at % 3]} film {at % 7}" for at in range(n)], labels.tolist()


@pytest.mark.parametrize("multi", [False, True])
def test_the_linear_model_is_that_of_rows_written_several_times(multi):
    """Against the same solver on written rows, to what it stops at; the rarity of terms is of different rows."""
    texts, labels = many()
    weights = np.array([1.0, 2.0, 0.0, 3.0, 2.0])[np.arange(60) % 5]
    sets = [((label,), (), (0, 2))[label] for label in labels] if multi else None
    rows = Rows(texts, None, labels, "x", range(60), sets=sets, weights=weights)
    kept = np.flatnonzero(weights)
    plain = replace(rows.pick(kept), weights=None)
    times = np.repeat(np.arange(len(kept)), weights[kept].astype(int))
    weighted, alike, written = (
        linear_logits(fit_linear(part, 3), texts, None) for part in (rows, plain, plain.pick(times))
    )
    assert (weighted - written).abs().mean() < 0.5 * (alike - written).abs().mean()
    scaled = linear_logits(fit_linear(replace(rows, weights=weights * 8), 3), texts, None)
    torch.testing.assert_close(scaled, weighted)


def voted(n=60):
    """Rows with votes for two of three classes, and their texts."""
    texts, labels = many(n)
    counts = np.random.default_rng(1).integers(0, 3, size=(n, 3)) + np.eye(3, dtype=int)[labels]
    shares = (counts / counts.sum(1, keepdims=True)).astype(np.float32)
    rows = Rows(texts, None, shares.argmax(1).tolist(), "x", range(n), probabilities=shares, voters=counts.sum(1))
    return rows, counts


def test_the_linear_model_learns_shares_of_votes():
    """As from a row for each vote, but for the scale of all weights together."""
    rows, counts = voted()
    spread, at = rows_of_shares(rows)
    at = at.numpy()
    assert np.array_equal(np.bincount(at, spread.weights, len(rows)).round(6), np.ones(len(rows)))
    assert all(counts[row, label] for row, label in zip(at, spread.labels, strict=True))
    cells = [(row, label) for row, label in zip(*counts.nonzero(), strict=True) for _ in range(counts[row, label])]
    at_vote, label_of_vote = map(np.array, zip(*cells, strict=True))
    votes = replace(rows.pick(at_vote), labels=label_of_vote, voters=None, probabilities=None)
    votes.weights = 1 / counts.sum(1)[at_vote]
    hard = replace(rows, voters=None, probabilities=None)
    by_shares, by_votes, by_most = (linear_logits(fit_linear(one, 3), rows.texts, None) for one in (rows, votes, hard))
    assert (by_shares - by_votes).abs().mean() < 0.5 * (by_most - by_votes).abs().mean()


def test_shares_of_votes_tune_the_answers():
    """The temperature with the least cross-entropy against the shares, on the same grid."""
    rows, counts = voted(200)
    linear = fit_linear(rows, 3)
    network_nC = 6 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) + 2 * torch.from_numpy(counts)
    tuned = tune(network_nC, linear, rows, 3)
    shares_nC = torch.from_numpy(counts / counts.sum(1, keepdims=True))

    def loss(temperature):
        scaled_nC = (network_nC.double() / temperature).log_softmax(-1)
        return float(-(shares_nC * scaled_nC).sum() - UNSURE * scaled_nC.mean())

    assert tuned.blend.temperature == pytest.approx(min(TEMPERATURES, key=loss), rel=0.2)


def test_a_class_that_weighs_nothing_is_not_learnt():
    texts, labels = many()
    rows = Rows(texts, None, labels, "x", range(60), weights=np.array(labels) * 1.0)
    assert linear_logits(fit_linear(rows, 3), texts, None).argmax(1).min() == 1
    assert fit_linear(replace(rows, weights=(np.array(labels) == 1) * 1.0), 3) is None


@pytest.mark.parametrize("multi", [False, True])
def test_a_head_is_fitted_to_weights(multi):
    generator = torch.Generator().manual_seed(0)
    x_nD, weights = torch.randn(12, 4, generator=generator), torch.tensor([1.0, 2.0, 3.0] * 4)
    labels = torch.arange(12) % 3
    if multi:
        labels = torch.nn.functional.one_hot(labels, 3)
    times = torch.arange(12).repeat_interleave(weights.long())
    # rows are centred by their plain mean, so these have a mean of zero and a length of one both ways
    x_nD = torch.nn.functional.normalize(torch.cat([x_nD, -x_nD]), dim=1)
    labels, weights = torch.cat([labels, labels]), torch.cat([weights, weights])
    times = torch.cat([times, times + 12])
    own, bias = logistic(x_nD, labels, 3, multi=multi, strength=10 / 2, weights_n=weights / weights.mean())
    written, other = logistic(x_nD[times], labels[times], 3, multi=multi, strength=10 / 4)
    torch.testing.assert_close(own, written, atol=1e-3, rtol=0)
    torch.testing.assert_close(bias, other, atol=1e-3, rtol=0)
