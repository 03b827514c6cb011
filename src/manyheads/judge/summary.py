"""The figures of a training run: summary.json and the table at the end."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from manyheads.judge.baselines import Baseline
from manyheads.judge.scores import Interval, Scores


@dataclass(kw_only=True, slots=True)
class Summary:
    """What summary.json holds.

    `seconds` and `real_tokens_per_s` are of the training steps, padding not counted as tokens; `wall_seconds` is the
    whole run. `best` names the validation figure the weights were kept for. `train` figures are those of the kept
    epoch, taken while it trained, dropout on. `baselines` were fitted on the train split and judged on `judged_on`.
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

    def write(self, path: Path) -> None:
        """The file appears whole or not at all."""
        part = path.with_suffix(".json.part")
        part.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(part, path)


def headline(scores: Scores) -> dict[str, Interval]:
    """The figures of one split that fit in a table."""
    names = ("accuracy", "macro_f1", "macro_precision", "macro_recall", "loss", "calibration_error")
    return {name: getattr(scores, name) for name in names}


def baseline_figures(baselines: list[Baseline]) -> dict[str, dict[str, Interval]]:
    return {one.name: {"accuracy": one.scores.accuracy, "macro_f1": one.scores.macro_f1} for one in baselines}


def show_summary(summary: Summary) -> None:
    """Print the table and where the report lies."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(figures_table(summary))
    console.print(
        f"{summary.parameters:,} parameters, {summary.epochs} epochs, {summary.steps} steps in {summary.seconds:.1f} s "
        f"({summary.wall_seconds:.1f} s with everything), {summary.real_tokens_per_s:,.0f} real tokens/s, "
        f"{summary.padding_share:.1%} padding, {summary.precision}"
    )
    console.print(f"report: {Path(summary.output) / 'report.html'}", soft_wrap=True)


def figures_table(summary: Summary) -> Any:
    """Rows are figures, columns the splits, then the cheap models on the split judged last."""
    from rich.table import Table

    table = Table(title="figures, with 95 % intervals")
    columns: dict[str, dict[str, Any]] = {
        "train": dict(summary.train),
        "validation": dict(summary.validation),
        **({"test": dict(summary.test)} if summary.test else {}),
        **{f"{name}\n({summary.judged_on})": dict(figures) for name, figures in summary.baselines.items()},
    }
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for figure in ("accuracy", "macro_f1", "macro_precision", "macro_recall", "loss", "calibration_error"):
        table.add_row(figure, *(shown(figures.get(figure)) for figures in columns.values()))
    return table


def shown(figure: Interval | float | None) -> str:
    """A figure to four digits, with its interval below it."""
    if figure is None:
        return ""
    if isinstance(figure, float):
        return f"{figure:.4f}"
    return f"{figure.value:.4f}\n{figure.low:.4f} to {figure.high:.4f}"
