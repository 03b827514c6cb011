"""The verb `evaluate`: a finished model, a split, figures with intervals, and a page to read them on."""

from pathlib import Path
from typing import Any

from manyheads.config import EvaluateConfig
from manyheads.judge.task import find_task
from manyheads.ship.files import find_model, run_folder
from manyheads.ship.settings import read_labels, read_settings


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Judge a run on its own test split, or on any data with its answers; returns the content of metrics.json.

    Writes metrics.json, predictions.csv, pictures and report.html to `output`, else <run>/evaluate/<data>-<split>/
    (<data>-all for a single file, of which all rows are judged), where an earlier evaluation of the same data is
    replaced file by file.

    Raises:
        ValueError: one sentence; the run, the data, its labels, or the output. All but broken weights are found
            before torch is imported.
    """
    model = find_model(Path(config.run))
    home = run_folder(model)
    settings = read_settings(model / "config.json")
    _check_output(config.output)
    task = find_task(config, home, settings, read_labels(model / "labels.json", settings))
    folder = Path(config.output or (home or model) / "evaluate" / f"{task.name}-{task.split}")

    from manyheads.judge.device import place
    from manyheads.judge.results import judge_task, show_results, write_results
    from manyheads.judge.translation_results import evaluate_texts
    from manyheads.ship.load import load
    from manyheads.ship.translator import Translator

    deliverable = place(load(model), config.hardware)
    if isinstance(deliverable, Translator):
        return evaluate_texts(task, deliverable, config, folder, home)
    results = judge_task(task, deliverable, config)
    metrics = write_results(folder, results, home)
    show_results(results, folder)
    return metrics


def _check_output(output: str) -> None:
    folder = Path(output)
    if output and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise ValueError(
            f"output={output} {what}: name a new folder, or leave output away to write into the run's folder"
        )
