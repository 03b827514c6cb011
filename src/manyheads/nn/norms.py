"""Normalisation of token vectors. LayerNorm: Ba et al. (2016); RMSNorm: Zhang and Sennrich (2019)."""

from torch import nn


def make_norm(kind: str, d_model: int, eps: float | None = None, *, bias: bool = True) -> nn.Module:
    """`layer` or `rms`, over the last axis; `eps`, added to the variance, is 1e-5 or 1e-6 where it is left open.

    `bias` is of `layer`: `rms` has none.
    """
    if kind == "rms":
        return nn.RMSNorm(d_model, eps=eps or 1e-6)
    return nn.LayerNorm(d_model, eps=eps or 1e-5, bias=bias)
