"""In which precision models of texts and recurrent ones are opened."""

from pathlib import Path

import pytest
import torch

import manyheads
from manyheads.config import ModelConfig, Precision
from manyheads.inference import precision
from manyheads.inference.precision import inference_dtype


@pytest.mark.parametrize("multiplies", [True, False])
def test_auto_is_bf16_where_the_processor_multiplies_in_it(
    text_folder: Path, monkeypatch: pytest.MonkeyPatch, multiplies: bool
) -> None:
    """But not for answers that are texts, nor for recurrent encoders."""
    monkeypatch.setattr(precision, "cpu_multiplies_bf16", lambda: multiplies)
    assert manyheads.load(text_folder).autocast is None
    assert inference_dtype(Precision.auto, ModelConfig(encoder="gru"), torch.device("cpu")) is None
