"""What is left to tune once a classifier is trained, on validation rows: the share of a linear model in its answers,
and from which probability on a label is given.

n rows . C classes
"""

from typing import NamedTuple

import torch
from torch import Tensor

from manyheads.data.batches import ANSWER_ROWS, ANSWER_TOKENS, Batches, plan_evaluation
from manyheads.data.rows import Rows
from manyheads.data.tokens import Tokens
from manyheads.nn import Classifier
from manyheads.nn.linear import LinearModel, counting, likeliest
from manyheads.ship.linear import (
    Beside,
    LinearBaseline,
    best_together,
    linear_logits,
    together,
)
from manyheads.thresholds import best, count, no_counts

DIGITS = 6


class Tuned(NamedTuple):
    """What to ship: the linear model beside the network, if it may answer; thresholds, where a text has any number of
    labels, and those of each member asked by itself; and the linear model alone, as the baseline of the run."""

    beside: Beside | None = None
    thresholds: list[float] | None = None
    alone: dict[str, list[float]] = {}  # noqa: RUF012 - read alone
    baseline: LinearBaseline | None = None

    @property
    def share(self) -> float:
        """Of the linear model in each answer."""
        return self.beside.share if self.beside else 0.0


def tuned_on(
    classifier: Classifier,
    linear: LinearModel | None,
    tokens: Tokens,
    rows: Rows,
    weights_C: Tensor | None = None,
    *,
    answers: bool = True,
) -> Tuned:
    """What is best on `rows`, whose tokens are `tokens`: the share by their likelihood, in which classes count by
    `weights_C`, then thresholds by F1. In fp32 on the CPU, as the shipped classifier is judged.

    Args:
        answers: the linear model may answer beside the network; otherwise it is a baseline.
    """
    labels, multi = tokens.labels, tokens.labels.ndim == 2
    if linear is None:
        return Tuned(thresholds=thresholds_of(network_logits(classifier, tokens), labels)) if multi else Tuned()
    linear_nC = linear_logits(linear, rows.texts, rows.pairs)
    network_nC = network_logits(classifier, tokens) if answers or multi else torch.empty(0)
    share, temperature, of_linear = (
        best_together(network_nC, linear_nC, labels, weights_C)
        if answers
        else (0.0, 1.0, likeliest(linear_nC, labels, counting(labels, weights_C)))
    )
    linear, linear_nC = linear.over(of_linear), linear_nC / of_linear
    both_nC = together(network_nC, linear_nC, share, temperature, multi=multi) if share else network_nC
    beside = Beside(linear, share, temperature if share else 1.0) if answers else None
    if not multi:
        return Tuned(beside, baseline=LinearBaseline(linear))
    of_both, of_network, of_linear = (thresholds_of(one, labels) for one in (both_nC, network_nC, linear_nC))
    alone = {"network": of_network, "linear": of_linear} if answers else {}
    return Tuned(beside, of_both, alone, LinearBaseline(linear, of_linear))


def thresholds_of(logits_nC: Tensor, marks_nC: Tensor) -> list[float]:
    """From which probability on each label is best given."""
    counts = no_counts(marks_nC.shape[1])
    count(counts, logits_nC, marks_nC)
    return [round(one, DIGITS) for one in best(counts).thresholds_C.tolist()]


@torch.inference_mode()
def network_logits(classifier: Classifier, tokens: Tokens) -> Tensor:
    """Logits `(n, C)` of the rows of `tokens`."""
    logits_nC = torch.empty(len(tokens), classifier.head.out_features)
    for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=ANSWER_TOKENS, rows=ANSWER_ROWS)):
        logits_nC[batch.rows_B] = classifier(batch.ids_N, batch.layout, batch.segments_N).float()
    return logits_nC
