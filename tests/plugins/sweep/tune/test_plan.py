"""Which settings are drawn, and what is said of ranges that hold too few."""

import numpy as np
import pytest

from manyheads.cli.compose import compose
from manyheads.data.rows import Rows, Splits
from manyheads.plugins.sweep.same_search import search_settings
from manyheads.plugins.sweep.tune import plan_settings


@pytest.mark.parametrize(
    ("words", "n_found", "n_trials"),
    [
        (["optim.beta2=0.999..0.9999"], 10, 20),
        (["model.dropout=0.1..0.101", "trials=15"], 11, 15),
        (["optim.lr=log:1e-4..1.001e-4", "model.n_layers=1,2", "trials=5"], 4, 5),
    ],
)
def test_a_range_too_narrow_for_its_trials(words, n_found, n_trials):
    with pytest.raises(ValueError, match="different settings") as error:
        plan_settings(compose("tune", words))
    assert str(error.value) == (
        f"{words[0]}: only {n_found} different settings were found for {n_trials} trials, as numbers are drawn with "
        f"few digits: add trials={n_found}, or search a wider range"
    )
    assert len(plan_settings(compose("tune", [*words, f"trials={n_found}"]))) == n_found


def test_whole_numbers_are_drawn_to_the_last():
    drawn = plan_settings(compose("tune", ["model.d_ff=log:1..1000", "method=random", "trials=1000"]))
    assert sorted(one["model.d_ff"] for one in drawn) == list(range(1, 1001))


def test_a_range_of_any_width_takes_no_memory():
    config = compose("tune", ["batch.tokens=64..2000000000", "trials=2"])
    assert config.size == 2_000_000_000 - 63
    assert len(plan_settings(config)) == 2


def test_a_search_of_many_rows_is_another_with_one_other_label():
    """numpy prints an array of more than 1,000 numbers without its middle."""

    def data(changed: int) -> str:
        labels = np.arange(3000, dtype=np.int32) % 2
        labels[1500] ^= changed
        rows = Rows(["a text"] * 3000, None, labels, "rows.csv", range(3000))
        return search_settings(compose("tune", ["model.n_layers=1,2"]), Splits(rows, rows, None, ["no", "yes"], []))[
            "data"
        ]

    assert data(0) == data(0) != data(1)
