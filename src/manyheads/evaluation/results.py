"""What is left of an evaluation: summary and report of a run, the folder of `evaluate`, tables on the screen."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config import EvaluateConfig, Predictions
from manyheads.config.fields import to_plain
from manyheads.data.rows import Rows, Splits
from manyheads.evaluation.classification import frequent_label
from manyheads.evaluation.evaluation import Evaluation, Setup, warnings_of
from manyheads.evaluation.intervals import plain
from manyheads.evaluation.judged_rows import EVALUATED, EvaluationData
from manyheads.evaluation.report import installed_versions, write_page
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import AnyPredictor
from manyheads.linear.model import LinearBaseline
from manyheads.runs.files import write_atomic, write_json
from manyheads.runs.metrics_csv import read_metrics_csv
from manyheads.runs.summary import (
    NETWORK,
    Interval,
    Summary,
    beside,
    facts,
    lead_line,
    models_of,
    words_of,
)
from manyheads.runs.verb_output import output_folder
from manyheads.terminal import as_text, console, say, show_files

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 160  # letters of a line in run.log, where no terminal says how many
CELL = 13  # characters of a column of figures, with its margins
Figures = dict[str, Any]  # by name: an interval, or a bare number


def evaluate_rows(predictor: AnyPredictor, rows: Rows, setup: Setup) -> Evaluation:
    """The evaluation of the task that the model has.

    Raises:
        UserError: there are no rows, or none that suit the model.
    """
    return plugin.resolve(plugin.task(predictor.task).evaluate)(predictor, rows, setup)


def baseline_of(predictor: AnyPredictor, home: Path | None) -> LinearBaseline | None:
    """The linear model of the run folder `home`, which every run of a classifier fits."""
    return predictor.baseline(home) if isinstance(predictor, TextClassifier) else None


def evaluate_run(
    splits: Splits, predictor: AnyPredictor, training: dict[str, Any], config: dict[str, Any], folder: Path
) -> Summary:
    """Evaluate what a run shipped, as it was shipped, and write summary.json and report.html into `folder`. `training`
    holds the figures of Summary that only the training loop knows, `config` the run's settings."""
    baseline, labels = baseline_of(predictor, folder), splits.labels
    named = {"validation": splits.validation} | ({} if splits.test is None else {"test": splits.test})
    split, rows = list(named.items())[-1]
    setup = Setup(train=splits.train, baseline=baseline)
    last = evaluate_rows(predictor, rows, setup)
    members = {  # of another split the figures alone are kept: scores hold C x C numbers
        name: last.members if name == split else evaluate_rows(predictor, one, replace(setup, compare=False)).members
        for name, one in named.items()
    }
    shipped = {split: next(iter(models.values())) for split, models in members.items()}
    summary = Summary(
        output=str(folder),
        rows={name: len(one) for name, one in splits.by_name().items()},
        validation=shipped["validation"],
        test=shipped.get("test", {}),
        judged_on=split,
        baselines=last.baselines,
        leads=last.leads,
        linear=predictor.share if isinstance(predictor, TextClassifier) else 0.0,
        digests=splits.digests(),
        versions=installed_versions(),
        members=members,
        terms=baseline.linear.terms.value if baseline else "",
        most_frequent=labels[frequent_label(rows, len(labels), setup)] if labels else "",
        warnings=warnings_of(last, rows, split, split, labels, splits.validation),
        **training,
    )
    page = last.page(
        last.title,
        f"{rows.source}, {split} split, {last.size}",
        curves=read_metrics_csv(folder / "metrics.csv"),
        facts=facts(summary),
        notes=splits.notes,
        config=config,
        warnings=summary.warnings,
    )
    write_page(folder / "report.html", page)
    summary.write(folder / "summary.json")
    return summary


def write_evaluation(
    folder: Path,
    evaluation: Evaluation,
    data: EvaluationData,
    config: EvaluateConfig,
    model: AnyPredictor,
    home: Path | None,
) -> dict[str, Any]:
    """Write metrics.json, the predictions, report.html and its pictures, each whole or not at all, and print a table;
    `home` is the run folder, whose learning curves are shown. A UserError where the folder cannot be written to.

    Returns:
        The content of metrics.json: figures of the model at the top level, each as value, low, high; those of its
        members and of baselines by their names.
    """
    classes = isinstance(model, TextClassifier)
    split, validation = "the file" if data.split == "all" else data.split, data.splits and data.splits.validation
    warnings = warnings_of(evaluation, data.rows, split, data.role, model.labels, validation) if classes else []
    if classes and data.run is None and not data.most_frequent:
        kind = "class" if data.rows.sets is None else "label"
        warnings.append(f"the most frequent {kind} is taken from these rows, as the training rows are not known")
    warnings = [*([data.learnt] if data.learnt else []), *warnings]
    judged_as = {"model": to_plain(model.model)} if data.run is None else {"run": to_plain(data.run)}
    page = evaluation.page(
        data.title,
        f"{data.rows.source}, {evaluation.size}",
        curves=read_metrics_csv(home / "metrics.csv") if home else [],
        notes=data.notes,
        config={"evaluate": to_plain(config), **judged_as},
        warnings=warnings,
    )
    fitted = getattr(model, "calibration", None)
    models = {"members": evaluation.members, "baselines": evaluation.baselines, "leads": evaluation.leads}
    metrics = {
        **evaluation.scores,
        **data.about,
        **{
            key: {name: plain(figures) for name, figures in of_key.items()}
            for key, of_key in models.items()
            if classes or key == "baselines"
        },
        **{one.name: one.content for one in evaluation.findings},
        **({"warnings": warnings} if classes else {}),
        **({"calibration": fitted.name} if fitted else {}),
    }
    with output_folder(folder, EVALUATED, overwrite=config.overwrite) as place:
        for picture in (one for section in page.sections for one in section.pictures):
            write_atomic(place / f"{picture.name}.png", picture.png)
        name, other = (
            f"predictions.{one.name}" for one in sorted(Predictions, key=lambda one: one != config.predictions)
        )
        evaluation.write(place / name)
        (place / other).unlink(missing_ok=True)
        write_page(place / "report.html", page)
        write_json(place / "metrics.json", metrics)
    show_evaluation(evaluation, data, warnings, folder, name)
    return metrics


def show_evaluation(
    evaluation: Evaluation, data: EvaluationData, warnings: Sequence[str], folder: Path, predictions: str
) -> None:
    """Print the figures of all models, the lead over the strongest baseline, warnings, and where the files are."""
    models = beside(evaluation.members, evaluation.baselines)
    block = f"{data.name}, {data.split}: {len(data.rows):,} rows"
    show_figures(console(), {block: models}, list(next(iter(models.values()))), "metrics.json")
    lead = lead_line(evaluation.leads, evaluation.baselines, data.split)
    found = [line for one in evaluation.findings for line in one.lines]
    lines = [f"lead: {lead}" if lead else "", *(f"warning: {one}" for one in warnings), evaluation.note, *found]
    say(*filter(None, lines))
    show_files(folder, ["metrics.json", predictions, "report.html"])


def card_figures(summary: Summary) -> dict[str, str]:
    """What a model card says of the split judged last: the first figures of the model, and the very first of the other
    models, with their intervals."""
    split, first = summary.judged_on, next(iter(summary.validation))
    models = beside(models_of(summary, split), summary.baselines)
    own = next(iter(models))
    shown = {f"{split} {words_of(name)}": figure for name, figure in list(models[own].items())[:4]}
    shown |= {
        f"{split} {words_of(first)} of the {name}": of[first]
        for name, of in models.items()
        if name != own and first in of
    }
    return {name: one.words for name, one in shown.items()}


def card_notes(summary: Summary, data: str) -> list[str]:
    """What a model card says of the training, and of what the figures cannot say."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    rows = ", ".join(f"{n:,} for {name}" for name, n in summary.rows.items())
    lead = lead_line(summary.leads, summary.baselines, summary.judged_on)
    said = [f"{line[:1].upper()}{line[1:]}." for line in (lead, *summary.warnings) if line]
    return [f"Trained on {data} until {day} (UTC); rows: {rows}. 95 % intervals are in brackets.", *said]


def show_summary(summary: Summary, file: Path | None = None, screen: "Console | None" = None) -> None:
    """Print the table and where the report lies, on the terminal or another `screen`; add them to `file`, too."""
    screen = screen or console()
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
