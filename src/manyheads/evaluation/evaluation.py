"""An `Evaluation` of a model on some rows: the same for every task, for `train` and for `evaluate`.

Parts of kind `analysis` are questions to an evaluation of a classifier: `make(config, stored)` gives a `Finding` by its
`LogitStore`. The fact `check` of such a part is `check(config, folder, rows)`: whether the settings ask it; it
raises UserError for what cannot be asked of this model or these rows, before torch is imported.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from manyheads.config.sentences import format_value, list_names
from manyheads.data.rows import Rows, class_counts
from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.logits import KeptLogits
from manyheads.evaluation.report import (
    Page,
    Picture,
    ReportSection,
    ReportTable,
    dotted,
    draw_curves,
    installed_versions,
    value_sections,
)
from manyheads.inference.answer_formats import json_text
from manyheads.inference.answers import replaced_answers
from manyheads.inference.chunks import plain_cell
from manyheads.inference.rules import AnswerRule
from manyheads.linear.model import LinearBaseline
from manyheads.runs.metrics_csv import MetricsRow
from manyheads.runs.summary import BOTH, Figures, words_of

FEW_ROWS, FEW_OF_CLASS = 100, 10
AT_ONCE = 1024  # rows that are written together
MOST_NAMED = 5


@dataclass(slots=True)
class Finding:
    """The answer to a question about some rows: its name and content in metrics.json, sections of the report, and lines
    for the screen."""

    name: str
    content: Any
    sections: list[ReportSection]
    lines: list[str] = field(default_factory=list)


@dataclass(kw_only=True, frozen=True, slots=True)
class Setup:
    """How a model is evaluated.

    Baselines learn from the rows `train` where they are known; `most_frequent` is the class or label that most of them
    have, None: that of `train`, else of the rows. The linear `baseline` of the run is evaluated, and, to `compare`,
    models that need no training of ours. A batch has at most `tokens` tokens, 0: as suits the task; `progress` is
    called with the number of further rows that are answered. `config` are all settings of a verb that judges. `logits`
    keeps what a classifier answers, and may hold some of it already. `analyses` are called with the `LogitStore` of a
    classifier; `rules` change or mark its answers.
    """

    train: Rows | None = None
    most_frequent: int | None = None
    baseline: LinearBaseline | None = None
    compare: bool = True
    tokens: int = 0
    config: Any = None
    progress: Callable[[int], None] = lambda n_rows: None
    logits: KeptLogits | None = None
    analyses: Sequence[Callable[[Any], Finding]] = ()
    rules: Sequence[AnswerRule] = ()


@dataclass(kw_only=True, slots=True)
class Evaluation:
    """The evaluation of a model on some rows.

    `scores` is everything measured of the model that answers, as JSON has it. `members` are the main figures by the
    name of the model, the one that answers first; `baselines` those of models that need no training of ours, on the
    same rows; `leads` the figures of the model less those of each baseline, with paired intervals.

    Of the report: the `title` for a training run, the `size` such as `2,000 rows, 6 classes`, the `verdict` in one
    sentence, also where a baseline wins, a `note` on the linear model, the `findings` of analyses, and the
    sections above and below these, `figures` and `details`; functions, as they draw pictures. `write` writes the
    answers to a path, as csv or parquet.
    """

    title: str
    size: str
    scores: dict[str, Any]
    members: dict[str, Figures]
    baselines: dict[str, Figures]
    leads: dict[str, Figures] = field(default_factory=dict)
    verdict: str
    tiles: Figures
    comparison: list[ReportSection]
    note: str = ""
    figures: Callable[[], list[ReportSection]] = list
    findings: list[Finding] = field(default_factory=list)
    details: Callable[[], list[ReportSection]] = list
    write: Callable[[Path], None]

    def page(
        self,
        title: str,
        subtitle: str,
        *,
        curves: Sequence[MetricsRow] = (),
        facts: dict[str, str] | None = None,
        notes: Sequence[str] = (),
        config: dict[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> Page:
        """The report: `curves` are rows of metrics.csv, `facts` names and values of the run, `notes` what was noticed
        in the data, `config` nested plain settings, `warnings` are about the figures."""
        drawn = [Picture(name, figure, f"{name} over steps") for name, figure in draw_curves(curves).items()]
        values = {"Run": facts or {}, "Settings": dict(dotted(config or {})), "Versions": installed_versions()}
        sections = [
            *self.comparison,
            *([ReportSection("Learning curves", pictures=drawn)] if drawn else []),
            *self.figures(),
            *(section for finding in self.findings for section in finding.sections),
            *self.details(),
            *([ReportSection("Notes on the data", items=notes)] if notes else []),
            *value_sections(values),
        ]
        above = {"warnings": warnings, "tiles": self.tiles, "verdict": self.verdict}
        return Page(title=title, subtitle=subtitle, sections=sections, **above)


def compared(
    title: str, models: dict[str, Figures], first: str, *more: str, column: str = "model", note: str = "", ranked=True
) -> list[ReportSection]:
    """Figures of the models, of which the first is this one, best first by the `first` figure if they are `ranked`;
    none where there is one model alone."""
    if len(models) < 2:
        return []
    names = sorted(models, key=lambda name: -models[name][first].value) if ranked else list(models)
    rows = [[name, *(models[name][one] for one in (first, first, *more))] for name in names]
    columns = [column, words_of(first), "from 0 to 1", *map(words_of, more)]
    table = ReportTable(columns, rows, "wib" + "i" * len(more), names.index(next(iter(models))))
    return [ReportSection(title, table, [note] if note else [])]


def figures_section(figures: Figures) -> ReportSection:
    """Figures by their names, each with its interval."""
    rows = [[name, *(f"{one:.4f}" for one in (of.value, of.low, of.high))] for name, of in figures.items()]
    return ReportSection(
        "All figures with 95 % intervals", ReportTable(["figure", "value", "low", "high"], rows, "wnnn")
    )


def write_answers(path: Path, rows: Rows, columns: list[str], answers: Iterable[list[Any]]) -> None:
    """One line a row, of a csv or parquet file: `row` and `index`, the text(s), the columns of its file that are not
    read, and under `columns` its `answers`.

    `row` is its number in messages and in the report: in a csv or tsv the header is row 1, in a .jsonl it is the line,
    elsewhere the first is 1. `index` counts the rows of data from 0, as `iloc` of a pandas frame. A column of the file
    with one of these names is kept as `input_<name>`, a cell that is neither text, number nor empty as JSON; in parquet
    numbers, too, of a file that declares no types. Texts are written as the data holds them: `=1+1`, which a
    spreadsheet takes for a formula, stays a text. The file appears whole or not at all.
    """
    own = {"row": rows.numbers, "index": rows.unread.positions if rows.unread else range(len(rows)), "text": rows.texts}
    own |= {} if rows.pairs is None else {"text_pair": rows.pairs}
    untyped = path.suffix == ".parquet" and Path(rows.source).suffix != ".parquet"
    kept: dict[str, Iterable[Any]] = {}
    for name, cells in rows.unread.columns().items() if rows.unread else ():
        while name in own or name in kept or name in columns:
            name = f"input_{name}"
        cells = map(plain_cell, cells)
        kept[name] = map(json_text, cells) if untyped else cells
    own["row"], own["index"] = map(int, own["row"]), map(int, own["index"])
    lines = (
        dict(zip((*own, *kept, *columns), (*cells, *of_row), strict=True))
        for *cells, of_row in zip(*own.values(), *kept.values(), answers, strict=True)
    )
    with replaced_answers(path) as file:
        while some := list(islice(lines, AT_ONCE)):
            file.write([{}] * len(some), some)


def warnings_of(
    evaluation: Evaluation, rows: Rows, split: str, role: str, names: Sequence[str], validation: Rows | None
) -> list[str]:
    """Warnings about the figures; arguments like those of `seen_rows` and `few_rows`."""
    asked = {"linear": BOTH in evaluation.members, "multi": rows.sets is not None, "classes": bool(names)}
    return [*seen_rows(role, **asked), *few_rows(rows, split, names, validation)]


def few_rows(judged: Rows, split: str, names: Sequence[str], validation: Rows | None = None) -> list[str]:
    """One warning, or none: with fewer than `FEW_ROWS` rows the interval of a share is ten points or more to either
    side, with fewer than `FEW_OF_CLASS` rows of a class its figures are uncertain, and what was chosen on few rows is
    partly chance.

    Args:
        split: the name of the judged rows.
        names: of the classes or labels; none where rows are answered by texts.
        validation: the rows on which the model was chosen, where they are known.
    """
    said, n = [], len(judged)

    def rare(counts: list[int], least: int) -> list[str]:
        found = zip(names, counts, strict=True)
        return [f"{format_value(name)} ({count})" for name, count in found if least <= count < FEW_OF_CLASS]

    if n < FEW_ROWS:
        middle = share_interval(n // 2, n)
        points = 50 * (middle.high - middle.low)
        said.append(f"{split} has {_rows(n)}, so the interval of a share may be as wide as ±{points:.0f} points")
    counts = class_counts(judged, len(names))
    none, few = [format_value(name) for name, count in zip(names, counts, strict=True) if not count], rare(counts, 1)
    if none:
        said.append(f"{split} has no row of {_some(none)}, so it does not measure {'it' if len(none) == 1 else 'them'}")
    if few:
        what = "their figures, and their part in macro F1, are uncertain"
        said.append(f"{split} has fewer than {FEW_OF_CLASS} rows of {_some(few)}: {what}")
    if validation is not None and len(validation) < FEW_ROWS:
        said.append(f"what was chosen on only {_rows(len(validation))} of validation is partly chance")
    if validation is not None and validation.sets is not None:
        tuned = rare(class_counts(validation, len(names)), 0)
        where = f"fewer than {FEW_OF_CLASS} validation rows that have the label"
        said += [f"the thresholds of {_some(tuned)} were tuned on {where}"] if tuned else []
    return [f"few rows: {'; '.join(said)}"] if said else []


def seen_rows(role: str, *, linear: bool, multi: bool, classes: bool = True) -> list[str]:
    """One warning, or none, that the figures are optimistic. `role` is the split of the run that the rows are, empty
    where unknown; `classes`: rows are answered by classes or labels, of which they may have any number (`multi`)."""
    if role == "train":
        return ["the model was trained on these rows: the figures do not hold for new texts"]
    if role != "validation":
        return []
    what = ["epoch", *(["share", "temperatures"] if linear else []), *(["thresholds"] if multi else [])]
    chosen = f"{', '.join(what[:-1])} and {what[-1]} were" if what[1:] else f"{what[0]} was"
    figures = f"figures{' and lead' if classes else ''} are optimistic: expect lower ones on new texts"
    return [f"{chosen} chosen on these validation rows: {figures}"]


def _rows(n: int) -> str:
    return f"{n:,} row{'s' * (n != 1)}"


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return list_names(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
