"""An `Evaluation` of a model on some rows: the same for every task, for `train` and for `evaluate`.

A part of kind `analysis` asks more of the answers of a classifier: `make(config, stored)` returns a `Finding` about its
`LogitStore`. The fact `check` of such a part, `check(config, folder, rows)`, returns whether the settings ask for it,
and raises UserError if this model or these rows do not allow it; it is called before torch is imported.

All parts of kind `finding` are asked, by each evaluation of a classifier, that of a training too: `make(stored,
outcomes)` returns a `Finding` of its `LogitStore` and its `metrics.Outcomes`, or None. So are those of kind `chapter`,
`make(judged)`, for the sections that a report begins with, and of kind `advice`, `make(judged, training)`, for what to
do next.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from manyheads.config.sentences import count_rows, format_value, list_names
from manyheads.data.rows import Rows, class_counts
from manyheads.evaluation.intervals import share_interval
from manyheads.evaluation.logits import KeptLogits
from manyheads.evaluation.metrics import Outcomes, Scores
from manyheads.evaluation.report import (
    Advice,
    Page,
    Picture,
    ReportSection,
    ReportTable,
    draw_curves,
    settings_sections,
    value_sections,
)
from manyheads.inference.answers import json_text, replaced_answers
from manyheads.inference.chunks import plain_cell
from manyheads.inference.rules import AnswerRule
from manyheads.linear.model import LinearBaseline
from manyheads.runs.metrics_csv import MetricsRow
from manyheads.runs.summary import BOTH, Figures, words_of

FEW_ROWS, FEW_OF_CLASS = 100, 10
PANEL_NAMES = {"f1": "F1"}
ROWS_AT_ONCE = 1024  # that are written together
MOST_NAMED = 5


@dataclass(slots=True)
class Finding:
    """What an analysis found.

    Attributes:
        name: its key in metrics.json.
        content: its value there.
        sections: what the report shows of it.
        lines: what the screen shows of it.
        figures: of it that summary.json and the log of a training have, by name.
    """

    name: str
    content: Any
    sections: list[ReportSection]
    lines: list[str] = field(default_factory=list)
    figures: Figures = field(default_factory=dict)


class Judged(NamedTuple):
    """An evaluated classifier, as parts of kind `chapter` and `advice` are given it.

    Attributes:
        stored: its answers, a `LogitStore`.
        scores, outcomes: its figures, and whether each answer is right.
        train: the training rows, if they are known.
        members: the main figures of all models that answer, by name.
        leads: those of the classifier less those of each baseline.
    """

    classifier: Any
    stored: Any
    scores: Scores
    outcomes: Outcomes
    train: Rows | None
    members: dict[str, Figures]
    leads: dict[str, Figures]


@dataclass(kw_only=True, frozen=True, slots=True)
class Setup:
    """How a model is evaluated.

    Attributes:
        train: the training rows, if known; baselines learn from them.
        label_counts: how many training rows have each class or label; empty: those of `train`, or if these are unknown
            of the rows.
        baseline: the linear model of the run, which is evaluated too.
        compare: compare with models that need no training of ours.
        tokens: most of a batch; 0: as suits the task.
        config: all settings of the verb.
        progress: called with the number of rows that were answered since the last call.
        logits: where the answers of a classifier are kept; it may hold some of them already.
        analyses: each is called with the `LogitStore` of a classifier.
        rules: they change or mark the answers of a classifier.
    """

    train: Rows | None = None
    label_counts: Sequence[int] = ()
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

    Attributes:
        title: of the report of a training run.
        size: such as `2,000 rows, 6 classes`.
        scores: all that is measured of the model that answers, as JSON has it.
        members: the main figures by the name of the model; the one that answers is the first.
        baselines: those of models that need no training of ours, on the same rows.
        leads: the figures of the model less those of each baseline, with paired intervals.
        verdict: the result in one sentence, also if a baseline wins.
        advise: what to do next, given what only the training loop knows, or nothing.
        tiles: the figures at the top of the report.
        comparison: sections that compare the models.
        note: what is said of the linear model.
        mistakes, details: draw the sections that the report begins with, and those that follow the findings. The
            pictures of those without a title are shown together.
        findings: of the analyses.
        write: writes the answers to a path, as csv or parquet.
        tuned: of rows with any number of labels, those whose thresholds were tuned; None: all.
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
    advise: Callable[[dict[str, Any]], Sequence[Advice]] = lambda training: ()
    mistakes: Callable[[], list[ReportSection]] = list
    findings: list[Finding] = field(default_factory=list)
    details: Callable[[], list[ReportSection]] = list
    write: Callable[[Path], None]
    tuned: Sequence[str] | None = None

    def page(
        self,
        title: str,
        subtitle: str,
        *,
        curves: Sequence[MetricsRow] = (),
        training: dict[str, Any] | None = None,
        facts: dict[str, str] | None = None,
        notes: Sequence[str] = (),
        config: dict[str, Any] | None = None,
        warnings: Sequence[str] = (),
    ) -> Page:
        """The report.

        Args:
            curves: rows of metrics.csv.
            training: what only the training loop knows.
            facts: of the run, by name.
            notes: what was noticed in the data.
            config: nested plain settings.
            warnings: about the figures.
        """
        found = [*self.mistakes(), *self.comparison]
        for finding in self.findings:
            found += finding.sections
        found += self.details()
        pictures = [
            Picture(name, figure, f"{PANEL_NAMES.get(name, name)} over steps")
            for name, figure in draw_curves(curves).items()
        ]
        for section in found:
            if not section.title:
                pictures += section.pictures
        sections = [section for section in found if section.title and not section.folded]
        if pictures:
            sections.append(ReportSection("Training and confidence", pictures=pictures))
        sections += [section for section in found if section.folded]
        if notes:
            sections.append(ReportSection("Notes on the data", items=notes, folded=True))
        sections += [*value_sections({"Run": facts or {}}), *settings_sections(config or {})]
        return Page(
            title=title,
            subtitle=subtitle,
            sections=sections,
            warnings=warnings,
            tiles=self.tiles,
            verdict=self.verdict,
            advice=self.advise(training or {}),
        )


def compared(
    title: str, models: dict[str, Figures], first: str, *more: str, column: str = "model", note: str = "", ranked=True
) -> list[ReportSection]:
    """A table of the figures of models, of which the first is the one that is evaluated; best first by the figure
    `first` if they are `ranked`. No section if there is one model alone."""
    if len(models) < 2:
        return []
    own, names = next(iter(models)), list(models)
    if ranked:
        names.sort(key=lambda name: -models[name][first].value)
    lines: list[list[Any]] = []
    for name in names:
        figures = models[name]
        lines.append([name, figures[first], figures[first], *(figures[other] for other in more)])
    columns = [column, words_of(first), "from 0 to 1", *map(words_of, more)]
    table = ReportTable(columns, lines, "wib" + "i" * len(more), names.index(own))
    return [ReportSection(title, table, [note] if note else [])]


def figures_section(figures: Figures) -> ReportSection:
    """Figures by their names, each with its interval."""
    lines = []
    for name, figure in figures.items():
        ends = [f"{end:.4f}" if figure.is_known else "" for end in (figure.low, figure.high)]
        lines.append([name, f"{figure.value:.4f}", *ends])
    table = ReportTable(["figure", "value", "low", "high"], lines, "wnnn")
    return ReportSection("All figures with 95 % intervals", table, folded=True)


def write_answers(path: Path, rows: Rows, columns: list[str], answers: Iterable[list[Any]]) -> None:
    """Write one line per row into a csv or parquet file: `row` and `index`, the text or texts, the columns of its file
    that are not read, and its `answers` under `columns`. The file appears whole or not at all.

    `row` is its number in messages and in the report: in a csv or tsv the header is row 1, in a .jsonl it is the line,
    elsewhere the first is 1. `index` counts the rows of data from 0, like `iloc` of a pandas frame. A column of the
    file with one of these names is kept as `input_<name>`. A cell that is neither text, number nor empty is written as
    JSON; in parquet numbers are, too, if the file declares no types. Texts are written as the data holds them: `=1+1`,
    which a spreadsheet takes for a formula, stays a text.
    """
    own: dict[str, Iterable[Any]] = {"row": map(int, rows.numbers), "index": range(len(rows)), "text": rows.texts}
    if rows.unread:
        own["index"] = map(int, rows.unread.positions)
    if rows.pairs is not None:
        own["text_pair"] = rows.pairs
    kept: dict[str, Iterable[Any]] = {}
    if rows.unread:
        is_untyped = path.suffix == ".parquet" and Path(rows.source).suffix != ".parquet"
        for name, cells in rows.unread.columns().items():
            while name in own or name in kept:
                name = f"input_{name}"
            kept[name] = map(plain_cell, cells)
            if is_untyped:
                kept[name] = map(json_text, kept[name])
    names = [*own, *kept]

    def lines() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        for *cells, answer in zip(*own.values(), *kept.values(), answers, strict=True):
            yield dict(zip(names, cells, strict=True)), dict(zip(columns, answer, strict=True))

    remaining = lines()
    with replaced_answers(path) as file:
        while some := list(islice(remaining, ROWS_AT_ONCE)):
            file.write([of_file for of_file, _ in some], [answer for _, answer in some])


def warnings_of(
    evaluation: Evaluation, rows: Rows, split: str, role: str, names: Sequence[str], validation: Rows | None
) -> list[str]:
    """Warnings about the figures; the arguments are those of `seen_rows` and `few_rows`."""
    return [
        *seen_rows(role, linear=BOTH in evaluation.members, multi=rows.sets is not None),
        *few_rows(rows, split, names, validation, evaluation.tuned),
    ]


def few_rows(
    judged: Rows,
    split: str,
    names: Sequence[str],
    validation: Rows | None = None,
    thresholds_of: Sequence[str] | None = None,
) -> list[str]:
    """One warning, or none, about too few rows: with fewer than `FEW_ROWS` the interval of a share is ten points or
    more to either side, with fewer than `FEW_OF_CLASS` rows of a class its figures are uncertain, and what was chosen
    on few rows is partly chance.

    Args:
        split: the name of the judged rows.
        names: of the classes or labels; empty if rows are answered by texts.
        validation: the rows on which the model was chosen, if they are known.
        thresholds_of: the labels whose thresholds were tuned, where rows have any number of them; None: all.
    """
    reasons, n = [], len(judged)

    def few_of(rows: Rows, among: Sequence[str], least: int = 1) -> list[str]:
        counts = {name: n for name, n in zip(names, class_counts(rows, len(names)), strict=True) if name in among}
        return [f"{format_value(name)} ({n})" for name, n in counts.items() if least <= n < FEW_OF_CLASS]

    if n < FEW_ROWS:
        widest = share_interval(n // 2, n)
        points = 50 * (widest.high - widest.low)
        reasons.append(f"{split} has {count_rows(n)}, so intervals are up to ±{points:.0f} points wide")
    counts = zip(names, class_counts(judged, len(names)), strict=True)
    if missing := [format_value(name) for name, count in counts if not count]:
        reasons.append(f"{split} has no row of {_some(missing)}, of which nothing is measured")
    if few := few_of(judged, names):
        reasons.append(
            f"{split} has fewer than {FEW_OF_CLASS} rows of {_some(few)}: their figures, and with them macro F1, are "
            "uncertain"
        )
    if validation is not None and len(validation) < FEW_ROWS:
        reasons.append(f"validation has only {count_rows(len(validation))}: what was chosen on them is partly chance")
    tuned = names if thresholds_of is None else thresholds_of
    if validation is not None and validation.sets is not None and (few := few_of(validation, tuned, 0)):
        reasons.append(f"the thresholds of {_some(few)} come from fewer than {FEW_OF_CLASS} validation rows each")
    return [f"few rows: {'; '.join(reasons)}"] if reasons else []


def seen_rows(role: str, *, linear: bool, multi: bool) -> list[str]:
    """One warning, or none, that the figures are optimistic.

    Args:
        role: the split of the run that the rows are; empty if unknown.
        linear: a linear model answers, too.
        multi: rows have any number of labels.
    """
    if role == "train":
        return ["the model was trained on these rows: the figures do not hold for new texts"]
    if role != "validation":
        return []
    chosen = ["the epoch"]
    if linear:
        chosen.append("the weight of the linear model")
    if multi:
        chosen.append("thresholds")
    *some, last = chosen
    what = f"{', '.join(some)} and {last} were" if some else f"{last} was"
    return [f"{what} chosen on these validation rows, so the figures are optimistic: expect lower ones on new texts"]


def _some(names: list[str]) -> str:
    n_more = len(names) - MOST_NAMED
    some = list_names(names[:MOST_NAMED])
    return f"{some} and {n_more} more" if n_more > 0 else some
