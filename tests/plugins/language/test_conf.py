"""Presets of pretraining, of answers that are texts and of recurrent encoders."""

import pytest

from manyheads.cli.compose import compose
from manyheads.cli.presets import composed_by_hydra, merge_presets


@pytest.mark.parametrize(
    ("verb", "groups"),
    [
        ("train", {"experiment": "dates", "debug": "overfit"}),
        ("pretrain", {"experiment": "paper", "model": "mini"}),
    ],
)
def test_presets_are_laid_over_one_another_as_hydra_composes_them(verb, groups):
    assert merge_presets(verb, groups) == composed_by_hydra(verb, groups)


@pytest.mark.parametrize(
    ("word", "encoder", "positions"),
    [
        ("model=rotary", "transformer", "rotary"),
        ("model=rnn_attention", "gru", "none"),
        ("model=tiny", "transformer", "sinusoidal"),
    ],
)
def test_a_typed_preset_replaces_that_of_an_experiment(word, encoder, positions):
    model = compose("train", ["experiment=dates", word]).model
    assert (model.encoder, model.positions, model.dropout) == (encoder, positions, 0.1)
    assert compose("train", ["experiment=dates"]) == compose("train", ["experiment=dates", "model=rotary"])
