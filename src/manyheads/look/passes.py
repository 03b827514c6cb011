"""Rows of a split, batch by batch through a classifier that is looked at.

B documents . N tokens of a batch . C classes
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from manyheads.data.batches import Batch, Batches, plan_evaluation
from manyheads.data.rows import Rows
from manyheads.data.tokens import PROBE, Tokens, encode
from manyheads.look.heads import heads
from manyheads.ship.deliverable import ROWS, Deliverable

CELLS = 2**24
"""Most weights held at a time, over all heads: 64 MiB of fp32, and a few such blocks while they are worked on.
A single document may need more: the square of its length for each head."""


@dataclass(slots=True)
class Marks:
    """Ids that the tokenizer puts around texts: `[CLS]` and `[SEP]`, or what takes their place.

    `separators` are those that stand elsewhere than first.
    """

    every: list[int]
    separators: list[int]


def find_marks(deliverable: Deliverable) -> Marks:
    """What the tokenizer adds to a text, seen on one."""
    probe = deliverable.tokenizer.encode(PROBE, PROBE) if deliverable.pairs else deliverable.tokenizer.encode(PROBE)
    added = [at for at, special in enumerate(probe.special_tokens_mask) if special]
    return Marks(
        every=sorted({probe.ids[at] for at in added}), separators=sorted({probe.ids[at] for at in added if at > 0})
    )


def tokens_of(deliverable: Deliverable, rows: Rows) -> Tokens:
    """The rows as the model reads them: cut to its length, and with their labels.

    Raises:
        ValueError: pairs for a model of single texts, or the other way round.
    """
    deliverable.check(rows.texts, rows.pairs)
    return encode(deliverable.tokenizer, rows.texts, rows.pairs, rows.labels, deliverable.max_length)


def batches(deliverable: Deliverable, tokens: Tokens, *, budget: int, maps: bool = False) -> Iterator[Batch]:
    """Every row once, on the model's device; at most `budget` tokens a batch, fewer where `maps` are to be held."""
    if maps:
        longest = max(int(tokens.lengths.max()), 1) if len(tokens) else 1
        budget = min(budget, max(CELLS // (len(heads(deliverable.classifier)) * longest), 1))
    device = deliverable.classifier.head.weight.device
    for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=budget, rows=ROWS)):
        segments_N = None if batch.segments_N is None else batch.segments_N.to(device)
        yield batch._replace(ids_N=batch.ids_N.to(device), segments_N=segments_N, layout=batch.layout.to(device))


def answer(deliverable: Deliverable, batch: Batch, ids_N: Tensor | None = None) -> Tensor:
    """Logits `(B, C)` in fp32 on the CPU; `ids_N` takes the place of the batch's own ids."""
    ids_N = batch.ids_N if ids_N is None else ids_N
    autocast = deliverable.autocast
    with torch.autocast(ids_N.device.type, autocast, enabled=autocast is not None):
        return deliverable.classifier(ids_N, batch.layout, batch.segments_N).float().cpu()
