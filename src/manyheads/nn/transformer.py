"""The Transformer's encoder and decoder (Vaswani et al., 2017, section 3.1): residual blocks around attention and
feed-forward, their norms, how training goes through the layers, and one step of a decoder beside what it remembers.

... tokens in a layout (N packed, or B L padded) . B documents . D d_model . F d_ff . H heads
T positions so far
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import manyheads.plugin as plugin
from manyheads.layout import Layout, Packed, Padded, as_layout
from manyheads.nn.dropout import Dropout
from manyheads.nn.multihead import KeysValues, MultiHeadAttention
from manyheads.nn.parts import make_block

MOST_GRAPHS = 64  # two for each window of a model
Walk = Callable[..., Tensor]


class Encoder(nn.Module):
    """Layers one after another, and the norm that pre-norm leaves to the end. In training `walk` goes through each
    layer: see `make_walk`."""

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


@dataclass(frozen=True, slots=True)
class DecoderState:
    """After `position` tokens: of each layer the keys and values of these tokens, and those of the memory."""

    position: int
    past: tuple[KeysValues | None, ...]
    memory: tuple[KeysValues, ...]

    def take(self, rows: Tensor) -> "DecoderState":
        """The state of documents `rows`, which may repeat, drop and reorder."""
        past = tuple(None if one is None else one.take(rows) for one in self.past)
        return DecoderState(self.position, past, tuple(one.take(rows) for one in self.memory))


class DecoderLayer(nn.Module):
    """Tokens look at those before them, then at the memory, then each is thought over alone."""

    def __init__(self, *, attention: "Residual", cross_attention: "Residual", feed_forward: "Residual") -> None:
        super().__init__()
        assert attention.block.causal, "a token must not see those that it is to say next"
        self.attention, self.cross_attention, self.feed_forward = attention, cross_attention, feed_forward

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        x = self.cross_attention(self.attention(x, layout), layout, memory, memory_layout)
        return self.feed_forward(x)

    def step(
        self, x_B1D: Tensor, here: Padded, past: KeysValues | None, memory: KeysValues
    ) -> tuple[Tensor, KeysValues]:
        """`forward` for the next token alone, at the position of `here`: vectors `(B, 1, D)`, and the grown past."""
        own, across = self.attention.block, self.cross_attention.block
        q, k, v = own.queries_keys_values(self.attention.before(x_B1D), None, here, here)
        now = KeysValues.of_memory(k, v, here)
        past = now if past is None else past.grown(now, own.window and own.window + 1)
        x_B1D = self.attention.join(x_B1D, _one_query(own, q, past))
        before_B1D = self.cross_attention.before(x_B1D)
        q, _, _ = across.queries_keys_values(before_B1D, before_B1D[:0], here, here)
        x_B1D = self.cross_attention.join(x_B1D, _one_query(across, q, memory))
        return self.feed_forward(x_B1D), past

    def keys_values(self, memory: Tensor, layout: Layout) -> KeysValues:
        """What every step attends to in the memory."""
        _, k, v = self.cross_attention.block.queries_keys_values(memory[:0], memory, layout, layout)
        return KeysValues.of_memory(k, v, layout)


class Decoder(nn.Module):
    """As `Encoder`, beside a memory."""

    layers: Any  # a ModuleList of DecoderLayer

    def __init__(self, layers: Iterable[DecoderLayer], *, norm: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.walk: Walk = through

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Tokens `(..., D)` beside a memory `(..., D)` to tokens `(..., D)`, all positions at once."""
        walk = self.walk if self.training else through
        for layer in self.layers:
            x = walk(layer, x, layout, memory, memory_layout)
        return self.norm(x)

    def start(self, memory: Tensor, memory_layout: Layout) -> DecoderState:
        """The state before the first token."""
        keys_values = tuple(layer.keys_values(memory, memory_layout) for layer in self.layers)
        return DecoderState(0, (None,) * len(keys_values), keys_values)

    def step(self, x_B1D: Tensor, here: Padded, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The next position alone, the same as in `forward`: `(B, 1, D)`."""
        grown = []
        for layer, past, memory in zip(self.layers, state.past, state.memory, strict=True):
            x_B1D, past = layer.step(x_B1D, here, past, memory)
            grown.append(past)
        return self.norm(x_B1D), DecoderState(state.position + 1, tuple(grown), state.memory)


def _one_query(block: MultiHeadAttention, q_B1HK: Tensor, seen: KeysValues) -> Tensor:
    """The output `(B, 1, D)` of queries that stand behind all keys of `seen`."""
    bias_H1T = None
    if block.alibi is not None:
        at_T = torch.arange(seen.k_BGMK.size(2), device=q_B1HK.device)
        bias_H1T = block.alibi(at_T[-1:], at_T)
    context_BH1V = seen.answer(q_B1HK.transpose(1, 2), block.score, block.normalise, bias_H1T)
    return block.output(context_BH1V.transpose(1, 2).flatten(-2))


class Residual(nn.Module):
    """after(x + dropout(block(before(x)))): a norm before is pre-norm (Xiong et al., 2020), one after is the paper's
    post-norm, a norm at both places is LN(x + block(LN(x)))."""

    block: Any  # a module

    def __init__(
        self, block: nn.Module, *, before: nn.Module | None = None, after: nn.Module | None = None, dropout: float = 0.0
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
    and W3 side by side in one weight: Shazeer (2020). `activation` is `relu`, `gelu`, or gated `geglu`, `swiglu`.
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
        self.widen = nn.Linear(d_model, d_ff * (2 if self.is_gated else 1), bias=bias)
        self.narrow = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        hidden = self.widen(x)
        if self.is_gated:
            gate, hidden = hidden.chunk(2, dim=-1)
            return self.narrow(self.activate(gate) * hidden)
        return self.narrow(self.activate(hidden))


def layer_norm(*, d_model: int, eps: float = 1e-5, bias: bool = True) -> nn.Module:
    """Over the last axis: Ba et al. (2016)."""
    return nn.LayerNorm(d_model, eps=eps, bias=bias)


def rms_norm(*, d_model: int, eps: float = 1e-6) -> nn.Module:
    """Over the last axis, without a mean and a bias: Zhang and Sennrich (2019)."""
    return nn.RMSNorm(d_model, eps=eps)


def through(layer: nn.Module, x: Tensor, *context: Tensor | Layout) -> Tensor:
    """Tokens `(..., D)` through one layer."""
    return layer(x, *context)


def _prepared(walk: Walk, layer: nn.Module, x: Tensor, *context: Tensor | Layout) -> Tensor:
    """`walk`, which finds all that it asks of the documents: made in the first layer, used in the others."""
    for one in context:
        if isinstance(one, Packed):
            one.prepare()
    return walk(layer, x, *context)


def make_walk(*, mode: str = "", recompute: bool = False, backend: str = "inductor") -> Walk:
    """A `through` with the same answers and gradients: compiled, or keeping less for the backward pass.

    The layers are alike, so what is compiled is one step through any of them: it is compiled once, not once a layer,
    or once for each window they have. torch gives up compiling a function after eight graphs; here after `MOST_GRAPHS`.

    Args:
        mode: of torch.compile: `default`, or `reduce-overhead` for CUDA graphs; empty: not compiled.
        recompute: keep the input of a layer alone and compute the rest once more for the gradient, with the same
            random numbers: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost", section 4.
        backend: what compiles.
    """
    walk: Walk = through
    if mode:  # the second token count makes torch compile once more, for all counts
        from torch._dynamo import config  # which takes long to import

        config.recompile_limit = max(MOST_GRAPHS, config.recompile_limit)
        walk = partial(_prepared, torch.compile(through, backend=backend, mode=mode))
    return partial(checkpoint, walk, use_reentrant=False) if recompute else walk
