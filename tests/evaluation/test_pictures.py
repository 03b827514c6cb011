"""Pictures are PNGs of a readable size, whatever the classes are called."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

from manyheads.evaluation.metrics import Scores, score
from manyheads.evaluation.report import draw_confusion, draw_curves, draw_reliability

PNG = b"\x89PNG\r\n\x1a\n"


def scored(names: list[str]) -> Scores:
    random = np.random.default_rng(0)
    return score(
        random.integers(len(names), size=200), random.dirichlet(np.ones(len(names)), 200), names, n_resamples=2
    )


@pytest.mark.parametrize(
    "names", [["a", "b"], ["$x$", "\\frac{", "爱", "a_b^c", "x" * 500], [str(at) for at in range(77)]]
)
def test_any_class_names_can_be_drawn(names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pictures = [draw_confusion(scored(names)), draw_reliability(scored(names))]
    for png in pictures:
        width, height = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
        assert png.startswith(PNG)
        assert 300 < width < 2500
        assert 300 < height < 2500


def test_curves_are_drawn_as_far_as_they_were_logged() -> None:
    rows = [{"step": 1.0, "train_loss": 2.0}, {"step": 2.0, "validation_accuracy": 0.5, "validation_macro_f1": 0.4}]
    assert list(draw_curves(rows)) == ["loss", "accuracy"]
    assert list(draw_curves(rows[:1])) == ["loss"]
    assert draw_curves([{"step": 1.0, "lr": 0.1}]) == {}


def test_nothing_global_is_touched() -> None:
    program = "import sys, manyheads.evaluation.report; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
