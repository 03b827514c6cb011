"""The Transformer's decoder (Vaswani et al., 2017, section 3.1), and its cache of keys and values.

A layer of it also attends to a memory, the output of the encoder; `Decoder.step` writes one token at a time.

... tokens in a layout (N packed, or B L padded) . B documents . M positions of the memory, or of the cache
H query heads . G key/value heads . K d_k . V d_v . D d_model . T positions in the cache
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

import manyheads.plugin as plugin
from manyheads.config import ModelConfig
from manyheads.layout import Layout, Padded
from manyheads.nn.attention import Normaliser, Score, attend
from manyheads.nn.cost import flops_per_token, key_flops, layer_flops, pair_flops, query_flops
from manyheads.nn.multihead import MultiHeadAttention
from manyheads.nn.transformer import Residual, Run, Stack, call_layer, contiguous, project_alone


@dataclass(frozen=True, slots=True)
class KeysValues:
    """A cache of keys and values. `keep_B11M` is true where a query may attend; None: everywhere."""

    k_BGMK: Tensor
    v_BGMV: Tensor
    keep_B11M: Tensor | None = None

    @classmethod
    def of_memory(cls, k: Tensor, v: Tensor, layout: Layout) -> Self:
        """From keys `(..., G, K)` and values `(..., G, V)` in `layout`."""
        keep_B11M = None if layout.is_full else layout.keep_BL[:, None, None]
        k_BGMK = layout.grid(k).transpose(1, 2)
        v_BGMV = layout.grid(v).transpose(1, 2)
        return cls(k_BGMK, v_BGMV, keep_B11M)

    def grown(self, other: "KeysValues", most: int = 0) -> "KeysValues":
        """With the positions of `other` appended; only the last `most` are kept (0: all)."""
        k_BGMK = torch.cat((self.k_BGMK, other.k_BGMK), dim=2)
        v_BGMV = torch.cat((self.v_BGMV, other.v_BGMV), dim=2)
        if most:
            k_BGMK, v_BGMV = k_BGMK[:, :, -most:], v_BGMV[:, :, -most:]
        return KeysValues(k_BGMK, v_BGMV)

    def answer(self, q_BHLK: Tensor, score: Score, normalise: Normaliser, bias: Tensor | None = None) -> Tensor:
        """The contexts `(B, H, L, V)` of queries that attend to the cache, see `attend`."""
        return attend(q_BHLK, self.k_BGMK, self.v_BGMV, self.keep_B11M, score=score, normalise=normalise, bias=bias)

    def take(self, rows: Tensor) -> "KeysValues":
        """The cache of documents `rows`, which may be repeated, dropped or reordered."""
        keep_B11M = self.keep_B11M
        if keep_B11M is not None:
            keep_B11M = keep_B11M.index_select(0, rows)
        return KeysValues(self.k_BGMK.index_select(0, rows), self.v_BGMV.index_select(0, rows), keep_B11M)


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

    def __init__(self, *, attention: Residual, cross_attention: Residual, feed_forward: Residual) -> None:
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
        q, k, v = run(project_alone, self.attention, x, own.positions(layout))
        context = own.attend(q, k, v, layout, layout)
        x, q, k, v = run(DecoderLayer.between, self, x, context, memory)
        context = across.attend(q, k, v, layout, memory_layout)
        return run(DecoderLayer.finish, self, x, context)

    def between(self, x: Tensor, context: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        """What follows self-attention: the tokens then, and the queries, keys and values of cross-attention."""
        x = self.attention.join(x, self.attention.block.output(context))
        normed = self.cross_attention.before(x)
        return x, *contiguous(self.cross_attention.block.project_heads(normed, memory, None, None))

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


class Decoder(Stack):
    """Layers of a decoder."""

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


def flops_per_answer(model: ModelConfig, source: float, target: float, vocab_size: int) -> float:
    """Operations of one forward pass of a sequence-to-sequence model, all target tokens at once.

    In addition to the encoder's operations and those of causal layers, a decoder layer has a cross-attention: queries
    and W^O for each target token, keys and values for each source token. The head has 2 d_model `vocab_size` for each
    target token. A recurrent decoder has one cross-attention, after its layers, and 4 d_model² to combine its output
    with each state.

    Args:
        source, target: lengths of the texts, in tokens.
    """
    head = target * (2 * model.d_model * vocab_size)
    if not model.has_heads:
        count = plugin.resolve(model.facts("encoder")["flops_of_answer"])
        return count(model, source, target) + head
    total = source * flops_per_token(model, source, pooled=False) + head
    for layer in range(model.n_layers):
        score = model.score_of(layer)
        total += target * layer_flops(replace(model, causal=True), layer, target)
        # Cross-attention: each target token is a query, each source token a key.
        total += target * (query_flops(model, score) + source * pair_flops(model, score))
        total += source * key_flops(model, score)
    return total
