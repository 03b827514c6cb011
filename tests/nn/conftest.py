"""What the tests of the blocks share: one seed and small models."""

from typing import Any

import pytest
import torch

from manyheads.config import ModelConfig
from manyheads.config.model import (
    Activation,
    EncoderKind,
    Norm,
    Normaliser,
    PairKind,
    Placement,
    Pooling,
    Positions,
    Score,
    Segments,
)

CHOICES = {
    "encoder": EncoderKind,
    "activation": Activation,
    "positions": Positions,
    "norm": Norm,
    "placement": Placement,
    "pooling": Pooling,
    "pair": PairKind,
    "segments": Segments,
    "score": Score,
    "normaliser": Normaliser,
}

SMALL: dict[str, Any] = {
    "n_layers": 2,
    "n_heads": 2,
    "d_model": 12,
    "d_k": 4,
    "d_v": 5,
    "d_ff": 16,
    "dropout": 0.0,
    "dropout_tokens": 0.0,
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def choices():
    """The Enum of each setting that is a choice."""
    return CHOICES


@pytest.fixture(scope="session")
def small():
    """A small ModelConfig without dropout, with any field overridden, choices by name; n_heads * d_k is not d_model."""

    def build(**fields: Any) -> ModelConfig:
        chosen = {name: CHOICES[name][value] if name in CHOICES else value for name, value in fields.items()}
        return ModelConfig(**(SMALL | chosen))

    return build
