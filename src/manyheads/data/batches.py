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
"""Most tokens of a batch unless told: on a CPU what a layer makes of them should stay in the cache. Texts of 43 tokens
at 4 x 256 on two cores, a second: 506 in batches of 512 tokens, 566 of 1024, 591 of 2048, 523 of 4096, 413 of 8192."""
BATCHES_HELD = 256  # after which the pages that were read of a file of tokens are let go
FEWEST = 512  # tokens that a batch is filled up to where few counts shall occur


class Planned(NamedTuple):
    """One batch to be: its row indices (int64), and what each row's loss counts in it (see `Batch.scale`)."""

    rows: Tensor
    scale: float


class Batch(NamedTuple):
    """Whole rows, end to end: `ids_N` and `segments_N` int64, `labels_B` class ids (of rows with any
    number of labels marks `(B, C)`), `rows_B` row indices in the split,
    and in `targets` the texts that rows are answered by, if there are any.

    The loss of a micro-batch is the sum of its rows' losses times `scale`; averaged over ranks and accumulated
    micro-batches that is the mean over all rows of the optimiser step, of which one may count more than another (see
    `plan_epoch`). A batch may have no rows.
    """

    ids_N: Tensor
    segments_N: Tensor | None
    layout: Packed
    labels_B: Tensor
    rows_B: Tensor
    scale: float
    targets: "Batch | None" = None

    @property
    def parts(self) -> "list[Batch]":
        """The texts, and the texts they are answered by."""
        return [self] if self.targets is None else [self, self.targets]

    def to(self, device: torch.device) -> "Batch":
        """The same rows on another device, copied while the host continues."""

        return Batch(
            sent(self.ids_N, device),
            None if self.segments_N is None else sent(self.segments_N, device),
            self.layout.to(device, non_blocking=True),
            sent(self.labels_B, device),
            sent(self.rows_B, device),
            self.scale,
            None if self.targets is None else self.targets.to(device),
        )


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
    how = {"tokens": tokens, "rows": rows, "seed": seed, "epoch": epoch, "accumulate": accumulate}
    steps = plan_steps(lengths, **how, labels=labels, balance=balance)
    counts = torch.ones_like(lengths) if counts is None else counts
    return [one for step in steps for one in _deal(step, lengths, counts, rows, accumulate, n_ranks, split)[rank]]


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
    rounds, counts = [batches[at : at + n_ranks] for at in range(0, len(batches), n_ranks)], torch.ones_like(lengths)
    return [one for of_all in rounds for one in _deal(of_all, lengths, counts, rows, n_ranks, n_ranks)[rank]]


def micro_batches(accumulate: int, n_ranks: int, split: int = 1) -> int:
    """Batches that each rank reads in one optimiser step, so that all of them together read `accumulate` or more."""
    return -(-accumulate // n_ranks) * split


def padding_share(plan: Sequence[Planned], tokens: Tokens) -> float:
    """The share of cells that would be padding if the texts of each batch, or their windows, were a rectangle as wide
    as the longest; and so the targets, where there are any."""
    n_tokens = n_cells = 0
    for rows in (planned.rows for planned in plan if planned.rows.numel()):
        for part in (tokens, tokens.targets):
            if part is not None:
                _, layout = laid_out(part, rows)
                n_tokens += layout.n_tokens
                n_cells += layout.n_documents * layout.longest
    return 1 - n_tokens / n_cells if n_cells else 0.0


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


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`, copied while the host continues: to a GPU by way of pinned memory."""
    if tensor.device.type == "cpu" and device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def gather(tokens: Tokens, planned: Planned, *, few_counts: bool = False) -> Batch:
    """Copy the planned rows out of the flat tensors, on the device where these are; their offsets are on the host.

    Args:
        few_counts: a tail of zeros makes the tokens a power of two, since a CUDA graph is made for each count.
    """
    rows, device = planned.rows, tokens.ids_N.device
    starts, layout = laid_out(tokens, rows)
    if few_counts:
        layout = layout.rounded(max(FEWEST, 1 << (layout.n_tokens - 1).bit_length()))
    shift_B = sent(starts - layout.offsets[:-1], device)
    n_tokens, layout, rows_B = layout.n_tokens, layout.to(device, non_blocking=True), sent(rows, device)
    shift_N = shift_B.repeat_interleave(layout.lengths_B, output_size=n_tokens)
    where_N = torch.arange(n_tokens, device=device) + shift_N
    ids_N, segments_N = (
        None if of_all is None else F.pad(of_all[where_N].long(), (0, layout.tail))
        for of_all in (tokens.ids_N, tokens.segments_N)
    )
    assert ids_N is not None
    return Batch(
        ids_N,
        segments_N,
        layout,
        tokens.labels[rows_B].long() if tokens.labels.ndim == 1 else tokens.labels[rows_B],
        rows_B,
        planned.scale,
        None if tokens.targets is None else gather(tokens.targets, planned, few_counts=few_counts),
    )


def laid_out(tokens: Tokens, rows: Tensor) -> tuple[Tensor, Packed]:
    """Where the documents of `rows` begin in the flat tensors, and how they lie in a batch: on the host."""
    bounds, counts_R = tokens.offsets, None
    if tokens.windows is not None:
        bounds, firsts = tokens.windows
        counts_R = firsts[rows + 1] - firsts[rows]
        before_R = counts_R.cumsum(0) - counts_R
        rows = (firsts[rows] - before_R).repeat_interleave(counts_R) + torch.arange(int(counts_R.sum()))
    starts = bounds[rows]
    lengths_B = bounds[rows + 1] - starts
    longest = int(lengths_B.max()) if lengths_B.numel() else 0
    return starts, Packed(F.pad(lengths_B.cumsum(0), (1, 0)), longest, counts_R=counts_R)


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
    return torch.cat(windows) if windows else shuffled


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
    return list(order.split([b - a for a, b in pairwise(bounds)]))


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
        step = [part for one in step for part in _even_out(one, lengths, split, rows)]
    count = [int(counts[one].sum()) for one in step]
    scales = [len(step) * own / (max(1, sum(count) * one.numel())) for one, own in zip(step, count, strict=True)]
    of_ranks = _spread([int(lengths[one].sum()) for one in step], n_ranks, each * split)
    return [[Planned(step[at], scales[at]) for at in sorted(places)] for places in of_ranks]


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
    """Of what `moved` moves."""
    parts = [one for one in (tokens.ids_N, tokens.segments_N, tokens.labels) if one is not None]
    return sum(one.nbytes for one in parts) + (0 if tokens.targets is None else n_bytes(tokens.targets))


def moved(tokens: Tokens, device: torch.device) -> Tokens:
    """The same rows with ids, segments and labels on `device`; offsets stay on the host, where batches are planned."""
    return replace(
        tokens,
        ids_N=tokens.ids_N.to(device),
        segments_N=None if tokens.segments_N is None else tokens.segments_N.to(device),
        labels=tokens.labels.to(device),
        targets=None if tokens.targets is None else moved(tokens.targets, device),
    )
