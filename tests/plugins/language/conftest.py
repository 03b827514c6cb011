"""What the tests of recurrent encoders share: one seed and small models."""

from typing import Any

import pytest
import torch

from manyheads.config import ModelConfig
from manyheads.config.fields import from_plain, to_plain


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def small():
    """A small ModelConfig without dropout, with any field overridden, choices by name."""

    def build(**fields: Any) -> ModelConfig:
        sizes = {"n_layers": 2, "d_model": 12, "dropout": 0.0, "dropout_tokens": 0.0}
        return from_plain(ModelConfig, to_plain(sizes | fields), "model.")

    return build
