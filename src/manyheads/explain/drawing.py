"""The look of the pictures: one palette, quiet axes, labels with units. Plain figures, no pyplot."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from manyheads.evaluation.report import BLUE, GREY, INK, PALE, RED, png, quiet

__all__ = ["BLUE", "GREY", "INK", "PALE", "RED", "TEAL", "draw", "heatmap", "lines", "name", "png", "powers_of_two"]

TEAL = "#2a9d8f"


def draw(n_rows: int, n_columns: int, *, width: float, height: float, **grid: Any) -> tuple[Figure, np.ndarray]:
    """A figure of `width` x `height` inches and its panels `(n_rows, n_columns)`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False, gridspec_kw=grid or None)
    for panel in panels.flat:
        quiet(panel)
        panel.xaxis.label.set(fontsize=9, color=INK)
        panel.yaxis.label.set(fontsize=9, color=INK)
    return figure, panels


def name(axes: Axes, title: str) -> None:
    """What a panel shows, above it on the left."""
    axes.set_title(title, fontsize=10, color=INK, loc="left", parse_math=False)


def lines(
    axes: Axes,
    x: Sequence[float],
    looks: dict[str, tuple[str, str, str]],
    values: dict[str, list[float]],
    width: float = 1.5,
) -> None:
    """A line over `x` for each key of `looks`, by its label, colour and matplotlib's format."""
    for key, (label, colour, form) in looks.items():
        axes.plot(x, values[key], form, color=colour, label=label, markersize=4, linewidth=width)


def powers_of_two(axes: Axes, ticks: Sequence[int], label: str) -> None:
    """A logarithmic axis with the ticks named by their plain numbers."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(ticks), [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


def heatmap(
    axes: Axes,
    values: np.ndarray,
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    low: float = 0.0,
    high: float = 1.0,
    colours: str = "Blues",
    numbers: bool = False,
) -> None:
    """A matrix as coloured cells, named where names are given; with `numbers` the values are written into them."""
    axes.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="equal")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8)
    axes.set_xticks(range(len(columns)), columns, rotation=50, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(rows)), rows, parse_math=False)
    if numbers:
        for (row, column), value in np.ndenumerate(values):
            dark = (value - low) / (high - low) > 0.55
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if dark else INK, fontsize=7)
