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

WIDE = 160  # letters of a line in run.log, where no terminal says how many
CELL = 13  # characters of a column of figures, with its margins
Figures = dict[str, Any]  # by name: an interval, or a bare number


def show_evaluation(
    evaluation: Evaluation, data: EvaluationData, warnings: Sequence[str], folder: Path, predictions: str
) -> None:
    """Print the figures of all models, the lead over the strongest baseline, warnings, and where the files are."""
    models = with_baselines(evaluation.members, evaluation.baselines)
    block = f"{data.name}, {data.split}: {len(data.rows):,} rows"
    show_figures(console(), {block: models}, list(next(iter(models.values()))), "metrics.json")
    lead = lead_line(evaluation.leads, evaluation.baselines, data.split)
    found = [line for one in evaluation.findings for line in one.lines]
    lines = [f"lead: {lead}" if lead else "", *(f"warning: {one}" for one in warnings), evaluation.note, *found]
    say(*filter(None, lines))
    show_files(folder, ["metrics.json", predictions, "report.html"])


def show_summary(summary: Summary, file: Path | None = None, screen: "Console | None" = None) -> None:
    """Print the table and where the report lies, on the terminal or another `screen`; add them to `file`, too."""
    screen = screen or console()
    blocks: dict[str, dict[str, Figures]] = {
        f"{name}: {summary.rows[name]:,} rows": with_baselines(
            models_of(summary, name), summary.baselines if name == summary.judged_on else {}
        )
        for name in ("test", "validation")
        if getattr(summary, name)
    }
    epoch = f"epoch {summary.best['epoch']}" if summary.best else "the last epoch"
    blocks["training, with dropout"] = {f"{NETWORK}, {epoch}": summary.train}
    show_figures(screen, blocks, list(summary.validation), "summary.json")
    say(*(f"warning: {one}" for one in summary.warnings), screen=screen)
    lines = facts(summary) | {
        "wall time": f"{summary.wall_seconds:.1f} s",
        "model": str(Path(summary.output) / "model"),
        "report": str(Path(summary.output) / "report.html"),
    }
    say(*(f"{name}: {fact}" for name, fact in lines.items()), screen=screen)
    if file is not None:
        from rich.console import Console

        with file.open("a", encoding="utf-8") as log:
            show_summary(summary, screen=Console(file=log, width=WIDE, markup=False, emoji=False, highlight=False))


def show_figures(screen: "Console", blocks: dict[str, dict[str, Figures]], names: Sequence[str], file: str) -> None:
    """Print a table of models, block by block, with as many of the figures `names` as fit on the screen; the others are
    in `file`."""
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
        table.add_row(as_text(title, screen))
        for name, figures in models.items():
            table.add_row(as_text(f"  {name}", screen), *(cell(figures.get(figure)) for figure in shown))
    screen.print(table)
    if left := [words_of(name) for name in names if name not in shown]:
        say(f"also in {file}: {', '.join(left)}", screen=screen)


def cell(figure: Interval | float | None) -> str:
    """A figure to four digits, its interval below it to three, of large figures to fewer."""
    if figure is None:
        return ""
    if isinstance(figure, float | int):
        return f"{figure:.4f}"
    digits = 3 if figure.high < 10 else 1 if figure.high < 1000 else 0  # a perplexity has to fit in the column, too
    return f"{figure.value:.4f}\n{figure.low:.{digits}f}-{figure.high:.{digits}f}"
