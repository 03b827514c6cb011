"""Rows of a split, batch by batch through a classifier that is looked at.

B documents . N tokens of a batch . T texts that are read: the documents, or both texts of pairs that are read apart
P heads of all layers . L query positions . M key positions . C classes
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from manyheads.data.batches import ANSWER_ROWS, Batch, Batches, plan_evaluation
from manyheads.data.rows import Rows
from manyheads.data.tokens import PROBE, Tokens, encode
from manyheads.layout import Packed
from manyheads.look.heads import heads
from manyheads.look.maps import overheard
from manyheads.nn import Classifier
from manyheads.nn.pair import part_pairs
from manyheads.ship.deliverable import Deliverable

CELLS = 2**24
"""Most weights held at a time, over all heads: 64 MiB of fp32, and a few such blocks while they are worked on.
A single document may need more: the square of its length for each head."""


@dataclass(slots=True)
class Maps:
    """Where all heads look in a batch, and what the classifier answers, `logits_BC`.

    `shares_PTLM` are weights divided by their sum over keys, which is 1 but for the sigmoid; rows of padding, and of
    queries that attend to nothing, are zero. `place_N` says which token of the batch each token of `layout` is. A head
    that is `across` looks at the text that is half of T away.
    """

    logits_BC: Tensor
    shares_PTLM: Tensor
    across: list[bool]
    layout: Packed
    place_N: Tensor

    def of_keys(self, own_TM: Tensor) -> Tensor:
        """What is said of each text's tokens, as each head finds it among its keys: `(P, T, M)`."""
        other_TM = own_TM.roll(len(own_TM) // 2, 0)
        return torch.stack([other_TM if across else own_TM for across in self.across])


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
    return encode(
        deliverable.tokenizer, rows.texts, rows.pairs, rows.labels, deliverable.max_length, deliverable.cutting
    )


def batches(deliverable: Deliverable, tokens: Tokens, *, budget: int, maps: bool = False) -> Iterator[Batch]:
    """Every row once, on the model's device; at most `budget` tokens a batch, fewer where `maps` are to be held."""
    if maps:
        longest = max(int(tokens.documents.max()), 1) if len(tokens) else 1
        budget = min(budget, max(CELLS // (len(heads(deliverable.classifier)) * longest), 1))
    device = deliverable.classifier.head.weight.device
    for batch in Batches(tokens, plan_evaluation(tokens.lengths, tokens=budget, rows=ANSWER_ROWS)):
        segments_N = None if batch.segments_N is None else batch.segments_N.to(device)
        yield batch._replace(ids_N=batch.ids_N.to(device), segments_N=segments_N, layout=batch.layout.to(device))


def look_at_batch(deliverable: Deliverable, batch: Batch) -> Maps:
    """Answer, and compute the exact weights of every head from what it was given, in fp32."""
    with torch.no_grad():
        with overheard(deliverable.classifier) as calls:
            logits_BC = answer(deliverable, batch)
        layout = cast(Packed, calls[0].layout)
        weights = [call.attention.maps(call.x, call.layout, call.memory, call.memory_layout)[0] for call in calls]
        return Maps(
            logits_BC=logits_BC,
            shares_PTLM=distributions(torch.cat(weights, 1)),
            across=[call.memory is not None for call in calls for _ in range(call.attention.n_heads)],
            layout=layout,
            place_N=places(deliverable.classifier, batch.layout, batch.segments_N),
        )


def distributions(weights_TPLM: Tensor) -> Tensor:
    """Weights as distributions over keys, `(P, T, L, M)`."""
    weights_PTLM = weights_TPLM.transpose(0, 1)
    return weights_PTLM / weights_PTLM.sum(-1, keepdim=True).clamp(min=torch.finfo(weights_PTLM.dtype).tiny)


def places(classifier: Classifier, layout: Packed, segments_N: Tensor | None) -> Tensor:
    """Which token of a batch each one is that the encoder reads: of pairs read apart, it reads the first one twice."""
    every_N = torch.arange(int(layout.offsets[-1]), device=layout.offsets.device)
    if classifier.cross is None or segments_N is None:
        return every_N
    return part_pairs(every_N, layout, segments_N)[0]


def answer(deliverable: Deliverable, batch: Batch, ids_N: Tensor | None = None) -> Tensor:
    """Logits `(B, C)` in fp32 on the CPU; `ids_N` takes the place of the batch's own ids."""
    ids_N = batch.ids_N if ids_N is None else ids_N
    autocast = deliverable.autocast
    with torch.autocast(ids_N.device.type, autocast, enabled=autocast is not None):
        return deliverable.classifier(ids_N, batch.layout, batch.segments_N).float().cpu()
