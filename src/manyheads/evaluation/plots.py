"""Pictures of scores and curves, as PNG bytes: for files beside metrics.json and inside the report.

No pyplot: figures are plain objects, no window system is asked for and nothing is global. Names are drawn as they
are, never read as TeX.
"""

import warnings
from collections.abc import Sequence
from io import BytesIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from manyheads.evaluation.scores import Bin, Scores
from manyheads.runs.folder import Curve

INK, GREY, BLUE, PALE, RED = "#1c2330", "#8a93a3", "#4a82e4", "#c9daf8", "#d1495b"
MOST_CELLS_LABELLED = 20
FEW_ROWS = 20  # a bin with fewer says little: it is drawn pale
PANELS = {
    "loss": [("train_loss", BLUE, "-"), ("validation_loss", RED, "-")],
    "accuracy": [
        ("train_accuracy", BLUE, "-"),
        ("validation_accuracy", RED, "-"),
        ("validation_macro_f1", RED, ":"),
        ("train_token_accuracy", BLUE, "-"),
        ("validation_token_accuracy", RED, "-"),
        ("validation_exact_match", RED, ":"),
    ],
    "f1": [("train_micro_f1", BLUE, "-"), ("validation_micro_f1", RED, "-"), ("validation_macro_f1", RED, ":")],
}
BESIDE = "validation_macro_f1"  # drawn beside other figures alone


def draw_confusion(scores: Scores) -> bytes:
    """Rows are the true classes, columns the answers; colour is the share of the row."""
    counts_CC = np.array(scores.confusion)
    shares_CC = counts_CC / np.maximum(counts_CC.sum(1, keepdims=True), 1)
    n_classes, small = len(scores.labels), len(scores.labels) <= MOST_CELLS_LABELLED
    side = min(2.6 + 0.52 * n_classes, 9.0)
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(shares_CC, cmap="Blues", vmin=0, vmax=1)
    axes.set_xlabel("answer", color=INK)
    axes.set_ylabel("true class", color=INK)
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)
    if small:
        names = [_short(name) for name in scores.labels]
        axes.set_xticks(range(n_classes), names, rotation=40, ha="right", rotation_mode="anchor", parse_math=False)
        axes.set_yticks(range(n_classes), names, parse_math=False)
        for (row, column), count in np.ndenumerate(counts_CC):
            colour = "white" if shares_CC[row, column] > 0.5 else INK if count else "#c4cad4"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, fontsize=8)
    return png(figure)


def draw_reliability(scores: Scores) -> bytes:
    """Above: accuracy by confidence, on the diagonal if the model knows itself. Below: rows by confidence."""
    bins: Sequence[Bin] = scores.reliability
    figure = Figure(figsize=(5.2, 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=(4, 1), sharex=True)
    middles = [(one.low + one.high) / 2 for one in bins]
    widths = [one.high - one.low for one in bins]
    colours = [BLUE if one.n_rows >= FEW_ROWS else PALE for one in bins]
    upper.bar(middles, [one.accuracy for one in bins], widths, color=colours, edgecolor="white")
    upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    upper.plot([one.confidence for one in bins], [one.accuracy for one in bins], "o", color=INK, markersize=3)
    upper.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    lower.bar(middles, [one.n_rows for one in bins], widths, color=GREY, edgecolor="white")
    lower.set(xlabel="confidence", ylabel="rows")
    lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    for axes in (upper, lower):
        quiet(axes)
    return png(figure)


def draw_curves(curves: Sequence[Curve]) -> dict[str, bytes]:
    """Figures over steps, a picture for the losses and one for accuracy or micro F1, macro F1 in it, as far as `curves`
    hold them."""
    found = {name: [line for line in lines if any(line[0] in row for row in curves)] for name, lines in PANELS.items()}
    return {
        name: _draw_lines(curves, drawn) for name, drawn in found.items() if any(key != BESIDE for key, _, _ in drawn)
    }


def _draw_lines(curves: Sequence[Curve], lines: Sequence[tuple[str, str, str]]) -> bytes:
    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for key, colour, style in lines:
        points = [(row["step"], row[key]) for row in curves if key in row]
        steps, figures = zip(*points, strict=True)
        name = key.replace("_", " ").replace("f1", "F1")
        axes.plot(steps, figures, style, color=colour, label=name, marker=".", markersize=4)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.legend(frameon=False, fontsize=8)
    quiet(axes)
    return png(figure)


def quiet(axes: Axes) -> None:
    """Two spines, small ticks, faint lines behind the marks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=8, length=3)
    axes.grid(axis="y", color="#e6e9ef", linewidth=0.8)
    axes.set_axisbelow(True)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def png(figure: Figure) -> bytes:
    """The figure as a file's bytes; the same figure gives the same bytes."""
    file = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a class name in a script the font lacks
        figure.savefig(file, format="png", dpi=170, metadata={"Software": None})
    return file.getvalue()
