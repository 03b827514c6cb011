"""The verb `evaluate`: a finished model, rows with their answers, figures with intervals, and a page to read them on.

The rows are read before torch is imported, so that a mistake in the data is found at once.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.config import EvaluateConfig
from manyheads.config.required import check_reached
from manyheads.data.seen import fingerprint
from manyheads.distributed.launch import n_to_start, run_on_all_ranks
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.evaluation.held_out import learnt_texts
from manyheads.evaluation.judged_rows import EVALUATED, EvaluationData, find_data, results_name
from manyheads.inference.answers import Answers, opened_answers
from manyheads.inference.format import (
    ModelFolder,
    home_of,
    open_folder,
    run_folder,
)
from manyheads.inference.predict import origin
from manyheads.inference.rules import fit_rules
from manyheads.runs.files import refuse_unwritable
from manyheads.runs.folder import within
from manyheads.runs.verb_output import refuse_occupied
from manyheads.terminal import progress_bar

if TYPE_CHECKING:
    from manyheads.inference.folder import AnyPredictor
    from manyheads.inference.workers import Workers


PART = "answers"  # of a classifier, while it is judged


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Evaluate a run on its own test split, or on any data with its answers; returns the content of metrics.json, of
    several processes in the first.

    Writes metrics.json, predictions.csv or .parquet, pictures and report.html to `output`, else
    <run>/evaluate/<data>-<split>/ (<data>-all for a single file, of which all rows count), where an earlier evaluation
    of the same data is replaced file by file. Answers of a classifier are kept in a hidden part there as they come: the
    same command, repeated after a kill, goes on after them.

    Raises:
        UserError: one sentence; the run, the data, its labels, or the output. All but broken weights are found
            before torch is imported, where there is one process.
    """
    if n_local := n_to_start(config.hardware):
        model, settings = open_folder(config.run, graph=True)
        _check_output(config, model)
        run_on_all_ranks("evaluate", config, n_local=n_local, timeout=config.hardware.timeout)
        home = run_folder(model)
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
    home = run_folder(model)
    _check_output(config, model)
    plugin.asked("answer_rule", config, opened)
    labels = opened.labels()
    data = find_data(config, home, settings, labels)
    analyses = plugin.asked("analysis", config, opened, data.rows)
    if settings.task == "classify" and data.run is None and not data.role:
        n, said = learnt_texts(home, data.rows, labels)
        data.learnt = f"{said}: figures and lead flatter the model" if n else ""
    folder = Path(config.output or within(home_of(config.run, model), "evaluate", data.folder))
    if config.overwrite:
        refuse_occupied(folder, EVALUATED, overwrite=True)

    from manyheads.evaluation.evaluation import Setup
    from manyheads.evaluation.results import baseline_of, evaluate_rows, write_evaluation

    predictor = replace(_opened(config, opened), workers=workers)
    rules = fit_rules(config, opened, predictor)
    fitted = getattr(predictor, "calibration", None)
    if fitted is not None and fitted.digest == data.rows.digest(labels):
        raise UserError(
            f"{data.rows.source} holds the rows that calibrate was fitted on, which say nothing: judge others"
        )
    for rule in rules:
        if rule.set_on and rule.set_on == data.rows.digest(labels):
            raise UserError(rule.refusal.format(source=data.rows.source))
    with _kept_answers(config, opened, predictor, data, folder) as answers, progress_bar(len(data.rows)) as progress:
        setup = Setup(
            train=data.splits.train if data.splits else None,
            most_frequent=labels.index(data.most_frequent) if data.most_frequent else None,
            baseline=baseline_of(predictor, home),
            tokens=config.batch.tokens,
            config=config,
            progress=progress,
            answers=answers,
            analyses=[partial(plugin.make("analysis", name), config) for name in analyses],
            rules=rules,
        )
        evaluation = evaluate_rows(predictor, data.rows, setup)
        return write_evaluation(folder, evaluation, data, config, predictor, home)


@contextmanager
def _kept_answers(
    config: EvaluateConfig, opened: ModelFolder, predictor: "AnyPredictor", data: EvaluationData, folder: Path
) -> "Iterator[Answers | None]":
    """A part in the `folder` of results for what a classifier answers, which a killed command has begun maybe."""
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        if opened.settings.task != "classify":
            yield None
            return
        from manyheads.linear.model import BASELINE

        home = run_folder(opened.path)
        files = [one for name in BASELINE if home and (one := home / name).is_file()]
        plain = {"tokens": config.batch.tokens, "baseline": [fingerprint(one) for one in files]}
        of = None if config.overwrite else origin(data.rows.digest(opened.labels()), opened, predictor, plain)
        with opened_answers(str(folder / PART), of=of, kept=False) as answers:
            yield answers
    finally:
        with suppress(OSError):
            folder.rmdir()  # if nothing came of it


def _opened(config: EvaluateConfig, folder: ModelFolder | None = None) -> "AnyPredictor":
    from manyheads.inference.folder import load, place

    return place(load(folder or config.run), config.hardware)


def _check_output(config: EvaluateConfig, model: Path) -> None:
    begun = Path(config.output or home_of(config.run, model), f".{PART}.part")  # by a command that was killed
    if config.output and (config.overwrite or not begun.exists() or (begun.parent / EVALUATED.mark).exists()):
        refuse_occupied(Path(config.output), EVALUATED, overwrite=config.overwrite)
