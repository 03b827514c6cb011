"""The figures of a training run: summary.json, and the table at the end."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.judge.baselines import TFIDF, Baseline, lead_words
from manyheads.judge.label_scores import LabelScores
from manyheads.judge.scores import Interval, Scores
from manyheads.terminal import as_text, console
from manyheads.whole import replace_file

if TYPE_CHECKING:
    from rich.console import Console

FP32 = "32-true"  # in Lightning's words: what is shipped is judged in it
WIDE = 160  # letters of a line in run.log, where no terminal says how many
FIGURES = ("accuracy", "macro_f1", "macro_precision", "macro_recall", "loss", "calibration_error")
LABEL_FIGURES = ("micro_f1", "macro_f1", "accuracy", "micro_precision", "micro_recall", "loss")


@dataclass(kw_only=True, slots=True)
class Summary:
    """What summary.json holds.

    `seconds` and `real_tokens_per_s` are of the training steps, padding not counted as tokens; `wall_seconds` is
    everything up to the first figure of the finished model. `best` names the validation figure the weights were kept
    for. `train` figures are those of the kept epoch, taken while it trained, dropout on. `baselines` were fitted on
    the train split and judged on `judged_on`; `leads` are the figures there less theirs, with paired intervals. Memory
    ran out until micro-batches were cut into `split` parts; the optimiser steps `left_out`, from 1, had a loss or
    gradient that was no number and changed nothing. `linear` is the share of the linear model in each answer,
    `digests` tell the rows of each split from others.
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
    for models in (found["baselines"], found.get("leads", {})):
        for name, figures in models.items():
            models[name] = {key: Interval(**figure) for key, figure in figures.items()}
    return Summary(**found)


def headline(scores: Scores) -> dict[str, Interval]:
    """The figures of one split that fit in a table."""
    return {name: getattr(scores, name) for name in FIGURES}


def label_headline(scores: LabelScores) -> dict[str, Interval]:
    """The same where a row has any number of labels."""
    return {name: getattr(scores, name) for name in LABEL_FIGURES}


def baseline_figures(baselines: list[Baseline]) -> dict[str, dict[str, Interval]]:
    """The same of models that give bare answers."""
    return {one.name: {"accuracy": one.scores.accuracy, "macro_f1": one.scores.macro_f1} for one in baselines}


def leads(baselines: list[Baseline]) -> dict[str, dict[str, Interval]]:
    """By how much the model is better than each, where that was judged."""
    return {
        one.name: {"accuracy": one.lead.accuracy, "macro_f1": one.lead.macro_f1}
        for one in baselines
        if one.lead is not None
    }


def facts(summary: Summary) -> dict[str, str]:
    """What a run was, in a reader's words."""
    best = summary.best
    kept = f"epoch {best['epoch']}, for its validation {best['metric']} of {best['value']:.4f}" if best else "the last"
    kept += ", of the network alone" * (bool(best) and summary.linear > 0)
    kept += f", in {summary.precision} as it was trained" * (bool(best) and summary.precision != FP32)
    steps = f"step{'s' * (len(summary.left_out) > 1)} {', '.join(map(str, summary.left_out))}"
    guarded = {
        "memory": f"it ran out, so micro-batches were cut into {summary.split}, and as many more summed into a step",
        "left out": f"{steps}, whose loss or gradient was no number: the rows are in nonfinite.json",
    }
    ahead = {
        figure.replace("_", " "): lead_words(lead, TFIDF)
        for figure, lead in summary.leads.get(TFIDF, {}).items()
        if figure in ("accuracy", "micro_f1")
    }
    return {
        **ahead,
        "parameters": f"{summary.parameters:,}",
        "rows": ", ".join(f"{name} {n:,}" for name, n in summary.rows.items()),
        "trained": f"{summary.epochs} epoch{'s' * (summary.epochs != 1)}, "
        f"{summary.steps:,} step{'s' * (summary.steps != 1)}, {summary.seconds:.1f} s",
        "weights kept": kept,
        **({"linear model": f"{summary.linear:.0%} of each answer, the network the rest"} if summary.linear else {}),
        "speed": f"{summary.real_tokens_per_s:,.0f} real tokens/s in {summary.precision}",
        "padding": f"{summary.padding_share:.1%} of the attention grids",
        "truncated": f"{summary.truncated_share:.1%} of the training texts",
        **({"memory": guarded["memory"]} if summary.split > 1 else {}),
        **({"left out": guarded["left out"]} if summary.left_out else {}),
    }


def show_summary(summary: Summary, file: Path | None = None) -> None:
    """Print the table and where the report lies; add them to `file`, too."""
    _show_on(console(), summary)
    if file is not None:
        from rich.console import Console

        with file.open("a", encoding="utf-8") as log:
            _show_on(Console(file=log, width=WIDE, markup=False, emoji=False, highlight=False), summary)


def _show_on(screen: "Console", summary: Summary) -> None:
    screen.print(figures_table(summary))
    lines = facts(summary) | {
        "wall time": f"{summary.wall_seconds:.1f} s",
        "model": str(Path(summary.output) / "model"),
        "report": str(Path(summary.output) / "report.html"),
    }
    for name, fact in lines.items():
        screen.print(as_text(f"{name}: {fact}"), soft_wrap=True)


def figures_table(summary: Summary) -> Any:
    """Rows are figures, columns the splits, then the cheap models on the split judged last."""
    from rich.table import Table

    table = Table(title="figures and their 95 % intervals")
    columns: dict[str, dict[str, Any]] = {
        "train": dict(summary.train),
        "validation": dict(summary.validation),
        **({"test": dict(summary.test)} if summary.test else {}),
        **{f"{name} ({summary.judged_on})": dict(figures) for name, figures in summary.baselines.items()},
    }
    table.add_column("")
    for name in columns:
        table.add_column(as_text(name), justify="right")
    for figure in summary.validation:
        table.add_row(figure.replace("_", " "), *(cell(figures.get(figure)) for figures in columns.values()))
    return table


def cell(figure: Interval | float | None) -> str:
    """A figure to four digits, its interval to three below it."""
    if figure is None:
        return ""
    if isinstance(figure, float | int):
        return f"{figure:.4f}"
    return f"{figure.value:.4f}\n{figure.low:.3f}-{figure.high:.3f}"
