"""The figures of a training run: summary.json, and the table at the end."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.evaluation.answers import LINEAR, NETWORK, lead_words
from manyheads.evaluation.multilabel import LabelScores
from manyheads.evaluation.scores import Interval, Scores
from manyheads.runs.atomic import replace_file
from manyheads.terminal import as_text, console

if TYPE_CHECKING:
    from rich.console import Console


WIDE = 160  # letters of a line in run.log, where no terminal says how many
FIGURES = ("accuracy", "macro_f1", "loss", "calibration_error", "macro_precision", "macro_recall")
LABEL_FIGURES = ("micro_f1", "macro_f1", "accuracy", "loss", "micro_precision", "micro_recall")
CELL = 13  # characters of a column of figures, with its margins
Figures = dict[str, Any]  # by name: an interval, or a bare number


@dataclass(kw_only=True, slots=True)
class Summary:
    """What summary.json holds.

    `seconds` and `real_tokens_per_s` are of the training steps, padding not counted as tokens; `wall_seconds` is
    everything up to the first figure of the finished model. `best` names the validation figure the weights were kept
    for, as it was while the network trained in `precision`. `train` figures are those of the kept epoch, of the network
    while it trained, dropout on. All other figures are in single precision. `validation` and `test` are those of the
    model as shipped; `members` has by split those of each member alone, too, and of a linear model that does not
    answer. `baselines` were fitted on the train split and judged on `judged_on`; `leads` are the figures there less
    theirs, with paired intervals; `warnings` say what the figures cannot.

    Memory ran out until micro-batches were cut into `split` parts; the optimiser steps `left_out`, from 1, had a loss
    or gradient that was not finite and changed nothing. `linear` is the share of the linear model in each answer,
    `terms` are what it counts, `most_frequent` is the class or label that most training rows have, `digests` tell the
    rows of each split from others.
    """

    output: str
    parameters: int
    epochs: int
    steps: int
    seconds: float
    wall_seconds: float
    real_tokens_per_s: float
    padding_share: float
    truncated_share: float
    precision: str
    rows: dict[str, int]
    best: dict[str, Any]
    train: dict[str, float]
    validation: dict[str, Interval]
    test: dict[str, Interval]
    judged_on: str
    baselines: dict[str, dict[str, Interval]]
    versions: dict[str, str]
    split: int = 1
    left_out: list[int] = field(default_factory=list)
    leads: dict[str, dict[str, Interval]] = field(default_factory=dict)
    linear: float = 0.0
    digests: dict[str, str] = field(default_factory=dict)
    members: dict[str, dict[str, dict[str, Interval]]] = field(default_factory=dict)
    terms: str = ""
    most_frequent: str = ""
    warnings: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """The file appears whole or not at all."""
        with replace_file(path) as part:
            part.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_summary(path: Path) -> Summary | None:
    """What `write` has written; None where there is no file."""
    if not path.is_file():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    for split in ("validation", "test"):
        found[split] = {name: Interval(**figure) for name, figure in found[split].items()}
    for models in (found["baselines"], found.get("leads", {}), *found.get("members", {}).values()):
        for name, figures in models.items():
            models[name] = {key: Interval(**figure) for key, figure in figures.items()}
    return Summary(**found)


def headline(scores: Scores) -> dict[str, Interval]:
    """The figures of one split that fit in a table."""
    return {name: getattr(scores, name) for name in FIGURES}


def label_headline(scores: LabelScores) -> dict[str, Interval]:
    """The same where a row has any number of labels."""
    return {name: getattr(scores, name) for name in LABEL_FIGURES}


def baseline_figures(baselines: Sequence[Any], names: Sequence[str] = ("accuracy", "macro_f1")) -> dict[str, Figures]:
    """The same of models that give bare answers."""
    return {one.name: {name: getattr(one.scores, name) for name in names} for one in baselines}


def leads(baselines: Sequence[Any], names: Sequence[str] = ("accuracy", "macro_f1")) -> dict[str, Figures]:
    """By how much the model is better than each, where that was judged."""
    return {one.name: {name: getattr(one.lead, name) for name in names} for one in baselines if one.lead is not None}


def beside(models: dict[str, Figures], baselines: dict[str, Figures]) -> dict[str, Figures]:
    """The figures of models, then those of cheap models that are not among them."""
    return {**models, **{name: figures for name, figures in baselines.items() if name not in models}}


def lead_line(ahead: dict[str, Figures], baselines: dict[str, Figures], split: str) -> dict[str, str]:
    """The lead over the strongest of the cheap models, where there is one, in a reader's words."""
    figure = next((name for name in ("accuracy", "micro_f1") if any(name in of for of in ahead.values())), "")
    if not figure:
        return {}
    rival = max(reversed(ahead), key=lambda name: baselines[name][figure].value if name in baselines else 0.0)
    where = "these rows" if split == "all" else split
    return {"lead": f"in {words_of(figure)} on {where} the model {lead_words(ahead[rival][figure], rival)}"}


def linear_words(terms: str, share: float) -> dict[str, str]:
    """What the linear model is, and its part."""
    part = f"it has {share:.0%} of each answer" if share else "it does not answer, the network does alone"
    return {LINEAR: f"logistic regression on TF-IDF of {terms}; {part}"} if terms else {}


def facts(summary: Summary) -> dict[str, str]:
    """What a run was, in a reader's words."""
    steps = f"step{'s' * (len(summary.left_out) > 1)} {', '.join(map(str, summary.left_out))}"
    guarded = {
        "memory": f"it ran out, so micro-batches were cut into {summary.split}, and as many more summed into a step",
        "left out": f"{steps}, whose loss or gradient was not finite: the rows are in nonfinite.json",
    }
    epochs = f"{summary.epochs} epoch{'s' * (summary.epochs != 1)}"
    return {
        **lead_line(summary.leads, summary.baselines, summary.judged_on),
        "parameters": f"{summary.parameters:,}",
        "rows": ", ".join(f"{name} {n:,}" for name, n in summary.rows.items()),
        "trained": f"{epochs}, {summary.steps:,} step{'s' * (summary.steps != 1)}, {summary.seconds:.1f} s",
        "weights kept": kept_words(summary),
        **linear_words(summary.terms, summary.linear),
        "speed": f"{summary.real_tokens_per_s:,.0f} real tokens/s in {summary.precision}",
        "padding": f"{summary.padding_share:.1%} of the attention grids",
        "truncated": f"{summary.truncated_share:.1%} of the training texts",
        **({"memory": guarded["memory"]} if summary.split > 1 else {}),
        **({"left out": guarded["left out"]} if summary.left_out else {}),
    }


def kept_words(summary: Summary) -> str:
    """Why the weights are those of their epoch, by the network's figure as the table has it, and as it was then."""
    best = summary.best
    if not best:
        return "the last"
    shown = models_of(summary, "validation").get(NETWORK, {}).get(best["metric"])
    then, now = f"{best['value']:.4f}", f"{shown.value:.4f}" if shown else ""
    said = f"epoch {best['epoch']}, for the network's validation {words_of(best['metric'])} of {now or then}"
    return said if now in ("", then) else f"{said} ({then} when it was chosen, in {summary.precision})"


def models_of(summary: Summary, split: str) -> dict[str, Figures]:
    """The figures on one split by the name of the model, the one that answers first."""
    return dict(summary.members.get(split) or {NETWORK: getattr(summary, split)})


def card_figures(summary: Summary, most: int = 4) -> dict[str, str]:
    """What a model card says of the split judged last: the first figures of the model, and the very first of the other
    models, with their intervals."""
    split, first = summary.judged_on, next(iter(summary.validation))
    models = beside(models_of(summary, split), summary.baselines)
    own = next(iter(models))
    shown = {f"{split} {words_of(name)}": figure for name, figure in list(models[own].items())[:most]}
    shown |= {
        f"{split} {words_of(first)} of the {name}": of[first]
        for name, of in models.items()
        if name != own and first in of
    }
    return {name: f"{one.value:.4f} ({one.low:.3f} to {one.high:.3f})" for name, one in shown.items()}


def card_notes(summary: Summary, data: str) -> list[str]:
    """What a model card says of the training, and of what the figures cannot say."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    rows = ", ".join(f"{n:,} for {name}" for name, n in summary.rows.items())
    lead = lead_line(summary.leads, summary.baselines, summary.judged_on).values()
    said = [f"{line[:1].upper()}{line[1:]}." for line in (*lead, *summary.warnings)]
    return [f"Trained on {data} until {day} (UTC); rows: {rows}. 95 % intervals are in brackets.", *said]


def show_summary(summary: Summary, file: Path | None = None) -> None:
    """Print the table and where the report lies; add them to `file`, too."""
    _show_on(console(), summary)
    if file is not None:
        from rich.console import Console

        with file.open("a", encoding="utf-8") as log:
            _show_on(Console(file=log, width=WIDE, markup=False, emoji=False, highlight=False), summary)


def _show_on(screen: "Console", summary: Summary) -> None:
    blocks: dict[str, dict[str, Figures]] = {
        f"{name}: {summary.rows[name]:,} rows": beside(
            models_of(summary, name), summary.baselines if name == summary.judged_on else {}
        )
        for name in ("test", "validation")
        if getattr(summary, name)
    }
    epoch = f"epoch {summary.best['epoch']}" if summary.best else "the last epoch"
    blocks["train, dropout on"] = {f"{NETWORK}, {epoch}": summary.train}
    show_figures(screen, blocks, list(summary.validation), "summary.json")
    for warning in summary.warnings:
        screen.print(as_text(f"warning: {warning}"), soft_wrap=True)
    lines = facts(summary) | {
        "wall time": f"{summary.wall_seconds:.1f} s",
        "model": str(Path(summary.output) / "model"),
        "report": str(Path(summary.output) / "report.html"),
    }
    for name, fact in lines.items():
        screen.print(as_text(f"{name}: {fact}"), soft_wrap=True)


def show_figures(screen: "Console", blocks: dict[str, dict[str, Figures]], names: Sequence[str], file: str) -> None:
    """Print a table of models, block by block, beside those of the figures `names` that fit on the screen, the first
    first; the others are in `file`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    widest = max(len(name) + 2 for of_block in blocks.values() for name in of_block)
    shown = list(names)[: max(1, (screen.width - max(widest, *map(len, blocks)) - 4) // CELL)]
    title = "figures and their 95 % intervals"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for name in shown:
        table.add_column(words_of(name), justify="right", max_width=CELL - 2)
    for title, models in blocks.items():
        table.add_row(as_text(title))
        for name, figures in models.items():
            table.add_row(as_text(f"  {name}"), *(cell(figures.get(figure)) for figure in shown))
    screen.print(table)
    if left := [words_of(name) for name in names if name not in shown]:
        screen.print(as_text(f"also in {file}: {', '.join(left)}"), soft_wrap=True)


def words_of(figure: str) -> str:
    """The name of a figure as a sentence has it."""
    return figure.replace("_", " ").replace("f1", "F1")


def cell(figure: Interval | float | None) -> str:
    """A figure to four digits, its interval to three below it."""
    if figure is None:
        return ""
    if isinstance(figure, float | int):
        return f"{figure:.4f}"
    return f"{figure.value:.4f}\n{figure.low:.3f}-{figure.high:.3f}"
