"""What a learning curve comes to: its table, the power laws through it, report.html, curve.json and curve.png.

S sizes . K seeds . R draws, of which entry 0 is the means themselves
"""

import math
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.config.conversion import to_plain
from manyheads.config.figures import limits_of, lower_is_better
from manyheads.evaluation.intervals import Z
from manyheads.evaluation.report import (
    Page,
    Picture,
    ReportSection,
    ReportTable,
    draw_table,
    settings_sections,
    write_page,
)
from manyheads.evaluation.statistics import error_at, percentile_interval, power_law
from manyheads.plugins.sweep.config import CurveConfig
from manyheads.runs.files import write_atomic, write_json
from manyheads.runs.result_table import Cell, ResultTable
from manyheads.runs.summary import BOTH, LINEAR, NETWORK, Interval, Summary, words_of
from manyheads.terminal import print_sheet, show_files

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
        lines[model] = fit_line(rows, figures, falls=falls, least=limits_of(metric)[0])
    content = {
        "metric": metric,
        "split": split,
        "rows_judged": n_judged,
        "rows": rows,
        "shares": config.shares,
        "models": {model: asdict(one) for model, one in lines.items()},
    }
    (table,) = curve_tables(content)
    caption = f"{table.figure} by training rows, with 95 % intervals; lines: power laws, up to twice the rows"
    picture = Picture("curve", draw_table(table), caption)
    shown = ReportTable(table.columns, table.in_words(), "w" + "n" * len(lines))
    sections = [ReportSection("Learning curve", shown, table.notes, [picture]), *settings_sections(to_plain(config))]
    page = Page(title="Accuracy with more rows", subtitle=table.title, sections=sections)
    write_page(folder / "report.html", page)
    write_atomic(folder / "curve.png", picture.png)
    write_json(folder / "curve.json", content)
    print_sheet(table.as_sheet())
    show_files(folder, ["curve.json", "report.html"])
    return content


def curve_tables(document: dict[str, Any]) -> list[ResultTable]:
    """The table of curve.json: a line for each size, and what the power laws say of more rows."""
    models, sizes, n_judged = document["models"], document["rows"], document["rows_judged"]
    falls, metric = lower_is_better(document["metric"]), words_of(document["metric"])
    rows: list[list[Cell]] = []
    for at, n in enumerate(sizes):
        rows.append([n, *(Interval(**of["figures"][at]) for of in models.values())])
    if len(sizes) >= LEAST:
        for words, key in ((f"{MORE * sizes[-1]:,}, by the fit", "twice"), ("any number, by the fit", "limit")):
            rows.append([words, *(Interval(**of[key]) for of in models.values())])
    n_P, laws = np.geomspace(sizes[0], MORE * sizes[-1], 100), {}
    for model, of in models.items():
        if of["law"]:
            error_P = error_at(np.array(of["law"]), n_P)
            laws[model] = list(zip(n_P.tolist(), (error_P if falls else 1 - error_P).tolist(), strict=True))
    on = f"{n_judged:,} {document['split']} row{'s' * (n_judged != 1)}"
    return [
        ResultTable(
            "curve",
            f"{metric} on {on} by the number of training rows",
            ["training rows", *models],
            rows,
            notes=_notes(models, document["metric"]),
            bars="95 % intervals over the rows and the seeds; dashed: power laws",
            over="training rows",
            figure=metric,
            lines=laws,
        )
    ]


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


def fit_line(rows: list[int], figures: list[list[Interval]], *, falls: bool, least: float = 0.0) -> Line:
    """The means of the runs of each size, and a power law through them. A mean is uncertain by the rows it is judged
    on, as the interval of each run says, and by the seeds, whose variance is taken over all sizes; the law is fitted to
    draws of both.

    Args:
        figures: those of the runs of each size.
        falls: the figure is an error itself, such as a loss.
        least: the least that the figure can be.
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

    interval = partial(percentile_interval, least=least, most=math.inf if falls else 1.0)
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


def _notes(models: dict[str, Any], metric: str) -> list[str]:
    """How to read the table, and the laws."""
    n_seeds = len(next(iter(models.values()))["runs"][0])
    means = f"A figure is the mean of {n_seeds} seeds; 95 % intervals are over the evaluated rows and the seeds."
    if n_seeds == 1:
        means = "A figure is of one seed; 95 % intervals are over the evaluated rows alone, not over other seeds."
    notes = [
        f"{means} The rows of each seed are drawn by class, and those of a smaller share are among those of a larger."
    ]
    error = metric if lower_is_better(metric) else f"1 - {metric}"
    for model, one in models.items():
        if one["law"]:
            a, b, c = one["law"]
            notes.append(f"{model}: {error} = {a:.4f} + {b:.3g} n^-{c:.3f}")
    if len(notes) == 1:
        notes.append(f"A power law is fitted to {LEAST} shares or more.")
    return notes
