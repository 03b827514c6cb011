"""The verb `runs`: the runs of a folder in a table, and how the settings and figures of some differ.

All is read from what the runs left on disk, and torch is not imported.
"""

import csv
import operator
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from manyheads.config import RunConfig, RunsConfig
from manyheads.config.facts import nearest, require, settings
from manyheads.config.fields import listed, show, show_list
from manyheads.runs.report import PLACES, as_json, read_finished
from manyheads.runs.summary import names_of, words_of
from manyheads.terminal import Sheet, one_line, print_sheet

DEEPEST = 6  # folders within that of the runs
MOST_SAID = 3  # damaged ones, of which the reason is told
COLUMNS = ("run", "date", "data", "split", "rows", "parameters", "steps", "seconds")
SIGNS = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, "==": operator.eq, "=": operator.eq}
SIGNS |= {">": operator.gt, "<": operator.lt}
CONDITION = re.compile(rf"\s*([^\s<>=!,]+)\s*({'|'.join(SIGNS)})\s*(.*?)\s*")
COMMA = re.compile(r",(?![^\[]*\])")  # outside of a list
ALONE = "95 % intervals of each alone: manyheads compare judges models on the same rows, paired"
Found = dict[str, dict[str, Any]]  # what `read_finished` reads, by the name of the run


def runs(config: RunsConfig) -> None:
    """Print the runs of a folder, or the comparison of `config.runs`.

    Raises:
        ValueError: one sentence; no such folder, no such setting or figure, or a run to compare that is none.
    """
    form, broken = config.format.name, list[str]()
    if config.runs:
        found = {name: read_finished(Path(one)) for name, one in zip(names_of(config.runs), config.runs, strict=True)}
        sheet = sheet_of_comparison(found)
    else:
        found, broken = find_runs(Path(config.folder), config.where, config.sort)
        sheet = sheet_of_runs(found, whole=form == "csv")
    if form == "json":
        print(as_json(list(found.values())), end="")
    elif form == "table" and sys.stdout.isatty():
        print_sheet(sheet)
    else:  # plain lines, with tabs or as csv
        lines = [[one_line(cell) for cell in line] for line in (sheet.columns, *sheet.lines)]
        csv.writer(sys.stdout, "excel" if form == "csv" else "excel-tab", lineterminator="\n").writerows(lines)
    if broken:
        more = f"; and {len(broken) - MOST_SAID} more" * (len(broken) > MOST_SAID)
        print(one_line(f"{len(broken)} damaged, left out: {'; '.join(broken[:MOST_SAID])}{more}"), file=sys.stderr)


def find_runs(folder: Path, where: str = "", sort: str = "") -> tuple[Found, list[str]]:
    """The runs in a folder by their places in it, those of which all holds, in order, and why others cannot be read.
    Runs that lack what they are sorted by come last."""
    require(folder.is_dir(), f"folder={folder} is not a folder: name one that holds runs")
    conditions, key = conditions_of(where), sort.removeprefix("-") or "date"
    asked, found, broken = [*(name for name, _, _ in conditions), key], dict[str, dict[str, Any]](), list[str]()
    further = any("." in name and name not in settings(RunConfig) for name in asked)
    for place in run_folders(folder):
        name = place.name if place == folder else str(place.relative_to(folder))
        try:
            found[name] = read_finished(place, evaluations=further)
            found[name]["run"]["name"] = name
        except (OSError, ValueError) as error:
            broken.append(str(error))
    values = {name: values_of(found[name]) for name in sorted(found)}
    known = dict.fromkeys([*COLUMNS, *settings(RunConfig), *(one for of in values.values() for one in of)])
    if strange := next((one for one in asked if found and one not in known), ""):
        near = nearest(strange, known)
        remedy = f"did you mean {near}?" if near else f"choose {listed([*COLUMNS])}, a setting, or accuracy"
        raise ValueError(f"{show(strange)} is neither a column, a setting nor a figure of these runs: {remedy}")
    kept = [name for name, of in values.items() if all(holds(of.get(one), sign, to) for one, sign, to in conditions)]
    having = [(isinstance(value, str), value, name) for name in kept if (value := values[name].get(key)) is not None]
    ordered = sorted(having, key=lambda one: one[:2], reverse=not sort or sort.startswith("-"))
    return {name: found[name] for name in dict.fromkeys([*(name for *_, name in ordered), *kept])}, broken


def run_folders(folder: Path) -> Iterator[Path]:
    """Folders with a config.yaml in them; what lies within a run is a part of it. Links are not followed."""
    for place, folders, files in os.walk(folder):
        if is_run := "config.yaml" in files:
            yield Path(place)
        too_deep = len(Path(place).relative_to(folder).parts) >= DEEPEST
        folders[:] = [] if is_run or too_deep else [one for one in folders if not one.startswith(".")]


def conditions_of(where: str) -> list[tuple[str, str, str]]:
    """`[data=reviews, accuracy>0.8]`, with its brackets or without, as names, signs and values."""
    inside = where.strip()
    inside = inside[1:-1] if inside.startswith("[") and inside.endswith("]") else inside
    found = [CONDITION.fullmatch(one) for one in COMMA.split(inside)] if inside.strip() else []
    require(None not in found, f"where={show(where)} is not understood: write it as where=[data=reviews, accuracy>0.8]")
    return [(one[1], one[2], one[3]) for one in found if one]


def holds(value: Any, sign: str, to: str) -> bool:
    """Of a value that a run has; of one that it lacks, that it is another alone. Numbers are compared as such, all else
    as it is typed."""
    if value is None:
        return sign == "!="
    try:
        return SIGNS[sign](value, to if isinstance(value, str) else float(to))
    except ValueError:  # a number, and a text
        return SIGNS[sign](show(value), to)


def values_of(found: dict[str, Any]) -> dict[str, Any]:
    """All that a run can be chosen and sorted by, numbers and texts: columns, settings, and figures: `accuracy` as it
    was judged, `validation.accuracy` of a split or evaluation, each with its ends, as `accuracy.low`."""
    run, data = found["run"], found["data"]
    values = {name: one if type(one) in (int, float) else show_list(one) for name, one in found["settings"].items()}
    for before, of in {"": found["figures"], **{f"{split}.": of for split, of in found["splits"].items()}}.items():
        for name, one in of.items():
            values |= dict(zip(ends_of(f"{before}{name}"), astuple(one), strict=True))
    columns = (run["name"], run["date"], data["name"], data["split"], data["n_rows"], *map(run.get, COLUMNS[5:]))
    return values | {name: one for name, one in zip(COLUMNS, columns, strict=True) if one is not None}


def ends_of(figure: str) -> list[str]:
    """The names of its value and of the ends of its interval."""
    return [figure, f"{figure}.low", f"{figure}.high"]


def sheet_of_runs(found: Found, *, whole: bool) -> Sheet:
    """One line a run: the figure that each names first, or the `whole` of figures, and of settings that differ."""
    names = dict.fromkeys(name for one in found.values() for name in [*one["figures"]][: None if whole else 1])
    title, every = f"{len(found)} run{'s' * (len(found) != 1)}", {name: values_of(one) for name, one in found.items()}
    if whole:
        columns = [*COLUMNS, *(end for name in names for end in ends_of(name)), *differing(found)]
        return Sheet(title, columns, [[str(of.get(one, "")) for one in columns] for of in every.values()], [])
    shown = {name: {one: at.words for one, at in of["figures"].items()} for name, of in found.items()}
    lines = [[_shown((of | shown[name]).get(one, "")) for one in (*COLUMNS, *names)] for name, of in every.items()]
    return Sheet(title, [*COLUMNS, *map(words_of, names)], lines, [])


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def differing(found: Found) -> list[str]:
    """Settings in which runs differ."""
    every = [one["settings"] for one in found.values()]
    names = dict.fromkeys(name for of in every for name in of if name not in PLACES)
    return [name for name in names if any(of.get(name) != every[0].get(name) for of in every)]


def sheet_of_comparison(found: Found) -> Sheet:
    """A line for each setting that differs and each figure of each split and evaluation, a column for each run."""
    every = [{name: show(one) for name, one in values_of(of).items()} for of in found.values()]
    lines = [[name, *(of.get(name, "") for of in every)] for name in differing(found)]
    splits = [of["splits"] or {f"{of['data']['name']} {of['data']['split']}": of["figures"]} for of in found.values()]
    names = dict.fromkeys((split, name) for of in splits for split, figures in of.items() for name in figures)
    for split, name in names:
        shown = (figures[name].words if name in (figures := of.get(split, {})) else "" for of in splits)
        lines.append([f"{split} {words_of(name)}", *shown])
    return Sheet("settings that differ, and figures", ["", *found], lines, [ALONE])
