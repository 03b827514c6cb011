"""What is left to tune once a classifier is trained, on validation rows: the share of a linear model in its answers,
and from which probability on a label is given.

n rows . C classes
"""

from typing import NamedTuple

import torch
from torch import Tensor

from manyheads.data.batches import Batches, plan_evaluation
from manyheads.data.rows import Rows
from manyheads.data.tokens import Tokens
from manyheads.nn import Classifier
from manyheads.nn.linear import LinearModel
from manyheads.ship.deliverable import ROWS, TOKENS
from manyheads.ship.linear import Beside, best_together, linear_logits, together
from manyheads.thresholds import best, count, no_counts

DIGITS = 6


class Tuned(NamedTuple):
    """The linear model, if it is to answer at all, and thresholds, where a text has any number of labels."""

    beside: Beside | None
    thresholds: list[float] | None

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
) -> Tuned:
    """What is best on `rows`, whose tokens are `tokens`: the share by their likelihood, in which classes count by
    `weights_C`, then thresholds by F1. In fp32 on the CPU, as the shipped classifier is judged."""
    multi = tokens.labels.ndim == 2
    if linear is None and not multi:
        return Tuned(None, None)
    logits_nC, beside = network_logits(classifier, tokens), None
    if linear is not None:
        linear_nC = linear_logits(linear, rows.texts, rows.pairs)
        share, temperature, of_linear = best_together(logits_nC, linear_nC, tokens.labels, weights_C)
        if share:
            beside = Beside(linear.over(of_linear), share, temperature)
            logits_nC = together(logits_nC, linear_nC / of_linear, share, temperature, multi=multi)
    if not multi:
        return Tuned(beside, None)
    counts = no_counts(tokens.labels.shape[1])
    count(counts, logits_nC, tokens.labels)
    return Tuned(beside, [round(one, DIGITS) for one in best(counts).thresholds_C.tolist()])


@torch.inference_mode()
def network_logits(classifier: Classifier, tokens: Tokens) -> Tensor:
    """Logits `(n, C)` of the rows of `tokens`."""
    logits_nC = torch.empty(len(tokens), classifier.head.out_features)
    for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=TOKENS, rows=ROWS)):
        logits_nC[batch.rows_B] = classifier(batch.ids_N, batch.layout, batch.segments_N).float()
    return logits_nC
