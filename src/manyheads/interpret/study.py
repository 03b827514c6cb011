"""The heads of a classifier over the rows of a split: where they look, what each is good for, and whether attention
points at what an answer hangs on; as tables, a figure, files and a page.

P heads of all layers
"""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from manyheads.data.rows import Rows
from manyheads.evaluation.evaluate import EvaluationData
from manyheads.evaluation.intervals import Interval
from manyheads.evaluation.report import BLUE, GREY, INK, RED, Page, Picture, Section, Table, png, quiet, write_page
from manyheads.inference.classifier import TextClassifier
from manyheads.interpret.look import choose
from manyheads.interpret.maps import tokens_of
from manyheads.interpret.statistics import (
    FIGURES,
    N_DRAWS,
    Ablation,
    Faithfulness,
    HeadStatistics,
    ablate_heads,
    faithfulness,
    head_statistics,
)
from manyheads.runs.folder import refuse_unwritable, replace_folder
from manyheads.terminal import Sheet, print_sheet

MOST_SHOWN = 32  # heads on a terminal; beyond, those that are missed most
HEADS = ["head", "nats", "share", "far", "first", "marks", "like", "F1 points without", "flips"]
TOKENS = ["tokens", "chosen by", "rows", "falls", "random", "further by", "flips", "random"]
MOST_CELLS_LABELLED = 48
MOST_TICKS = 24
STYLES = {"attention": (BLUE, "o", -0.12), "gradient": (GREY, "s", 0.12)}


@dataclass(slots=True)
class Study:
    """Everything found about the heads on some rows. `ablation.silenced[p]` is what happens without
    `statistics.heads[p]`. The figures are of the network alone; `share` is that of a linear model beside it in what is
    answered."""

    n_rows: int
    statistics: HeadStatistics
    ablation: Ablation
    faithfulness: list[Faithfulness]
    share: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings, null for NaN; a head is named by layer and place, both from 1."""
        found = {
            "n_rows": self.n_rows,
            "n_texts": self.statistics.n_texts,
            "n_tokens": self.statistics.n_tokens,
            "accuracy": asdict(self.ablation.whole["accuracy"]),
            "macro_f1": asdict(self.ablation.whole["macro_f1"]),
            "linear": self.share,
            "heads": [
                {
                    **head._asdict(),
                    **{name: asdict(spreads[p]) for name, spreads in self.statistics.figures.items()},
                    "nearest": None if alike is None else {"agreement": alike[0], **alike[1]._asdict()},
                    **{name: value for name, value in asdict(self.ablation.silenced[p]).items() if name != "head"},
                }
                for p, head in enumerate(self.statistics.heads)
                for alike in [self.statistics.agreement(p)]
            ],
            "uniform": self.statistics.uniform,
            "divergence": self.statistics.divergence_PP,
            "faithfulness": [asdict(one) for one in self.faithfulness],
        }
        return json.loads(json.dumps(found), parse_constant=lambda nan: None)


def study_rows(
    deliverable: TextClassifier,
    rows: Rows,
    *,
    budget: int = 4096,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Study:
    """Read the rows once for the statistics, once more for each head, and some 25 times for faithfulness.

    Args:
        budget: most tokens of a batch.
        progress: is called with the number of further rows that are through one of the two long parts: each row counts
            twice in all.

    Raises:
        ValueError: there are no rows, the model has no heads, or it does not take such texts.
    """
    choose(deliverable.model, "", "")
    if not len(rows):
        raise ValueError("there are no rows to look at: give a split that holds at least one")
    tokens = tokens_of(deliverable, rows)
    asked: dict[str, Any] = {"budget": budget, "n_resamples": n_resamples, "seed": seed, "progress": progress}
    return Study(
        n_rows=len(rows),
        statistics=head_statistics(deliverable, tokens, budget=budget),
        ablation=ablate_heads(deliverable, tokens, **asked),
        faithfulness=faithfulness(deliverable, tokens, **asked),
        share=deliverable.share,
    )


def some(rows: Rows, n: int, seed: int) -> Rows:
    """`n` of the rows, drawn by `seed` and in their own order; all of them where n is 0 or no smaller."""
    if not 0 < n < len(rows):
        return rows
    return rows.pick(sorted(np.random.default_rng(seed).choice(len(rows), n, replace=False).tolist()))


def head_rows(study: Study) -> list[list[str]]:
    """A line a head under HEADS, and first what an even head would have."""
    even = study.statistics.uniform
    rows = [["even", *(_places(name, even[name]) for name in FIGURES), "", "", ""]]
    for p, silenced in enumerate(study.ablation.silenced):
        alike = study.statistics.agreement(p)
        rows.append(
            [
                str(silenced.head),
                *(_places(name, study.statistics.figures[name][p].mean) for name in FIGURES),
                "" if alike is None else f"{alike[1]} {alike[0]:.2f}".replace(" 0.", " ."),
                signed(silenced.macro_f1_change, 1, 100),
                f"{silenced.answers_changed:.1%}",
            ]
        )
    return rows


def token_rows(study: Study) -> list[list[str]]:
    """A line for each ranking and amount, under TOKENS."""
    return [
        [
            *(spell_amount(one.amount), one.ranking, f"{one.n_rows:,}"),
            *(f"{one.ranked.value:+.2f}", f"{one.random.value:+.2f}", signed(one.difference, 2)),
            *(f"{one.ranked_flips:.1%}", f"{one.random_flips:.1%}"),
        ]
        for one in study.faithfulness
    ]


def signed(interval: Interval, places: int, times: int = 1) -> str:
    """A change with its interval."""
    value, low, high = (f"{times * number:+.{places}f}" for number in (interval.value, interval.low, interval.high))
    return f"{value} ({low}, {high})"


def notes(study: Study) -> list[str]:
    """What a reader must know to take the figures for what they are."""
    changes = [one.macro_f1_change for one in study.ablation.silenced]
    n_heads, n_sure = len(changes), sum(map(missed, changes))
    alone = (
        f"All figures are of the network alone: {study.share:.0%} of each answer are those of a linear model beside "
        "it, which has no heads; evaluate judges both together."
    )
    return [
        *([alone] if study.share else []),
        f"Of {n_heads} intervals of macro F1, {n_sure} do not hold zero; by chance alone some {0.05 * n_heads:.1f} "
        "would not.",
        "Nats: entropy; share: of its largest, log n; far: mean distance in tokens; first, marks: share on the "
        "first token and on separators; each the mean over documents of equal weight. Like: the head of least mean "
        "Jensen-Shannon divergence, as 1 - JS / log 2. Flips: other answers.",
        "Falls: of the logit of the predicted class. "
        f"Random: the mean of {N_DRAWS} draws of as many tokens. Chosen by gradient: what should lower the logit "
        "most to first order, for a scale. Marks such as [CLS] are never silenced.",
    ]


def missed(change: Interval) -> bool:
    return change.high < 0 or change.low > 0


def show_study(study: Study, title: str) -> None:
    """Print the tables. Of many heads those are shown that are missed most."""
    rows, silenced = head_rows(study), study.ablation.silenced
    if len(silenced) > MOST_SHOWN:
        by_change = sorted(range(len(silenced)), key=lambda p: silenced[p].macro_f1_change.value)
        rows = [rows[0], *(rows[p + 1] for p in by_change[:MOST_SHOWN])]
    print_sheet(Sheet(title, HEADS, rows, []))
    print_sheet(Sheet("Tokens silenced", TOKENS, token_rows(study), notes(study)))


def write_study(folder: Path, found: Study, task: EvaluationData) -> dict[str, Any]:
    """Write study.json, study.png, study.html and heads.csv, a line a head with every figure, all of them or none;
    returns what is in study.json.

    Raises:
        ValueError: the folder cannot be written to.
    """
    written = {**task.about, **found.as_json()}
    n_rows, n_heads = found.n_rows, len(found.ablation.silenced)
    title = f"{task.name}, {task.split} split: the heads"
    subtitle = f"{task.rows.source}, {n_rows:,} rows, {found.statistics.n_tokens:,} tokens, {n_heads} heads"
    with refuse_unwritable(folder), replace_folder(folder) as part:
        png = draw_study(found)
        (part / "study.png").write_bytes(png)
        write_page(part / "study.html", study_page(found, png, title, subtitle))
        with (part / "heads.csv").open("w", encoding="utf-8", newline="") as file:
            lines = [_flat(one) for one in written["heads"]]
            write = csv.DictWriter(file, fieldnames=list(lines[0]), lineterminator="\n")
            write.writeheader()
            write.writerows(lines)
        (part / "study.json").write_text(
            json.dumps(written, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )
    return written


def _flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"entropy": {"mean": 1}}` as `{"entropy_mean": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        flat |= _flat(value, f"{prefix}{name}_") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def study_page(study: Study, png: bytes, title: str, subtitle: str) -> Page:
    """The tables and the figure as one page."""
    accuracy, macro_f1 = (study.ablation.whole[name] for name in ("accuracy", "macro_f1"))
    verdict = (
        f"With all heads: accuracy {accuracy.value:.3f} ({accuracy.low:.3f} to {accuracy.high:.3f}), "
        f"macro F1 {macro_f1.value:.3f} ({macro_f1.low:.3f} to {macro_f1.high:.3f})."
    )
    caption = (
        "Darker is more. Changes of macro F1 in brackets may be chance. Agreement is 1 where two heads always look "
        "alike; above the dashed line a ranking finds tokens that matter more than random ones."
    )
    sections = [
        Section("All heads", pictures=[Picture("study", png, caption, "full")]),
        Section("Head by head", Table(HEADS, head_rows(study), "wnnnnnnnn"), long=True),
        Section("Tokens silenced", Table(TOKENS, token_rows(study), "wwnnnnnn")),
        Section("How to read this", items=notes(study)),
    ]
    return Page(title=title, subtitle=subtitle, verdict=verdict, sections=sections)


def _places(name: str, value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1f}" if name == "distance" else f"{value:.2f}"


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
    cells = _cells(study, values)
    shades = {"cmap": "Blues", "vmin": 0, "vmax": max(most, 1e-9)}
    _draw_cells(axes, title, cells, cells, np.full(cells.shape, form), cells > 0.6 * most, **shades)


def _losses(study: Study, axes: Axes) -> None:
    """Change of macro F1 without each head, in points; pale and in brackets where its interval holds zero."""
    changes = [one.macro_f1_change for one in study.ablation.silenced]
    points, sure = _cells(study, [100 * one.value for one in changes]), _cells(study, list(map(missed, changes))) == 1
    widest = max(float(np.nanmax(np.abs(points))), 1e-9)
    forms, dark = np.where(sure, "{:+.1f}", "({:+.1f})"), sure & (np.abs(points) > 0.6 * widest)
    shades = {"cmap": "RdBu", "norm": TwoSlopeNorm(0, -widest, widest)}
    title = "macro F1 without it, points"
    _draw_cells(axes, title, points, points * np.where(sure, 1.0, 0.3), forms, dark, **shades)


def _draw_cells(
    axes: Axes, title: str, cells: np.ndarray, shown: np.ndarray, forms: np.ndarray, dark: np.ndarray, **shades: Any
) -> None:
    """A cell a head, layers downward; where there are few, each with its value, white on dark."""
    axes.imshow(shown, aspect="auto", **shades)
    for at, value in np.ndenumerate(cells) if cells.size <= MOST_CELLS_LABELLED else ():
        if not math.isnan(value):
            colour = "white" if dark[at] else INK
            axes.text(at[1], at[0], str(forms[at]).format(value), ha="center", va="center", color=colour, fontsize=8)
    for axis, n in ((axes.yaxis, cells.shape[0]), (axes.xaxis, cells.shape[1])):
        axis.set_major_locator(MaxNLocator(min(n, MOST_TICKS), integer=True))
        ticks = range(0, n, -(-n // MOST_TICKS))
        axis.set_ticks(ticks, [str(at + 1) for at in ticks])
    axes.set_xlabel("head", color=INK, fontsize=8)
    axes.set_ylabel("layer", color=INK, fontsize=8)
    _bare(axes, title)


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
        differences = [(one.difference.value, one.difference.low, one.difference.high) for one in some]
        values = np.array(differences).reshape(-1, 3)
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


def _bare(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9, color=INK)
    axes.tick_params(length=0, colors=INK, labelsize=8)
    axes.spines[:].set_visible(False)
