"""The verb `evaluate`: a finished model, a split, figures with intervals, and a page to read them on."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyheads.config import EvaluateConfig
from manyheads.judge.processes import answer_together
from manyheads.judge.task import find_task, results_name
from manyheads.launch import n_to_start, on_all
from manyheads.links import within
from manyheads.ship.files import find_model, run_folder
from manyheads.ship.settings import read_labels, read_settings

if TYPE_CHECKING:
    from manyheads.ship.crew import Crew
    from manyheads.ship.load import Shipped


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Judge a run on its own test split, or on any data with its answers; returns the content of metrics.json.

    Where there are several processes, the first does so, and nothing is returned in those that help it.

    Writes metrics.json, predictions.csv, pictures and report.html to `output`, else <run>/evaluate/<data>-<split>/
    (<data>-all for a single file, of which all rows are judged), where an earlier evaluation of the same data is
    replaced file by file.

    Raises:
        ValueError: one sentence; the run, the data, its labels, or the output. All but broken weights are found
            before torch is imported, where there is one process.
    """
    if n_local := n_to_start(config.hardware):
        return _judge_elsewhere(config, n_local)
    opened = partial(_opened, config)
    return answer_together(partial(_judge, config), opened, config.hardware) or {}


def _judge_elsewhere(config: EvaluateConfig, n_local: int) -> dict[str, Any]:
    """In processes that are started for it."""
    model = find_model(Path(config.run))
    _check_output(config.output)
    on_all("evaluate", config, n_local=n_local, timeout=config.hardware.timeout)
    home = run_folder(model)
    name = results_name(config, home, read_settings(model / "config.json"))
    return json.loads((_folder(config, model, home, name) / "metrics.json").read_text(encoding="utf-8"))


def _judge(config: EvaluateConfig, crew: "Crew | None") -> dict[str, Any]:
    model = find_model(Path(config.run))
    home = run_folder(model)
    settings = read_settings(model / "config.json")
    _check_output(config.output)
    task = find_task(config, home, settings, read_labels(model / "labels.json", settings))
    folder = _folder(config, model, home, task.folder)

    from manyheads.judge.guess_results import evaluate_guesses
    from manyheads.judge.label_results import evaluate_labels
    from manyheads.judge.results import judge_task, show_results, write_results
    from manyheads.judge.translation_results import evaluate_texts
    from manyheads.ship.guesser import Guesser
    from manyheads.ship.translator import Translator

    deliverable = replace(_opened(config), crew=crew)
    if isinstance(deliverable, Translator):
        return evaluate_texts(task, deliverable, config, folder, home)
    if isinstance(deliverable, Guesser):
        return evaluate_guesses(task, deliverable, config, folder, home)
    if deliverable.multi:
        return evaluate_labels(task, deliverable, config, folder, home)
    results = judge_task(task, deliverable, config, deliverable.baseline(home))
    metrics = write_results(folder, results, home)
    show_results(results, folder)
    return metrics


def _folder(config: EvaluateConfig, model: Path, home: Path | None, name: str) -> Path:
    return Path(config.output) if config.output else within(home or model, "evaluate", name)


def _opened(config: EvaluateConfig) -> "Shipped":
    from manyheads.judge.device import place
    from manyheads.ship.load import load

    return place(load(config.run), config.hardware)


def _check_output(output: str) -> None:
    folder = Path(output)
    if output and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise ValueError(
            f"output={output} {what}: name a new folder, or leave output away to write into the run's folder"
        )
