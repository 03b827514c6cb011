"""The verb `evaluate`: a finished model, rows with their answers, figures with intervals, and a page to read them on.

The rows are read before torch is imported, so that a mistake in the data is found at once.
"""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config import EvaluateConfig
from manyheads.config.required import check_reached
from manyheads.distributed.launch import n_to_start, run_on_all_ranks
from manyheads.distributed.ranks import this_process
from manyheads.evaluation.evaluation_data import EVALUATED, PART, find_data, results_name
from manyheads.evaluation.held_out import learnt_texts
from manyheads.inference.format import (
    enclosing_run,
    home_of,
    open_folder,
)
from manyheads.runs.folder import within
from manyheads.runs.verb_output import refuse_occupied

if TYPE_CHECKING:
    from manyheads.inference.folder import AnyPredictor
    from manyheads.inference.workers import Workers


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Evaluate a run on its own test split, or on any data with its answers; returns the content of metrics.json, of
    several processes in the first.

    Writes metrics.json, predictions.csv or .parquet, pictures and report.html to `output`, else
    <run>/evaluate/<data>-<split>/ (<data>-all for a single file, of which all rows count), where an earlier evaluation
    of the same data is replaced file by file. Answers of a classifier are kept in a hidden part there as they come: the
    same command, repeated after a kill, resumes after them.

    Raises:
        UserError: one sentence; the run, the data, its labels, or the output. All but broken weights are found
            before torch is imported, where there is one process.
    """
    if n_local := n_to_start(config.hardware):
        model, settings = open_folder(config.run, graph=True)
        _check_output(config, model)
        run_on_all_ranks("evaluate", config, n_local=n_local, timeout=config.hardware.timeout)
        home = enclosing_run(model)
        folder = config.output or within(home_of(config.run, model), "evaluate", results_name(config, home, settings))
        found = json.loads(Path(folder, "metrics.json").read_text(encoding="utf-8"))
    else:
        ranks, found = this_process(), {}
        if ranks.n_ranks == 1:
            found = _evaluate(config, None)
        else:
            from manyheads.inference.workers import work_together

            with work_together(ranks, config.hardware.timeout) as workers:
                if ranks.is_first:
                    found = _evaluate(config, workers)
                else:
                    workers.serve_requests(partial(_opened, config))
    if found and config.require and this_process().started_by != "launch":
        check_reached(config.require, found, f"{found['split']} of {found['data']}")
    return found


def _evaluate(config: EvaluateConfig, workers: "Workers | None") -> dict[str, Any]:
    opened = open_folder(config.run, graph=True)
    model, settings = opened
    home = enclosing_run(model)
    _check_output(config, model)
    plugin.asked("answer_rule", config, opened)
    labels = opened.labels()
    data = find_data(config, home, settings, labels)
    analyses = plugin.asked("analysis", config, opened, data.rows)
    if settings.task == "classify" and data.run is None and not data.role:
        n, said = learnt_texts(home, data.rows, labels)
        data.learnt = f"{said}: figures and lead are optimistic" if n else ""
    folder = Path(config.output or within(home_of(config.run, model), "evaluate", data.folder))
    if config.overwrite:
        refuse_occupied(folder, EVALUATED, overwrite=True)

    from manyheads.evaluation.results import evaluate_data

    return evaluate_data(config, opened, data, analyses, folder, workers)


def _opened(config: EvaluateConfig) -> "AnyPredictor":
    from manyheads.inference.folder import load, place

    return place(load(config.run), config.hardware)


def _check_output(config: EvaluateConfig, model: Path) -> None:
    begun = Path(config.output or home_of(config.run, model), PART)  # by a command that was killed
    if config.output and (config.overwrite or not begun.exists() or (begun.parent / EVALUATED.mark).exists()):
        refuse_occupied(Path(config.output), EVALUATED, overwrite=config.overwrite)
