"""The verb `report`: what a finished run, or an evaluation of one, is worth, by what it left on disk.

Nothing is judged again, and torch is not imported.
"""

import json
import re
import sys
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from manyheads.config import ReportConfig, ReportFormat, RunConfig
from manyheads.config.data import data_name
from manyheads.config.facts import require
from manyheads.config.fields import plain_settings, show_list
from manyheads.runs.config_file import read_run
from manyheads.runs.folder import read_json, replace_file
from manyheads.runs.summary import (
    ENDS,
    NETWORK,
    Figures,
    beside,
    damaged,
    facts,
    lead_line,
    models_of,
    read_summary,
    typed,
    words_of,
)
from manyheads.terminal import one_line

VERSION = 1  # of the JSON: it rises where a key is renamed or removed
OF_TRAINING = ("parameters", "epochs", "steps", "seconds", "real_tokens_per_s", "precision", "best", "rows", "versions")
PLACES = ("output", "resume")  # settings that make no other model
SIGNS = re.compile(r"[\\`*\[\]<>|&~]|(?<![^\W_])_|_(?![^\W_])")  # that Markdown reads
usual_settings = cache(lambda: plain_settings(RunConfig()))


def report(config: ReportConfig) -> None:
    """Write what `config.run` is worth to a file, or to standard output.

    Raises:
        ValueError: one sentence; there is no finished run, its files are damaged, or the file cannot be written.
    """
    found, page = read_finished(Path(config.run)), Path(config.run, "report.html")
    require(found["run"]["finished"], f"run={config.run} is not finished: go on with its training by resume=auto")
    if config.format is ReportFormat.html:
        require(page.is_file(), f"{page} does not exist: choose format=md or format=json")
        content = page.read_bytes()
    else:
        content = (as_json(found) if config.format is ReportFormat.json else markdown(found)).encode()
    if config.output == "-":
        sys.stdout.write(content.decode("utf-8", "replace"))
        return
    require(not Path(config.output).is_dir(), f"output={config.output} is a folder: name a file in it")
    try:
        with replace_file(Path(config.output)) as part:
            part.write_bytes(content)
    except OSError as error:
        raise ValueError(f"output={config.output} cannot be written ({error.strerror}): name another file") from error


def as_json(found: Any) -> str:
    """Text in ASCII, which steers no terminal."""
    return json.dumps(found, indent=2, allow_nan=False, default=asdict) + "\n"


def read_finished(folder: Path, *, evaluations: bool = True) -> dict[str, Any]:
    """A run, or an evaluation of one, as docs/evaluation.md tells key by key; figures are intervals. A run that is not
    finished has none. With `evaluations` those that lie in it are among its `splits`.

    Raises:
        ValueError: it is neither, or one of its files is damaged.
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
    known |= {"figures": {}, "members": {}, "baselines": {}, "leads": {}, "splits": {}, "warnings": []}
    if home == folder and summary is not None:
        split, judged = summary.judged_on, home / "summary.json"
        known["data"] |= {"split": split, "n_rows": summary.rows.get(split)}
        known |= {"figures": getattr(summary, split), "members": models_of(summary, split)}
        known |= {name: getattr(summary, name) for name in ("baselines", "leads", "warnings")}
        known["splits"] = {name: of for name in ("test", "validation") if (of := getattr(summary, name))}
    elif metrics.is_file():
        judged = metrics
        known |= _read_metrics(metrics)
    for one in sorted(home.glob("evaluate/*/metrics.json")) if evaluations and home == folder else ():
        known["splits"] |= {one.parent.name: _read_metrics(one)["figures"]}
    about = {"name": folder.name, "folder": str(folder), "task": settings.get("task")}
    about["date"] = time.strftime("%Y-%m-%d %H:%M", time.gmtime(judged.stat().st_mtime))
    about |= {"finished": bool(known["figures"]), **{name: getattr(summary, name, None) for name in OF_TRAINING}}
    changed = [one for one, value in settings.items() if one not in PLACES and value != usual_settings().get(one)]
    said = facts(summary) if summary else {}
    return {"version": VERSION, "run": about, **known, "settings": settings, "changed": changed, "facts": said}


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
        return known | {"splits": {}, "data": about | {"n_rows": typed(found.get("n_rows", 0), int) or None}}


def markdown(found: dict[str, Any]) -> str:
    """The report, with tables as GitHub reads them."""
    data, settings, usual = found["data"], found["settings"], usual_settings()
    rows = f", {data['n_rows']:,} rows" if data["n_rows"] else ""
    models = beside(found["members"] or {NETWORK: found["figures"]}, found["baselines"])
    names = list(dict.fromkeys(name for of in models.values() for name in of))
    figures = [[model, *(of[one].words if one in of else "" for one in names)] for model, of in models.items()]
    lead = lead_line(found["leads"], found["baselines"], data["split"])
    about = {"folder": found["run"]["folder"], "date": f"{found['run']['date']} UTC"} | found["facts"] | {"lead": ""}
    changed = [[name, show_list(settings[name]), show_list(usual.get(name))] for name in found["changed"]]
    blocks = [
        f"# {_escaped(found['run']['name'])}",
        _escaped(lead and f"{lead[0].upper()}{lead[1:]}."),
        *(f"> {_escaped(one)}" for one in found["warnings"]),
        f"## {_escaped(data['name'])}, {_escaped(data['split'])}{rows}",
        _table(["model", *map(words_of, names)], figures),
        "95 % intervals are in brackets.",
        "## The run",
        _table(["", ""], [[name, one] for name, one in about.items() if one]),
        *(
            ["## Settings that differ from the defaults", _table(["setting", "value", "default"], changed)]
            * bool(changed)
        ),
    ]
    return "\n\n".join(one for one in blocks if one) + "\n"


def _table(columns: list[str], lines: list[list[str]]) -> str:
    rows = [[_escaped(one) for one in line] for line in (columns, *lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(columns), *rows[1:]))


def _escaped(text: str) -> str:
    """A line that Markdown reads as it is."""
    return SIGNS.sub(r"\\\g<0>", one_line(text))
