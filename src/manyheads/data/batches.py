"""Tokens to batches of whole rows under a token budget. Torch and tokenizers only.

The order is a pure function of its arguments, so there is no state to save or lose: every rank computes the plan of
all ranks and keeps its own part. What is learned in a step, and in which order, does not depend on the number of ranks.
Long texts can be cut into pieces that are each read whole. Tokens may live on a GPU: batches are gathered there, and
the host sends it row numbers alone.

B rows of a batch . N tokens, end to end . P pieces
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from ctypes import c_int64
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import Balance
from manyheads.data.tokens import Tokens, drop_pages
from manyheads.layout import Packed

WINDOW_IN_BATCHES = 64  # rows of about as many batches are sorted by length: more pads less and shuffles less
ANSWER_ROWS = 4096  # most rows of a batch of a finished model; tokens bound it first
ANSWER_TOKENS = 2048
"""Most tokens of a batch by default: on a CPU what a layer makes of them should stay in the cache. Texts of 43 tokens
at 4 x 256 on two cores, a second: 506 in batches of 512 tokens, 566 of 1024, 591 of 2048, 523 of 4096, 413 of 8192."""
BATCHES_HELD = 256  # after which the pages that were read of a file of tokens are let go
MOVED = ("ids_N", "segments_N", "labels", "probabilities_nC", "any_of_n", "weights_n")  # tensors of tokens, to a GPU
FEWEST = 512  # tokens that a batch is filled up to at least, where `few_counts` is set


class Planned(NamedTuple):
    """A batch that is not gathered yet: its row indices (int64), and its `scale`, see `Batch`."""

    rows: Tensor
    scale: float


class Batch(NamedTuple):
    """Whole rows, end to end. A batch may have no rows.

    Attributes:
        ids_N: token ids, int64.
        segments_N: 0 on tokens of the first text of a pair, 1 on those of the second; None: single texts.
        layout: where the documents begin and end.
        labels_B: class ids, int64; for rows with any number of labels marks `(B, C)`.
        rows_B: row indices in the split.
        scale: the loss of the batch is the sum of its rows' losses times this. Averaged over ranks and accumulated
            batches that is the mean over all rows of the optimiser step, of which one may count more than another
            (`counts` of `plan_epoch`).
        targets: the texts that rows are answered by, if there are any.
        probabilities_BC: of each class, from which rows are learnt in place of `labels_B`.
        any_of_B: whether a row has one of the classes that have a probability, and these say no more.
        weights_B: factors of the rows' losses in training; None: all are 1.
    """

    ids_N: Tensor
    segments_N: Tensor | None
    layout: Packed
    labels_B: Tensor
    rows_B: Tensor
    scale: float
    targets: "Batch | None" = None
    probabilities_BC: Tensor | None = None
    any_of_B: Tensor | None = None
    weights_B: Tensor | None = None

    @property
    def parts(self) -> "list[Batch]":
        """The texts, and the texts they are answered by."""
        return [self] if self.targets is None else [self, self.targets]

    def to(self, device: torch.device) -> "Batch":
        """The same rows on another device, copied while the host continues."""
        moved = {name: send(value, device) for name, value in self._asdict().items() if isinstance(value, Tensor)}
        targets = None if self.targets is None else self.targets.to(device)
        return self._replace(layout=self.layout.to(device, non_blocking=True), targets=targets, **moved)


def plan_epoch(
    lengths: Tensor,
    *,
    tokens: int,
    rows: int,
    seed: int,
    epoch: int,
    accumulate: int = 1,
    n_ranks: int = 1,
    rank: int = 0,
    split: int = 1,
    counts: Tensor | None = None,
    labels: Tensor | None = None,
    balance: Balance = Balance.none,
) -> list[Planned]:
    """The batches of one rank in one epoch of training: `micro_batches(accumulate, n_ranks, split)` of them a step.

    The rows of a step are those of `plan_steps`, whatever the number of ranks; each is in one batch of one rank.

    Args:
        split: parts that a batch is cut into, where it is too large for the memory of a device.
        counts: how much each row counts in the mean of its step, an integer; without, all count alike. The rows of one
            batch share what they count together.
        labels, balance: of `plan_steps`.
    """
    steps = plan_steps(
        lengths,
        tokens=tokens,
        rows=rows,
        seed=seed,
        epoch=epoch,
        accumulate=accumulate,
        labels=labels,
        balance=balance,
    )
    if counts is None:
        counts = torch.ones_like(lengths)
    plan: list[Planned] = []
    for step in steps:
        plan += _deal(step, lengths, counts, rows, accumulate, n_ranks, split)[rank]
    return plan


def plan_steps(
    lengths: Tensor,
    *,
    tokens: int,
    rows: int,
    seed: int,
    epoch: int,
    accumulate: int = 1,
    labels: Tensor | None = None,
    balance: Balance = Balance.none,
) -> list[list[Tensor]]:
    """The optimiser steps of an epoch: the rows of each, in at most `accumulate` batches of at most `tokens` tokens and
    `rows` rows.

    Every row is in exactly one step; with a `balance` of `labels` as many rows are drawn, see `balanced`. Rows of like
    length travel together: windows of a seeded shuffle are sorted. A row longer than the budget travels alone.
    """
    # 32 bits count: seeds at most 4294 apart share no order in their first 45,589 epochs (test_same_numbers.py)
    generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
    drawn = torch.randperm(lengths.numel(), generator=generator)
    if labels is not None and balance is not Balance.none:
        drawn = balanced(drawn, labels, balance, generator)
    order = _sorted_windows(lengths, drawn, tokens, rows)
    batches = _cut(order, lengths, tokens, rows)
    shuffled = [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]
    return [shuffled[at : at + accumulate] for at in range(0, len(shuffled), accumulate)]


def plan_evaluation(lengths: Tensor, *, tokens: int, rows: int, n_ranks: int = 1, rank: int = 0) -> list[Planned]:
    """The batches of one rank that together read each row exactly once, longest rows first."""
    order = torch.sort(lengths, descending=True, stable=True).indices
    batches = _cut(order, lengths, tokens, rows)
    counts = torch.ones_like(lengths)
    plan: list[Planned] = []
    for at in range(0, len(batches), n_ranks):  # a batch for each rank
        plan += _deal(batches[at : at + n_ranks], lengths, counts, rows, n_ranks, n_ranks)[rank]
    return plan


def micro_batches(accumulate: int, n_ranks: int, split: int = 1) -> int:
    """Batches that each rank reads in one optimiser step, so that all of them together read `accumulate` or more."""
    return -(-accumulate // n_ranks) * split


def padding_share(plan: Sequence[Planned], tokens: Tokens) -> float:
    """The share of cells that would be padding if the texts of each batch, or their windows, were a rectangle as wide
    as the longest; and so the targets, where there are any."""
    n_tokens = n_cells = 0
    for planned in plan:
        if not planned.rows.numel():
            continue
        for part in (tokens, tokens.targets):
            if part is not None:
                _, layout = layout_of(part, planned.rows)
                n_tokens += layout.n_tokens
                n_cells += layout.n_documents * layout.longest
    if not n_cells:
        return 0.0
    return 1 - n_tokens / n_cells


class Batches:
    """The batches of a plan, built one by one as they are asked for; the first `done` of them are left out, though
    counted."""

    def __init__(self, tokens: Tokens, plan: Sequence[Planned], done: int = 0, *, few_counts: bool = False) -> None:
        self.tokens = tokens
        self.plan = plan
        self.done = done
        self.few_counts = few_counts

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        for at, planned in enumerate(self.plan[self.done :], 1):
            yield gather(self.tokens, planned, few_counts=self.few_counts)
            if at % BATCHES_HELD == 0:
                drop_pages(self.tokens)


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`, copied while the host continues: to a GPU by way of pinned memory."""
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def gather(tokens: Tokens, planned: Planned, *, few_counts: bool = False) -> Batch:
    """Copy the planned rows out of the flat tensors, on the device where these are; their offsets are on the host.

    Args:
        few_counts: a tail of zeros makes the tokens a power of two, since a CUDA graph is made for each count.
    """
    device = tokens.ids_N.device
    starts_B, layout = layout_of(tokens, planned.rows)
    if few_counts:
        power_of_two = 1 << (layout.n_tokens - 1).bit_length()
        layout = layout.rounded(max(FEWEST, power_of_two))
    # Token i of the batch is token i + shift of the split, with one shift for all tokens of a document.
    shift_B = send(starts_B - layout.offsets[:-1], device)
    n_tokens = layout.n_tokens
    layout = layout.to(device, non_blocking=True)
    shift_N = shift_B.repeat_interleave(layout.lengths_B, output_size=n_tokens)
    where_N = torch.arange(n_tokens, device=device) + shift_N

    segments_N = tokens.segments_N
    if segments_N is not None:
        segments_N = F.pad(segments_N[where_N].long(), (0, layout.tail))
    rows_B = send(planned.rows, device)
    labels_B = tokens.labels[rows_B]
    if labels_B.ndim == 1:  # class ids; marks keep their type
        labels_B = labels_B.long()
    return Batch(
        ids_N=F.pad(tokens.ids_N[where_N].long(), (0, layout.tail)),
        segments_N=segments_N,
        layout=layout,
        labels_B=labels_B,
        rows_B=rows_B,
        scale=planned.scale,
        targets=None if tokens.targets is None else gather(tokens.targets, planned, few_counts=few_counts),
        probabilities_BC=None if tokens.probabilities_nC is None else tokens.probabilities_nC[rows_B],
        any_of_B=None if tokens.any_of_n is None else tokens.any_of_n[rows_B],
        weights_B=None if tokens.weights_n is None else tokens.weights_n[rows_B],
    )


def layout_of(tokens: Tokens, rows: Tensor) -> tuple[Tensor, Packed]:
    """Where the documents of `rows` begin in the flat tensors `(B,)`, and their layout in a batch: on the host.

    A document is a row, or one window of a long row.
    """
    bounds, counts_R = tokens.offsets, None
    if tokens.windows is not None:
        bounds, firsts = tokens.windows  # window w is `bounds[w]:bounds[w + 1]`; those of row r begin with `firsts[r]`
        counts_R = firsts[rows + 1] - firsts[rows]
        before_R = counts_R.cumsum(0) - counts_R  # windows of the rows before it in this batch
        rows = (firsts[rows] - before_R).repeat_interleave(counts_R) + torch.arange(int(counts_R.sum()))
    starts_B = bounds[rows]
    lengths_B = bounds[rows + 1] - starts_B
    longest = int(lengths_B.max()) if lengths_B.numel() else 0
    return starts_B, Packed(F.pad(lengths_B.cumsum(0), (1, 0)), longest, counts_R=counts_R)


def balanced(shuffled: Tensor, labels: Tensor, balance: Balance, generator: torch.Generator) -> Tensor:
    """As many rows as are `shuffled`, by the odds that `balance` gives their classes: of each row, and of each class,
    as many as are its due, rounded up or down. The rows of a class stand together and are taken at even distances
    (systematic sampling: Cochran, 1977, "Sampling Techniques", chapter 8).

    Args:
        labels: class ids of all rows `(n,)`.
    """
    by_class = shuffled[labels[shuffled].sort(stable=True).indices]
    ends = labels.bincount().double().pow(-balance.value)[labels[by_class].long()].cumsum(0)
    first = torch.rand(1, generator=generator, dtype=torch.float64)
    at = (torch.arange(len(ends)) + first) * (ends[-1] / len(ends))
    drawn = by_class[torch.searchsorted(ends, at, right=True).clamp(max=len(ends) - 1)]
    return drawn[torch.randperm(len(drawn), generator=generator)]


def _sorted_windows(lengths: Tensor, shuffled: Tensor, tokens: int, rows: int) -> Tensor:
    """Sort each window by length, up and down in turn, so that lengths do not jump where two windows meet."""
    mean = max(float(lengths.sum()) / max(lengths.numel(), 1), 1.0)
    size = max(int(min(rows, tokens / mean) * WINDOW_IN_BATCHES), 1)
    windows = []
    for number, window in enumerate(shuffled.split(size)):
        by_length = torch.sort(lengths[window], descending=number % 2 == 1, stable=True).indices
        windows.append(window[by_length])
    if not windows:
        return shuffled
    return torch.cat(windows)


def _cut(order: Tensor, lengths: Tensor, tokens: int, rows: int) -> list[Tensor]:
    """Consecutive rows while they fit; the last two batches are evened out, so that none is a stray row."""
    n_rows = order.numel()
    summed = F.pad(lengths[order].cumsum(0), (1, 0))
    ends = (c_int64 * summed.numel()).from_address(summed.data_ptr())  # whole numbers at once, and without numpy
    bounds = [0]
    while bounds[-1] < n_rows:
        start = bounds[-1]
        last = min(start + rows, n_rows)
        fits = bisect_right(ends, ends[start] + tokens, start, last + 1) - 1
        bounds.append(max(start + 1, fits))
    if len(bounds) > 2:
        middle = (bounds[-3] + n_rows + 1) // 2
        if ends[n_rows] - ends[middle] <= tokens and middle < bounds[-2]:
            bounds[-2] = middle
    return list(order.split([end - start for start, end in pairwise(bounds)]))


def _deal(
    step: list[Tensor], lengths: Tensor, counts: Tensor, rows: int, accumulate: int, n_ranks: int, split: int = 1
) -> list[list[Planned]]:
    """The batches of each rank in one step, all ranks equally many and about equally long; some may have no rows.

    Fewer batches than there are places for are dealt anew, row by row. A mean over places is the mean over rows, a
    batch counting as much as its rows' `counts` together.
    """
    each = micro_batches(accumulate, n_ranks)
    if len(step) < n_ranks * each:
        step = _even_out(torch.cat(step), lengths, n_ranks * each, rows)
    if split > 1:
        parts: list[Tensor] = []
        for batch in step:
            parts += _even_out(batch, lengths, split, rows)
        step = parts
    # A step's loss is the mean of its batches' losses. Times this scale it is the mean over rows, weighted by counts.
    count = [int(counts[batch].sum()) for batch in step]
    planned: list[Planned] = []
    for batch, own in zip(step, count, strict=True):
        planned.append(Planned(batch, len(step) * own / max(1, sum(count) * batch.numel())))
    n_tokens = [int(lengths[batch].sum()) for batch in step]
    of_ranks = _spread(n_tokens, n_ranks, each * split)
    return [[planned[at] for at in sorted(places)] for places in of_ranks]


def _even_out(rows: Tensor, lengths: Tensor, n_parts: int, most: int) -> list[Tensor]:
    """`rows` in parts of about equally many tokens and at most `most` rows each, in the order they were in."""
    return [rows[sorted(part)] for part in _spread(lengths[rows].tolist(), n_parts, most)]


def _spread(sizes: list[int], n_parts: int, most: int) -> list[list[int]]:
    """Which sizes go where: the largest first, each to the part with the smallest sum that has room."""
    parts: list[list[int]] = [[] for _ in range(n_parts)]
    with_room = [(0, 0, at) for at in range(n_parts)]
    for index in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        used, n, at = heapq.heappop(with_room)
        parts[at].append(index)
        if n + 1 < most:
            heapq.heappush(with_room, (used + sizes[index], n + 1, at))
    return parts


def n_bytes(tokens: Tokens) -> int:
    """Bytes of what `tokens_on` moves."""
    total = sum(one.nbytes for name in MOVED if (one := getattr(tokens, name)) is not None)
    return total if tokens.targets is None else total + n_bytes(tokens.targets)


def tokens_on(tokens: Tokens, device: torch.device) -> Tokens:
    """The same rows with ids, segments and labels on `device`; offsets stay on the host, where batches are planned."""
    moved = {name: one.to(device) for name in MOVED if (one := getattr(tokens, name)) is not None}
    targets = None if tokens.targets is None else tokens_on(tokens.targets, device)
    return replace(tokens, targets=targets, **moved)
