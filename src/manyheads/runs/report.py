"""Reports of finished runs from their files: the verb `report` for one run or evaluation, the verb `runs` for a table
of all runs in a folder, or for how the settings and figures of some differ.

Nothing is evaluated again, and torch is not imported.
"""

import csv
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple
from functools import cache
from pathlib import Path
from typing import Any

from manyheads.config import ReportConfig, ReportFormat, RunConfig, RunsConfig
from manyheads.config.conversion import plain_settings
from manyheads.config.data import data_name
from manyheads.config.facts import nearest, require, settings
from manyheads.config.required import COMPARED, conditions_of
from manyheads.config.sentences import format_list, format_value, list_names
from manyheads.errors import UserError
from manyheads.runs.config_file import read_run
from manyheads.runs.files import read_json, write_atomic
from manyheads.runs.summary import (
    BOTH,
    CALIBRATION,
    ENDS,
    NETWORK,
    Figures,
    damaged,
    facts,
    lead_line,
    models_of,
    moved_by,
    names_of,
    read_summary,
    typed,
    with_baselines,
    words_of,
)
from manyheads.terminal import Sheet, one_line, print_sheet, writes_unicode

VERSION = 1  # of the JSON: it rises where a key is renamed or removed
OF_TRAINING = ("parameters", "epochs", "steps", "seconds", "real_tokens_per_s", "precision", "best", "rows", "versions")
PLACES = ("output", "resume")  # settings that make no other model
SIGNS = re.compile(r"[\\`*\[\]<>|&~]|(?<![^\W_])_|_(?![^\W_])")  # that Markdown reads
DEEPEST = 6  # folders within that of the runs
MOST_SAID = 3  # damaged ones, whose reasons are printed
COLUMNS = ("run", "date", "data", "split", "rows", "parameters", "steps", "seconds")
WHERE = "where=[data=reviews, accuracy>0.8]"
MOVED = "are left out: calibrate has changed the model since they were measured; run evaluate again"
ALONE = "intervals of each run by itself; manyheads compare tests runs on the same rows, paired"
Found = dict[str, dict[str, Any]]  # what `read_finished` reads, by the name of the run
usual_settings = cache(lambda: plain_settings(RunConfig()))


def report(config: ReportConfig) -> None:
    """Write the report of `config.run` to a file, or to standard output.

    Raises:
        UserError: one sentence; there is no finished run, its files are damaged, or the file cannot be written.
    """
    found, page = read_finished(Path(config.run)), Path(config.run, "report.html")
    require(found["run"]["finished"], f"run={config.run} is not finished: resume its training by resume=auto")
    if config.format is ReportFormat.html:
        require(page.is_file(), f"{page} does not exist: choose format=md or format=json")
        content = page.read_bytes()
        for one in found["warnings"]:
            if one.endswith(MOVED):
                print(one_line(f"{page}: {one.replace('left out', 'outdated')}"), file=sys.stderr)
    else:
        content = (as_json(found) if config.format is ReportFormat.json else markdown(found)).encode()
    if config.output == "-":
        text = content.decode("utf-8", "replace")
        if config.format is ReportFormat.html and not writes_unicode():
            text = text.encode("ascii", "xmlcharrefreplace").decode()
        sys.stdout.write(text)
        return
    require(not Path(config.output).is_dir(), f"output={config.output} is a folder: name a file in it")
    try:
        write_atomic(Path(config.output), content)
    except OSError as error:
        raise UserError(f"output={config.output} cannot be written ({error.strerror}): name another file") from error


def as_json(found: Any) -> str:
    """Text in ASCII, which steers no terminal."""
    return json.dumps(found, indent=2, allow_nan=False, default=asdict) + "\n"


def read_finished(folder: Path, *, evaluations: bool = True) -> dict[str, Any]:
    """A run, or an evaluation of one, as docs/comparing.md tells key by key; figures are intervals. A run that is not
    finished has none. With `evaluations` those that lie in it are among its `splits`.

    Raises:
        UserError: it is neither, or one of its files is damaged.
    """
    config, metrics = folder / "config.yaml", folder / "metrics.json"
    home = folder.parents[1] if folder.parent.name == "evaluate" and not config.is_file() else folder
    run = read_run(home) if (home / "config.yaml").is_file() else None
    require(run is not None or metrics.is_file(), f"{folder} holds neither a run nor an evaluation: name one that does")
    settings = plain_settings(run) if run else {}
    with damaged(home / "config.yaml"):
        json.dumps(settings, allow_nan=False)
    summary, judged = read_summary(home / "summary.json"), config
    known: dict[str, Any] = {"data": {"name": data_name(run.data) if run else None, "split": None, "n_rows": None}}
    known |= {"figures": {}, "members": {}, "baselines": {}, "leads": {}, "splits": {}, "network": {}, "warnings": []}
    fitted = _read_calibration(home / "model")
    known["calibration"] = fitted if fitted and home == folder else {}
    if home == folder and summary is not None:
        split, judged = summary.judged_on, home / "summary.json"
        known["data"] |= {"split": split, "n_rows": summary.rows.get(split)}
        known |= {"figures": getattr(summary, split), "members": models_of(summary, split)}
        known |= {name: getattr(summary, name) for name in ("baselines", "leads", "warnings")}
        known["splits"] = {name: of for name in ("test", "validation") if (of := getattr(summary, name))}
        known["network"] = {name: models_of(summary, name).get(NETWORK, {}) for name in known["splits"]}
        known["fitted"] = ""
    elif metrics.is_file():
        judged = metrics
        known |= _read_metrics(metrics)
    finished = bool(known["figures"])
    _leave_out_moved(known, fitted)
    for one in sorted(home.glob("evaluate/*/metrics.json")) if evaluations and home == folder else ():
        judgement = _read_metrics(one)
        _leave_out_moved(judgement, fitted)
        known["splits"] |= {one.parent.name: judgement["figures"]}
        known["network"] |= {one.parent.name: of_network(judgement)}
    about = {"name": folder.name, "folder": str(folder), "task": settings.get("task")}
    about["date"] = time.strftime("%Y-%m-%d %H:%M", time.gmtime(judged.stat().st_mtime))
    about |= {"finished": finished, **{name: getattr(summary, name, None) for name in OF_TRAINING}}
    changed = [one for one, value in settings.items() if one not in PLACES and value != usual_settings().get(one)]
    said = facts(summary) if summary else {}
    if summary and summary.leads and not known["leads"]:
        del said["lead"]
    return {"version": VERSION, "run": about, **known, "settings": settings, "changed": changed, "facts": said}


def _read_calibration(model: Path) -> dict[str, Any] | None:
    """What `calibrate` left of itself in the model folder; None where there is no such folder."""
    path = model / CALIBRATION
    if not path.is_file():
        return {} if model.is_dir() else None
    found = read_json(path)
    with damaged(path):
        known = {name: typed(found[name], str) for name in ("method", "digest", "source") if name in found}
        known |= {name: typed(found[name], int) for name in ("rows", "of") if name in found}
        return known | {name: typed(found.get(name, {}), Figures) for name in ("before", "after")}


def _leave_out_moved(known: dict[str, Any], fitted: dict[str, Any] | None) -> None:
    """Take out, and say so, the figures of the model that are other ones since it was calibrated by what is `fitted`
    now, and not, as when they were measured, by `known["fitted"]`."""
    then = known.pop("fitted", "")
    now = then if fitted is None else " ".join(fitted.get(name, "") for name in ("method", "digest")).strip()
    if now == then or not known["figures"]:
        return
    multi = next(iter(known["figures"])) == "micro_f1"
    moved = [moved_by(one.partition(" ")[0], multi=multi) for one in (now, then) if one]
    out = [name for name in known["figures"] if any(one(name) for one in moved)]
    if next(iter(known["figures"])) in out:
        known["leads"] = {}

    def kept(of: dict[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in of.items() if name not in out}

    known["figures"], first = kept(known["figures"]), next(iter(known["members"]), "")
    known["members"] = {name: kept(of) if name == first else of for name, of in known["members"].items()}
    for part in ("splits", *(["network"] if first == NETWORK else [])):
        known[part] = {name: kept(of) for name, of in known.get(part, {}).items()}
    known["warnings"] = [*known["warnings"], f"{list_names([words_of(one) for one in out])} {MOVED}"]


def _read_metrics(path: Path) -> dict[str, Any]:
    """What `evaluate` wrote: figures of the model at the top level, those of others by their names."""
    found = read_json(path)
    with damaged(path):
        own = {name: one for name, one in found.items() if isinstance(one, dict) and one.keys() == ENDS}
        require(bool(own), "no figures")
        known = {key: typed(found.get(key, {}), dict[str, Figures]) for key in ("members", "baselines", "leads")}
        known |= {"figures": typed(own, Figures), "warnings": typed(found.get("warnings", []), list[str])}
        about = {"name": typed(found["data"], str), "split": typed(found["split"], str)}
        lead_line(known["leads"], known["baselines"], about["split"])  # which can be said
        known["fitted"] = typed(found.get("calibration", ""), str)
        return known | {"splits": {}, "data": about | {"n_rows": typed(found.get("n_rows", 0), int) or None}}


def markdown(found: dict[str, Any]) -> str:
    """The report, with tables as GitHub reads them."""
    data, settings, usual = found["data"], found["settings"], usual_settings()
    rows = f", {data['n_rows']:,} rows" if data["n_rows"] else ""
    models = with_baselines(found["members"] or {NETWORK: found["figures"]}, found["baselines"])
    names = list(dict.fromkeys(name for of in models.values() for name in of))
    figures = [[model, *(of[one].words if one in of else "" for one in names)] for model, of in models.items()]
    lead = lead_line(found["leads"], found["baselines"], data["split"])
    about = {"folder": found["run"]["folder"], "date": f"{found['run']['date']} UTC"} | found["facts"] | {"lead": ""}
    changed = [[name, format_list(settings[name]), format_list(usual.get(name))] for name in found["changed"]]
    blocks = [
        f"# {_escaped(found['run']['name'])}",
        _escaped(lead and f"{lead[0].upper()}{lead[1:]}."),
        *(f"> {_escaped(one)}" for one in found["warnings"]),
        f"## {_escaped(data['name'])}, {_escaped(data['split'])}{rows}",
        _table(["model", *map(words_of, names)], figures),
        "95 % intervals are in brackets.",
        *_calibrated(found.get("calibration", {})),
        "## The run",
        _table(["", ""], [[name, one] for name, one in about.items() if one]),
    ]
    if changed:
        blocks += ["## Settings that differ from the defaults", _table(["setting", "value", "default"], changed)]
    return "\n\n".join(one for one in blocks if one) + "\n"


def _calibrated(fitted: dict[str, Any]) -> list[str]:
    if not fitted.get("after"):
        return []
    rows = [[words_of(name), fitted["before"][name].words, one.words] for name, one in fitted["after"].items()]
    return [
        f"## Calibrated by {_escaped(fitted['method'])} on {fitted['rows']:,} rows of {_escaped(fitted['source'])}",
        _table(["figure", "before", "after"], rows),
        "The figures after calibration are cross-validated over five folds of these rows.",
    ]


def _table(columns: list[str], lines: list[list[str]]) -> str:
    rows = [[_escaped(one) for one in line] for line in (columns, *lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(columns), *rows[1:]))


def _escaped(text: str) -> str:
    """A line that Markdown reads as it is."""
    return SIGNS.sub(r"\\\g<0>", one_line(text))


def runs(config: RunsConfig) -> None:
    """Print the runs of a folder, or the comparison of `config.runs`.

    Raises:
        UserError: one sentence; no such folder, no such setting or figure, or a run to compare that is none.
    """
    form, broken = config.format.name, list[str]()
    if config.runs:
        found = {name: read_finished(Path(one)) for name, one in zip(names_of(config.runs), config.runs, strict=True)}
        sheet = sheet_of_comparison(found)
    else:
        found, broken = find_runs(Path(config.folder), config.where, config.sort)
        sheet = sheet_of_runs(found, whole=form == "csv")
        if not found and (every := find_runs(Path(config.folder))[0]):
            print(one_line(unmet(config.where, every)), file=sys.stderr)
    if form == "json":
        print(as_json(list(found.values())), end="")
    elif form == "table" and sys.stdout.isatty():
        print_sheet(sheet)
    else:  # plain lines, with tabs or as csv
        lines = [[one_line(cell) for cell in line] for line in (sheet.columns, *sheet.lines)]
        csv.writer(sys.stdout, "excel" if form == "csv" else "excel-tab", lineterminator="\n").writerows(lines)
    if broken:
        more = f"; and {len(broken) - MOST_SAID} more" * (len(broken) > MOST_SAID)
        print(one_line(f"{len(broken)} unreadable, left out: {'; '.join(broken[:MOST_SAID])}{more}"), file=sys.stderr)


def find_runs(folder: Path, where: str = "", sort: str = "") -> tuple[Found, list[str]]:
    """The runs in a folder by their places in it, those of which all holds, in order, and why others cannot be read.
    Runs that lack what they are sorted by come last."""
    require(folder.is_dir(), f"folder={folder} is not a folder: name one that holds runs")
    conditions, key = conditions_of(where, "where", WHERE), sort.removeprefix("-") or "date"
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
        remedy = f"did you mean {near}?" if near else f"choose {list_names([*COLUMNS])}, a setting, or accuracy"
        raise UserError(f"{format_value(strange)} is neither a column, a setting nor a figure of these runs: {remedy}")
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


def holds(value: Any, sign: str, to: str) -> bool:
    """Of a value that a run has; of one that it lacks, that it is another alone. Numbers are compared as such, all else
    as it is typed."""
    if value is None:
        return sign == "!="
    try:
        return COMPARED[sign](value, to if isinstance(value, str) else float(to))
    except ValueError:  # a number, and a text
        known = f"where={format_value(sign + to)} compares the number {format_value(value)} with a text"
        require(sign[0] not in "<>", f"{known}: give a number, or use = or !=")
        return COMPARED[sign](format_value(value), to)


def unmet(where: str, every: Found) -> str:
    """Which of the conditions no run meets, with the values that there are."""
    values = [values_of(one) for one in every.values()]
    for name, sign, to in conditions_of(where, "where", WHERE):
        if not any(holds(of.get(name), sign, to) for of in values):
            there = sorted({of[name] for of in values if name in of}, key=lambda one: (isinstance(one, str), one))
            numbers = len(there) > 2 and not any(isinstance(one, str) for one in there)
            known = (
                f"from {format_value(there[0])} to {format_value(there[-1])}"
                if numbers
                else list_names([*map(format_value, there)])
            )
            what = f"in which {name} is {known}" if there else f"which have no {name}"
            return f"{name}{sign}{to} holds for none of {len(every)} runs, {what}: give another value in where"
    return f"each condition holds for some of {len(every)} runs, but no run meets all: give fewer in where={where}"


def answering(found: dict[str, Any]) -> str:
    """The model whose figures the run has: the network, or both."""
    return next(iter(found.get("members", {})), NETWORK)


def of_network(found: dict[str, Any]) -> Figures:
    """The figures of the network by itself."""
    return (found.get("members") or {NETWORK: found["figures"]}).get(NETWORK, {})


def values_of(found: dict[str, Any]) -> dict[str, Any]:
    """All that a run can be chosen and sorted by, numbers and texts: columns, settings, and figures: `accuracy` as it
    was judged, `network.accuracy` of the network alone, `validation.accuracy` of a split or evaluation, each with its
    ends, as `accuracy.low`."""
    run, data = found["run"], found["data"]
    values = {name: one if type(one) in (int, float) else format_list(one) for name, one in found["settings"].items()}
    values |= {"answers": answering(found)} if found["figures"] else {}
    named = {"": found["figures"], "network.": of_network(found)}
    named |= {f"{split}.": of for split, of in found["splits"].items()}
    for before, of in named.items():
        for name, one in of.items():
            values |= dict(zip(ends_of(f"{before}{name}"), astuple(one), strict=True))
    columns = (run["name"], run["date"], data["name"], data["split"], data["n_rows"], *map(run.get, COLUMNS[5:]))
    return values | {name: one for name, one in zip(COLUMNS, columns, strict=True) if one is not None}


def ends_of(figure: str) -> list[str]:
    """The names of its value and of the ends of its interval."""
    return [figure, f"{figure}.low", f"{figure}.high"]


def sheet_of_runs(found: Found, *, whole: bool) -> Sheet:
    """One line a run: the figure that each names first, or the `whole` of figures, and of settings that differ. Where
    runs answer by both models, whose figure it is, and that of the network."""
    names = dict.fromkeys(name for one in found.values() for name in [*one["figures"]][: None if whole else 1])
    title, every = f"{len(found)} run{'s' * (len(found) != 1)}", {name: values_of(one) for name, one in found.items()}
    of_both = any(answering(one) == BOTH for one in found.values())
    columns = [*COLUMNS, *["answers"] * of_both]
    if whole:
        figures = [*names, *(f"network.{name}" for name in names if of_both)]
        columns += [*(end for name in figures for end in ends_of(name)), *differing(found)]
        return Sheet(title, columns, [[str(of.get(one, "")) for one in columns] for of in every.values()], [])
    lines = []
    for name, of in every.items():
        sides = [found[name]["figures"], of_network(found[name])][: 1 + of_both]
        figures = [side[one].words if one in side else "" for side in sides for one in names]
        lines.append([*(_cell(of.get(one, "")) for one in columns), *figures])
    heads = [*map(words_of, names)]
    return Sheet(title, [*columns, *heads, *(f"{one}, {NETWORK}" for one in heads if of_both)], lines, [])


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def differing(found: Found) -> list[str]:
    """Settings in which runs differ."""
    every = [one["settings"] for one in found.values()]
    names = dict.fromkeys(name for of in every for name in of if name not in PLACES)
    return [name for name in names if any(of.get(name) != every[0].get(name) for of in every)]


def sheet_of_comparison(found: Found) -> Sheet:
    """A line for each setting that differs and each figure of each split and evaluation, a column for each run."""
    every = [{name: format_value(one) for name, one in values_of(of).items()} for of in found.values()]
    lines = [[name, *(of.get(name, "") for of in every)] for name in differing(found)]
    splits = [of["splits"] or {f"{of['data']['name']} {of['data']['split']}": of["figures"]} for of in found.values()]
    named = {"": splits}
    if any(answering(of) == BOTH for of in found.values()):
        lines.append(["answers", *map(answering, found.values())])
        named[f", {NETWORK}"] = [
            of["network"] or {split: of_network(of) for split in own}
            for own, of in zip(splits, found.values(), strict=True)
        ]
    for split, name in dict.fromkeys(
        (split, name) for of in splits for split, figures in of.items() for name in figures
    ):
        for whose, sides in named.items():
            shown = (figures[name].words if name in (figures := of.get(split, {})) else "" for of in sides)
            lines.append([f"{split} {words_of(name)}{whose}", *shown])
    return Sheet("settings that differ, and figures", ["", *found], lines, [ALONE])
