"""Recurrent models are not compiled, and compute nothing again."""

from types import SimpleNamespace

import pytest

from manyheads.config import HardwareConfig, ModelConfig, RunConfig
from manyheads.nn import assemble
from manyheads.training.trainer import speed_up
from tests.core.training.test_speed import trainer


def test_recurrent_models_go_as_they_are():
    run = RunConfig(model=ModelConfig(encoder="gru"))
    data = SimpleNamespace(mean_tokens=lambda: 100.0, few_counts=False)
    speed_up(run, assemble(run.model, vocab_size=20, n_classes=3, max_length=16), data, trainer("cuda"), 10**6)
    assert not data.few_counts


def test_recomputing_is_for_layers_of_attention():
    with pytest.raises(ValueError, match=r"^hardware\.recompute=true does nothing with model\.encoder=gru"):
        RunConfig(model=ModelConfig(encoder="gru"), hardware=HardwareConfig(recompute=True))
