"""The verb `report`: a finished run or evaluation as Markdown, JSON or its page. Nothing is evaluated again."""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyheads.config import ReportConfig, ReportFormat
from manyheads.config.facts import require
from manyheads.config.sentences import format_list
from manyheads.errors import UserError
from manyheads.runs.files import write_atomic
from manyheads.runs.finished import OUTDATED, FinishedRun, default_settings, read_finished
from manyheads.runs.summary import NETWORK, lead_line, with_baselines, words_of
from manyheads.terminal import one_line, writes_unicode

SIGNS = re.compile(r"[\\`*\[\]<>|&~]|(?<![^\W_])_|_(?![^\W_])")  # that Markdown reads


def report(config: ReportConfig) -> None:
    """Write the report of `config.run` to a file, or to standard output.

    Raises:
        UserError: one sentence; there is no finished run, its files are damaged, or the file cannot be written.
    """
    found = read_finished(Path(config.run))
    require(found["run"]["finished"], f"run={config.run} is not finished: resume its training by resume=auto")
    if config.format is ReportFormat.html:
        page = Path(config.run, "report.html")
        require(page.is_file(), f"{page} does not exist: choose format=md or format=json")
        content = page.read_bytes()
        for warning in found["warnings"]:
            if warning.endswith(OUTDATED):
                print(one_line(f"{page}: {warning.replace('left out', 'outdated')}"), file=sys.stderr)
    elif config.format is ReportFormat.json:
        content = as_json(found).encode()
    else:
        content = markdown(found).encode()
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
    """A run or several as JSON, in ASCII, which steers no terminal."""
    return json.dumps(found, indent=2, allow_nan=False, default=asdict) + "\n"


def markdown(found: FinishedRun) -> str:
    """The report, with tables as GitHub reads them."""
    run, data = found["run"], found["data"]
    blocks = [f"# {_escaped(run['name'])}"]
    lead = lead_line(found["leads"], found["baselines"], data["split"])
    if lead:
        blocks.append(_escaped(f"{lead[0].upper()}{lead[1:]}."))
    blocks += [f"> {_escaped(warning)}" for warning in found["warnings"]]
    rows = f", {data['n_rows']:,} rows" if data["n_rows"] else ""
    blocks.append(f"## {_escaped(data['name'])}, {_escaped(data['split'])}{rows}")
    blocks.append(_figures_table(found))
    blocks.append("95 % intervals are in brackets.")
    blocks += _calibration_blocks(found.get("calibration", {}))
    about = {"folder": run["folder"], "date": f"{run['date']} UTC"} | found["facts"] | {"lead": ""}
    blocks.append("## The run")
    blocks.append(_table(["", ""], [[name, fact] for name, fact in about.items() if fact]))
    if found["changed"]:
        lines = []
        for name in found["changed"]:
            lines.append([name, format_list(found["settings"][name]), format_list(default_settings().get(name))])
        blocks.append("## Settings that differ from the defaults")
        blocks.append(_table(["setting", "value", "default"], lines))
    return "\n\n".join(blocks) + "\n"


def _figures_table(found: FinishedRun) -> str:
    """A line for each model and baseline, a column for each figure."""
    models = with_baselines(found["members"] or {NETWORK: found["figures"]}, found["baselines"])
    names = list(dict.fromkeys(name for figures in models.values() for name in figures))
    lines = []
    for model, figures in models.items():
        lines.append([model, *(figures[name].words if name in figures else "" for name in names)])
    return _table(["model", *map(words_of, names)], lines)


def _calibration_blocks(fitted: dict[str, Any]) -> list[str]:
    if not fitted.get("after"):
        return []
    lines = [[words_of(name), fitted["before"][name].words, after.words] for name, after in fitted["after"].items()]
    return [
        f"## Calibrated by {_escaped(fitted['method'])} on {fitted['rows']:,} rows of {_escaped(fitted['source'])}",
        _table(["figure", "before", "after"], lines),
        "The figures after calibration are cross-validated over five folds of these rows.",
    ]


def _table(columns: list[str], lines: list[list[str]]) -> str:
    escaped = [[_escaped(cell) for cell in line] for line in (columns, *lines)]
    escaped.insert(1, ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _escaped(text: str) -> str:
    """A line that Markdown reads as it is."""
    return SIGNS.sub(r"\\\g<0>", one_line(text))
