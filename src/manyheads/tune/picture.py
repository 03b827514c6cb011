"""The picture of a search: its figures in the order of the trials, and over each setting. No ranking of settings by
importance is drawn: of a few dozen trials such numbers are mostly noise, and the points say as much.
"""

from collections.abc import Sequence
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from manyheads.config import Metric, TuneConfig
from manyheads.config.axis import Axis
from manyheads.judge.pictures import BLUE, GREY, INK, RED, png, quiet
from manyheads.tune.ranking import Ranked
from manyheads.tune.sheets import short_names, shown, words

MOST_PANELS = 6
MOST_NAMES = 12  # of listed values below a panel


def draw_search(config: TuneConfig, ranked: Sequence[Ranked]) -> bytes | None:
    """A PNG; None where no setting has a figure."""
    judged = [one for one in ranked if one.values]
    if not judged:
        return None
    axes = config.axes()[:MOST_PANELS]
    n_columns = min(3, 1 + len(axes))
    n_rows = -(-(1 + len(axes)) // n_columns)
    figure = Figure(figsize=(3.6 * n_columns, 3.0 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).flatten().tolist()
    _draw_order(panels[0], sorted(judged, key=lambda one: one.trial), config.checkpoint.metric)
    for panel, axis, name in zip(panels[1:], axes, short_names(list(config.search)), strict=False):
        _draw_axis(panel, axis, name, judged)
    for panel in panels[: 1 + len(axes)]:
        quiet(panel)
    for panel in panels[1 + len(axes) :]:
        panel.set_visible(False)
    return png(figure)


def _draw_order(panel: Axes, judged: Sequence[Ranked], metric: Metric) -> None:
    numbers, means = [one.trial for one in judged], [one.mean or 0.0 for one in judged]
    _points(panel, numbers, judged)
    panel.step(numbers, list(accumulate(means, min if metric is Metric.loss else max)), where="post", color=RED)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("trial", color=INK)
    panel.set_ylabel(f"validation {words(metric)}", color=INK)


def _draw_axis(panel: Axes, axis: Axis, name: str, judged: Sequence[Ranked]) -> None:
    if axis.values:
        places = [axis.values.index(one.setting[axis.name]) for one in judged]
        names = [shown(value) for value in axis.values]
        if len(names) <= MOST_NAMES:
            panel.set_xticks(range(len(names)), names, rotation=30, ha="right", parse_math=False)
        panel.set_xlim(-0.5, len(names) - 0.5)
        _points(panel, places, judged)
    else:
        _points(panel, [one.setting[axis.name] for one in judged], judged)
        if axis.log:
            panel.set_xscale("log")
            panel.set_xlim(axis.low / 1.2, axis.high * 1.2)
            panel.xaxis.set_minor_formatter(NullFormatter())
        elif axis.whole:
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel(name, color=INK, parse_math=False)


def _points(panel: Axes, places: Sequence[float], judged: Sequence[Ranked]) -> None:
    """The mean of each setting, and its runs pale where there are several."""
    for place, one in zip(places, judged, strict=True):
        if len(one.values) > 1:
            panel.plot([place] * len(one.values), one.values, ".", color=GREY, markersize=4)
    panel.plot(places, [one.mean or 0.0 for one in judged], "o", color=BLUE, markersize=5)
