"""A network over many rows: batches are planned, moved to the device, and results put in the order of the rows.

n rows . m rows of a part . B rows of a batch
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from manyheads.data.batches import ANSWER_ROWS, ANSWER_TOKENS, Batch, Batches, layout_of, plan_evaluation
from manyheads.data.tokens import Tokens
from manyheads.inference.precision import multiplying_in
from manyheads.nn import Classifier

Share = tuple[int, int]  # (1, 3) is the second of three: every third batch, beginning with the second
WHOLE: Share = (0, 1)
CPU = torch.device("cpu")
NONE = -1  # pads what is found for the rows of one batch to the widest of all


class RowValues(NamedTuple):
    """The numbers of some rows `(m,)`, and what was found for them `(m, ...)`, on the CPU."""

    rows_m: Tensor
    values: Tensor


def run_batches(
    answer: Callable[[Batch], Tensor],
    encoded: Tokens,
    *,
    device: torch.device = CPU,
    autocast: torch.dtype | None = None,
    tokens: int = ANSWER_TOKENS,
    rows: int = ANSWER_ROWS,
    part: Share = WHOLE,
    among: Tensor | None = None,
) -> RowValues:
    """What `answer` finds `(B, ...)` for the batches of `part`, in the order of the rows; batches are the same whatever
    the part.

    Args:
        autocast: the type that matrices are multiplied in; None is fp32.
        tokens, rows: most of a batch. Rows of similar length travel together.
        among: numbers of the rows that are answered; None: all.
    """
    if len(encoded) == 1 and encoded.targets is None:
        # nothing is planned or copied, which would take a tenth of the time of a short text
        segments_N = None if encoded.segments_N is None else encoded.segments_N.long()
        row_1 = torch.zeros(1, dtype=torch.int64)
        _, layout = layout_of(encoded, row_1)
        batches = [Batch(encoded.ids_N.long(), segments_N, layout, encoded.labels, row_1, 1.0)][part[0] :]
    else:
        plan = plan_evaluation(encoded.lengths if among is None else encoded.lengths[among], tokens=tokens, rows=rows)
        plan = plan if among is None else [one._replace(rows=among[one.rows]) for one in plan]
        batches = Batches(encoded, plan[part[0] :: part[1]])  # neighbours are of like length, so parts are of like size
    found: list[RowValues] = []
    with torch.inference_mode(), multiplying_in(autocast, device):
        for batch in batches:
            moved = batch if device.type == "cpu" else batch.to(device)
            found.append(RowValues(batch.rows_B, answer(moved).cpu()))
    if len(encoded) == 1 and found:
        return RowValues(found[0].rows_m, found[0].values.clone())  # a copy is no tensor of inference mode
    return joined(found)


def joined(parts: list[RowValues]) -> RowValues:
    """All rows of all parts, in order; where some found more for a row than others, these are padded by `NONE`."""
    if not parts:
        return RowValues(torch.empty(0, dtype=torch.int64), torch.empty(0))
    widths = [one.values.size(1) for one in parts if one.values.ndim > 1]
    values, rows_m = [one.values for one in parts], torch.cat([one.rows_m for one in parts])
    for at, width in enumerate(widths):
        missing = values[at].new_full((len(values[at]), max(widths) - width, *values[at].shape[2:]), NONE)
        values[at] = torch.cat([values[at], missing], dim=1)
    order_m = rows_m.argsort()
    return RowValues(rows_m[order_m], torch.cat(values)[order_m])


def network_logits(classifier: Classifier, encoded: Tokens, device: torch.device = CPU) -> Tensor:
    """Logits `(n, C)` of the rows, in fp32 on the CPU, of a classifier that lies in no folder yet and computes them on
    `device`."""

    def answer(batch: Batch) -> Tensor:
        return classifier(batch.ids_N, batch.layout, batch.segments_N).float()

    classifier.to(device)
    found = run_batches(answer, encoded, device=device)
    classifier.cpu()
    return found.values
