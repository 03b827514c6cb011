"""Multi-head attention: Vaswani et al. (2017), section 3.2.2.

... tokens in a layout (N packed, or B L padded) . H query heads . G key/value heads . K d_k . V d_v . D d_model
"""

from torch import Tensor, nn
from torch.nn import functional as F

from manyheads.layout import Layout
from manyheads.nn.kernels import attention
from manyheads.nn.positions import Alibi, Rotary


class MultiHeadAttention(nn.Module):
    """Concat(head_1 .. head_h) W^O with head_i = attention(x W_i^Q, m W_i^K, m W_i^V).

    The h matrices W_i^Q lie side by side in one weight, so do those of keys and values, and the three
    again in `project`: one product serves all heads. In self-attention m is x; a second sequence given
    as `memory` makes it cross-attention. `d_k` and `d_v` need not divide `d_model`.
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        d_k: int,
        d_v: int,
        n_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        rotary: Rotary | None = None,
        alibi: Alibi | None = None,
    ) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v = n_heads, d_k, d_v
        self.n_kv_heads = n_kv_heads or n_heads
        self.dropout = dropout
        self.widths = (n_heads * d_k, self.n_kv_heads * d_k, self.n_kv_heads * d_v)
        self.project = nn.Linear(d_model, sum(self.widths), bias=bias)
        self.output = nn.Linear(n_heads * d_v, d_model, bias=bias)
        self.rotary, self.alibi = rotary, alibi

    def forward(
        self, x: Tensor, layout: Layout, memory: Tensor | None = None, memory_layout: Layout | None = None
    ) -> Tensor:
        """Mix the tokens of each document.

        Args:
            x: tokens `(..., D)` in `layout`.
            memory: tokens `(..., D)` in `memory_layout` to attend to; default: x itself.

        Returns:
            Tokens `(..., D)` in `layout`.
        """
        keys = memory_layout or layout
        q, k, v = self.queries_keys_values(x, memory, layout, keys)
        context = attention(
            q, k, v, layout, keys, bias_HLM=self.bias_HLM(layout, keys), dropout=self.dropout if self.training else 0.0
        )
        return self.output(context.flatten(-2))

    def queries_keys_values(
        self, x: Tensor, memory: Tensor | None, layout: Layout, keys: Layout
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projected and, with rotary positions, turned: `(..., H, K)`, `(..., G, K)`, `(..., G, V)`."""
        if memory is None:
            q, k, v = self.project(x).split(self.widths, dim=-1)
        else:
            w_q, w_kv = self.project.weight.split((self.widths[0], sum(self.widths[1:])))
            has_bias = self.project.bias is not None
            b_q, b_kv = self.project.bias.split((w_q.size(0), w_kv.size(0))) if has_bias else (None, None)
            q = F.linear(x, w_q, b_q)
            k, v = F.linear(memory, w_kv, b_kv).split(self.widths[1:], dim=-1)
        q = q.unflatten(-1, (self.n_heads, self.d_k))
        k = k.unflatten(-1, (self.n_kv_heads, self.d_k))
        v = v.unflatten(-1, (self.n_kv_heads, self.d_v))
        if self.rotary is not None:
            q, k = self.rotary(q, layout.positions), self.rotary(k, keys.positions)
        return q, k, v

    def bias_HLM(self, layout: Layout, keys: Layout) -> Tensor | None:
        """What positions add to the scaled scores, if anything: `(H, L, M)`."""
        return None if self.alibi is None else self.alibi(layout.longest, keys.longest)
