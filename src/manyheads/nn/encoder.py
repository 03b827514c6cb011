"""The encoder: residual blocks around attention and feed-forward (Vaswani et al., 2017, section 3.1), their norms, and
how training goes through its layers.

... tokens in a layout (N packed, or B L padded) . D d_model . F d_ff
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from manyheads.layout import Layout, as_layout
from manyheads.nn.dropout import Dropout

GATES = {"geglu": F.gelu, "swiglu": F.silu}
PLAIN = {"relu": F.relu, "gelu": F.gelu}
Walk = Callable[..., Tensor]


class Encoder(nn.Module):
    """Layers one after another, and the norm that pre-norm leaves to the end.

    In training `walk` goes through each layer: see `make_walk`.
    """

    def __init__(self, layers: "Iterable[EncoderLayer]", *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()
        self.walk: Walk = through

    def forward(self, x: Tensor, layout: Layout | Tensor | None = None) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`; `layout` as of `MultiHeadAttention`."""
        layout = as_layout(x, layout)
        walk = self.walk if self.training else through
        filled, of_filled = layout.filled_up(x)
        for layer in self.layers:
            filled = walk(layer, filled, of_filled)
        return self.norm(filled[: x.size(0)])


class EncoderLayer(nn.Module):
    """Tokens of a document look at each other, then each is thought over alone."""

    def __init__(self, *, attention: "Residual", feed_forward: "Residual") -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward

    def forward(self, x: Tensor, layout: Layout | Tensor | None = None) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`; `layout` as of `MultiHeadAttention`."""
        return self.feed_forward(self.attention(x, layout))


class Residual(nn.Module):
    """after(x + dropout(block(before(x)))).

    A norm before is pre-norm (Xiong et al., 2020), one after is the paper's post-norm, a norm at both places is
    LN(x + block(LN(x))).
    """

    def __init__(
        self,
        block: nn.Module,
        *,
        before: nn.Module | None = None,
        after: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.before, self.block, self.after = before or nn.Identity(), block, after or nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *context: Tensor | Layout | None) -> Tensor:
        return self.join(x, self.block(self.before(x), *context))

    def join(self, x: Tensor, change: Tensor) -> Tensor:
        """What is left to do once the block has answered."""
        return self.after(self.dropout.add(x, change))


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2: Vaswani et al. (2017), section 3.3. With a gate W2 (f(W1 x + b1) * (W3 x + b3)) + b2, W1
    and W3 side by side in one weight: Shazeer (2020).

    Args:
        activation: `relu`, `gelu`, or gated `geglu`, `swiglu`.
    """

    def __init__(self, *, d_model: int, d_ff: int, activation: str = "gelu", bias: bool = True) -> None:
        super().__init__()
        self.is_gated = activation in GATES
        self.activate = GATES[activation] if self.is_gated else PLAIN[activation]
        self.widen = nn.Linear(d_model, d_ff * (2 if self.is_gated else 1), bias=bias)
        self.narrow = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        hidden = self.widen(x)
        if self.is_gated:
            gate, hidden = hidden.chunk(2, dim=-1)
            return self.narrow(self.activate(gate) * hidden)
        return self.narrow(self.activate(hidden))


def make_norm(kind: str, d_model: int, eps: float | None = None, *, bias: bool = True) -> nn.Module:
    """`layer` (Ba et al., 2016) or `rms` (Zhang and Sennrich, 2019), over the last axis.

    Args:
        eps: added to the variance; default: 1e-5 of `layer`, 1e-6 of `rms`.
        bias: of `layer`: `rms` has none.
    """
    if kind == "rms":
        return nn.RMSNorm(d_model, eps=eps or 1e-6)
    return nn.LayerNorm(d_model, eps=eps or 1e-5, bias=bias)


def through(layer: nn.Module, x: Tensor, *context: Tensor | Layout) -> Tensor:
    """Tokens `(..., D)` through one layer."""
    return layer(x, *context)


def make_walk(*, mode: str = "", recompute: bool = False, backend: str = "inductor") -> Walk:
    """A `through` with the same answers and gradients: compiled, or keeping less for the backward pass.

    The layers are alike, so what is compiled is one step through any of them: it is compiled once, not once a layer.

    Args:
        mode: of torch.compile: `default`, or `reduce-overhead` for CUDA graphs; empty: not compiled.
        recompute: keep the input of a layer alone and compute the rest once more for the gradient, with the same
            random numbers: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost", section 4.
        backend: what compiles.
    """
    walk: Walk = through
    if mode:  # the second token count makes torch compile once more, for all counts
        walk = torch.compile(through, backend=backend, mode=mode)
    return partial(_recomputed, walk) if recompute else walk


def _recomputed(walk: Walk, layer: nn.Module, x: Tensor, *context: Any) -> Tensor:
    return checkpoint(walk, layer, x, *context, use_reentrant=False)  # type: ignore[return-value]
