"""How the documents of a batch lie in its tensors: `Packed` end to end, or `Padded` one a row.

Both have the same interface, so a block that uses it works with either: `grid` turns tokens into one document a row,
`flat` is its inverse, `keep_BL` is true on real tokens, `positions` count within each document. Attention and pooling
need it; blocks that treat each token alone do not.

B documents . L positions of the longest . N packed tokens . R rows of data, of which a long text is several documents
... any trailing axes
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.errors import UserError

FILL, FILL_FROM = 64, 512
"""On a CPU batches of 512 tokens or more are padded to a multiple of 64. oneDNN makes a kernel for each new number of
tokens: with few such numbers a training step takes 2 to 15 % less time, by processor, and the kernels less memory."""


class Bounds(NamedTuple):
    """Documents as variable-length kernels take them: their offsets as int32, and the largest length. The last document
    is the tail."""

    cuts: Tensor
    longest: int


@dataclass(frozen=True, eq=False)
class Packed:
    """Documents end to end in N tokens; document b is `offsets[b]:offsets[b + 1]`.

    Attributes:
        offsets: int64 `(B + 1,)`.
        longest: the largest length, as a Python int: so nothing here waits for a GPU.
        tail: number of tokens after the last document that belong to none and fill the batch up to a convenient size.
            `flat` sets them to zero, and their gradient is zero.
        counts_R: how many documents each row of data is, where a long text is read as several; None: one each.
    """

    offsets: Tensor
    longest: int
    tail: int = 0
    counts_R: Tensor | None = None

    @classmethod
    def of_lengths(cls, lengths: list[int], counts: list[int] | None = None) -> "Packed":
        """Documents of these lengths; `counts` is the number of documents of each row of data, see `counts_R`."""
        counts_R = None if counts is None else torch.tensor(counts)
        return cls(torch.tensor([0, *accumulate(lengths)]), max(lengths, default=0), counts_R=counts_R)

    def rounded(self, multiple: int) -> "Packed":
        """The same documents with a tail that makes the number of tokens a multiple of `multiple`."""
        return self._with(tail=-self.n_tokens % multiple)

    def filled_up(self, x_N: Tensor) -> "tuple[Tensor, Packed]":
        """`x_N` and its layout with a tail of zeros, where that is faster (on a CPU, see `FILL`)."""
        if x_N.is_cuda or self.tail or self.n_tokens < FILL_FROM:
            return x_N, self
        filled = self.rounded(FILL)
        return F.pad(x_N, (*(0, 0) * (x_N.ndim - 1), 0, filled.tail)), filled

    def unfilled(self, x_N: Tensor) -> "tuple[Tensor, Packed]":
        """`x_N` and its layout without the tail: the inverse of `filled_up`."""
        if not self.tail:
            return x_N, self
        return x_N[: self.n_tokens], self._with(tail=0)

    @property
    def n_documents(self) -> int:
        return self.offsets.numel() - 1

    @cached_property
    def n_tokens(self) -> int:
        """Tokens of all documents: N without the tail."""
        return int(self.offsets[-1])

    @cached_property
    def lengths_B(self) -> Tensor:
        return self.offsets.diff()

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """Length and number of tokens of each run of documents of one length that lie next to one another."""
        lengths = groupby(self.lengths_B.tolist())
        return [(length, sum(run)) for length, run in lengths if length]

    @cached_property
    def keep_BL(self) -> Tensor:
        return torch.arange(self.longest, device=self.offsets.device) < self.lengths_B[:, None]

    @cached_property
    def _cells_N(self) -> Tensor:
        """The index of each token in the flattened grid."""
        first_cell_B = torch.arange(self.n_documents, device=self.offsets.device) * self.longest
        return self.positions[: self.n_tokens] + self._of_each_token(first_cell_B)

    @cached_property
    def _tokens_of_cells(self) -> Tensor | None:
        """The index of the token in each cell of the flattened grid; padding has the first token of the tail.
        None without a tail."""
        if not self.tail:
            return None
        tokens = self.offsets.new_full((self.n_documents * self.longest,), self.n_tokens)
        return tokens.index_copy_(0, self._cells_N, torch.arange(self.n_tokens, device=self.offsets.device))

    @cached_property
    def positions(self) -> Tensor:
        """Position of each token in its document, from 0, and 0 in the tail: `(N,)`."""
        every_N = torch.arange(self.n_tokens, device=self.offsets.device)
        return F.pad(every_N - self._of_each_token(self.offsets[:-1]), (0, self.tail))

    @cached_property
    def bounds(self) -> Bounds:
        """The same documents for a variable-length kernel."""
        return Bounds(F.pad(self.offsets.int(), (0, 1), value=self.n_tokens + self.tail), max(self.longest, self.tail))

    @cached_property
    def rows(self) -> "Packed":
        """The same tokens, the documents of each row of data joined to one."""
        if self.counts_R is None:
            return self
        ends_R = F.pad(self.counts_R.cumsum(0), (1, 0))
        offsets = self.offsets[ends_R]
        longest = int(offsets.diff().max()) if len(self.counts_R) else 0
        return Packed(offsets, longest, self.tail)

    def pooled(self, x_B: Tensor) -> Tensor:
        """The mean over the documents of each row of data: `(B, ...)` to `(R, ...)`, in single precision."""
        if self.counts_R is None:
            return x_B
        return torch.segment_reduce(x_B.float(), "mean", lengths=self.counts_R, unsafe=True)

    def grid(self, x_N: Tensor) -> Tensor:
        """`(N, ...)` to `(B, L, ...)`.

        Padding is zero. If there is a tail, padding is a copy of its first token: gathering is eight times as fast on a
        CPU as scattering into zeros.
        """
        if self.is_full:
            return x_N[: self.n_tokens].unflatten(0, (self.n_documents, self.longest))
        n_cells = self.n_documents * self.longest
        x_cells = cast(Tensor, _ToCells.apply(x_N, self._cells_N, self._tokens_of_cells, n_cells))
        return x_cells.unflatten(0, (self.n_documents, self.longest))

    def flat(self, x_BL: Tensor) -> Tensor:
        """`(B, L, ...)` to `(N, ...)`: the inverse of `grid`."""
        x_cells = x_BL.flatten(0, 1)
        if self.is_full and not self.tail:
            return x_cells
        return cast(Tensor, _ToTokens.apply(x_cells, self._cells_N, self._tokens_of_cells, self.tail))

    def to(self, device: Any, non_blocking: bool = False) -> "Packed":
        counts_R = self.counts_R
        if counts_R is not None:
            counts_R = counts_R.to(device, non_blocking=non_blocking)
        return self._with(offsets=self.offsets.to(device, non_blocking=non_blocking), counts_R=counts_R)

    def _with(self, **changes: Any) -> "Packed":
        """A copy with `changes` that keeps the cached number of tokens: to read it again would wait for the device."""
        other = replace(self, **changes)
        other.__dict__["n_tokens"] = self.n_tokens
        return other

    @property
    def is_full(self) -> bool:
        """Whether all documents are of one length: then nothing is masked, and `grid` is a view."""
        return self.n_tokens == self.n_documents * self.longest > 0

    def _of_each_token(self, x_B: Tensor) -> Tensor:
        return x_B.repeat_interleave(self.lengths_B, output_size=self.n_tokens)


@dataclass(frozen=True, eq=False)
class Padded:
    """One document a row of `(B, L, ...)`, padding at its end.

    Attributes:
        keep_BL: boolean, true on real tokens.
        first: the position of the first column: above 0 for the later steps of a decoder.
        is_full: set if all tokens are known to be real; `keep_BL` is not read back from the device to find out.
    """

    keep_BL: Tensor
    first: int = 0
    is_full: bool = False

    @property
    def n_documents(self) -> int:
        return self.keep_BL.size(0)

    @property
    def longest(self) -> int:
        return self.keep_BL.size(1)

    @cached_property
    def lengths_B(self) -> Tensor:
        return self.keep_BL.sum(1)

    @cached_property
    def positions(self) -> Tensor:
        """Position of each token in its document, from `first`: `(B, L)`. Padding has that of the last token, so that
        no position beyond the table of a model is looked up."""
        return (self.keep_BL.cumsum(1) - 1).clamp(min=0) + self.first

    def filled_up(self, x_BL: Tensor) -> "tuple[Tensor, Padded]":
        return x_BL, self

    def unfilled(self, x_BL: Tensor) -> "tuple[Tensor, Padded]":
        return x_BL, self

    def pooled(self, x_B: Tensor) -> Tensor:
        return x_B

    def grid(self, x_BL: Tensor) -> Tensor:
        return x_BL

    def flat(self, x_BL: Tensor) -> Tensor:
        return x_BL


Layout = Packed | Padded


def as_layout(x: Tensor, layout: Layout | Tensor | None, *, n_axes: int = 3) -> Layout:
    """The layout of `x`.

    Args:
        x: a padded batch, or tokens in a `layout`.
        layout: of the tokens; or for a padded batch a boolean mask `(B, L)`, true on real tokens, or None if all are.
        n_axes: of a padded batch: 3 for token vectors, 2 for token ids.

    Raises:
        UserError: `x` has another number of axes, or the mask is not boolean or of another shape.
    """
    if isinstance(layout, Packed | Padded):
        return layout
    shape = tuple(x.shape)
    if x.ndim != n_axes:
        axes = "(batch, length, width)" if n_axes == 3 else "(batch, length)"
        raise UserError(f"the input has the shape {shape}: give {axes}, or packed tokens with their layout")
    if layout is None:
        return Padded(x.new_ones(shape[:2], dtype=torch.bool), is_full=x.numel() > 0)
    if layout.dtype is not torch.bool or layout.shape != shape[:2]:
        raise UserError(
            f"the mask is {layout.dtype} of shape {tuple(layout.shape)}: give torch.bool of shape {shape[:2]}, true on "
            "real tokens and false on padding"
        )
    return Padded(layout)


class _ToCells(torch.autograd.Function):
    """Tokens to cells of the grid. Each token goes to one cell, so the gradient is a plain copy back; autograd's own
    would add up into zeros."""

    @staticmethod
    def forward(ctx: Any, x_N: Tensor, cells_N: Tensor, tokens_of_cells: Tensor | None, n_cells: int) -> Tensor:
        ctx.save_for_backward(cells_N)
        ctx.tail = x_N.size(0) - cells_N.numel()
        return _to_cells(x_N, cells_N, tokens_of_cells, n_cells)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _to_tokens(grads[0], ctx.saved_tensors[0], ctx.tail), None, None, None


class _ToTokens(torch.autograd.Function):
    """Cells of the grid to tokens: the inverse of `_ToCells`."""

    @staticmethod
    def forward(ctx: Any, x_cells: Tensor, cells_N: Tensor, tokens_of_cells: Tensor | None, tail: int) -> Tensor:
        ctx.save_for_backward(cells_N, tokens_of_cells)
        ctx.n_cells = x_cells.size(0)
        return _to_tokens(x_cells, cells_N, tail)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        cells_N, tokens_of_cells = ctx.saved_tensors
        return _to_cells(grads[0], cells_N, tokens_of_cells, ctx.n_cells), None, None, None


def _to_cells(x_N: Tensor, cells_N: Tensor, tokens_of_cells: Tensor | None, n_cells: int) -> Tensor:
    """Cells without a token get zeros, or the first token of the tail."""
    if tokens_of_cells is None:
        return x_N.new_zeros(n_cells, *x_N.shape[1:]).index_copy_(0, cells_N, x_N)
    return x_N.index_select(0, tokens_of_cells)


def _to_tokens(x_cells: Tensor, cells_N: Tensor, tail: int) -> Tensor:
    """With a tail of zeros."""
    if not tail:
        return x_cells.index_select(0, cells_N)
    n_tokens = cells_N.numel()
    x_N = x_cells.new_empty(n_tokens + tail, *x_cells.shape[1:])
    torch.index_select(x_cells, 0, cells_N, out=x_N[:n_tokens])
    x_N[n_tokens:] = 0
    return x_N
