"""What a learning curve comes to: its table, the power laws through it, report.html, curve.json and curve.png.

S sizes . K seeds . R draws, of which entry 0 is the means themselves
"""

import json
import math
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config.conversion import to_plain
from manyheads.config.figures import lower_is_better
from manyheads.evaluation.intervals import Z
from manyheads.evaluation.report import (
    BLUE,
    GREY,
    RED,
    Page,
    Picture,
    ReportSection,
    ReportTable,
    draw,
    settings_sections,
    write_page,
)
from manyheads.evaluation.statistics import error_at, percentile_interval, power_law
from manyheads.plugins.sweep.config import CurveConfig
from manyheads.runs.files import write_atomic
from manyheads.runs.summary import BOTH, LINEAR, NETWORK, Interval, Summary, words_of
from manyheads.terminal import Sheet, print_sheet, show_files

DRAWS = 2000
LEAST = 3  # sizes that a law of three numbers is fitted to
MORE = 2  # times the rows


@dataclass(slots=True)
class Line:
    """The curve of one model.

    Attributes:
        figures: at each size, the mean over its runs with the interval of the mean.
        runs: the figure of each run, by size.
        law: a, b, c of the power law a + b n^-c of its errors; None where there are too few sizes, as are the next two.
        twice: the figure with twice the rows.
        limit: the figure with any number of rows.
    """

    figures: list[Interval]
    runs: list[list[float]]
    law: list[float] | None = None
    twice: Interval | None = None
    limit: Interval | None = None


def write_curve(config: CurveConfig, metric: str, sizes: list[list[Summary]], folder: Path) -> dict[str, Any]:
    """Write curve.json, curve.png and report.html of the runs of each size, and print the table."""
    falls, split = lower_is_better(metric), sizes[0][0].judged_on
    rows, n_judged = [runs[0].rows["train"] for runs in sizes], sizes[0][0].rows[split]
    lines = {}
    for model in _models(sizes, split):
        figures = [[_figures_of(model, run, split)[metric] for run in runs] for runs in sizes]
        lines[model] = fit_line(rows, figures, falls=falls)
    content = {
        "metric": metric,
        "split": split,
        "rows_judged": n_judged,
        "rows": rows,
        "shares": config.shares,
        "models": {model: asdict(one) for model, one in lines.items()},
    }
    table = [[f"{n:,}", *(one.figures[at].words for one in lines.values())] for at, n in enumerate(rows)]
    if len(rows) >= LEAST:
        table.append([f"{MORE * rows[-1]:,}, by the fit", *(one.twice.words for one in lines.values() if one.twice)])
        table.append(["any number, by the fit", *(one.limit.words for one in lines.values() if one.limit)])
    title = f"{words_of(metric)} on {n_judged:,} {split} row{'s' * (n_judged != 1)} by the number of training rows"
    notes, columns = _notes(config, lines, metric), ["training rows", *lines]
    picture = draw_lines(rows, lines, words_of(metric), falls=falls)
    sections = [ReportSection("Learning curve", ReportTable(columns, table, "w" + "n" * len(lines)), notes, [picture])]
    sections += settings_sections(to_plain(config))
    write_page(folder / "report.html", Page(title="Accuracy with more rows", subtitle=title, sections=sections))
    write_atomic(folder / "curve.png", picture.png)
    write_atomic(folder / "curve.json", json.dumps(content, indent=2) + "\n")
    print_sheet(Sheet(title, columns, table, notes))
    show_files(folder, ["curve.json", "report.html"])
    return content


def _figures_of(model: str, run: Summary, split: str) -> dict[str, Interval]:
    """Those of a model of a run; `BOTH` is what answers, also where no linear model takes part."""
    if model in run.members[split]:
        return run.members[split][model]
    return getattr(run, split)


def _models(sizes: list[list[Summary]], split: str) -> list[str]:
    """The models that every run has; network and linear model together only where some run blends them."""
    members = [run.members[split] for runs in sizes for run in runs]
    found = [model for model in (NETWORK, LINEAR) if all(model in one for one in members)]
    if any(BOTH in one for one in members):
        found.insert(0, BOTH)
    return found


def fit_line(rows: list[int], figures: list[list[Interval]], *, falls: bool) -> Line:
    """The means of the runs of each size, and a power law through them. A mean is uncertain by the rows it is judged
    on, as the interval of each run says, and by the seeds, whose variance is taken over all sizes; the law is fitted to
    draws of both.

    Args:
        figures: those of the runs of each size.
        falls: the figure is an error itself, such as a loss.
    """
    value_SK = np.array([[one.value for one in of] for of in figures])
    below_S = np.array([[one.value - one.low for one in of] for of in figures]).mean(1) / Z
    above_S = np.array([[one.high - one.value for one in of] for of in figures]).mean(1) / Z
    n_sizes, n_seeds = value_SK.shape
    random = np.random.default_rng(0)
    noise_RS = random.standard_normal((DRAWS, n_sizes))
    noise_RS *= np.where(noise_RS < 0, below_S, above_S)  # near 1 the interval of a share reaches further down than up
    if n_seeds > 1:
        of_seeds = np.sqrt(value_SK.var(1, ddof=1).mean() / n_seeds)
        noise_RS += random.standard_t(n_sizes * (n_seeds - 1), (DRAWS, n_sizes)) * of_seeds
    mean_RS = value_SK.mean(1) + np.vstack([np.zeros(n_sizes), noise_RS])

    interval = partial(percentile_interval, least=0.0, most=math.inf if falls else 1.0)
    line = Line([interval(mean_R) for mean_R in mean_RS.T], value_SK.tolist())
    if n_sizes >= LEAST:
        law_3R = power_law(np.array(rows), mean_RS if falls else 1 - mean_RS)
        twice_R, limit_R = error_at(law_3R, MORE * rows[-1]), law_3R[0]
        if not falls:
            twice_R, limit_R = 1 - twice_R, 1 - limit_R
        line.law, line.twice, line.limit = law_3R[:, 0].tolist(), interval(twice_R), interval(limit_R)
        if line.limit.low == line.limit.high:  # no draw has an error left, which says nothing of how large it may be
            line.limit.low = min(line.limit.low, line.twice.low)
            line.limit.high = max(line.limit.high, line.twice.high)
    return line


def _notes(config: CurveConfig, lines: dict[str, Line], metric: str) -> list[str]:
    """How to read the table, and the laws."""
    seeds = f"the mean of {config.seeds} seeds" if config.seeds > 1 else "one seed, whose chance no interval holds"
    notes = [
        f"A figure is {seeds}; 95 % intervals are over the rows that are judged and the seeds. The rows of each seed "
        "are drawn by class, those of a smaller share among those of a larger."
    ]
    error = metric if lower_is_better(metric) else f"1 - {metric}"
    for model, one in lines.items():
        if one.law:
            a, b, c = one.law
            notes.append(f"{model}: {error} = {a:.4f} + {b:.3g} n^-{c:.3f}")
    if len(notes) == 1:
        notes.append(f"A power law is fitted to {LEAST} shares or more.")
    return notes


def draw_lines(rows: list[int], lines: dict[str, Line], figure: str, *, falls: bool) -> Picture:
    """Means with their intervals over the training rows, and the fits up to twice as many."""
    picture, panels = draw(1, 1, width=7.0, height=4.2)
    axes = panels[0, 0]
    for (model, one), colour in zip(lines.items(), (BLUE, RED, GREY), strict=False):
        value_S = np.array([of.value for of in one.figures])
        ends_2S = np.array([[of.value - of.low, of.high - of.value] for of in one.figures]).T
        axes.errorbar(rows, value_S, ends_2S, fmt="o", color=colour, markersize=4, capsize=2, label=model)
        if one.law:
            n = np.geomspace(rows[0], MORE * rows[-1], 100)
            error = error_at(np.array(one.law), n)
            axes.plot(n, error if falls else 1 - error, color=colour, linewidth=1)
    axes.set(xscale="log", xlabel="training rows", ylabel=figure)
    axes.minorticks_off()
    ticks = [*rows, MORE * rows[-1]]
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.legend(frameon=False, fontsize=8)
    caption = f"{figure} by training rows, with 95 % intervals; lines: power laws, up to twice the rows"
    return Picture("curve", picture, caption)
