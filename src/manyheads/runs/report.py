"""The verb `report`: a finished run, evaluation or search as Markdown, JSON or its page, and its tables as files for
papers. Nothing is evaluated again."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from manyheads.config import ReportConfig, ReportFormat
from manyheads.config.facts import require
from manyheads.config.sentences import format_list
from manyheads.runs.files import read_json
from manyheads.runs.finished import OUTDATED, FinishedRun, default_settings, read_finished
from manyheads.runs.result_table import (
    Cell,
    ResultTable,
    is_table_file,
    saved_record,
    tables_of,
    write_file,
    write_tables,
)
from manyheads.runs.summary import NETWORK, Interval, lead_line, with_baselines, words_of
from manyheads.terminal import one_line, writes_unicode

SIGNS = re.compile(r"[\\`*\[\]<>|&~]|(?<![^\W_])_|_(?![^\W_])")  # that Markdown reads


def report(config: ReportConfig) -> None:
    """Write the report of `config.run`, or its tables, to a file or to standard output.

    Raises:
        UserError: one sentence; there is no finished run, its files are damaged, or the file cannot be written.
    """
    place = Path(config.run)
    record = saved_record(place)
    found = read_finished(place) if record is None else {}
    if record is None:
        require(found["run"]["finished"], f"run={config.run} is not finished: resume its training by resume=auto")
    is_table = is_table_file(config.output) and not config.output.lower().endswith(".md")
    if is_table or config.of or (record is not None and config.format is ReportFormat.md):
        require(
            config.format is ReportFormat.md,
            f"format={config.format.name} does not go with a table or figure, whose kind is the end of output, such as "
            "output=table.tex: remove format",
        )
        tables = tables_of_run(found, place) if record is None else tables_of(record[1], record[0])
        write_tables(config.output, tables, config.of)
        return
    if config.format is ReportFormat.html:
        page = place / "report.html"
        require(page.is_file(), f"{page} does not exist: choose format=md or format=json")
        content = page.read_bytes()
        for warning in found.get("warnings", []):
            if warning.endswith(OUTDATED):
                print(one_line(f"{page}: {warning.replace('left out', 'outdated')}"), file=sys.stderr)
    elif config.format is ReportFormat.json:
        content = as_json(found if record is None else record[1]).encode()
    else:
        content = markdown(found).encode()
    if config.output == "-":
        text = content.decode("utf-8", "replace")
        if config.format is ReportFormat.html and not writes_unicode():
            text = text.encode("ascii", "xmlcharrefreplace").decode()
        sys.stdout.write(text)
        return
    require(not Path(config.output).is_dir(), f"output={config.output} is a folder: name a file in it")
    write_file(config.output, content)


def tables_of_run(found: FinishedRun, folder: Path) -> list[ResultTable]:
    """The figures of all models of a run or evaluation, then the tables of its metrics.json."""
    metrics = folder / "metrics.json"
    return [figures_table(found), *(tables_of(read_json(metrics), metrics) if metrics.is_file() else [])]


def figures_table(found: FinishedRun) -> ResultTable:
    """A line for each model and baseline, a column for each figure."""
    models, data = with_baselines(found["members"] or {NETWORK: found["figures"]}, found["baselines"]), found["data"]
    names = list(dict.fromkeys(name for figures in models.values() for name in figures))
    rows = [[model, *(figures.get(name) for name in names)] for model, figures in models.items()]
    title = f"figures of {data['name']}, {data['split']}, with 95 % intervals"
    return ResultTable("figures", title, ["model", *map(words_of, names)], rows)


def reliability_tables(document: dict[str, Any]) -> list[ResultTable]:
    """The table of `reliability` in metrics.json: accuracy by confidence."""
    rows: list[list[Cell]] = []
    for one in document["reliability"]:
        rows.append([one["confidence"], one["n_rows"], Interval(one["accuracy"], one["least"], one["most"])])
    return [
        ResultTable(
            "reliability",
            "accuracy by confidence, the mean of each bin, with 95 % intervals",
            ["confidence", "rows", "accuracy"],
            rows,
            bars="95 % intervals over the rows of a bin",
            over="confidence",
            figure="accuracy",
            lines={"calibrated": [(0.0, 0.0), (1.0, 1.0)]},
        )
    ]


def markdown_tables(tables: Sequence[ResultTable]) -> str:
    """Tables as GitHub reads them."""
    blocks = []
    for table in tables:
        blocks += [f"## {_escaped(table.title)}", _table(table.columns, table.in_words()), *map(_escaped, table.notes)]
    return "\n\n".join(blocks) + "\n"


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
    figures = figures_table(found)
    blocks.append(_table(figures.columns, figures.in_words()))
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


def _calibration_blocks(fitted: dict[str, Any]) -> list[str]:
    if not fitted.get("after"):
        return []
    lines = [[words_of(name), fitted["before"][name].words, after.words] for name, after in fitted["after"].items()]
    return [
        f"## Calibrated by {_escaped(fitted['method'])} on {fitted['rows']:,} rows of {_escaped(fitted['source'])}",
        _table(["figure", "before", "after"], lines),
        "The figures after calibration are cross-validated over five folds of these rows.",
    ]


def _table(columns: Sequence[str], lines: list[list[str]]) -> str:
    escaped = [[_escaped(cell) for cell in line] for line in (columns, *lines)]
    escaped.insert(1, ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _escaped(text: str) -> str:
    """A line that Markdown reads as it is."""
    return SIGNS.sub(r"\\\g<0>", one_line(text))
