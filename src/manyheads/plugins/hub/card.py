"""The card of a model as the Hugging Face hub reads it: what was measured, as its model-index, and how to open it."""

from pathlib import Path
from typing import Any

import yaml

import manyheads.plugin as plugin
from manyheads.errors import UserError
from manyheads.inference.format import CALIBRATION, CARD, ModelFolder, enclosing_run
from manyheads.runs.config_file import read_run
from manyheads.runs.files import read_json
from manyheads.runs.summary import moved_by

LEVEL = 0.95  # of the intervals


def card_of(opened: ModelFolder, repo: str, revision: str) -> str:
    """The card in the model's folder, with the figures in its head, and with the name by which the hub opens it."""
    kind, words = plugin.task(opened.settings.task).hub
    head: dict[str, Any] = {"library_name": "manyheads", "pipeline_tag": kind, "tags": ["manyheads"]}
    results = results_of(opened, kind, words)
    if results:
        head["model-index"] = [{"name": repo.rpartition("/")[2], "results": results}]
    file = opened.path / CARD
    text = file.read_text(encoding="utf-8") if file.is_file() else f"# {repo}\n"
    name = repo if revision == "main" else f"{repo}@{revision}"
    text = text.replace('manyheads.load("this folder")', f'manyheads.load("{name}")')
    if (opened.path / CALIBRATION).is_file() and "\nCalibrated by " not in text:  # as calibrate itself says in the card
        text = text.replace("\n## Figures\n", "\n## Figures before calibrate\n")
    return f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n\n{text}"


def results_of(opened: ModelFolder, kind: str, words: str) -> list[dict[str, Any]]:
    """The results of a model-index: the figures of summary.json for the split that was judged, with their intervals;
    none without a run folder.

    Figures that `calibrate` changes are given as they are after it, if it measured them, else marked "before".
    """
    home = enclosing_run(opened.path)
    if home is None or not (home / "summary.json").is_file():
        return []
    summary, data = read_json(home / "summary.json"), read_run(home).data
    split = summary.get("judged_on") if isinstance(summary, dict) else None
    if not isinstance(split, str) or not isinstance(summary.get(split), dict):
        raise UserError(f"{home / 'summary.json'} is not what training wrote: copy it again, or remove it")
    if data.hub:
        dataset = data.hub
    elif data.path:
        dataset = Path(data.path).name.partition(".")[0]  # of the path only the name is published
    else:
        dataset = data.source
    calibration = opened.path / CALIBRATION
    fitted = read_json(calibration) if calibration.is_file() else {}
    after = fitted.get("after", {})
    metrics = []
    for name, figure in summary[split].items():
        is_changed = bool(fitted) and moved_by(fitted.get("method", ""), multi=opened.settings.multi)(name)
        if not is_changed:
            metrics.append(index_metric(name, figure, ""))
        elif not after:  # else those after it take their place, below
            metrics.append(index_metric(name, figure, "before calibrate, "))
    task, results = {"type": kind, "name": words}, []
    if metrics:
        judged_on = {"type": dataset, "name": dataset, "split": split}
        results.append({"task": task, "dataset": judged_on, "metrics": metrics})
    if after:
        fitted_on = {"type": fitted["source"], "name": f"{fitted['rows']:,} rows of {fitted['source']}"}
        metrics = [index_metric(name, figure, "after calibrate, by five folds, ") for name, figure in after.items()]
        results.append({"task": task, "dataset": fitted_on, "metrics": metrics})
    return results


def index_metric(name: str, figure: dict[str, float], when: str) -> dict[str, Any]:
    """One metric of a model-index."""
    low, high = figure["low"], figure["high"]
    return {
        "type": name,
        "value": figure["value"],
        "name": f"{name.replace('_', ' ')} ({when}95 % interval {low:.4f} to {high:.4f})",
        "args": {"low": low, "high": high, "level": LEVEL},
    }
