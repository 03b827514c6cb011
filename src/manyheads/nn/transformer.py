"""The Transformer's encoder and decoder: Vaswani et al. (2017), section 3.1.

A layer is a residual block around attention and one around the feed-forward network. A decoder layer also attends to a
memory, the output of the encoder; `Decoder.step` writes one token at a time with a cache.

... tokens in a layout (N packed, or B L padded) . B documents . D d_model . F d_ff . H heads . K d_k . V d_v
T positions in the cache
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.layout import Layout, Padded, as_layout
from manyheads.nn.dropout import Dropout
from manyheads.nn.multihead import KeysValues, MultiHeadAttention
from manyheads.nn.parts import make_block

LayerCall = Callable[..., Tensor]
Run = Callable[..., Any]  # (part, *args) -> part(*args)


class Encoder(nn.Module):
    """Layers in sequence, and the final norm of pre-norm models.

    In training each layer is called by `call`, which may compile or recompute it, see layer_calls.py.
    """

    def __init__(self, layers: "Iterable[EncoderLayer]", *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm or nn.Identity()
        self.call: LayerCall = call_layer

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
        q, k, v = run(_project, self.attention, x, block.positions(layout))
        context = block.attend(q, k, v, layout, layout)
        return run(EncoderLayer.finish, self, x, context)

    def finish(self, x: Tensor, context: Tensor) -> Tensor:
        """What follows attention: `x` are the tokens of `forward`, `context` is that of `MultiHeadAttention.attend`."""
        x = self.attention.join(x, self.attention.block.output(context))
        return self.feed_forward(x)


@dataclass(frozen=True, slots=True)
class DecoderState:
    """The cache of a decoder after `position` tokens: of each layer the keys and values of these tokens (`past`) and of
    the memory."""

    position: int
    past: tuple[KeysValues | None, ...]
    memory: tuple[KeysValues, ...]

    def take(self, rows: Tensor) -> "DecoderState":
        """The state of documents `rows`, which may be repeated, dropped or reordered."""
        past = [None if of_layer is None else of_layer.take(rows) for of_layer in self.past]
        memory = [of_layer.take(rows) for of_layer in self.memory]
        return DecoderState(self.position, tuple(past), tuple(memory))


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the memory, feed-forward, each a residual block."""

    def __init__(self, *, attention: "Residual", cross_attention: "Residual", feed_forward: "Residual") -> None:
        super().__init__()
        assert attention.block.causal, "a token must not see those it predicts"
        self.attention, self.cross_attention, self.feed_forward = attention, cross_attention, feed_forward

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        x = self.attention(x, layout)
        x = self.cross_attention(x, layout, memory, memory_layout)
        return self.feed_forward(x)

    def in_parts(self, run: Run, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """The same in parts, see `EncoderLayer.in_parts`."""
        own, across = self.attention.block, self.cross_attention.block
        q, k, v = run(_project, self.attention, x, own.positions(layout))
        context = own.attend(q, k, v, layout, layout)
        x, q, k, v = run(DecoderLayer.between, self, x, context, memory)
        context = across.attend(q, k, v, layout, memory_layout)
        return run(DecoderLayer.finish, self, x, context)

    def between(self, x: Tensor, context: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        """What follows self-attention: the tokens then, and the queries, keys and values of cross-attention."""
        x = self.attention.join(x, self.attention.block.output(context))
        normed = self.cross_attention.before(x)
        return x, *_apart(self.cross_attention.block.project_heads(normed, memory, None, None))

    def finish(self, x: Tensor, context: Tensor) -> Tensor:
        """What follows cross-attention."""
        x = self.cross_attention.join(x, self.cross_attention.block.output(context))
        return self.feed_forward(x)

    def step(
        self, x_B1D: Tensor, here: Padded, past: KeysValues | None, memory: KeysValues
    ) -> tuple[Tensor, KeysValues]:
        """`forward` for the next token alone, at the position of `here`.

        Returns:
            Its vectors `(B, 1, D)`, and the cache with its keys and values.
        """
        own, across = self.attention.block, self.cross_attention.block
        q, k, v = own.queries_keys_values(self.attention.before(x_B1D), None, here, here)
        now = KeysValues.of_memory(k, v, here)
        if past is None:
            past = now
        else:
            most = own.window + 1 if own.window else 0  # keys that this token and later ones can see; 0: all
            past = past.grown(now, most)
        x_B1D = self.attention.join(x_B1D, _one_query(own, q, past))
        before_B1D = self.cross_attention.before(x_B1D)
        nothing = before_B1D[:0]  # the keys and values of the memory are cached: only the query is projected
        q, _, _ = across.queries_keys_values(before_B1D, nothing, here, here)
        x_B1D = self.cross_attention.join(x_B1D, _one_query(across, q, memory))
        return self.feed_forward(x_B1D), past

    def keys_values(self, memory: Tensor, layout: Layout) -> KeysValues:
        """The keys and values of the memory, computed once for all steps."""
        _, k, v = self.cross_attention.block.queries_keys_values(memory[:0], memory, layout, layout)
        return KeysValues.of_memory(k, v, layout)


class Decoder(nn.Module):
    """Decoder layers in sequence and a final norm, see `Encoder`."""

    layers: Any  # a ModuleList of DecoderLayer

    def __init__(self, layers: Iterable[DecoderLayer], *, norm: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.call: LayerCall = call_layer

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Tokens `(..., D)` and a memory `(..., D)` to tokens `(..., D)`, all positions at once."""
        call = self.call if self.training else call_layer
        for layer in self.layers:
            x = call(layer, x, layout, memory, memory_layout)
        return self.norm(x)

    def start(self, memory: Tensor, memory_layout: Layout) -> DecoderState:
        """The state before the first token."""
        keys_values = [layer.keys_values(memory, memory_layout) for layer in self.layers]
        return DecoderState(0, (None,) * len(keys_values), tuple(keys_values))

    def step(self, x_B1D: Tensor, here: Padded, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """`forward` for the next position alone: its vectors `(B, 1, D)`, and the state after it."""
        grown = []
        for layer, past, memory in zip(self.layers, state.past, state.memory, strict=True):
            x_B1D, past = layer.step(x_B1D, here, past, memory)
            grown.append(past)
        return self.norm(x_B1D), DecoderState(state.position + 1, tuple(grown), state.memory)


def _one_query(block: MultiHeadAttention, q_B1HK: Tensor, seen: KeysValues) -> Tensor:
    """The output `(B, 1, D)` for one query a document, at the last position of the cache `seen`."""
    bias_H1T = None
    if block.alibi is not None:
        positions_T = torch.arange(seen.k_BGMK.size(2), device=q_B1HK.device)
        bias_H1T = block.alibi(positions_T[-1:], positions_T)
    context_BH1V = seen.answer(q_B1HK.transpose(1, 2), block.score, block.normalise, bias_H1T)
    return block.output(context_BH1V.transpose(1, 2).flatten(-2))


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


def _project(attention: Residual, x: Tensor, positions: Tensor | None) -> tuple[Tensor, ...]:
    """What precedes self-attention: queries, keys and values of tokens `(..., D)`."""
    return _apart(attention.block.project_heads(attention.before(x), None, positions, positions))


def _apart(heads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Each in memory of its own: as slices of one tensor their gradients would be added up in a tensor of its size."""
    return tuple(one.contiguous() for one in heads)
