"""Maps and studies as PNG.

A map as a PNG for a paper: tokens along both sides, and a scale that says what a shade means.

L query positions . M key positions

One figure of a study, as PNG bytes: where the heads look, which are missed, which are alike, and faithfulness.

P heads of all layers
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from manyheads.evaluation.plots import BLUE, GREY, INK, RED, png, quiet
from manyheads.interpret.faithfulness import Faithfulness
from manyheads.interpret.page import Word
from manyheads.interpret.study import Study

RAMP = LinearSegmentedColormap.from_list("map", ["#f5f3ee", "#cfe1e6", "#8fbfd0", "#4a91b4", "#1d5f8e", "#10325c"])
LABELLED = 80  # tokens up to which each is named
INCHES = 0.24  # of a cell beside which its token is named
LETTERS = 18  # most of a token


def draw_map(weights_LM: Tensor, queries: Sequence[Word], keys: Sequence[Word], title: str) -> bytes:
    """Queries down, keys across; shades go with the square root of the weight, from 0 to the largest of the map."""
    named = max(len(queries), len(keys)) <= LABELLED
    high, wide = (INCHES * len(side) if named else 5.0 for side in (queries, keys))
    figure = Figure(figsize=(max(wide, 1.2) + 2.0, max(high, 1.2) + 1.4), layout="constrained")
    axes = figure.add_subplot()
    norm = PowerNorm(0.5, vmin=0.0, vmax=max(weights_LM.max().item(), 1e-12))
    image = axes.imshow(weights_LM.numpy(), cmap=RAMP, norm=norm, interpolation="nearest")
    axes.set_title(title, fontsize=9, color=INK, loc="left")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8, colors=INK)
    if named:
        axes.set_xticks(range(len(keys)), _names(keys), rotation=90, parse_math=False)
        axes.set_yticks(range(len(queries)), _names(queries), parse_math=False)
        axes.set_xticks([at - 0.5 for at in range(1, len(keys))], minor=True)
        axes.set_yticks([at - 0.5 for at in range(1, len(queries))], minor=True)
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.tick_params(which="minor", length=0)
    else:
        axes.set_xlabel("token attended to", fontsize=8, color=INK)
        axes.set_ylabel("token that attends", fontsize=8, color=INK)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=24, pad=0.02)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(length=2, labelsize=7, colors=GREY)
    bar.set_label("weight", fontsize=8, color=INK)
    return png(figure)


def _names(words: Sequence[Word]) -> list[str]:
    return [one.text if len(one.text) <= LETTERS else f"{one.text[: LETTERS - 1]}…" for one in words]


MOST_CELLS_LABELLED = 48
MOST_TICKS = 24
STYLES = {"attention": (BLUE, "o", -0.12), "gradient": (GREY, "s", 0.12)}


def draw_study(study: Study) -> bytes:
    """Above, layers by heads: entropy, distance, marks, loss. Below: agreement of all heads, and faithfulness."""
    figure = Figure(figsize=(12.0, 7.0), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.15)).flat
    found, even = study.statistics.figures, study.statistics.uniform
    marks = [
        first.mean + separators.mean for first, separators in zip(found["first"], found["separators"], strict=True)
    ]
    entropy, distance, share, loss = upper.subplots(1, 4)
    _grid(study, entropy, "entropy, share of log n", [one.mean for one in found["evenness"]], "{:.2f}", most=1.0)
    title, most = f"mean distance, tokens (even: {even['distance']:.1f})", 2 * even["distance"]
    _grid(study, distance, title, [one.mean for one in found["distance"]], "{:.1f}", most=most)
    title = f"share on first and separators (even: {even['first'] + even['separators']:.2f})"
    _grid(study, share, title, marks, "{:.2f}", most=1.0)
    _losses(study, loss)
    alike, faithful = lower.subplots(1, 2, width_ratios=(1, 1.5))
    _agreement(study, figure, alike)
    _faithfulness(study.faithfulness, faithful)
    return png(figure)


def _grid(study: Study, axes: Axes, title: str, values: list[float], form: str, most: float) -> None:
    """A cell a head, layers downward."""
    cells = _cells(study, values)
    axes.imshow(cells, cmap="Blues", vmin=0, vmax=max(most, 1e-9), aspect="auto")
    if cells.size <= MOST_CELLS_LABELLED:
        for (row, column), value in np.ndenumerate(cells):
            colour = "white" if value > 0.6 * most else INK
            if not math.isnan(value):
                axes.text(column, row, form.format(value), ha="center", va="center", color=colour, fontsize=8)
    _layers_and_heads(axes, cells, title)


def _losses(study: Study, axes: Axes) -> None:
    """Change of macro F1 without each head, in points; pale and in brackets where its interval holds zero."""
    changes = [one.macro_f1_change for one in study.silenced]
    points = _cells(study, [100 * one.value for one in changes])
    sure = _cells(study, [float(one.low > 0 or one.high < 0) for one in changes])
    widest = max(float(np.nanmax(np.abs(points))), 1e-9)
    axes.imshow(
        points * np.where(sure == 1, 1.0, 0.3), cmap="RdBu", norm=TwoSlopeNorm(0, -widest, widest), aspect="auto"
    )
    if points.size <= MOST_CELLS_LABELLED:
        for (row, column), value in np.ndenumerate(points):
            if not math.isnan(value):
                text = f"{value:+.1f}" if sure[row, column] else f"({value:+.1f})"
                colour = "white" if sure[row, column] and abs(value) > 0.6 * widest else INK
                axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)
    _layers_and_heads(axes, points, "macro F1 without it, points")


def _agreement(study: Study, figure: Figure, axes: Axes) -> None:
    """Jensen-Shannon divergence as agreement: 1 where two heads always look alike."""
    divergence = np.array(study.statistics.divergence_PP, dtype=float)
    shown = axes.imshow(1 - divergence / math.log(2), cmap="Blues", vmin=0, vmax=1)
    names, step = [str(head) for head in study.statistics.heads], -(-len(divergence) // MOST_TICKS)
    ticks = range(0, len(names), step)
    axes.set_xticks(ticks, names[::step], rotation=90)
    axes.set_yticks(ticks, names[::step])
    _bare(axes, "agreement of heads, 1 - JS / log 2")
    bar = figure.colorbar(shown, ax=axes, shrink=0.85)
    bar.ax.tick_params(labelsize=8, length=0, colors=INK)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]


def _faithfulness(found: list[Faithfulness], axes: Axes) -> None:
    """How much further the logit falls than without as many random tokens, with intervals."""
    amounts = list(dict.fromkeys(one.amount for one in found))
    for name, (colour, marker, shift) in STYLES.items():
        some = [one for one in found if one.ranking == name]
        at = [amounts.index(one.amount) + shift for one in some]
        values = np.array([[one.difference.value, one.difference.low, one.difference.high] for one in some]).reshape(
            -1, 3
        )
        spread = np.abs(values[:, 1:].T - values[:, 0])
        axes.errorbar(at, values[:, 0], spread, fmt=marker, color=colour, label=f"by {name}", capsize=3, markersize=5)
    axes.axhline(0, color=RED, linewidth=1, linestyle="--")
    axes.set_xticks(range(len(amounts)), [spell_amount(amount) for amount in amounts])
    axes.set_xlim(-0.5, max(len(amounts), 1) - 0.5)
    axes.set_xlabel("tokens silenced", color=INK, fontsize=8)
    axes.set_title("fall of the predicted logit, more than at random", fontsize=9, color=INK)
    if found:
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.9))
    quiet(axes)


def spell_amount(amount: int | float) -> str:
    """`4`, or `10 %`."""
    return f"{amount}" if amount >= 1 else f"{100 * amount:g} %"


def _cells(study: Study, values: list[float]) -> np.ndarray:
    """Values by layer and head; NaN where a layer has fewer heads."""
    heads = study.statistics.heads
    cells = np.full((max(one.layer for one in heads), max(one.head for one in heads)), np.nan)
    for head, value in zip(heads, values, strict=True):
        cells[head.layer - 1, head.head - 1] = value
    return cells


def _layers_and_heads(axes: Axes, cells: np.ndarray, title: str) -> None:
    for axis, n in ((axes.yaxis, cells.shape[0]), (axes.xaxis, cells.shape[1])):
        axis.set_major_locator(MaxNLocator(min(n, MOST_TICKS), integer=True))
        axis.set_ticks(range(0, n, -(-n // MOST_TICKS)), [str(at + 1) for at in range(0, n, -(-n // MOST_TICKS))])
    axes.set_xlabel("head", color=INK, fontsize=8)
    axes.set_ylabel("layer", color=INK, fontsize=8)
    _bare(axes, title)


def _bare(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9, color=INK)
    axes.tick_params(length=0, colors=INK, labelsize=8)
    axes.spines[:].set_visible(False)
