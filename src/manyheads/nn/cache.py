"""Keys and values that are computed once: those of a memory, and those of the tokens said so far.

B documents (or beams) . M positions of the memory . G key/value heads . K width of a key . V width of a value
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from manyheads.layout import Layout


@dataclass(frozen=True, slots=True)
class KeysValues:
    """What later queries attend to; `keep_B11M` is None where that is every position."""

    k_BGMK: Tensor
    v_BGMV: Tensor
    keep_B11M: Tensor | None = None

    @classmethod
    def of_memory(cls, k: Tensor, v: Tensor, layout: Layout) -> Self:
        """Keys `(..., G, K)` and values `(..., G, V)` in `layout`, a document a row."""
        keep_B11M = None if layout.is_full else layout.keep_BL[:, None, None]
        return cls(layout.grid(k).transpose(1, 2), layout.grid(v).transpose(1, 2), keep_B11M)

    def grown(self, other: "KeysValues", most: int = 0) -> "KeysValues":
        """With the positions of `other` behind its own, the last `most` of them; 0: all."""
        k_BGMK, v_BGMV = (
            torch.cat(both, dim=2)[:, :, -most:]  # -0: is all
            for both in ((self.k_BGMK, other.k_BGMK), (self.v_BGMV, other.v_BGMV))
        )
        return KeysValues(k_BGMK, v_BGMV)

    def take(self, rows: Tensor) -> "KeysValues":
        """Those of documents `rows`, which may repeat, drop and reorder."""
        keep = None if self.keep_B11M is None else self.keep_B11M.index_select(0, rows)
        return KeysValues(self.k_BGMK.index_select(0, rows), self.v_BGMV.index_select(0, rows), keep)
