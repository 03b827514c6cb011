"""How word order enters an encoder that would otherwise not see it.

... tokens in a layout . P largest number of positions . D d_model . H heads . K d_k . L, M positions
"""

import math

import torch
from torch import Tensor, nn


class SinusoidalPositions(nn.Module):
    """sin and cos of geometrically spaced wavelengths: Vaswani et al. (2017), section 3.5."""

    table_PD: Tensor

    def __init__(self, *, max_length: int, d_model: int) -> None:
        super().__init__()
        angles_PD = torch.arange(max_length)[:, None] * inverse_wavelengths(d_model)
        table_PD = torch.stack((angles_PD.sin(), angles_PD.cos()), dim=-1).flatten(-2)[:, :d_model]
        self.register_buffer("table_PD", table_PD.float().contiguous(), persistent=False)

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
        angles = torch.arange(max_length)[:, None] * inverse_wavelengths(d_k, base)
        angles_PK = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos_PK", angles_PK.cos().float(), persistent=False)
        self.register_buffer("sin_PK", angles_PK.sin().float(), persistent=False)

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
        self.register_buffer("slopes_H", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def forward(self, n_queries: int, n_keys: int) -> Tensor:
        """The bias of the scaled scores: `(H, L, M)`."""
        at = torch.arange(max(n_queries, n_keys), device=self.slopes_H.device)
        distance_LM = (at[:n_queries, None] - at[None, :n_keys]).abs()
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
