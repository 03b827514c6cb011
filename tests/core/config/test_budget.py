"""A budget as it is written."""

import pytest

from manyheads.cli.compose import compose
from manyheads.config.training import Budget, read_budget


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("10min", Budget(seconds=600)),
        ("90s", Budget(seconds=90)),
        ("1.5h", Budget(seconds=5400)),
        ("20Mtok", Budget(tokens=20e6)),
        ("500 ktok", Budget(tokens=5e5)),
        ("7tok", Budget(tokens=7)),
        ("", None),
    ],
)
def test_times_and_tokens_are_read(text, budget):
    assert read_budget(text) == budget


@pytest.mark.parametrize("text", ["10", "min", "0s", "-5min", "10 minutes", "1e3s", "10Min", "5mtok", "9" * 400 + "h"])
def test_anything_else_is_one_sentence(text):
    with pytest.raises(ValueError, match=r"^budget=.* is no budget: write a time, such as 90s, 10min or 1h, or a num"):
        compose("train", [f"budget={text}"])


def test_a_typed_limit_does_nothing_with_a_budget():
    with pytest.raises(ValueError, match=r"trainer.max_epochs=2 does nothing with budget=1h, which says how long"):
        compose("train", ["trainer.max_epochs=2", "budget=1h"])
