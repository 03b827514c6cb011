"""Figures of an evaluation or of a run as tables on the screen."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config import RunConfig
from manyheads.config.facts import hooks
from manyheads.config.plugins import plugin_words
from manyheads.config.sentences import count_rows
from manyheads.evaluation.evaluation import Evaluation
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.runs.summary import NETWORK, Interval, Summary, facts, lead_line, models_of, with_baselines, words_of
from manyheads.terminal import Sheet, console, print_sheet, say, show_files, typed_path

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200  # characters of a line in run.log, which has no terminal
CELL = 20  # characters of a column of figures, with its margin
ON_SCREEN = ("memory", "left out")  # facts of a run that a person should see at once, if there are any
LEANS = (
    "* mostly to one side: where most classes have few rows, chance pulls the figure to the other side; such intervals "
    "held the true figure in 95 of 100 draws"
)
Figures = dict[str, Any]  # by name: an interval, or a number without one


def show_evaluation(
    evaluation: Evaluation, data: EvaluationData, warnings: Sequence[str], folder: Path, predictions: str
) -> None:
    """Print the figures of all models, the lead over the strongest baseline, warnings, and where the files are."""
    models = with_baselines(evaluation.members, evaluation.baselines)
    title = f"{data.name}, {data.split}: {count_rows(len(data.rows))}"
    own = next(iter(models.values()))
    show_figures(console(), {title: models}, list(own), "metrics.json")
    lines = [f"warning: {warning}" for warning in warnings]
    if lead := lead_line(evaluation.leads, evaluation.baselines, data.split):
        lines.append(f"result: {lead}")
    if evaluation.note:
        lines.append(evaluation.note)
    for finding in evaluation.findings:
        lines += finding.lines
    say(*lines)
    show_files(folder, ["metrics.json", predictions, "report.html"])


def show_summary(summary: Summary, run: RunConfig, file: Path, *, pairs: bool = False) -> None:
    """Print the figures of a run on the split that it is judged by, and what to type next; append all its figures and
    facts to `file`. `pairs`: of texts."""
    from rich.console import Console

    split, said = summary.judged_on, facts(summary)
    models = with_baselines(models_of(summary, split), summary.baselines)
    title, names = f"{split}: {count_rows(summary.rows[split])}", list(summary.validation)
    show_figures(console(), {title: models}, names, "report.html")
    lines = [f"warning: {warning}" for warning in summary.warnings]
    if "lead" in said:
        lines.append(f"result: {said.pop('lead')}")
    say(*lines)
    if summary.linear:
        say(f"both: each answer is {1 - summary.linear:.0%} network and {summary.linear:.0%} linear model")
    epochs = f"{summary.epochs} epoch{'s' * (summary.epochs != 1)} in {summary.seconds:.0f} s"
    say(f"trained: {epochs}; best epoch: {said['best epoch']}")
    say(*(f"{name}: {said[name]}" for name in (*ON_SCREEN, *summary.measured) if name in said))
    if run.data.fold is None:
        say(*next_steps(Path(summary.output), run, pairs=pairs))

    epoch = f"epoch {summary.best['epoch']}" if summary.best else "the last epoch"
    blocks: dict[str, dict[str, Figures]] = {title: models}
    if split == "test":
        blocks[f"validation: {count_rows(summary.rows['validation'])}"] = models_of(summary, "validation")
    blocks["training, with dropout"] = {f"{NETWORK}, {epoch}": summary.train}
    with file.open("a", encoding="utf-8") as log:
        screen = Console(file=log, width=WIDE, markup=False, emoji=False, highlight=False)
        show_figures(screen, blocks, names, "summary.json")
        say(*lines, *(f"{name}: {fact}" for name, fact in said.items()), screen=screen)
        say(f"wall time: {summary.wall_seconds:.1f} s", f"model: {Path(summary.output) / 'model'}", screen=screen)


def next_steps(folder: Path, run: RunConfig, *, pairs: bool) -> Iterator[str]:
    """Where the report is, and commands that use the model, as they are typed here."""
    shown = typed_path(folder)
    yield f"report: {shown}/report.html"
    name = shlex.join([*plugin_words(here=True), f"run={shown}"])
    commands = [f"predict {name} input=NEW.csv", f"evaluate {name} data.path=NEW.csv"]
    fields = [name for names in hooks(run, "fields") for name in names(run.data)]
    if run.task == "classify" and isinstance(run.data.text, str) and not (pairs or fields):
        commands.insert(0, f'predict {name} text="..."')
    for command in commands:
        yield f"next: manyheads {command}"


def show_figures(screen: "Console", blocks: dict[str, dict[str, Figures]], names: Sequence[str], file: str) -> None:
    """Print a table of models for each block, with as many of the figures `names` as fit on the screen; the others are
    in `file`."""
    widest = max(len(name) for models in blocks.values() for name in models)
    shown = list(names)[: max(1, (screen.width - widest) // CELL)]
    more = ", ".join(map(words_of, names[len(shown) :]))
    notes = [f"95 % intervals{f'; in {file}: {more}' if more else ''}"]
    for title, models in blocks.items():
        lines = []
        for name, figures in models.items():
            cells = [cell(figures.get(figure), averaged=figure.startswith("macro_")) for figure in shown]
            lines.append([name, *cells])
            if any(one.endswith("*") for one in cells) and LEANS not in notes:
                notes.append(LEANS)
        above, title = ("", title) if len(title) <= CELL else (title, "")
        print_sheet(Sheet(above, [title, *map(words_of, shown)], lines, []), screen)
    say(*notes, screen=screen)


def cell(figure: Interval | float | None, *, averaged: bool = False) -> str:
    """A figure and its 95 % interval, to three digits, of large figures to fewer; `LEANS` explains the mark of one that
    is `averaged` over classes."""
    if figure is None:
        return ""
    if isinstance(figure, float | int):
        return f"{figure:.3f}"
    digits = 0
    if figure.high < 10:
        digits = 3
    elif figure.high < 1000:
        digits = 1
    if not figure.is_known:
        return f"{figure.value:.{digits}f}"
    mark = "*" if averaged and figure.leans else ""
    return f"{figure.value:.{digits}f} ({figure.low:.{digits}f}-{figure.high:.{digits}f}){mark}"
