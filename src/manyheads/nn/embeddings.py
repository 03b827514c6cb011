"""Token ids to token vectors, and the four kinds of positions.

A token's vector is the sum of those of its word, its position and its segment (Devlin et al., 2019, "BERT", figure 2).
Sinusoidal and learned positions are added there. Rotary positions rotate queries and keys, ALiBi lowers scores: they
enter attention itself.

... tokens in a layout (N packed, or B L padded) . P largest number of positions . D d_model . H heads . K d_k
L query positions . M key positions
"""

import math

import torch
from torch import Tensor, nn

from manyheads.layout import Layout, Padded
from manyheads.nn.dropout import Dropout


class Embeddings(nn.Module):
    """norm(√d_embedding · word + position + segment + match), then dropout.

    Args:
        vocab_size: number of words.
        d_model: width of the result.
        positions: added positions, or None.
        n_segments: number of segments; 0: there are none.
        norm: applied to the sum.
        dropout: probability of dropping an element of the result.
        dropout_tokens: probability of dropping a whole word vector; its position and segment stay.
        d_embedding: width of the tables, 0: d_model. A projection widens them: Clark et al. (2020), "ELECTRA", section
            3.1, after Lan et al. (2020), "ALBERT".
        matches: whether a vector marks the tokens of a pair that both texts contain.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        d_model: int,
        positions: "SinusoidalPositions | LearnedPositions | None",
        n_segments: int,
        norm: nn.Module,
        dropout: float,
        dropout_tokens: float,
        d_embedding: int = 0,
        matches: bool = False,
    ) -> None:
        super().__init__()
        width = d_embedding or d_model
        self.words = nn.Embedding(vocab_size, width)
        self.positions = positions
        self.segments = nn.Embedding(n_segments, width) if n_segments else None
        self.matches = nn.Embedding(2, width) if matches else None
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.dropout_tokens = Dropout(dropout_tokens)
        self.widen = nn.Linear(width, d_model) if width != d_model else None
        self.scale = math.sqrt(width)

    def forward(
        self,
        ids: Tensor,
        layout: Layout,
        segments: Tensor | None = None,
        matched: Tensor | None = None,
        words: Tensor | None = None,
    ) -> Tensor:
        """Ids `(...)` to vectors `(..., D)`.

        Args:
            ids: token ids.
            layout: of the ids, for their positions.
            segments: `(...)`; default: all 0.
            matched: `(...)`, 1 where a token occurs in the other text of its pair; default: found from the segments.
            words: vectors `(..., d_embedding)` in place of those of the ids, for gradients with respect to them.
        """
        x = self.words(ids) if words is None else words
        x = x * self.scale
        if self.training and self.dropout_tokens.p > 0:  # one draw for a whole word
            x = x * self.dropout_tokens(x.new_ones(*ids.shape, 1))
        if self.positions is not None:
            x = x + self.positions(layout.positions).to(x.dtype)
        if self.segments is not None:
            if segments is None:  # all tokens are of the first segment, whose row is broadcast
                x = x + self.segments.weight[0]
            else:
                x = x + self.segments(segment_rows(segments))
        if self.matches is not None:
            if matched is None and segments is not None:
                matched = occurs_in_other(ids, layout, segments)
            if matched is None:  # a single text: no token occurs in another one
                x = x + self.matches.weight[0]
            else:
                x = x + self.matches(matched)
        x = self.dropout(self.norm(x))
        if self.widen is not None:
            x = self.widen(x)
        return x


class SinusoidalPositions(nn.Module):
    """sin and cos of geometrically spaced wavelengths: Vaswani et al. (2017), section 3.5.

    The table is a buffer that is not saved: it follows from its size.
    """

    table_PD: Tensor

    def __init__(self, *, max_length: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table_PD", torch.empty(max_length, d_model), persistent=False)
        self.fill()

    def fill(self) -> None:
        n, d_model = self.table_PD.shape
        angles_PD = torch.arange(n)[:, None] * inverse_wavelengths(d_model)
        self.table_PD.copy_(torch.stack((angles_PD.sin(), angles_PD.cos()), dim=-1).flatten(-2)[:, :d_model])

    def forward(self, positions: Tensor) -> Tensor:
        """Positions `(...)` from 0 to vectors `(..., D)`."""
        return self.table_PD[positions]


class LearnedPositions(nn.Embedding):
    """One trained vector for each position: Devlin et al. (2019), "BERT", section 3."""

    def __init__(self, *, max_length: int, d_model: int) -> None:
        super().__init__(max_length, d_model)


class Rotary(nn.Module):
    """Rotate pairs of dimensions by an angle proportional to the position: Su et al. (2021), "RoFormer", section 3.4.2.

    The product of a rotated query and a rotated key depends only on the distance between their positions. Dimension i
    is paired with dimension i + K / 2.
    """

    cos_PK: Tensor
    sin_PK: Tensor

    def __init__(self, *, max_length: int, d_k: int, base: float = 10_000.0) -> None:
        super().__init__()
        assert d_k % 2 == 0, "ModelConfig refuses an odd d_k with rotary positions"
        self.base = base
        self.register_buffer("cos_PK", torch.empty(max_length, d_k), persistent=False)
        self.register_buffer("sin_PK", torch.empty(max_length, d_k), persistent=False)
        self.fill()

    def fill(self) -> None:
        n, d_k = self.cos_PK.shape
        angles = torch.arange(n)[:, None] * inverse_wavelengths(d_k, self.base)
        angles_PK = torch.cat((angles, angles), dim=-1)
        self.cos_PK.copy_(angles_PK.cos())
        self.sin_PK.copy_(angles_PK.sin())

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys `(..., H, K)` at `positions` `(...)`, rotated; of the dtype of x."""
        cos = self.cos_PK[positions].unsqueeze(-2).to(x.dtype)  # (..., 1, K): the same for all heads
        sin = self.sin_PK[positions].unsqueeze(-2).to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin


class Alibi(nn.Module):
    """Scores fall linearly with distance, in each head at its own rate: Press et al. (2022), "Train Short, Test Long",
    section 3.

    The paper's model is causal; here the distance is |i - j|, in both directions.
    """

    slopes_H: Tensor

    def __init__(self, *, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes_H", torch.empty(n_heads), persistent=False)
        self.fill()

    def fill(self) -> None:
        self.slopes_H.copy_(torch.tensor(alibi_slopes(len(self.slopes_H))))

    def forward(self, query_at_L: Tensor, key_at_M: Tensor) -> Tensor:
        """The bias `(H, L, M)` to add to scaled scores, for queries at positions `(L,)` and keys at `(M,)`."""
        distance_LM = (query_at_L[:, None] - key_at_M[None, :]).abs()
        return -self.slopes_H[:, None, None] * distance_LM


def alibi_slopes(n_heads: int) -> list[float]:
    """The geometric sequence of the paper; between powers of two, every other slope of the larger one fills the gap."""
    n_power = 2 ** math.floor(math.log2(n_heads))  # the largest power of two up to the number of heads
    slopes = [2 ** (-8 * (head + 1) / n_power) for head in range(n_power)]
    between = [2 ** (-4 * (head + 1) / n_power) for head in range(0, 2 * n_power, 2)]
    return slopes + between[: n_heads - n_power]


def inverse_wavelengths(width: int, base: float = 10_000.0) -> Tensor:
    """base^(-2i / width) for each of the ⌈width / 2⌉ pairs of dimensions, in float64: angles grow with the position."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def occurs_in_other(ids: Tensor, layout: Layout, segments: Tensor) -> Tensor:
    """1 where a token occurs in the other text of its pair, else 0: `(...)`.

    A bag of words cannot see that, and a small encoder learns it late: the "exact match" of Chen et al. (2017),
    "Reading Wikipedia to Answer Open-Domain Questions", section 3.2. Nothing is read back from the device.
    """
    second = in_second(segments)
    if isinstance(layout, Padded):  # compares all pairs of tokens, which an exported graph can do
        alike_BLM = (ids[:, :, None] == ids[:, None]) & (second[:, :, None] != second[:, None])
        return (alike_BLM & layout.keep_BL[:, None]).any(-1).long()
    if not ids.numel():
        return torch.zeros_like(second)
    tokens_N = torch.arange(ids.size(0), device=ids.device)
    documents_N = torch.searchsorted(layout.offsets[1:].contiguous(), tokens_N, right=True)  # a tail is one more
    # One number for (document, id, text), whose last bit is the text: that of the same word in the other text differs
    # in this bit alone, and a sorted search finds whether it is there.
    keys_N = (documents_N * (ids.amax() + 1) + ids) * 2 + second
    partners_N = keys_N ^ 1
    sorted_N = keys_N.sort().values
    found_N = torch.searchsorted(sorted_N, partners_N).clamp(max=keys_N.numel() - 1)
    return (sorted_N[found_N] == partners_N).long()


def in_second(segments: Tensor) -> Tensor:
    """0 for tokens of the first text of a pair, 1 for those of the second: the lowest bit of segments `(...)`.

    The next bit is set where the tokenizer's type id is the other one, see `segment_rows`, and the third one where a
    token `is_surplus`.
    """
    return segments & 1


def is_surplus(segments: Tensor) -> Tensor:
    """Which tokens are a second mark at the end of a first text, bool: the tokenizers of RoBERTa put two between the
    texts of a pair, <s> first </s></s> second </s>, but a text alone ends with one."""
    return segments & 4 > 0


def segment_rows(segments: Tensor) -> Tensor:
    """The tokenizer's type ids of segments `(...)`: the rows of the table of segments."""
    return (segments ^ segments >> 1) & 1
