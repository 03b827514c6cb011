"""A finished run, or an evaluation of one, read from its files. Nothing is evaluated again; standard library only."""

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

from manyheads.config import RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.config.data import data_name
from manyheads.config.facts import require
from manyheads.config.sentences import list_names
from manyheads.runs.config_file import read_run
from manyheads.runs.files import read_json
from manyheads.runs.summary import (
    CALIBRATION,
    ENDS,
    NETWORK,
    Figures,
    Summary,
    damaged,
    facts,
    lead_line,
    models_of,
    moved_by,
    read_summary,
    typed,
    words_of,
)

FORMAT = 1  # of the JSON: it rises where a key is renamed or removed
OF_TRAINING = ("parameters", "epochs", "steps", "seconds", "real_tokens_per_s", "precision", "best", "rows", "versions")
PLACES = ("output", "resume")  # settings that make no other model
OUTDATED = "are left out: calibrate has changed the model since they were measured; run evaluate again"
FinishedRun = dict[str, Any]  # key by key as docs/comparing.md describes it; its figures are intervals
default_settings = cache(lambda: plain_settings(RunConfig()))


def read_finished(folder: Path, *, evaluations: bool = True) -> FinishedRun:
    """A run, or an evaluation of one, from its folder. A run that is not finished has no figures.

    Args:
        evaluations: add the evaluations that lie in a run to its `splits`.

    Raises:
        UserError: it is neither, or one of its files is damaged.
    """
    metrics = folder / "metrics.json"
    is_evaluation = folder.parent.name == "evaluate" and not (folder / "config.yaml").is_file()
    home = folder.parents[1] if is_evaluation else folder  # the folder of the run
    run = read_run(home) if (home / "config.yaml").is_file() else None
    require(
        metrics.is_file() or (run is not None and not is_evaluation),
        f"run={folder} holds neither a run nor an evaluation: name one that does",
    )
    settings = plain_settings(run) if run else {}
    with damaged(home / "config.yaml"):
        json.dumps(settings, allow_nan=False)
    summary = read_summary(home / "summary.json")
    calibration = _read_calibration(home / "model")
    name = data_name(run.data) if run else None
    found: FinishedRun = {"data": {"name": name, "split": None, "n_rows": None}}
    found |= {"figures": {}, "members": {}, "baselines": {}, "leads": {}, "splits": {}, "network": {}, "warnings": []}
    found["calibration"] = {} if is_evaluation or not calibration else calibration
    written = folder / "config.yaml"  # the file whose time is the date
    fitted = ""  # the calibration with which figures were measured
    if not is_evaluation and summary is not None:
        written = home / "summary.json"
        found |= _of_summary(summary, name)
    elif metrics.is_file():
        written = metrics
        judged, fitted = _read_metrics(metrics)
        found |= judged
    finished = bool(found["figures"])
    _leave_out_outdated(found, fitted, calibration)
    if evaluations and not is_evaluation:
        for path in sorted(home.glob("evaluate/*/metrics.json")):
            judged, fitted = _read_metrics(path)
            _leave_out_outdated(judged, fitted, calibration)
            found["splits"][path.parent.name] = judged["figures"]
            found["network"][path.parent.name] = network_figures(judged)
    about = {
        "name": folder.name,
        "folder": str(folder),
        "task": settings.get("task"),
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime(written.stat().st_mtime)),
        "finished": finished,
        **{fact: getattr(summary, fact, None) for fact in OF_TRAINING},
    }
    changed = []
    for setting, value in settings.items():
        if setting not in PLACES and value != default_settings().get(setting):
            changed.append(setting)
    in_words = facts(summary) if summary else {}
    in_words["lead"] = lead_line(found["leads"], found["baselines"], found["data"]["split"])
    in_words = {name: fact for name, fact in in_words.items() if fact}
    if summary and summary.measured and calibration:
        earlier = f"measured before calibrate changed the model: {list_names([*summary.measured])}"
        found["warnings"] = [*found["warnings"], earlier]
    return {"version": FORMAT, "run": about, **found, "settings": settings, "changed": changed, "facts": in_words}


def _of_summary(summary: Summary, name: str | None) -> FinishedRun:
    """What summary.json says of the figures of a run on the data `name`."""
    judged_on = summary.judged_on
    splits: dict[str, Figures] = {}
    network: dict[str, Figures] = {}
    for split in ("test", "validation"):
        if getattr(summary, split):
            splits[split] = getattr(summary, split)
            network[split] = models_of(summary, split).get(NETWORK, {})
    return {
        "data": {"name": name, "split": judged_on, "n_rows": summary.rows.get(judged_on)},
        "figures": getattr(summary, judged_on),
        "members": models_of(summary, judged_on),
        "baselines": summary.baselines,
        "leads": summary.leads,
        "splits": splits,
        "network": network,
        "warnings": summary.warnings,
    }


def _read_metrics(path: Path) -> tuple[FinishedRun, str]:
    """What `evaluate` wrote: figures of the model at the top level, those of others by their names; and the calibration
    with which they were measured."""
    found = read_json(path)
    with damaged(path):
        own = {name: one for name, one in found.items() if isinstance(one, dict) and one.keys() == ENDS}
        require(bool(own), "no figures")
        judged = {key: typed(found.get(key, {}), dict[str, Figures]) for key in ("members", "baselines", "leads")}
        split = typed(found["split"], str)
        lead_line(judged["leads"], judged["baselines"], split)  # raises where it cannot be put in words
        judged["figures"] = typed(own, Figures)
        judged["warnings"] = typed(found.get("warnings", []), list[str])
        judged["splits"] = {}
        n_rows = typed(found.get("n_rows", 0), int) or None
        judged["data"] = {"name": typed(found["data"], str), "split": split, "n_rows": n_rows}
        return judged, typed(found.get("calibration", ""), str)


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


def _leave_out_outdated(found: FinishedRun, then: str, calibration: dict[str, Any] | None) -> None:
    """Take out, and say so, the figures that a later calibration has changed.

    Args:
        then: the calibration with which they were measured, its method and digest; empty: none.
        calibration: that of the model today; None: there is no model.
    """
    if calibration is None or not found["figures"]:
        return
    now = f"{calibration.get('method', '')} {calibration.get('digest', '')}".strip()
    if now == then:
        return
    main = next(iter(found["figures"]))
    methods = [one.partition(" ")[0] for one in (now, then) if one]
    changed = [moved_by(method, multi=main == "micro_f1") for method in methods]
    outdated = [name for name in found["figures"] if any(is_changed(name) for is_changed in changed)]

    def kept(figures: Figures) -> Figures:
        return {name: one for name, one in figures.items() if name not in outdated}

    if main in outdated:
        found["leads"] = {}
    found["figures"] = kept(found["figures"])
    answering = next(iter(found["members"]), "")
    if answering:
        found["members"][answering] = kept(found["members"][answering])
    for part in ["splits", "network"] if answering == NETWORK else ["splits"]:
        found[part] = {name: kept(figures) for name, figures in found.get(part, {}).items()}
    found["warnings"] = [*found["warnings"], f"{list_names([words_of(one) for one in outdated])} {OUTDATED}"]


def answering_model(found: FinishedRun) -> str:
    """The model whose figures the run has: the network, or both."""
    return next(iter(found.get("members", {})), NETWORK)


def network_figures(found: FinishedRun) -> Figures:
    """The figures of the network by itself."""
    if not found.get("members"):
        return found["figures"]
    return found["members"].get(NETWORK, {})
