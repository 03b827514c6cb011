"""The verb `evaluate`: a finished model, rows with their answers, figures with intervals, and a page to read them on.

The rows are read before torch is imported, so that a mistake in the data is found at once; results.py does the work.
"""

import json
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import EvaluateConfig
from manyheads.config.required import check_reached
from manyheads.distributed.launch import n_to_start, run_on_all_ranks
from manyheads.distributed.ranks import this_process
from manyheads.evaluation.evaluation_data import (
    EVALUATED,
    PART,
    EvaluationPlan,
    find_data,
    results_name,
    training_counts,
)
from manyheads.evaluation.held_out import learnt_texts
from manyheads.inference.format import enclosing_run, home_of, open_folder
from manyheads.runs.folder import refuse_unwritable_output, within
from manyheads.runs.verb_output import refuse_occupied


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Evaluate a run on its own test split, or on any data with answers.

    Writes metrics.json, predictions.csv or .parquet, pictures and report.html to `output`, else to
    <run>/evaluate/<data>-<split>/ (<data>-all for a single file, of which all rows count), where an earlier evaluation
    of the same data is replaced file by file. Answers of a classifier are kept in a hidden file there as they come: the
    same command, repeated after a kill, resumes after them.

    Returns:
        The content of metrics.json; nothing in processes that help the first.

    Raises:
        UserError: one sentence; the run, the data, its labels, or the output. All but broken weights are found before
            torch is imported, if there is one process.
    """
    n_local = n_to_start(config.hardware)
    if n_local:
        model, settings = open_folder(config.run, graph=True)
        _check_output(config, model)
        run_on_all_ranks("evaluate", config, n_local=n_local, timeout=config.hardware.timeout)
        name = results_name(config, enclosing_run(model), settings)
        folder = config.output or within(home_of(config.run, model), "evaluate", name)
        metrics = json.loads(Path(folder, "metrics.json").read_text(encoding="utf-8"))
    else:
        plan = prepare_evaluation(config) if this_process().n_ranks == 1 else None

        from manyheads.evaluation.results import evaluate_data, evaluate_on_ranks

        metrics = evaluate_data(config, plan) if plan else evaluate_on_ranks(config, prepare_evaluation)
    if metrics and config.require and this_process().started_by != "launch":
        check_reached(config.require, metrics, f"{metrics['split']} of {metrics['data']}", metrics)
    return metrics


def prepare_evaluation(config: EvaluateConfig) -> EvaluationPlan:
    """Find the model, the rows, and the folder of results, with all mistakes that are found without torch."""
    opened = open_folder(config.run, graph=True)
    model, settings = opened
    home = enclosing_run(model)
    _check_output(config, model)
    plugin.asked("answer_rule", config, opened)
    labels = opened.labels()
    data = find_data(config, home, settings, labels)
    if data.run is None:
        data.label_counts = training_counts(model, settings, labels)
    analyses = plugin.asked("analysis", config, opened, data.rows)
    if plugin.task(settings.task).has_classes and data.run is None and not data.role:
        n_learnt, sentence = learnt_texts(model, data.rows, labels)
        if sentence:
            data.learnt = f"{sentence}: figures and lead {'are' if n_learnt else 'may be'} optimistic"
    folder = Path(config.output or within(home_of(config.run, model), "evaluate", data.folder))
    if config.overwrite:
        refuse_occupied(folder, EVALUATED, overwrite=True)
    refuse_unwritable_output(str(folder))
    return EvaluationPlan(opened, data, analyses, folder)


def _check_output(config: EvaluateConfig, model: Path) -> None:
    """Refuse a folder `output` that holds something else. One with answers of a command that was killed is resumed."""
    if not config.output:
        home_of(config.run, model)  # refuses a model of the hub, next to which nothing is written
        return
    folder = Path(config.output)
    is_begun = (folder / PART).exists() and not (folder / EVALUATED.mark).exists()
    if config.overwrite or not is_begun:
        refuse_occupied(folder, EVALUATED, overwrite=config.overwrite)
