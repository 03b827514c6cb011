"""Figures of an evaluation or of a run as tables on the screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.evaluation.evaluation import Evaluation
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.runs.summary import NETWORK, Interval, Summary, facts, lead_line, models_of, with_baselines, words_of
from manyheads.terminal import as_text, console, say, show_files

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 160  # characters of a line in run.log, which has no terminal
CELL = 13  # characters of a column of figures, with its margins
Figures = dict[str, Any]  # by name: an interval, or a number without one


def show_evaluation(
    evaluation: Evaluation, data: EvaluationData, warnings: Sequence[str], folder: Path, predictions: str
) -> None:
    """Print the figures of all models, the lead over the strongest baseline, warnings, and where the files are."""
    models = with_baselines(evaluation.members, evaluation.baselines)
    title = f"{data.name}, {data.split}: {len(data.rows):,} rows"
    own = next(iter(models.values()))
    show_figures(console(), {title: models}, list(own), "metrics.json")
    lead = lead_line(evaluation.leads, evaluation.baselines, data.split)
    lines = []
    if lead:
        lines.append(f"lead: {lead}")
    lines += [f"warning: {warning}" for warning in warnings]
    if evaluation.note:
        lines.append(evaluation.note)
    for finding in evaluation.findings:
        lines += finding.lines
    say(*lines)
    show_files(folder, ["metrics.json", predictions, "report.html"])


def show_summary(summary: Summary, file: Path | None = None, screen: "Console | None" = None) -> None:
    """Print the figures of a run and where its report is, on the terminal or another `screen`; append them to `file`,
    too."""
    screen = screen or console()
    blocks: dict[str, dict[str, Figures]] = {}
    for split in ("test", "validation"):
        if getattr(summary, split):
            models = models_of(summary, split)
            if split == summary.judged_on:
                models = with_baselines(models, summary.baselines)
            blocks[f"{split}: {summary.rows[split]:,} rows"] = models
    epoch = f"epoch {summary.best['epoch']}" if summary.best else "the last epoch"
    blocks["training, with dropout"] = {f"{NETWORK}, {epoch}": summary.train}
    show_figures(screen, blocks, list(summary.validation), "summary.json")
    lines = [f"warning: {warning}" for warning in summary.warnings]
    lines += [f"{name}: {fact}" for name, fact in facts(summary).items()]
    lines.append(f"wall time: {summary.wall_seconds:.1f} s")
    lines.append(f"model: {Path(summary.output) / 'model'}")
    lines.append(f"report: {Path(summary.output) / 'report.html'}")
    say(*lines, screen=screen)
    if file is not None:
        from rich.console import Console

        with file.open("a", encoding="utf-8") as log:
            show_summary(summary, screen=Console(file=log, width=WIDE, markup=False, emoji=False, highlight=False))


def show_figures(screen: "Console", blocks: dict[str, dict[str, Figures]], names: Sequence[str], file: str) -> None:
    """Print a table of models, block by block, with as many of the figures `names` as fit on the screen; the others are
    in `file`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    widest = 0  # of the first column
    for title, models in blocks.items():
        widest = max(widest, len(title), *(len(name) + 2 for name in models))
    shown = list(names)[: max(1, (screen.width - widest - 4) // CELL)]
    title = "figures and their 95 % intervals"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for name in shown:
        table.add_column(words_of(name), justify="right", max_width=CELL - 2)
    for title, models in blocks.items():
        table.add_row(as_text(title, screen))
        for name, figures in models.items():
            table.add_row(as_text(f"  {name}", screen), *(cell(figures.get(figure)) for figure in shown))
    screen.print(table)
    if len(shown) < len(names):
        say(f"also in {file}: {', '.join(words_of(name) for name in names[len(shown) :])}", screen=screen)


def cell(figure: Interval | float | None) -> str:
    """A figure to four digits, its interval below it to three, of large figures to fewer: a perplexity has to fit into
    the column, too."""
    if figure is None:
        return ""
    if isinstance(figure, float | int):
        return f"{figure:.4f}"
    digits = 0
    if figure.high < 10:
        digits = 3
    elif figure.high < 1000:
        digits = 1
    return f"{figure.value:.4f}\n{figure.low:.{digits}f}-{figure.high:.{digits}f}"
