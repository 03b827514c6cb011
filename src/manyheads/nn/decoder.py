"""The decoder: Vaswani et al. (2017), section 3.1, and one step of it beside what it remembers.

... tokens in a layout (N packed, or B L padded) . B documents (or beams) . D d_model . H heads . T positions so far
"""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from manyheads.layout import Layout, Padded
from manyheads.nn.attention import attend
from manyheads.nn.encoder import Residual, Walk, through
from manyheads.nn.multihead import KeysValues, MultiHeadAttention


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

    def __init__(self, *, attention: Residual, cross_attention: Residual, feed_forward: Residual) -> None:
        super().__init__()
        self.attention, self.cross_attention, self.feed_forward = attention, cross_attention, feed_forward
        assert self._blocks()[0].causal, "a token must not see those that it is to say next"

    def forward(self, x: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout) -> Tensor:
        """Tokens `(..., D)` to tokens `(..., D)`."""
        x = self.cross_attention(self.attention(x, layout), layout, memory, memory_layout)
        return self.feed_forward(x)

    def step(
        self, x_B1D: Tensor, here: Padded, past: KeysValues | None, memory: KeysValues
    ) -> tuple[Tensor, KeysValues]:
        """`forward` for the next token alone, at the position of `here`: vectors `(B, 1, D)`, and the grown past."""
        own, across = self._blocks()
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
        _, across = self._blocks()
        _, k, v = across.queries_keys_values(memory[:0], memory, layout, layout)
        return KeysValues.of_memory(k, v, layout)

    def _blocks(self) -> tuple[MultiHeadAttention, MultiHeadAttention]:
        return self.attention.block, self.cross_attention.block  # type: ignore[return-value]


class Decoder(nn.Module):
    """Layers one after another, and the norm that pre-norm leaves to the end.

    In training `walk` goes through each layer: see `make_walk`.
    """

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
        keys_values = tuple(layer.keys_values(memory, memory_layout) for layer in self._layers())
        return DecoderState(0, (None,) * len(keys_values), keys_values)

    def step(self, x_B1D: Tensor, here: Padded, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The next position alone, the same as in `forward`: `(B, 1, D)`."""
        grown = []
        for layer, past, memory in zip(self._layers(), state.past, state.memory, strict=True):
            x_B1D, past = layer.step(x_B1D, here, past, memory)
            grown.append(past)
        return self.norm(x_B1D), DecoderState(state.position + 1, tuple(grown), state.memory)

    def _layers(self) -> list[DecoderLayer]:
        return list(self.layers)  # type: ignore[arg-type]


def _one_query(block: MultiHeadAttention, q_B1HK: Tensor, seen: KeysValues) -> Tensor:
    """The output `(B, 1, D)` of queries that stand behind all keys of `seen`."""
    bias_H1T = None if block.alibi is None else block.alibi(1, seen.k_BGMK.size(2)).flip(-1)
    context_BH1V = attend(
        q_B1HK.transpose(1, 2),
        seen.k_BGMK,
        seen.v_BGMV,
        seen.keep_B11M,
        score=block.score,
        normalise=block.normalise,
        bias=bias_H1T,
    )
    return block.output(context_BH1V.transpose(1, 2).flatten(-2))
