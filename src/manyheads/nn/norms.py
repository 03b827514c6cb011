"""Normalisation of token vectors. LayerNorm: Ba et al. (2016); RMSNorm: Zhang and Sennrich (2019)."""

from torch import nn


def make_norm(kind: str, d_model: int) -> nn.Module:
    """`layer` or `rms`, over the last axis."""
    return nn.LayerNorm(d_model) if kind == "layer" else nn.RMSNorm(d_model, eps=1e-6)
