"""What a search leaves behind beside its runs: report.html, trials.csv and trials.png.

The picture has the figures in the order of the trials, and over each setting. No ranking of settings by importance is
drawn: of a few dozen trials such numbers are mostly noise, and the points say as much.
"""

import csv
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from manyheads.config import Metric, TuneConfig
from manyheads.config.fields import show_list
from manyheads.config.sweep import Axis
from manyheads.evaluation.report import (
    BLUE,
    GREY,
    INK,
    RED,
    Page,
    Picture,
    Section,
    Table,
    installed_versions,
    png,
    quiet,
    value_sections,
    write_page,
)
from manyheads.runs.folder import replace_file
from manyheads.sweep.journal import Outcome
from manyheads.sweep.tables import Ranked, sheet_of_search, short_names, words

FILES = ("report.html", "trials.csv", "trials.png")
MOST_PANELS = 6
MOST_NAMES = 12  # of listed values below a panel


def write_results(
    folder: Path, config: TuneConfig, ranked: Sequence[Ranked], outcomes: Sequence[Outcome], command: str
) -> list[str]:
    """Write what there is to show, each file whole.

    Returns:
        The names of the files.
    """
    write_csv(folder / "trials.csv", config, outcomes)
    judged = [one for one in ranked if one.values]
    drawn = draw_search(config, judged) if judged else None
    if drawn is not None:
        with replace_file(folder / "trials.png") as part:
            part.write_bytes(drawn)
    write_page(folder / "report.html", page_of(config, ranked, drawn, command))
    return [name for name in FILES if drawn is not None or name != "trials.png"]


def page_of(config: TuneConfig, ranked: Sequence[Ranked], drawn: bytes | None, command: str) -> Page:
    """The report."""
    sheet, metric = sheet_of_search(config, ranked), words(config.checkpoint.metric)
    kinds = "n" * len(sheet.columns)
    kinds = kinds[:-1] + "w" if sheet.columns[-1] == "remarks" else kinds
    sections = [Section(sheet.title, Table(sheet.columns, sheet.lines, kinds, own=0), sheet.notes, long=True)]
    if drawn is not None:
        caption = f"validation {metric} of each setting; red: the best so far; grey: single seeds"
        sections.append(Section("Trials", pictures=[Picture("trials", drawn, caption, "full")]))
    if command:
        sections.append(Section("Train the best setting, and judge it on the test split", command=command))
    spaces = {name: given if isinstance(given, str) else ", ".join(map(show_list, given))
              for name, given in config.search.items()}  # fmt: skip
    rules = {"method": config.chosen.name, "prune": config.prune.name, "seeds": config.seeds, "minutes": config.minutes}
    sections += value_sections({"Searched": spaces, "How": rules, "Versions": installed_versions()})
    subtitle = f"{len(ranked)} settings, {config.seeds} run(s) each"
    return Page(title="A search for settings", subtitle=subtitle, sections=sections)


def write_csv(path: Path, config: TuneConfig, outcomes: Sequence[Outcome]) -> None:
    """Every run in the order of its trial."""
    figures = [config.checkpoint.metric.name, "low", "high", "epochs", "steps", "seconds", "why"]
    with replace_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["trial", "seed", *config.search, "state", *figures])
        for one in outcomes:
            setting = [show_list(one.setting[name]) for name in config.search]
            values = [one.value, one.low, one.high, one.epochs, one.steps, round(one.seconds, 1), one.why]
            table.writerow([one.trial, one.seed, *setting, one.state.name, *values])


def draw_search(config: TuneConfig, judged: Sequence[Ranked]) -> bytes:
    """A PNG of settings that have a figure."""
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
        names = [show_list(value) for value in axis.values]
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
