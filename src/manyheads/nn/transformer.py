"""The Transformer's encoder: Vaswani et al. (2017), section 3.1.

A layer is a residual block around attention and one around the feed-forward network.

... tokens in a layout (N packed, or B L padded) . D d_model . F d_ff . H heads . K d_k . V d_v
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.layout import Layout, as_layout
from manyheads.nn.dropout import Dropout
from manyheads.nn.parts import make_block

LayerCall = Callable[..., Tensor]
Run = Callable[..., Any]  # (part, *args) -> part(*args)


class Stack(nn.Module):
    """Layers in sequence, and the final norm of pre-norm models: an encoder, or a decoder.

    In training each layer is called by `call`, which may compile or recompute it, see layer_calls.py.
    """

    layers: Any  # a ModuleList

    def __init__(self, layers: Iterable[nn.Module], *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()
        self.call: LayerCall = call_layer


class Encoder(Stack):
    """Layers of self-attention."""

    def forward(self, x: Tensor, layout: Layout | Tensor | None = None) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`; `layout` is that of `MultiHeadAttention`."""
        layout = as_layout(x, layout)
        call = self.call if self.training else call_layer
        filled, filled_layout = layout.filled_up(x)  # on a CPU a round number of tokens is faster
        for layer in self.layers:
            filled = call(layer, filled, filled_layout)
        return self.norm(filled[: x.size(0)])


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each a residual block."""

    def __init__(self, *, attention: "Residual", feed_forward: "Residual") -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward

    def forward(self, x: Tensor, layout: Layout | Tensor | None = None) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`; `layout` is that of `MultiHeadAttention`."""
        x = self.attention(x, layout)
        return self.feed_forward(x)

    def in_parts(self, run: Run, x: Tensor, layout: Layout) -> Tensor:
        """The same. `run(part, *args)` calls the two parts that treat each token alone, on either side of attention."""
        block = self.attention.block
        q, k, v = run(project_alone, self.attention, x, block.positions(layout))
        context = block.attend(q, k, v, layout, layout)
        return run(EncoderLayer.finish, self, x, context)

    def finish(self, x: Tensor, context: Tensor) -> Tensor:
        """What follows attention: `x` are the tokens of `forward`, `context` is that of `MultiHeadAttention.attend`."""
        x = self.attention.join(x, self.attention.block.output(context))
        return self.feed_forward(x)


class Residual(nn.Module):
    """after(x + dropout(block(before(x)))).

    A norm `before` is pre-norm (Xiong et al., 2020, "On Layer Normalization in the Transformer Architecture"), a norm
    `after` is the post-norm of Vaswani et al. (2017). Both together are LN(x + block(LN(x))).
    """

    block: Any  # a module

    def __init__(
        self, block: nn.Module, *, before: nn.Module | None = None, after: nn.Module | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.before = before or nn.Identity()
        self.block = block
        self.after = after or nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, *context: Tensor | Layout | None) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`; `context` is the other arguments of the block, such as a layout."""
        return self.join(x, self.block(self.before(x), *context))

    def join(self, x: Tensor, change: Tensor) -> Tensor:
        """after(x + dropout(change)), where `change` is the output of the block."""
        if self.training:
            return self.after(self.dropout.add(x, change))
        return self.after(x + change)


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2: Vaswani et al. (2017), section 3.3.

    A gated activation has W2 (f(W1 x + b1) * (W3 x + b3)) + b2, with W1 and W3 in one weight: Shazeer (2020), "GLU
    Variants Improve Transformer", section 2.

    Args:
        d_model: width of a token.
        d_ff: width of the hidden layer; F, or 2 F in the weight of a gated one.
        activation: `relu`, `gelu`, or gated `geglu`, `swiglu`.
        options: keyword arguments of a user's activation.
        bias: whether the two linear maps have one.
    """

    def __init__(
        self,
        *,
        d_model: int,
        d_ff: int,
        activation: str = "gelu",
        options: Mapping[str, Any] = plugin.NOTHING,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.is_gated = plugin.find("activation", activation).facts.get("gated", False)
        self.activate = make_block("activation", activation, options, d_ff=d_ff)
        self.widen = nn.Linear(d_model, 2 * d_ff if self.is_gated else d_ff, bias=bias)
        self.narrow = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        hidden = self.widen(x)
        if self.is_gated:
            gate, hidden = hidden.chunk(2, dim=-1)
            hidden = self.activate(gate) * hidden
        else:
            hidden = self.activate(hidden)
        return self.narrow(hidden)


def layer_norm(*, d_model: int, eps: float = 1e-5, bias: bool = True) -> nn.Module:
    """Layer norm over the last axis: Ba et al. (2016), "Layer Normalization"."""
    return nn.LayerNorm(d_model, eps=eps, bias=bias)


def rms_norm(*, d_model: int, eps: float = 1e-6) -> nn.Module:
    """RMS norm over the last axis, without a mean and a bias: Zhang and Sennrich (2019), "Root Mean Square Layer
    Normalization"."""
    return nn.RMSNorm(d_model, eps=eps)


def call_layer(layer: nn.Module, x: Tensor, *context: Tensor | Layout) -> Tensor:
    """Tokens `(..., D)` through one layer; `context` is the other arguments of its `forward`."""
    return layer(x, *context)


def project_alone(attention: Residual, x: Tensor, positions: Tensor | None) -> tuple[Tensor, ...]:
    """What precedes self-attention: queries, keys and values of tokens `(..., D)`, each of which is treated alone."""
    return contiguous(attention.block.project_heads(attention.before(x), None, positions, positions))


def contiguous(heads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Each in memory of its own: as slices of one tensor their gradients would be added up in a tensor of its size."""
    return tuple(one.contiguous() for one in heads)
