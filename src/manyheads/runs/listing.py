"""The verb `runs`: the runs of a folder, filtered and sorted, or how the settings and figures of some runs differ.

Nothing is evaluated again, and torch is not imported.
"""

import csv
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from manyheads.config import RunConfig, RunsConfig
from manyheads.config.facts import nearest, require, settings
from manyheads.config.required import COMPARED, conditions_of
from manyheads.config.sentences import format_list, format_value, list_names
from manyheads.errors import UserError
from manyheads.runs.finished import PLACES, FinishedRun, answering_model, network_figures, read_finished
from manyheads.runs.report import as_json
from manyheads.runs.result_table import Cell, ResultTable, write_file, write_tables
from manyheads.runs.summary import BOTH, NETWORK, names_of, words_of
from manyheads.terminal import Sheet, one_line, print_sheet

MAX_DEPTH = 6  # of folders within that of the runs
TEXTS = (".tex", ".md")  # in which a table may be of words alone
MAX_REASONS = 3  # of damaged runs, that are printed
COLUMNS = ("run", "date", "data", "split", "rows", "parameters", "steps", "seconds")
WHERE = "where=[data=reviews, accuracy>0.8]"
ALONE = "intervals of each run by itself; manyheads compare tests runs on the same rows, paired"
FoundRuns = dict[str, FinishedRun]  # by name


def runs(config: RunsConfig) -> None:
    """Print the runs of a folder, or the comparison of `config.runs`.

    Raises:
        UserError: one sentence; no such folder, no such setting or figure, or a run to compare that is none.
    """
    form, is_file = config.format.name, config.output != "-"
    if is_file:
        require(
            form == "table",
            f"format={form} does nothing with output={config.output}, whose name says the kind: remove one",
        )
        form = "csv" if config.output.lower().endswith(".csv") else "tables"
    unreadable: list[str] = []
    if config.runs:
        found = {name: read_finished(Path(one)) for name, one in zip(names_of(config.runs), config.runs, strict=True)}
        sheet = comparison_sheet(found)
    else:
        found, unreadable = find_runs(Path(config.folder), config.where, config.sort)
        sheet = full_sheet(found) if form == "csv" else overview_table(found).as_sheet()
        if not found:
            every, _ = find_runs(Path(config.folder))
            if every:
                print(one_line(_why_none(config.where, every)), file=sys.stderr)
    if form == "tables":
        table = overview_table(found)
        if config.runs and config.output.lower().endswith(TEXTS):
            table = replace(table, title=sheet.title, columns=sheet.columns, rows=sheet.lines, notes=sheet.notes)
        write_tables(config.output, [table])
    elif form == "json":
        print(as_json(list(found.values())), end="")
    elif form == "table" and sys.stdout.isatty():
        print_sheet(sheet)
    else:  # plain lines, with tabs or as csv
        lines = [[one_line(cell) for cell in line] for line in (sheet.columns, *sheet.lines)]
        text = io.StringIO()
        csv.writer(text, "excel" if form == "csv" else "excel-tab", lineterminator="\n").writerows(lines)
        if is_file:
            write_file(config.output, text.getvalue())
        else:
            sys.stdout.write(text.getvalue())
    if unreadable:
        reasons = "; ".join(unreadable[:MAX_REASONS])
        if len(unreadable) > MAX_REASONS:
            reasons += f"; and {len(unreadable) - MAX_REASONS} more"
        print(one_line(f"{len(unreadable)} unreadable, left out: {reasons}"), file=sys.stderr)


def find_runs(folder: Path, where: str = "", sort: str = "") -> tuple[FoundRuns, list[str]]:
    """The runs in a folder that meet all conditions, sorted, by their places in it; and why others cannot be read.

    Args:
        where: conditions, such as [data=reviews, accuracy>0.8].
        sort: what they are sorted by, "-" in front: in descending order; empty: the newest first. Runs that lack it
            come last.
    """
    require(folder.is_dir(), f"folder={folder} is not a folder: name one that holds runs")
    conditions = conditions_of(where, "where", WHERE)
    sort_name = sort.removeprefix("-") or "date"
    names = [*(name for name, _, _ in conditions), sort_name]
    # only figures of evaluations, such as new-reviews-all.accuracy, make it necessary to read these
    evaluations = any("." in name and name not in settings(RunConfig) for name in names)
    found: FoundRuns = {}
    unreadable: list[str] = []
    for place in run_folders(folder):
        name = place.name if place == folder else str(place.relative_to(folder))
        try:
            found[name] = read_finished(place, evaluations=evaluations)
            found[name]["run"]["name"] = name
        except (OSError, ValueError) as error:
            unreadable.append(str(error))
    values = {name: values_of(found[name]) for name in sorted(found)}
    _refuse_unknown(names, values)
    kept = []
    for name, own in values.items():
        if all(holds(own.get(one), sign, to) for one, sign, to in conditions):
            kept.append(name)
    with_value = [name for name in kept if values[name].get(sort_name) is not None]
    without_value = [name for name in kept if values[name].get(sort_name) is None]

    def sort_key(name: str) -> tuple[bool, Any]:
        value = values[name][sort_name]
        return isinstance(value, str), value

    with_value.sort(key=sort_key, reverse=not sort or sort.startswith("-"))
    return {name: found[name] for name in with_value + without_value}, unreadable


def _refuse_unknown(names: list[str], values: dict[str, dict[str, Any]]) -> None:
    """Raise UserError if one of the names is nothing that the runs could have. `values`: see `values_of`, by run."""
    known = dict.fromkeys([*COLUMNS, *settings(RunConfig)])
    for own in values.values():
        known |= dict.fromkeys(own)
    for name in names:
        if values and name not in known:
            near = nearest(name, known)
            remedy = f"did you mean {near}?" if near else f"choose {list_names([*COLUMNS])}, a setting, or accuracy"
            raise UserError(f"{format_value(name)} is neither a column, a setting nor a figure of these runs: {remedy}")


def run_folders(folder: Path) -> Iterator[Path]:
    """Folders with a config.yaml in them; what lies within a run is a part of it. Links are not followed."""
    for place, folders, files in os.walk(folder):
        is_run = "config.yaml" in files
        if is_run:
            yield Path(place)
        too_deep = len(Path(place).relative_to(folder).parts) >= MAX_DEPTH
        if is_run or too_deep:
            folders.clear()
        else:
            folders[:] = [name for name in folders if not name.startswith(".")]


def holds(value: Any, sign: str, to: str) -> bool:
    """Whether a value meets a condition. One that a run lacks meets `!=` alone. Numbers are compared as such, all else
    as it is typed."""
    if value is None:
        return sign == "!="
    try:
        return COMPARED[sign](value, to if isinstance(value, str) else float(to))
    except ValueError:  # a number, and a text
        known = f"where={format_value(sign + to)} compares the number {format_value(value)} with a text"
        require(sign[0] not in "<>", f"{known}: give a number, or use = or !=")
        return COMPARED[sign](format_value(value), to)


def _why_none(where: str, every: FoundRuns) -> str:
    """Which of the conditions no run meets, with the values that there are."""
    values = [values_of(found) for found in every.values()]
    for name, sign, to in conditions_of(where, "where", WHERE):
        if any(holds(own.get(name), sign, to) for own in values):
            continue
        known = {own[name] for own in values if name in own}
        numbers = sorted(one for one in known if not isinstance(one, str))
        texts = sorted(one for one in known if isinstance(one, str))
        if len(numbers) > 2 and not texts:
            what = f"in which {name} is from {format_value(numbers[0])} to {format_value(numbers[-1])}"
        elif known:
            what = f"in which {name} is {list_names([*map(format_value, [*numbers, *texts])])}"
        else:
            what = f"which have no {name}"
        return f"{name}{sign}{to} holds for none of {len(every)} runs, {what}: give another value in where"
    return f"each condition holds for some of {len(every)} runs, but no run meets all: give fewer in where={where}"


def values_of(found: FinishedRun) -> dict[str, Any]:
    """All that a run can be chosen and sorted by, numbers and texts: columns, settings, and figures: `accuracy` as it
    was judged, `network.accuracy` of the network alone, `validation.accuracy` of a split or evaluation, each with its
    ends, as `accuracy.low`."""
    run, data = found["run"], found["data"]
    values: dict[str, Any] = {}
    for name, value in found["settings"].items():
        values[name] = value if type(value) in (int, float) else format_list(value)
    if found["figures"]:
        values["answers"] = answering_model(found)
    by_prefix = {"": found["figures"], "network.": network_figures(found)}
    for split, figures in found["splits"].items():
        by_prefix[f"{split}."] = figures
    for prefix, figures in by_prefix.items():
        for name, figure in figures.items():
            values |= dict(zip(_with_ends(f"{prefix}{name}"), astuple(figure), strict=True))
    columns = {"run": run["name"], "date": run["date"], "data": data["name"], "split": data["split"]}
    columns |= {"rows": data["n_rows"], **{name: run[name] for name in ("parameters", "steps", "seconds")}}
    return values | {name: value for name, value in columns.items() if value is not None}


def _with_ends(figure: str) -> list[str]:
    """The names of a figure and of the ends of its interval."""
    return [figure, f"{figure}.low", f"{figure}.high"]


def overview_table(found: FoundRuns) -> ResultTable:
    """One line a run: its columns and the figure that it names first. Where some runs answer by both models, also which
    one answers, and that figure of the network alone."""
    names = list(dict.fromkeys(next(iter(run["figures"])) for run in found.values() if run["figures"]))
    of_both = any(answering_model(run) == BOTH for run in found.values())
    columns = [*COLUMNS, "answers"] if of_both else [*COLUMNS]
    rows = []
    for run in found.values():
        values = values_of(run)
        row: list[Cell] = [values.get(column) for column in columns]
        for figures in [run["figures"], network_figures(run)] if of_both else [run["figures"]]:
            row += [figures.get(name) for name in names]
        rows.append(row)
    columns += map(words_of, names)
    if of_both:
        columns += [f"{words_of(name)}, {NETWORK}" for name in names]
    title = f"{len(found)} run{'' if len(found) == 1 else 's'}"
    return ResultTable("runs", title, columns, rows, formats={"seconds": ",.1f"}, named_by="run")


def full_sheet(found: FoundRuns) -> Sheet:
    """One line a run: its columns, all figures with their ends, and the settings in which the runs differ."""
    names = list(dict.fromkeys(name for run in found.values() for name in run["figures"]))
    columns = [*COLUMNS]
    if any(answering_model(run) == BOTH for run in found.values()):
        columns.append("answers")
        names += [f"network.{name}" for name in names]
    for name in names:
        columns += _with_ends(name)
    columns += differing_settings(found)
    lines = []
    for run in found.values():
        values = values_of(run)
        lines.append([str(values.get(column, "")) for column in columns])
    return Sheet("", columns, lines, [])


def differing_settings(found: FoundRuns) -> list[str]:
    """Settings in which runs differ."""
    every = [run["settings"] for run in found.values()]
    names = dict.fromkeys(name for own in every for name in own if name not in PLACES)
    return [name for name in names if any(own.get(name) != every[0].get(name) for own in every)]


def comparison_sheet(found: FoundRuns) -> Sheet:
    """A line for each setting that differs and each figure of each split and evaluation, a column for each run."""
    lines = []
    values = [values_of(run) for run in found.values()]
    for setting in differing_settings(found):
        lines.append([setting, *(format_value(own[setting]) if setting in own else "" for own in values)])
    figures = [_figures_by_split(run) for run in found.values()]
    by_model = {"": figures}  # by what is added to the name of a line
    if any(answering_model(run) == BOTH for run in found.values()):
        lines.append(["answers", *map(answering_model, found.values())])
        of_network = by_model[f", {NETWORK}"] = []
        for run in found.values():
            of_network.append(run["network"] or dict.fromkeys(_figures_by_split(run), network_figures(run)))
    shown: dict[tuple[str, str], None] = {}  # split and figure, each once
    for own in figures:
        shown |= dict.fromkeys((split, name) for split, of_split in own.items() for name in of_split)
    for split, name in shown:
        for model, by_run in by_model.items():
            line = [f"{split} {words_of(name)}{model}"]
            for own in by_run:
                of_split = own.get(split, {})
                line.append(of_split[name].words if name in of_split else "")
            lines.append(line)
    return Sheet("settings that differ, and figures", ["", *found], lines, [ALONE])


def _figures_by_split(run: FinishedRun) -> dict[str, Any]:
    return run["splits"] or {f"{run['data']['name']} {run['data']['split']}": run["figures"]}
