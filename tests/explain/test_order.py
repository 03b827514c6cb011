"""What sees order and what does not."""

import pytest
import torch

from manyheads.config import ModelConfig, Positions
from manyheads.explain.formula import CASES, build, differences


def measured(case: str) -> dict[str, float]:
    torch.manual_seed(0)
    settings = {"positions": Positions.none, "d_model": 16, "d_k": 4, "d_v": 4, "d_ff": 16} | CASES[case]
    classifier = build(ModelConfig(**settings)).double()
    return differences(classifier, carried="keeps its own" in case, random=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("case", ["no positions", "sinusoidal, each token keeps its own"])
def test_without_positions_the_encoder_commutes_with_any_exchange_and_the_logits_stay(case):
    found = measured(case)
    assert found["token_vectors"] < 1e-13
    assert found["logits"] < 1e-13


@pytest.mark.parametrize(
    "case", ["sinusoidal", "learned", "rotary", "alibi", "no positions, causal", "no positions, window of 2"]
)
def test_positions_masks_and_windows_see_order(case):
    found = measured(case)
    assert found["token_vectors"] > 0.05
    assert found["logits"] > 1e-3
