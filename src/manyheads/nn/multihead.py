"""Multi-head attention (Vaswani et al., 2017, section 3.2.2).

The module projects tokens to queries, keys and values and calls the function `attention` of kernels.py with them.

... tokens in a layout (N packed, or B L padded) . B documents . L query positions . M key positions
H query heads . G key/value heads . K d_k . V d_v . D d_model
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.errors import UserError
from manyheads.layout import Layout, as_layout
from manyheads.nn.attention import Normaliser, Score, attention_weights, make_score, share_heads
from manyheads.nn.kernels import attention, attention_mask
from manyheads.nn.parts import make_block


class MultiHeadAttention(nn.Module):
    """Concat(head_1 .. head_h) W^O with head_i = attention(x W_i^Q, m W_i^K, m W_i^V).

    In self-attention m is x; a second sequence, given as `memory`, makes it cross-attention. The matrices W^Q of all
    heads, then those of W^K and of W^V, are concatenated in the one weight of `project`, so that self-attention takes a
    single matrix product.

        MultiHeadAttention(d_model=64, n_heads=4)(x, mask)  # x (B, L, 64); mask (B, L), true on real tokens

    Args:
        d_model: width of a token.
        n_heads: H, the number of query heads.
        d_k: width of a head's queries and keys; default: d_model // n_heads. It need not divide d_model.
        d_v: width of a head's values; default: d_model // n_heads.
        n_kv_heads: G, the heads of keys and values, each shared by H / G query heads; default: n_heads.
        bias: whether the projections have one.
        dropout: probability of dropping an attention weight in training.
        rotary: rotates queries and keys by their positions, see `Rotary`.
        alibi: what positions add to the scores, see `Alibi`.
        score: how a query is compared with a key, see `make_score`; default: the scaled dot product.
        normaliser: how scores become weights: `softmax`, `sigmoid`, `sparsemax`, `entmax15`, or a function.
        window: a query attends to keys at most this many positions away; 0: no limit.
        causal: a query attends only to keys at its own position and before it.
        project: without it head i attends to slice i of x itself; with one head that is softmax(X Xᵀ / √d_k) X.
        project_output: without it the concatenated heads are returned, and W^O is left out.
        qk_norm: RMS norm of queries and keys, each head by itself (Dehghani et al., 2023, "ViT-22B", section 2.1).
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
        d_k = d_k or d_model // n_heads
        d_v = d_v or d_model // n_heads
        if not d_k or not d_v:
            raise UserError(f"d_model={d_model} gives none of n_heads={n_heads} a width: give d_k and d_v")
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.d_k, self.d_v = d_k, d_v
        self.dropout = dropout
        self.widths = (n_heads * d_k, self.n_kv_heads * d_k, self.n_kv_heads * d_v)  # of queries, keys and values
        self.project = nn.Linear(d_model, sum(self.widths), bias=bias) if project else None
        self.output = nn.Linear(n_heads * d_v, d_model, bias=bias) if project_output else nn.Identity()
        self.rotary, self.alibi = rotary, alibi
        self.score = score or make_score("scaled_dot", n_heads=n_heads, n_kv_heads=self.n_kv_heads, d_k=d_k)
        self.normalise = make_block("normaliser", normaliser) if isinstance(normaliser, str) else normaliser
        self.window, self.causal = window, causal
        self.query_norm = nn.RMSNorm(d_k, eps=1e-6) if qk_norm else nn.Identity()
        self.key_norm = nn.RMSNorm(d_k, eps=1e-6) if qk_norm else nn.Identity()

    def forward(
        self,
        x: Tensor,
        layout: Layout | Tensor | None = None,
        memory: Tensor | None = None,
        memory_layout: Layout | Tensor | None = None,
    ) -> Tensor:
        """Attend within each document.

        Args:
            x: a padded batch `(B, L, D)`, or tokens `(..., D)` in `layout`.
            layout: where the documents are. For a padded batch also a boolean mask `(B, L)`, true on real tokens, or
                None if all are real. The output at padding is undefined.
            memory: what to attend to, given in the same way as x; default: x.
            memory_layout: its layout or mask.

        Returns:
            Tokens of the shape of x; without `project_output` their width is H · V.

        Raises:
            UserError: x has another shape and no layout, or the mask does not fit x.
        """
        layout = as_layout(x, layout)
        keys = layout if memory is None else as_layout(memory, memory_layout)  # self-attention: one and the same object
        q, k, v = self.queries_keys_values(x, memory, layout, keys)
        return self.output(self.attend(q, k, v, layout, keys))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, keys: Layout) -> Tensor:
        """The contexts `(..., H V)` of projected tokens, the heads concatenated: all of `forward` that depends on where
        documents lie."""
        context = attention(
            q,
            k,
            v,
            layout,
            keys,
            score=self.score,
            normalise=self.normalise,
            bias=self.bias(q, k, layout, keys),
            window=self.window,
            causal=self.causal,
            dropout=self.dropout if self.training else 0.0,
        )
        return context.flatten(-2)

    def maps(
        self,
        x: Tensor,
        layout: Layout | Tensor | None = None,
        memory: Tensor | None = None,
        memory_layout: Layout | Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The attention weights `(B, H, L, M)` and contexts `(B, H, L, V)` that `forward` uses.

        They are computed again by the textbook formula in float32, as the fast kernels never write weights down. Rows
        and columns of padding are zero. There is no dropout.
        """
        layout = as_layout(x, layout)
        keys = layout if memory is None else as_layout(memory, memory_layout)
        if memory is not None:
            memory = memory.float()
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = self.queries_keys_values(x.float(), memory, layout, keys)
            weights_BHLM = attention_weights(
                layout.grid(q).transpose(1, 2),
                keys.grid(k).transpose(1, 2),
                attention_mask(layout, keys, self.window, self.causal),
                score=self.score,
                normalise=self.normalise,
                bias=self.bias(q, k, layout, keys),
            )
            weights_BHLM = weights_BHLM.masked_fill(~layout.keep_BL[:, None, :, None], 0.0)  # rows of padding
            v_BHMV = share_heads(keys.grid(v).transpose(1, 2), self.n_heads)
            return weights_BHLM, weights_BHLM @ v_BHMV

    def queries_keys_values(
        self, x: Tensor, memory: Tensor | None, layout: Layout, keys: Layout
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project tokens and split them into heads; then norm, the score's own map and rotary positions, in this order.

        Returns:
            Queries `(..., H, K)`, keys `(..., G, K)` (some scores return H heads of them), values `(..., G, V)`.
        """
        return self.project_heads(x, memory, self.positions(layout), self.positions(keys))

    def positions(self, layout: Layout) -> Tensor | None:
        """The positions of tokens `(...)` where queries and keys depend on them, else None."""
        return None if self.rotary is None else layout.positions

    def project_heads(
        self, x: Tensor, memory: Tensor | None, query_at: Tensor | None, key_at: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`queries_keys_values` of tokens at these `positions`: each token is treated alone."""
        if self.project is None:
            q, k, v = x, x, x
            if memory is not None:
                k, v = memory, memory
        elif memory is None:
            q, k, v = self.project(x).split(self.widths, dim=-1)
        else:  # queries come from x, keys and values from the memory: two products with parts of the one weight
            widths = self.widths[0], sum(self.widths[1:])
            w_q, w_kv = self.project.weight.split(widths)
            b_q = b_kv = None
            if self.project.bias is not None:
                b_q, b_kv = self.project.bias.split(widths)
            q = F.linear(x, w_q, b_q)
            k, v = F.linear(memory, w_kv, b_kv).split(self.widths[1:], dim=-1)
        q = q.unflatten(-1, (self.n_heads, self.d_k))
        k = k.unflatten(-1, (self.n_kv_heads, self.d_k))
        v = v.unflatten(-1, (self.n_kv_heads, self.d_v))
        q = self.query_norm(q).to(v.dtype)  # autocast computes norms in float32
        k = self.key_norm(k).to(v.dtype)
        q, k = self.score.project(q, k)
        if self.rotary is not None:
            q = self.rotary(q, query_at)
            k = self.rotary(k, key_at)
        return q, k, v

    def bias(self, q: Tensor, k: Tensor, layout: Layout, keys: Layout) -> Tensor | None:
        """What positions add to the scores of projected queries and keys: it broadcasts to `(B, H, L, M)`; or None."""
        if self.alibi is None:
            return None
        positions = torch.arange(max(layout.longest, keys.longest), device=layout.keep_BL.device)
        return self.alibi(positions[: layout.longest], positions[: keys.longest])
