"""Multi-head attention: Vaswani et al. (2017), section 3.2.2; and the keys and values of a decoder, computed once.

... tokens in a layout (N packed, or B L padded) . B documents . L query positions . M key positions
H query heads . G key/value heads . K d_k . V d_v . D d_model
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.errors import UserError
from manyheads.layout import Layout, as_layout
from manyheads.nn.attention import Normaliser, Score, attend, attention_weights, make_score, share_heads
from manyheads.nn.kernels import attention, kept_keys
from manyheads.nn.parts import make_block


class MultiHeadAttention(nn.Module):
    """Concat(head_1 .. head_h) W^O with head_i = attention(x W_i^Q, m W_i^K, m W_i^V).

    The h matrices W_i^Q lie side by side in one weight, so do those of keys and values, and the three
    again in `project`: one product serves all heads. In self-attention m is x; a second sequence given
    as `memory` makes it cross-attention. `d_k` and `d_v` need not divide `d_model`.

    Without `project` head i attends over slice i of x itself, softmax(X Xᵀ / √d_k) X for one head; without
    `project_output` the contexts side by side are the answer.

        MultiHeadAttention(d_model=64, n_heads=4)(x, mask)  # x (B, L, 64), mask (B, L): true on real tokens, or none

    Args:
        d_k, d_v: width of a head's queries and keys, and of its values; default: d_model // n_heads.
        n_kv_heads: heads of keys and values, each shared by a group of query heads; default: n_heads.
        rotary: turns queries and keys by their positions, as `Rotary` does.
        alibi: what positions add to the scores, as `Alibi` does.
        score: how a query is compared with a key, see `make_score`; default: the scaled dot product.
        normaliser: how scores become weights: `softmax`, `sigmoid`, `sparsemax` or `entmax15`, or one that was made.
        window: a query attends to keys at most this far to either side; 0: to all.
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        d_k: int | None = None,
        d_v: int | None = None,
        n_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: nn.Module | None = None,
        alibi: nn.Module | None = None,
        score: Score | None = None,
        normaliser: str | Normaliser = "softmax",
        window: int = 0,
        causal: bool = False,
        project: bool = True,
        project_output: bool = True,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        d_k, d_v = d_k or d_model // n_heads, d_v or d_model // n_heads
        if not d_k or not d_v:
            raise UserError(f"d_model={d_model} gives none of n_heads={n_heads} a width: give d_k and d_v")
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.n_kv_heads = n_kv_heads or n_heads
        self.dropout = dropout
        self.widths = (n_heads * d_k, self.n_kv_heads * d_k, self.n_kv_heads * d_v)
        self.project = nn.Linear(d_model, sum(self.widths), bias=bias) if project else None
        self.output = nn.Linear(n_heads * d_v, d_model, bias=bias) if project_output else nn.Identity()
        self.rotary, self.alibi = rotary, alibi
        self.score = score or make_score("scaled_dot", n_heads=n_heads, n_kv_heads=self.n_kv_heads, d_k=d_k)
        self.normalise = make_block("normaliser", normaliser) if isinstance(normaliser, str) else normaliser
        self.window, self.causal = window, causal
        self.query_norm, self.key_norm = (nn.RMSNorm(d_k, eps=1e-6) if qk_norm else nn.Identity() for _ in range(2))

    def forward(
        self,
        x: Tensor,
        layout: Layout | Tensor | None = None,
        memory: Tensor | None = None,
        memory_layout: Layout | Tensor | None = None,
    ) -> Tensor:
        """Mix the tokens of each document.

        Args:
            x: a plain batch `(B, L, D)`, or tokens `(..., D)` in `layout`.
            layout: of a plain batch a boolean mask `(B, L)`, true on real tokens; without one all are real. What the
                answer holds at the others means nothing.
            memory, memory_layout: what to attend to, given likewise; default: x itself.

        Returns:
            Tokens of the shape of x, without W^O of width H · V.

        Raises:
            UserError: x is no plain batch and comes without a layout, or the mask does not fit it.
        """
        layout = as_layout(x, layout)
        keys = layout if memory is None else as_layout(memory, memory_layout)
        q, k, v = self.queries_keys_values(x, memory, layout, keys)
        context = attention(
            *(q, k, v, layout, keys),
            score=self.score,
            normalise=self.normalise,
            bias_HLM=self.bias_HLM(layout, keys),
            window=self.window,
            causal=self.causal,
            dropout=self.dropout if self.training else 0.0,
        )
        return self.output(context.flatten(-2))

    def maps(
        self,
        x: Tensor,
        layout: Layout | Tensor | None = None,
        memory: Tensor | None = None,
        memory_layout: Layout | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The weights `(B, H, L, M)` and contexts `(B, H, L, V)` of `forward`, by the textbook formula in float32.

        Rows and columns behind the end of a document are zero. Nothing is dropped.
        """
        layout = as_layout(x, layout)
        keys = layout if memory is None else as_layout(memory, memory_layout)
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = self.queries_keys_values(x.float(), None if memory is None else memory.float(), layout, keys)
            weights_BHLM = attention_weights(
                layout.grid(q).transpose(1, 2),
                keys.grid(k).transpose(1, 2),
                kept_keys(layout, keys, self.window, self.causal),
                score=self.score,
                normalise=self.normalise,
                bias=self.bias_HLM(layout, keys),
            ).masked_fill(~layout.keep_BL[:, None, :, None], 0.0)
            return weights_BHLM, weights_BHLM @ share_heads(keys.grid(v).transpose(1, 2), self.n_heads)

    def queries_keys_values(
        self, x: Tensor, memory: Tensor | None, layout: Layout, keys: Layout
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projected, normed if so asked (Dehghani et al., 2023, "ViT-22B", section 2.1), mapped as the score wants it
        and, with rotary positions, turned.

        Returns:
            `(..., H, K)`, `(..., G, K)` (or as many heads as the score makes of them), `(..., G, V)`.
        """
        source = x if memory is None else memory
        if self.project is None:
            q, k, v = x, source, source
        elif memory is None:
            q, k, v = self.project(x).split(self.widths, dim=-1)
        else:
            widths = self.widths[0], sum(self.widths[1:])
            w_q, w_kv = self.project.weight.split(widths)
            b_q, b_kv = (None, None) if self.project.bias is None else self.project.bias.split(widths)
            q = F.linear(x, w_q, b_q)
            k, v = F.linear(memory, w_kv, b_kv).split(self.widths[1:], dim=-1)
        q = q.unflatten(-1, (self.n_heads, self.d_k))
        k = k.unflatten(-1, (self.n_kv_heads, self.d_k))
        v = v.unflatten(-1, (self.n_kv_heads, self.d_v))
        q, k = self.score.project(self.query_norm(q).to(v.dtype), self.key_norm(k).to(v.dtype))
        if self.rotary is not None:
            q, k = self.rotary(q, layout.positions), self.rotary(k, keys.positions)
        return q, k, v

    def bias_HLM(self, layout: Layout, keys: Layout) -> Tensor | None:
        """What positions add to the scores, if anything: `(H, L, M)`."""
        if self.alibi is None:
            return None
        device = layout.keep_BL.device
        at = torch.arange(max(layout.longest, keys.longest), device=device)
        return self.alibi(at[: layout.longest], at[: keys.longest])


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

    def answer(self, q_BHLK: Tensor, score: Score, normalise: Normaliser, bias: Tensor | None = None) -> Tensor:
        """What `attend` gives these queries: `(B, H, L, V)`."""
        k, v, keep = self.k_BGMK, self.v_BGMV, self.keep_B11M
        return attend(q_BHLK, k, v, keep, score=score, normalise=normalise, bias=bias)

    def take(self, rows: Tensor) -> "KeysValues":
        """Those of documents `rows`, which may repeat, drop and reorder."""
        keep = None if self.keep_B11M is None else self.keep_B11M.index_select(0, rows)
        return KeysValues(self.k_BGMK.index_select(0, rows), self.v_BGMV.index_select(0, rows), keep)
