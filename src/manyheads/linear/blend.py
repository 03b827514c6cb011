"""The linear model with the network: how much of each answer is its own, chosen on validation rows; and what is tuned
there altogether.

n rows . C classes or labels
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.data.rows import Rows
from manyheads.data.tokens import multi_hot
from manyheads.linear.model import LinearBaseline, LinearModel, linear_logits
from manyheads.linear.thresholds import thresholds_of

TEMPERATURES = [2 ** (at / 4) for at in range(-8, 17)]
LEAST_VOTES = 0.05  # share of the votes of a row, below which a class is not looked at
UNSURE = 0.5
"""Of one more row, spread over the texts of all, that may have any class, or each label or not: without it a
temperature would make certainties of few rows that are all right. Platt (1999), "Probabilistic Outputs for Support
Vector Machines", section 2.1, has such targets."""
LEAST = 1e-30  # of a probability
SHARES = [at / 20 for at in range(21)]  # that are tried
PRIOR_ROWS = 8.0  # that draw the share towards a prior one
# Prior shares of the linear model: with a network from scratch, to which few rows teach less; with trained weights; and
# with these where rows are few, as they have few of the words of new texts.
LINEAR_FIRST, NETWORK_FIRST, NETWORK_ALONE = 0.8, 0.25, 0.0
LEAST_SHARE = SHARES[1]  # the prior counts none as this: between the two, the rows alone decide


class Blend(NamedTuple):
    """A linear model that answers with a network: its probabilities count for `share` of the whole, those of the
    network's logits over `temperature` for the rest (Guo et al., 2017, "On Calibration of Modern Neural Networks").
    With a share of 0 the network answers alone, and the linear model is its baseline."""

    linear: LinearModel
    share: float
    temperature: float = 1.0

    def of(self, network_nC: Tensor, linear_nC: Tensor, *, multi: bool) -> Tensor:
        """Logits `(n, C)` of both together; of labels, of which a row has any number, where it is `multi`."""
        if not self.share:
            return network_nC
        return blended(network_nC, linear_nC, self.share, self.temperature, multi=multi)


class Tuned(NamedTuple):
    """What to ship: the linear model with the network, if it may answer; thresholds, where a text has any number of
    labels, and those of each member asked by itself; the linear model alone, as the baseline of the run; and the
    temperature by which the network's head is to be divided, where it answers alone."""

    blend: Blend | None = None
    thresholds: list[float] | None = None
    member_thresholds: dict[str, list[float]] = {}  # noqa: RUF012 - read alone
    baseline: LinearBaseline | None = None
    temperature: float = 1.0

    @property
    def share(self) -> float:
        """Of the linear model in each answer."""
        return self.blend.share if self.blend else 0.0


def tune(
    network_nC: Tensor | None,
    linear: LinearModel | None,
    rows: Rows,
    n_classes: int,
    weights_C: Tensor | None = None,
    *,
    answers: bool = True,
    prior_share: float = NETWORK_FIRST,
    has_head: bool = True,
) -> Tuned:
    """What is best on `rows`: the share by their likelihood, in which classes count by `weights_C`, then thresholds by
    F1.

    Args:
        network_nC: the network's logits of the rows, in fp32; needed where it has thresholds or shares its answers.
        linear: None: training fitted none.
        answers: the linear model may answer with the network; otherwise it is a baseline.
        prior_share: see `best_share`.
        has_head: the network has a head that can be divided by a temperature.
    """
    own_n: Tensor | float = 1.0
    if rows.voters is not None:
        rows, at_n = rows_of_shares(replace(rows, weights=None))
        network_nC = None if network_nC is None else network_nC[at_n]
        own_n = torch.from_numpy(rows.weights)
    labels, multi = label_tensor(rows, n_classes), rows.sets is not None
    if linear is None:
        if multi and network_nC is not None:
            return Tuned(thresholds=thresholds_of(network_nC, labels))
        return Tuned()
    linear_nC = linear_logits(linear, rows.texts, rows.pairs)
    share, temperature = 0.0, 1.0
    if answers and network_nC is not None:
        share, temperature, linear_temperature = best_share(
            network_nC, linear_nC, labels, weights_C, prior_share, own_n
        )
    else:
        linear_temperature = best_temperature(linear_nC, labels, row_weights(labels, weights_C) * own_n)
    linear, linear_nC = linear.over(linear_temperature), linear_nC / linear_temperature
    blend, of_head = Blend(linear, share, temperature), 1.0
    if not share:  # the network answers alone, and its own head may have the temperature
        blend = Blend(linear, share)
        if has_head and network_nC is not None:
            of_head, network_nC = temperature, network_nC / temperature
    if not multi or network_nC is None:
        return Tuned(blend if answers else None, baseline=LinearBaseline(linear), temperature=of_head)
    linear_thresholds = thresholds_of(linear_nC, labels)
    baseline = LinearBaseline(linear, linear_thresholds)
    thresholds = thresholds_of(blend.of(network_nC, linear_nC, multi=True), labels)
    if not answers:
        return Tuned(None, thresholds, baseline=baseline)
    members = {"network": thresholds_of(network_nC, labels), "linear": linear_thresholds}
    return Tuned(blend, thresholds, members, baseline, of_head)


@torch.no_grad()
def divide_head(head: nn.Linear, temperature: float, ids: slice = slice(None)) -> None:
    """Divide the logits `ids` of a head by `temperature`."""
    head.weight[ids] /= temperature
    head.bias[ids] /= temperature


def rows_of_shares(rows: Rows) -> tuple[Rows, Tensor]:
    """Of each row with votes a row for each class that has `LEAST_VOTES` of them, or the most, weighted by its share;
    and which row it was."""
    shares_nC = torch.from_numpy(rows.probabilities).double()
    is_voted_nC = (shares_nC >= LEAST_VOTES) | (shares_nC == shares_nC.amax(1, keepdim=True))
    at_n, labels_n = is_voted_nC.nonzero(as_tuple=True)
    spread = replace(rows.pick(at_n.numpy()), labels=labels_n.int().numpy(), voters=None, probabilities=None)
    share_n = shares_nC[at_n, labels_n].numpy()
    spread.weights = share_n if spread.weights is None else share_n * spread.weights
    return spread, at_n


def usual_share(*, trained: bool, few: bool) -> float:
    """The prior share of the linear model, by whether the network begins with trained weights and rows are few."""
    if not trained:
        return LINEAR_FIRST
    return NETWORK_ALONE if few else NETWORK_FIRST


def label_tensor(rows: Rows, n_classes: int) -> Tensor:
    """Class ids `(n,)` or, where a row has any number of labels, a 1 for each it has `(n, C)`."""
    return torch.tensor(rows.labels) if rows.sets is None else multi_hot(rows.sets, n_classes)


def blended(network_nC: Tensor, linear_nC: Tensor, share: float, temperature: float, *, multi: bool) -> Tensor:
    """Logits `(n, C)` whose probabilities are those of both, the linear model's counting for `share` of the whole and
    the network's logits divided by `temperature`."""
    log_network, log_linear = torch.tensor([1 - share, share], dtype=torch.float64).log()
    dtype = network_nC.dtype
    network_nC, linear_nC = network_nC.double() / temperature, linear_nC.double()
    if not multi:
        both_nC = torch.logaddexp(network_nC.log_softmax(-1) + log_network, linear_nC.log_softmax(-1) + log_linear)
    else:
        has_nC = torch.logaddexp(F.logsigmoid(network_nC) + log_network, F.logsigmoid(linear_nC) + log_linear)
        lacks_nC = torch.logaddexp(F.logsigmoid(-network_nC) + log_network, F.logsigmoid(-linear_nC) + log_linear)
        both_nC = has_nC - lacks_nC
    return both_nC.to(dtype)


def best_share(
    network_nC: Tensor,
    linear_nC: Tensor,
    labels: Tensor,
    weights_C: Tensor | None = None,
    prior_share: float = NETWORK_FIRST,
    own_n: Tensor | float = 1.0,
) -> tuple[float, float, float]:
    """Share, temperature of the network and temperature of the linear model by rows of known `labels`, class ids `(n,)`
    or marks `(n, C)`: those with which each alone, then both together, answer these rows likeliest.

    Smoothed labels make a network too modest, few rows a linear model. The network was chosen on the same rows, where
    it looks better than it is if they are few; so the share is drawn towards `prior_share`, as if of `PRIOR_ROWS`
    further rows that part were answered by the linear model alone and the others by the network alone. Of equal shares
    the smallest is taken.

    Args:
        weights_C: how much a row of each class counts, or what a row has of each label; None: all alike.
        prior_share: the linear model's where there are no rows.
        own_n: how much each row counts by itself.
    """
    weights = row_weights(labels, weights_C) * own_n
    network_temperature = best_temperature(network_nC, labels, weights)
    linear_temperature = best_temperature(linear_nC, labels, weights)
    network = likelihoods(network_nC / network_temperature, labels)
    linear = likelihoods(linear_nC / linear_temperature, labels)

    def loss(share: float) -> float:
        of_rows = -float(log_likelihoods((1 - share) * network + share * linear, weights).sum())
        of_linear, of_network = (math.log(max(part, LEAST_SHARE)) for part in (share, 1 - share))
        return of_rows - PRIOR_ROWS * (prior_share * of_linear + (1 - prior_share) * of_network)

    return min(SHARES, key=loss), network_temperature, linear_temperature


def row_weights(labels: Tensor, weights_C: Tensor | None) -> Tensor:
    """How much each of `likelihoods` counts, of class ids `(n,)` or marks `(n, C)`."""
    if weights_C is None:
        return torch.ones(())
    return weights_C[labels] if labels.ndim == 1 else torch.where(labels > 0, weights_C, 1.0)


def weighted(probabilities_BC: Tensor, weights_C: Tensor, *, multi: bool) -> tuple[Tensor, Tensor]:
    """Probabilities to learn `(B, C)`, and factors of their losses `(B,)`, or `(B, C)` of labels: so that the mean loss
    is that of rows whose labels are drawn with the given probabilities, each with the weight of its label."""
    wanted_BC = probabilities_BC * weights_C
    if multi:
        factors_BC = wanted_BC + (1 - probabilities_BC)
        return wanted_BC / factors_BC, factors_BC
    factors_B = wanted_BC.sum(1)
    return wanted_BC / factors_B[:, None], factors_B


def best_temperature(logits_nC: Tensor, labels: Tensor, weights: Tensor) -> float:
    """The temperature with which the labels are likeliest; `UNSURE` keeps it up where all of them are right."""

    def log_likelihood(temperature: float) -> float:
        scaled_nC = logits_nC.double() / temperature
        if labels.ndim == 1:
            of_unsure = scaled_nC.log_softmax(-1).mean(0).mean()
        else:
            of_unsure = -((F.softplus(scaled_nC) + F.softplus(-scaled_nC)) / 2).mean(0).sum()
        return float(log_likelihoods(likelihoods(scaled_nC, labels), weights).sum() + UNSURE * of_unsure)

    return max(TEMPERATURES, key=log_likelihood)


def log_likelihoods(likelihoods: Tensor, weights: Tensor) -> Tensor:
    """Their logarithms, by how much each counts."""
    return likelihoods.clamp(min=LEAST).log() * weights


def likelihoods(logits_nC: Tensor, labels: Tensor) -> Tensor:
    """The probabilities of what rows are labelled: of their classes `(n,)`, or of having or not having each label
    `(n, C)`."""
    if labels.ndim == 1:
        return logits_nC.double().softmax(-1).gather(1, labels[:, None]).squeeze(1)
    return (logits_nC.double() * (2 * labels.double() - 1)).sigmoid()
