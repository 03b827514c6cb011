"""The heads of a classifier over the rows of a split: where they look, what each contributes, and whether attention
points at the tokens that an answer depends on; as tables, a file and a page.

P heads of all layers
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.data.rows import Rows
from manyheads.errors import UserError
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.evaluation.report import Page, ReportSection, ReportTable, write_page
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load, place
from manyheads.inference.format import ModelFolder
from manyheads.plugins.interpret.config import LookConfig
from manyheads.plugins.interpret.maps import tokens_of
from manyheads.plugins.interpret.shown import choose_heads
from manyheads.plugins.interpret.statistics import (
    FIGURES,
    N_DRAWS,
    Ablation,
    Faithfulness,
    HeadStatistics,
    ablate_heads,
    faithfulness,
    head_statistics,
)
from manyheads.runs.files import refuse_unwritable, replace_folder, write_json
from manyheads.runs.summary import Interval
from manyheads.terminal import Sheet, print_sheet, progress_bar, show_files

MOST_SHOWN = 32  # heads on a terminal
HEADS = ["head", "nats", "share", "far", "first", "marks", "F1 points without", "flips"]
TOKENS = ["tokens", "rows", "falls", "random", "further by", "flips", "random"]


@dataclass(slots=True)
class Study:
    """What was found about the heads on some rows. All figures are of the network alone.

    Attributes:
        ablation: its `silenced[p]` is what happens without the head `statistics.heads[p]`.
        share: of the linear model in each answer.
    """

    n_rows: int
    statistics: HeadStatistics
    ablation: Ablation
    faithfulness: list[Faithfulness]
    share: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings, null for NaN; a head is named by layer and place, both from 1."""
        heads: list[dict[str, Any]] = []
        for p, head in enumerate(self.statistics.heads):
            figures = {name: means[p] for name, means in self.statistics.figures.items()}
            silenced = asdict(self.ablation.silenced[p])
            del silenced["head"]
            heads.append({**head._asdict(), **figures, **silenced})
        content = {
            "n_rows": self.n_rows,
            "n_texts": self.statistics.n_texts,
            "n_tokens": self.statistics.n_tokens,
            "accuracy": asdict(self.ablation.whole["accuracy"]),
            "macro_f1": asdict(self.ablation.whole["macro_f1"]),
            "linear": self.share,
            "heads": heads,
            "faithfulness": [asdict(one) for one in self.faithfulness],
        }
        return json.loads(json.dumps(content), parse_constant=lambda nan: None)


def study_split(config: LookConfig, opened: ModelFolder, data: EvaluationData, folder: Path) -> dict[str, Any]:
    """Study the heads over the rows of a split, write what was found into `folder` and print it; returns the content of
    study.json."""
    predictor = place(load(opened, TextClassifier), config.hardware)
    rows = data.rows.sample(config.rows, config.seed)
    with progress_bar(2 * len(rows)) as progress:
        found = study_rows(predictor, rows, budget=config.batch.tokens, seed=config.seed, progress=progress)
    written = write_study(folder, found, data)
    lines, silenced = head_rows(found), found.ablation.silenced
    if len(silenced) > MOST_SHOWN:  # those without which macro F1 falls most
        by_change = sorted(range(len(silenced)), key=lambda p: silenced[p].macro_f1_change.value)
        lines = [lines[p] for p in by_change[:MOST_SHOWN]]
    print_sheet(Sheet(f"{data.name}, {data.split}: the heads over {len(rows):,} rows", HEADS, lines, []))
    print_sheet(Sheet("Tokens silenced", TOKENS, token_rows(found), notes(found)))
    show_files(folder, ["study.json", "study.html"])
    return written


def study_rows(
    predictor: TextClassifier,
    rows: Rows,
    *,
    budget: int = 4096,
    seed: int = 0,
    progress: Callable[[int], None] = lambda n_rows: None,
) -> Study:
    """Read the rows once for the statistics, once more for each head, and some 25 times for faithfulness.

    Args:
        budget: most tokens of a batch.
        progress: called with a number of rows that are done; each row is counted twice, once for each long part.

    Raises:
        UserError: there are no rows, the model has no heads, or it does not take such texts.
    """
    choose_heads(predictor.model, "", "")
    if not len(rows):
        raise UserError("there are no rows to look at: give a split that holds at least one")
    tokens = tokens_of(predictor, rows)
    return Study(
        n_rows=len(rows),
        statistics=head_statistics(predictor, tokens, budget=budget),
        ablation=ablate_heads(predictor, tokens, budget=budget, progress=progress),
        faithfulness=faithfulness(predictor, tokens, budget=budget, seed=seed, progress=progress),
        share=predictor.share,
    )


def head_rows(study: Study) -> list[list[str]]:
    """A line a head under HEADS."""
    rows = []
    for p, silenced in enumerate(study.ablation.silenced):
        figures = []
        for name in FIGURES:
            value = study.statistics.figures[name][p]
            shown = f"{value:.1f}" if name == "distance" else f"{value:.2f}"
            figures.append("" if math.isnan(value) else shown)
        change = signed(silenced.macro_f1_change, 1, 100)
        rows.append([str(silenced.head), *figures, change, f"{silenced.answers_changed:.1%}"])
    return rows


def token_rows(study: Study) -> list[list[str]]:
    """A line for each amount, under TOKENS."""
    rows = []
    for one in study.faithfulness:
        amount = f"{one.amount}" if one.amount >= 1 else f"{100 * one.amount:g} %"
        falls = [f"{one.ranked.value:+.2f}", f"{one.random.value:+.2f}", signed(one.difference, 2)]
        rows.append([amount, f"{one.n_rows:,}", *falls, f"{one.ranked_flips:.1%}", f"{one.random_flips:.1%}"])
    return rows


def signed(interval: Interval, places: int, times: int = 1) -> str:
    """A change with its interval."""
    value, low, high = times * interval.value, times * interval.low, times * interval.high
    return f"{value:+.{places}f} ({low:+.{places}f}, {high:+.{places}f})"


def notes(study: Study) -> list[str]:
    """How to read the figures."""
    changes = [head.macro_f1_change for head in study.ablation.silenced]
    n_heads, n_sure = len(changes), sum(one.high < 0 or one.low > 0 for one in changes)
    about_share = []
    if study.share:
        about_share.append(
            "All figures are of the network alone, without the linear model, which has a weight of "
            f"{study.share:.0%} in each answer but no heads; evaluate judges both together."
        )
    return [
        *about_share,
        f"Of {n_heads} intervals of macro F1, {n_sure} do not hold zero; by chance alone some {0.05 * n_heads:.1f} "
        "would not.",
        "Nats: entropy; share: of its largest, log n; far: mean distance in tokens; first, marks: share on the "
        "first token and on separators; each the mean over documents of equal weight. Flips: other answers.",
        "Falls: of the logit of the predicted class, where the tokens that get most attention are silenced. "
        f"Random: the mean of {N_DRAWS} draws of as many tokens. Marks such as [CLS] are never silenced.",
    ]


def write_study(folder: Path, found: Study, data: EvaluationData) -> dict[str, Any]:
    """Write study.json and study.html, both or none; returns what is in study.json."""
    written = {**data.about, **found.as_json()}
    n_rows, n_heads = found.n_rows, len(found.ablation.silenced)
    title = f"{data.name}, {data.split} split: the heads"
    subtitle = f"{data.rows.source}, {n_rows:,} rows, {found.statistics.n_tokens:,} tokens, {n_heads} heads"
    with refuse_unwritable(folder), replace_folder(folder) as part:
        write_page(part / "study.html", study_page(found, title, subtitle))
        write_json(part / "study.json", written)
    return written


def study_page(study: Study, title: str, subtitle: str) -> Page:
    """The tables as one page."""
    accuracy, macro_f1 = (study.ablation.whole[name] for name in ("accuracy", "macro_f1"))
    verdict = (
        f"With all heads: accuracy {accuracy.value:.3f} ({accuracy.low:.3f} to {accuracy.high:.3f}), "
        f"macro F1 {macro_f1.value:.3f} ({macro_f1.low:.3f} to {macro_f1.high:.3f})."
    )
    sections = [
        ReportSection("Head by head", ReportTable(HEADS, head_rows(study), "wnnnnnnn"), long=True),
        ReportSection("Tokens silenced", ReportTable(TOKENS, token_rows(study), "wnnnnnn")),
        ReportSection("How to read this", items=notes(study)),
    ]
    return Page(title=title, subtitle=subtitle, verdict=verdict, sections=sections)
