"""Where documents begin and end. Token-wise blocks never look here; attention and pooling do.

B documents . L positions of the longest . N tokens of all documents . ... any trailing axes

Both layouts answer the same questions, so a block written against one works with the other:
`grid` (tokens side by side, one document a row), `flat` (its inverse), `keep_BL`, `positions`, `is_full`.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packed:
    """Documents end to end in one row of N tokens; document b is `offsets[b]:offsets[b + 1]`.

    `offsets` is int64 with B + 1 entries, `longest` the largest length as a Python int,
    so that nothing here ever waits for a GPU.
    """

    offsets: Tensor
    longest: int

    @classmethod
    def of_lengths(cls, lengths: list[int]) -> "Packed":
        return cls(torch.tensor([0, *accumulate(lengths)]), max(lengths, default=0))

    @property
    def n_documents(self) -> int:
        return self.offsets.numel() - 1

    @cached_property
    def lengths_B(self) -> Tensor:
        return self.offsets.diff()

    @cached_property
    def keep_BL(self) -> Tensor:
        return torch.arange(self.longest, device=self.offsets.device) < self.lengths_B[:, None]

    @cached_property
    def _cells_N(self) -> Tensor:
        """Where each token lies in the flattened grid."""
        first_cell_B = torch.arange(self.n_documents, device=self.offsets.device) * self.longest
        return self.positions + self._of_each_token(first_cell_B)

    @cached_property
    def positions(self) -> Tensor:
        """Position of each token in its document, from 0: `(N,)`."""
        every_N = torch.arange(self._n_tokens, device=self.offsets.device)
        return every_N - self._of_each_token(self.offsets[:-1])

    def grid(self, x_N: Tensor) -> Tensor:
        """`(N, ...)` to `(B, L, ...)`, zeros behind the end of each document."""
        if self.is_full:
            return x_N.unflatten(0, (self.n_documents, self.longest))
        x_cells = cast(Tensor, _Scatter.apply(x_N, self._cells_N, self.n_documents * self.longest))
        return x_cells.unflatten(0, (self.n_documents, self.longest))

    def flat(self, x_BL: Tensor) -> Tensor:
        """`(B, L, ...)` to `(N, ...)`: the inverse of `grid`."""
        x_cells = x_BL.flatten(0, 1)
        return x_cells if self.is_full else cast(Tensor, _Gather.apply(x_cells, self._cells_N))

    def to(self, device: Any, non_blocking: bool = False) -> "Packed":
        moved = Packed(self.offsets.to(device, non_blocking=non_blocking), self.longest)
        moved.__dict__["_n_tokens"] = self._n_tokens
        return moved

    @cached_property
    def _n_tokens(self) -> int:
        return int(self.offsets[-1])

    @property
    def is_full(self) -> bool:
        """Whether every document is as long as the longest: nothing to mask, and `grid` is a view."""
        return self._n_tokens == self.n_documents * self.longest > 0

    def _of_each_token(self, x_B: Tensor) -> Tensor:
        return x_B.repeat_interleave(self.lengths_B, output_size=self._n_tokens)


@dataclass(frozen=True, eq=False)
class Padded:
    """One document a row of `(B, L, ...)`; `keep_BL` is true on real tokens, which come first.

    `first` is the position of the first column: above 0 where what stands before was read already.
    """

    keep_BL: Tensor
    first: int = 0

    @property
    def n_documents(self) -> int:
        return self.keep_BL.size(0)

    @property
    def longest(self) -> int:
        return self.keep_BL.size(1)

    @property
    def is_full(self) -> bool:
        """Unknown without reading `keep_BL` back from the device, so: never."""
        return False

    @cached_property
    def lengths_B(self) -> Tensor:
        return self.keep_BL.sum(1)

    @cached_property
    def positions(self) -> Tensor:
        """Position of each token in its document, from `first`: `(B, L)`; behind its end that of its last token.

        So padding beyond the longest position a model knows is never looked up.
        """
        return (self.keep_BL.cumsum(1) - 1).clamp(min=0) + self.first

    def grid(self, x_BL: Tensor) -> Tensor:
        return x_BL

    def flat(self, x_BL: Tensor) -> Tensor:
        return x_BL


Layout = Packed | Padded


class _Scatter(torch.autograd.Function):
    """Tokens to cells. The cells differ, so the gradient is a plain gather: no summing of duplicates."""

    @staticmethod
    def forward(ctx: Any, x_N: Tensor, cells_N: Tensor, n_cells: int) -> Tensor:
        ctx.save_for_backward(cells_N)
        return x_N.new_zeros(n_cells, *x_N.shape[1:]).index_copy_(0, cells_N, x_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (cells_N,) = ctx.saved_tensors
        return grads[0].index_select(0, cells_N), None, None


class _Gather(torch.autograd.Function):
    """Cells to tokens: the mirror of `_Scatter`."""

    @staticmethod
    def forward(ctx: Any, x_cells: Tensor, cells_N: Tensor) -> Tensor:
        ctx.save_for_backward(cells_N)
        ctx.n_cells = x_cells.size(0)
        return x_cells.index_select(0, cells_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (cells_N,) = ctx.saved_tensors
        grad_N = grads[0]
        return grad_N.new_zeros(ctx.n_cells, *grad_N.shape[1:]).index_copy_(0, cells_N, grad_N), None
