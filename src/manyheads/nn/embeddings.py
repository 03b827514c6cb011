"""Token ids to token vectors: word, position and segment added up (Devlin et al., 2019, "BERT", figure 2), and of pairs
which tokens both texts have; the positions that enter attention itself.

... tokens in a layout (N packed, or B L padded) . P largest number of positions . D d_model . H heads . K d_k
L, M positions
"""

import math

import torch
from torch import Tensor, nn

from manyheads.layout import Layout, Padded
from manyheads.nn.dropout import Dropout


class Embeddings(nn.Module):
    """√d_embedding word + position + segment + match, then norm and dropout.

    Tables narrower than d_model are widened by one projection behind that: Clark et al. (2020), "ELECTRA",
    section 3.1, after Lan et al. (2020), "ALBERT". `dropout_tokens` silences whole words: their position and segment
    stay.
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
        """Ids `(...)`, and segments `(...)` if the model has them, to vectors `(..., D)`; left out, all are 0.

        `matched` `(...)` is 1 where a token occurs in the other text of its pair; found by the segments if left out.
        `words` `(..., d_embedding)` are used in place of the vectors of the ids.
        """
        x = (self.words(ids) if words is None else words) * self.scale
        if self.training and self.dropout_tokens.p > 0:
            x = x * self.dropout_tokens(x.new_ones(*ids.shape, 1))
        if self.positions is not None:
            x = x + self.positions(layout.positions).to(x.dtype)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segment_rows(segments)))
        if self.matches is not None:
            if matched is None and segments is not None:
                matched = occurs_in_other(ids, layout, segments)
            x = x + (self.matches.weight[0] if matched is None else self.matches(matched))
        x = self.dropout(self.norm(x))
        return x if self.widen is None else self.widen(x)


class SinusoidalPositions(nn.Module):
    """sin and cos of geometrically spaced wavelengths: Vaswani et al. (2017), section 3.5."""

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
    """Turn pairs of dimensions by an angle proportional to the position: Su et al. (2021), "RoFormer", section 3.4.2.

    The product of a turned query and a turned key depends on their distance alone. Dimension i is paired
    with dimension i + K / 2.
    """

    cos_PK: Tensor
    sin_PK: Tensor

    def __init__(self, *, max_length: int, d_k: int, base: float = 10_000.0) -> None:
        super().__init__()
        assert d_k % 2 == 0, "ModelConfig refuses an odd d_k with rotary positions"
        self.base = base
        for name in ("cos_PK", "sin_PK"):
            self.register_buffer(name, torch.empty(max_length, d_k), persistent=False)
        self.fill()

    def fill(self) -> None:
        n, d_k = self.cos_PK.shape
        angles = torch.arange(n)[:, None] * inverse_wavelengths(d_k, self.base)
        angles_PK = torch.cat((angles, angles), dim=-1)
        self.cos_PK.copy_(angles_PK.cos())
        self.sin_PK.copy_(angles_PK.sin())

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Heads `(..., H, K)` at `positions` `(...)`, turned; the dtype is kept."""
        cos, sin = (table[positions].unsqueeze(-2).to(x.dtype) for table in (self.cos_PK, self.sin_PK))
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin


class Alibi(nn.Module):
    """Scores fall with distance, each head at its own rate: Press et al. (2022), "Train Short, Test Long", section 3.

    The paper is causal; here the distance is taken both ways, |i - j|.
    """

    slopes_H: Tensor

    def __init__(self, *, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes_H", torch.empty(n_heads), persistent=False)
        self.fill()

    def fill(self) -> None:
        self.slopes_H.copy_(torch.tensor(alibi_slopes(len(self.slopes_H))))

    def forward(self, query_at_L: Tensor, key_at_M: Tensor) -> Tensor:
        """The bias of the scaled scores of queries and keys at these positions: `(H, L, M)`."""
        distance_LM = (query_at_L[:, None] - key_at_M[None, :]).abs()
        return -self.slopes_H[:, None, None] * distance_LM


def alibi_slopes(n_heads: int) -> list[float]:
    """The geometric sequence of the paper; between powers of two every other slope of the next power fills the gap."""
    whole = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * (head + 1) / whole) for head in range(whole)]
    between = [2 ** (-4 * (head + 1) / whole) for head in range(0, 2 * whole, 2)]
    return slopes + between[: n_heads - whole]


def inverse_wavelengths(width: int, base: float = 10_000.0) -> Tensor:
    """base^(-2i / width) for the ⌈width / 2⌉ pairs of dimensions, in float64: angles grow with the position."""
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


def occurs_in_other(ids: Tensor, layout: Layout, segments: Tensor) -> Tensor:
    """Ids and segments (as of `in_second`) `(...)` to 1 where a token occurs in the other text of its pair, else 0:
    what a bag of words cannot see of a pair, and a small encoder learns late (Chen et al., 2017, "Reading Wikipedia",
    section 3.2, "exact match"). Nothing is read back from the device."""
    second = in_second(segments)
    if isinstance(layout, Padded):  # every token beside every other, which a graph can hold
        alike_BLM = (ids[:, :, None] == ids[:, None]) & (second[:, :, None] != second[:, None])
        return (alike_BLM & layout.keep_BL[:, None]).any(-1).long()
    width = ids.amax() + 1 if ids.numel() else 1
    every_N = torch.arange(ids.size(0), device=ids.device)
    documents = torch.searchsorted(layout.offsets[1:].contiguous(), every_N, right=True)  # in a tail that of none
    names = (documents * width + ids) * 2 + second
    known = names.sort().values
    asked = names ^ 1
    at = torch.searchsorted(known, asked).clamp(max=max(0, known.numel() - 1))
    return (known[at] == asked).long() if known.numel() else asked


def in_second(segments: Tensor) -> Tensor:
    """Segments `(...)` to 0 of the first text of a pair, 1 of the second.

    Segments are that number, plus 2 where the tokenizer's type id is the other one: see `segment_rows`.
    """
    return segments & 1


def segment_rows(segments: Tensor) -> Tensor:
    """Segments `(...)` to the tokenizer's type ids, by which the table of segments is read."""
    return (segments ^ segments >> 1) & 1
