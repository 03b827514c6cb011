"""A map as a PNG for a paper: tokens along both sides, and a scale that says what a shade means.

L query positions . M key positions
"""

from collections.abc import Sequence

from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from manyheads.judge.pictures import GREY, INK, png
from manyheads.look.words import Word

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
