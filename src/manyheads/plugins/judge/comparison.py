"""What `compare` finds: the answers of each model, tests of the differences between every two, and the report.

Differences are paired: both answers to a row are drawn together, and McNemar's exact test asks whether of the rows that
one alone has right each has as many as the other. p-values of several pairs are corrected by Holm (1979), "A Simple
Sequentially Rejective Multiple Test Procedure".

n rows . C classes or labels
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from manyheads.config.conversion import plain_settings, to_plain
from manyheads.config.required import check_reached
from manyheads.config.sentences import count_rows, format_list
from manyheads.data.class_names import join_names
from manyheads.data.rows import NO_LABEL, Rows
from manyheads.errors import UserError
from manyheads.evaluation.answered import answer_rows
from manyheads.evaluation.evaluation import Setup, write_answers
from manyheads.evaluation.evaluation_data import EvaluationData
from manyheads.evaluation.intervals import Z
from manyheads.evaluation.metrics import Counts, change_of_answers, score_answers
from manyheads.evaluation.report import (
    BLUE,
    GREY,
    INK,
    RED,
    SMALL,
    THIN,
    Example,
    Page,
    Picture,
    ReportSection,
    ReportTable,
    draw,
    settings_sections,
    write_page,
)
from manyheads.evaluation.statistics import holm
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load, place
from manyheads.inference.format import ModelFolder
from manyheads.plugins.judge.config import CHANGE, CalibrationMethod, CompareConfig
from manyheads.plugins.judge.predictions import PREDICTION
from manyheads.plugins.judge.row_facts import labels_of
from manyheads.runs.config_file import read_run
from manyheads.runs.files import write_json
from manyheads.runs.listing import differing_settings
from manyheads.runs.metrics_csv import read_metrics_csv
from manyheads.runs.result_table import Cell, ResultTable
from manyheads.runs.summary import Interval, figures_to_plain, words_of
from manyheads.runs.verb_output import VerbOutput, output_folder
from manyheads.terminal import progress_bar, say, show_files

MOST_CLASSES = 12  # in the table of classes
MOST_VERDICTS = 3  # at the top of the page
COLOURS = (BLUE, RED, INK, GREY)  # of curves
POWER = 0.8416  # standard deviations below which 80 % of a normal distribution lie


@dataclass(slots=True)
class ComparedModel:
    """A model by its name, its answers, class ids `(n,)`, or, of several labels, bool `(n, C)`, and the folder of its
    run, if there is one."""

    name: str
    answers: NDArray[Any]
    home: Path | None = None


def answers_of(folder: ModelFolder, rows: Rows, labels: list[str], config: CompareConfig) -> NDArray[Any]:
    """The answers of a model, as in `ComparedModel`, its classes in the order of `labels`.

    Raises:
        UserError: its calibration was fitted on these rows, and changes answers.
    """
    classifier = place(load(folder, TextClassifier), config.hardware)
    fitted = classifier.calibration
    changes_answers = fitted is not None and fitted.method != CalibrationMethod.temperature.name
    if fitted is not None and changes_answers and fitted.digest == rows.digest(labels):
        raise UserError(
            f"{rows.source} holds the rows on which calibrate was fitted, so the figures of {folder.path} would be "
            "optimistic: compare on other rows"
        )
    id_C = np.array([labels.index(name) for name in classifier.labels])  # of the model's classes, in `labels`
    column_C = np.argsort(id_C)  # the model's column of each of `labels`
    parts: list[NDArray[Any]] = []
    with progress_bar(len(rows)) as progress:
        stored = answer_rows(classifier, rows, Setup(tokens=config.batch.tokens, progress=progress))
        for answered in stored.answers():
            if answered.multi:
                parts.append(answered.answers[:, column_C])
            else:
                parts.append(id_C[answered.answers].astype(np.int32))
    return np.concatenate(parts)


def compare_answers(models: list[ComparedModel], data: EvaluationData, labels: list[str]) -> dict[str, Any]:
    """Figures of every model, and of every two the differences, McNemar's test, and the rows needed to find them."""
    truth = labels_of(data.rows, len(labels))
    pairs: list[dict[str, Any]] = []
    for before, after in combinations(models, 2):
        (change,) = change_of_answers(truth, before.answers, [after.answers], len(labels))
        was_right_n, is_right_n = same_rows(truth, before.answers), same_rows(truth, after.answers)
        won, lost = int((~was_right_n & is_right_n).sum()), int((was_right_n & ~is_right_n).sum())
        pairs.append(
            {
                "from": before.name,
                "to": after.name,
                "change": {name: asdict(one) for name, one in change.items()},
                "won": won,
                "lost": lost,
                "changed": int((~same_rows(before.answers, after.answers)).sum()),
                "p": mcnemar(won, lost),
                "rows_needed": rows_needed(won, lost, len(truth)),
            }
        )
    for pair, p in zip(pairs, holm([one["p"] for one in pairs]), strict=True):
        pair["p_holm"] = p
    figures = {one.name: figures_to_plain(score_answers(truth, one.answers, len(labels))) for one in models}
    return {"n_rows": len(truth), "labels": labels, **data.about, "models": figures, "pairs": pairs}


def same_rows(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """In which rows two of the arrays of `labels_of` are the same `(n,)`; of several labels all must be."""
    if one.ndim == 1:
        return one == other
    return (one == other).all(1)


def mcnemar(won: int, lost: int) -> float:
    """McNemar's exact test: McNemar (1947), "Note on the sampling error of the difference between correlated
    proportions or percentages", by the binomial distribution.

    It assumes that rows are drawn independently, and uses only those that one of two models alone has right.

    Returns:
        The two-sided p of so uneven a split if both models are equally good; 1 where there are no such rows.
    """
    if won + lost == 0:
        return 1.0
    return float(binomtest(min(won, lost), won + lost).pvalue)


def rows_needed(won: int, lost: int, n: int) -> int | None:
    """Rows on which a difference such as this one is found at p < 0.05 in four of five samples.

    Connor (1987), "Sample Size for Testing Differences in Proportions for the Paired-Sample Design", corrected for
    continuity, as McNemar's exact test has less power than the test that he assumes.

    Returns:
        None where there is no difference.
    """
    apart, change = (won + lost) / n, (won - lost) / n
    if not change:
        return None
    needed = ((Z * math.sqrt(apart) + POWER * math.sqrt(apart - change**2)) / change) ** 2
    return math.ceil(needed + 1 / abs(change))


def write_comparison(
    folder: Path,
    output: VerbOutput,
    models: list[ComparedModel],
    data: EvaluationData,
    labels: list[str],
    warnings: list[str],
    config: CompareConfig,
) -> dict[str, Any]:
    """Compare the answers, write compare.json, changed.csv and report.html, and print the result.

    Raises:
        UserError: a figure that `require` bounds is not reached; all is written before.
    """
    found: dict[str, Any] = compare_answers(models, data, labels) | {"warnings": warnings}
    verdicts = [pair_verdict(pair, found["n_rows"]) for pair in found["pairs"]]
    shown = verdicts
    if len(shown) > 1:
        shown = [pair_verdict(pair, found["n_rows"], brief=True) for pair in found["pairs"][:MOST_VERDICTS]]
    truth, words = labels_of(data.rows, len(labels)), partial(answer_words, labels=labels)
    page = Page(
        title=f"{' and '.join(one.name for one in models)} compared",
        subtitle=f"{data.title}, {found['n_rows']:,} rows",
        sections=[
            *comparison_sections(found),
            class_section(models, truth, labels),
            *run_sections(models),
            *changed_rows(models, truth, data.rows, words, config.rows),
            *settings_sections(to_plain(config)),
        ],
        tiles={f"accuracy of {one.name}": Interval(**found["models"][one.name]["accuracy"]) for one in models},
        verdict=f"{'. '.join(shown)}.",
        warnings=warnings,
    )
    with output_folder(folder, output, overwrite=config.overwrite) as part:
        write_changed(part / "changed.csv", models, truth, data.rows, words)
        write_page(part / "report.html", page)
        write_json(part / "compare.json", found)
    for name, figures in found["models"].items():
        say(f"{name}: accuracy {Interval(**figures['accuracy']).words}")
    say(*(f"warning: {one}" for one in warnings), *verdicts)
    show_files(folder, ["compare.json", "changed.csv", "report.html"])
    if config.require:
        last, first_to_last = models[-1].name, found["pairs"][len(models) - 2]  # pairs of the first model come first
        change = {f"{CHANGE}{name}": of for name, of in first_to_last["change"].items()}
        check_reached(config.require, found["models"][last] | change, f"{data.title} of {last}", found)
    return found


def pair_verdict(pair: dict[str, Any], n_rows: int, *, brief: bool = False) -> str:
    """The result of a pair in a sentence, in which the more accurate model comes first; `brief`: without its test."""
    change, better, other = Interval(**pair["change"]["accuracy"]), pair["to"], pair["from"]
    n_better, n_other = pair["won"], pair["lost"]
    if change.value < 0:
        change = Interval(-change.value, -change.high, -change.low)
        better, other, n_better, n_other = other, better, n_other, n_better
    points = (
        f"the accuracy of {better} is {100 * change.value:.1f} points higher (95 % interval {100 * change.low:.1f} to "
        f"{100 * change.high:.1f})"
    )
    if not change.value:
        points = f"they are equally accurate (95 % interval of the difference ±{100 * change.high:.1f} points)"
    differs, needed = pair["p_holm"] < 0.05, pair["rows_needed"]
    said = f"{better} is better than {other}" if differs else f"{better} and {other} do not differ significantly"
    said += f": {points}"
    if brief:
        return said
    said += f"; rows that {better} alone has right: {n_better:,}, {other} alone: {n_other:,}"
    said += f"; Holm p = {pair['p_holm']:.2g}"
    if not differs and needed and needed > n_rows:
        said += f"; about {needed:,} rows are needed to find a difference of this size"
    return said


def write_changed(
    path: Path, models: list[ComparedModel], truth: NDArray[Any], rows: Rows, words: Callable[[Any], str]
) -> None:
    """The rows that not all models answer alike, each with its label and all answers."""
    first, *others = models
    is_same_n = np.all([same_rows(first.answers, one.answers) for one in others], axis=0)
    changed = np.flatnonzero(~is_same_n)
    columns = [truth, *(one.answers for one in models)]
    lines = ([words(column[at]) for column in columns] for at in changed.tolist())
    names = ["label", *(f"{PREDICTION} of {one.name}" for one in models)]
    write_answers(path, rows.pick(changed), names, lines)


def answer_words(answer: Any, labels: list[str]) -> str:
    """The class of an id, or all labels of marks `(C,)` `joined`."""
    if np.ndim(answer) == 0:
        return labels[int(answer)]
    return join_names([labels[index] for index in np.flatnonzero(answer).tolist()])


def comparison_sections(found: dict[str, Any]) -> list[ReportSection]:
    """The tables of models and of pairs."""
    models, pairs = comparison_tables(found)
    figures = ReportTable(models.columns, models.rows, "w" + "i" * (len(models.columns) - 1))
    words = pairs.in_words()
    differences = ReportTable(["", words[0][0]], list(zip(pairs.columns[1:], words[0][1:], strict=True)), "wn")
    if len(words) > 1:
        rows = [[cells[0], *row[1:3], *cells[3:]] for row, cells in zip(pairs.rows, words, strict=True)]
        differences = ReportTable(pairs.columns, rows, "wccnnnnn")
    return [ReportSection("Figures", figures), ReportSection("Differences", differences, pairs.notes)]


def comparison_tables(document: dict[str, Any]) -> list[ResultTable]:
    """The tables of compare.json: models, and pairs of them."""
    names = list(next(iter(document["models"].values())))[:3]
    if names[0] == "accuracy":
        names.remove("micro_f1")  # the same, as each row has one class
    models, pairs = list[list[Cell]](), list[list[Cell]]()
    for model, figures in document["models"].items():
        models.append([model, *(Interval(**figures[name]) for name in names)])
    for pair in document["pairs"]:
        changes = [Interval(**pair["change"][name]) for name in names[:2]]
        counts = [pair[key] for key in ("won", "lost", "changed", "p_holm", "rows_needed")]
        pairs.append([f"{pair['from']} to {pair['to']}", *changes, *counts])
    changes = [f"change of {words_of(name)}" for name in names[:2]]
    columns = ["", *changes, "won", "lost", "answers changed", "p", "rows needed"]
    note = (
        "won: rows that the second alone has right, lost: those that the first alone has; p: McNemar's exact test with "
        "Holm's correction; rows needed: on as many a difference of this size is found in four of five samples"
    )
    on, formats = f"on the same {document['n_rows']:,} rows", dict.fromkeys(changes, "+.3f") | {"p": ".2g"}
    paired = "paired 95 % intervals over the rows"
    return [
        ResultTable("models", f"figures {on}, with 95 % intervals", ["model", *map(words_of, names)], models),
        ResultTable("pairs", f"differences {on}, with {paired}", columns, pairs, formats, [note], paired),
    ]


def class_section(models: list[ComparedModel], truth: NDArray[Any], labels: list[str]) -> ReportSection:
    """F1 of each class by each model; of many classes those that differ most."""
    scored = [Counts.of(truth, one.answers, len(labels)).per_class(labels) for one in models]
    f1_CM = np.array([[one.f1 for one in of_model] for of_model in scored]).T
    lines = []
    for at in np.argsort(f1_CM.min(1) - f1_CM.max(1), kind="stable")[:MOST_CLASSES].tolist():
        cells = [cell for f1 in f1_CM[at].tolist() for cell in (f"{f1:.3f}", f1)]
        lines.append([labels[at], f"{scored[0][at].support:,}", *cells])
    columns = [cell for one in models for cell in (f"F1 of {one.name}", "")]
    table = ReportTable(["class", "rows", *columns], lines, "wn" + "nb" * len(models))
    shown = f"The {len(lines)} of {len(labels):,} classes" if len(lines) < len(labels) else "Classes"
    return ReportSection(f"{shown}, those that differ most first", table)


def run_sections(models: list[ComparedModel]) -> list[ReportSection]:
    """The settings in which the runs of the models differ, and their learning curves, a picture for each figure."""
    homes = {one.name: one.home for one in models if one.home is not None}
    saved = {name: {"settings": plain_settings(read_run(home))} for name, home in homes.items()}
    sections, lines = list[ReportSection](), list[list[str]]()
    for setting in differing_settings(saved) if saved else []:
        lines.append([setting, *(format_list(of["settings"].get(setting)) for of in saved.values())])
    if lines:
        table = ReportTable(["setting", *saved], lines, "w" * (1 + len(saved)))
        sections.append(ReportSection("Settings that differ", table, long=True))
    curves = {name: read_metrics_csv(home / "metrics.csv") for name, home in homes.items()}
    pictures = []
    for figure in ("validation_loss", "validation_accuracy", "validation_micro_f1", "validation_macro_f1"):
        points = {name: [(row["step"], row[figure]) for row in rows if figure in row] for name, rows in curves.items()}
        if not any(points.values()):
            continue
        drawn, ((axes,),) = draw(1, 1, **SMALL)
        for (name, of_run), colour in zip(points.items(), COLOURS, strict=False):
            if of_run:
                label = name.replace("$", r"\$")
                if label.startswith("_"):
                    label = f" {label}"  # a legend leaves out names that begin with _
                axes.plot(*zip(*of_run, strict=True), color=colour, label=label, **THIN)
        axes.set_xlabel("step")
        axes.locator_params(axis="x", integer=True)
        axes.legend(frameon=False, fontsize=6.5)
        whose = f"first {len(COLOURS)} networks" if len(points) > len(COLOURS) else "networks"
        pictures.append(Picture(figure, drawn, f"{words_of(figure)} of the {whose} over steps"))
    return [*sections, ReportSection("Learning curves", pictures=pictures)] if pictures else sections


def changed_rows(
    models: list[ComparedModel], truth: NDArray[Any], rows: Rows, words: Callable[[Any], str], most: int
) -> list[ReportSection]:
    """Rows that one of two alone has right, both ways, the first `most` of them with their texts."""
    sections = []
    for one, other in combinations(models, 2):
        for better, worse in ((other, one), (one, other)):
            where = np.flatnonzero(same_rows(truth, better.answers) & ~same_rows(truth, worse.answers))
            examples = []
            for at in where[:most].tolist():
                label, answer = words(truth[at]) or NO_LABEL, words(worse.answers[at]) or NO_LABEL
                examples.append(Example(f"row {rows.numbers[at]:,}", rows.texts_of(at), label, answer))
            if examples:
                title = f"{better.name} is right, {worse.name} is wrong: {count_rows(len(where))}"
                sections.append(ReportSection(title, examples=examples, long=True))
    return sections
