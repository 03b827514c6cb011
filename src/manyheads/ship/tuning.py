"""Thresholds of a classifier whose texts have any number of labels, tuned before it is shipped."""

import torch

from manyheads.data.batches import Batches, plan_evaluation
from manyheads.data.tokens import Tokens
from manyheads.nn import Classifier
from manyheads.ship.deliverable import ROWS, TOKENS
from manyheads.thresholds import best, count, no_counts

DIGITS = 6


@torch.inference_mode()
def tuned_on(classifier: Classifier, tokens: Tokens) -> list[float]:
    """From which probability on each label is given: what is best for F1 on the rows `tokens`, whose labels are marks
    `(n, C)`. In fp32 on the CPU, as the shipped classifier is judged."""
    counts = no_counts(tokens.labels.shape[1])
    for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=TOKENS, rows=ROWS)):
        count(counts, classifier(batch.ids_N, batch.layout, batch.segments_N).float(), batch.labels_B)
    return [round(one, DIGITS) for one in best(counts).thresholds_C.tolist()]
