"""Evaluations that are written: the summary and report of a run, and the folder of the verb `evaluate`."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import EvaluateConfig, Predictions
from manyheads.config.conversion import to_plain
from manyheads.data.disk_cache import fingerprint
from manyheads.data.rows import Rows, Splits, class_counts
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.evaluation.answered import evaluated_models
from manyheads.evaluation.evaluation import Evaluation, Setup, warnings_of
from manyheads.evaluation.evaluation_data import EVALUATED, PART, EvaluationData, EvaluationPlan
from manyheads.evaluation.logits import kept_logits
from manyheads.evaluation.report import installed_versions, write_page
from manyheads.evaluation.tables import show_evaluation
from manyheads.inference.answering import provenance
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import AnyPredictor, load, place
from manyheads.inference.format import ModelFolder, enclosing_run
from manyheads.inference.rules import fit_rules
from manyheads.inference.workers import Workers, work_together
from manyheads.linear.model import BASELINE, LinearBaseline
from manyheads.runs.files import write_atomic, write_json
from manyheads.runs.metrics_csv import read_metrics_csv
from manyheads.runs.summary import Figures, Summary, facts, figures_to_plain
from manyheads.runs.verb_output import lock_output, output_folder
from manyheads.terminal import progress_bar


def evaluate_rows(predictor: AnyPredictor, rows: Rows, setup: Setup) -> Evaluation:
    """Evaluate a model as its task does.

    Raises:
        UserError: there are no rows, or they do not suit the model.
    """
    return plugin.resolve(plugin.task(predictor.task).evaluate)(predictor, rows, setup)


def baseline_of(predictor: AnyPredictor, home: Path | None) -> LinearBaseline | None:
    """The linear model of the run folder `home`, which every run of a classifier fits."""
    return predictor.baseline(home) if isinstance(predictor, TextClassifier) else None


def evaluate_run(
    splits: Splits, predictor: AnyPredictor, training: dict[str, Any], config: dict[str, Any], folder: Path
) -> Summary:
    """Evaluate the finished model of a run on validation and, if there is one, on the test split; write summary.json
    and report.html into `folder`. The report is about the last of these splits.

    Args:
        training: the fields of Summary that only the training loop knows.
        config: the settings of the run.
    """
    baseline, labels = baseline_of(predictor, folder), splits.labels
    own_train = splits.train if splits.own_train is None else splits.own_train  # that of a later evaluation
    setup = Setup(train=own_train, baseline=baseline)
    members: dict[str, dict[str, Figures]] = {}  # by split and model; the model that answers is the first
    if splits.test is None:
        split, rows = "validation", splits.validation
    else:
        split, rows = "test", splits.test
        members["validation"] = evaluate_rows(predictor, splits.validation, replace(setup, compare=False)).members
    evaluation = evaluate_rows(predictor, rows, setup)
    members[split] = evaluation.members
    measured = training.get("measured", {})
    for finding in evaluation.findings:
        measured = measured | finding.figures
    answering = next(iter(evaluation.members))
    linear, terms = 0.0, ""
    if isinstance(predictor, TextClassifier):
        linear = predictor.share
    if baseline is not None:
        terms = baseline.linear.terms.value
    digests = splits.digests()
    role = "train" if digests[split] == digests["train"] else split  # as data.validation_split=train makes them one
    summary = Summary(
        output=str(folder),
        rows={name: len(one) for name, one in splits.by_name().items()},
        validation=members["validation"][answering],
        test=members["test"][answering] if "test" in members else {},
        judged_on=split,
        baselines=evaluation.baselines,
        leads=evaluation.leads,
        linear=linear,
        digests=digests,
        versions=installed_versions(),
        members=members,
        terms=terms,
        label_counts=dict(zip(labels, class_counts(own_train, len(labels)), strict=True)),
        warnings=warnings_of(evaluation, rows, split, role, labels, splits.validation),
        **training | {"measured": measured},
    )
    page = evaluation.page(
        evaluation.title,
        f"{rows.source}, {split} split, {evaluation.size}",
        curves=read_metrics_csv(folder / "metrics.csv"),
        training=training,
        facts=facts(summary),
        notes=splits.notes,
        config=config,
        warnings=summary.warnings,
    )
    write_page(folder / "report.html", page)
    summary.write(folder / "summary.json")
    return summary


def evaluate_on_ranks(config: EvaluateConfig, plan: Callable[[EvaluateConfig], EvaluationPlan]) -> dict[str, Any]:
    """`evaluate_data` in one of several processes: the first reads and writes, all compute. Nothing is returned in the
    others.

    Args:
        plan: finds the rows, in the first process.
    """
    ranks = this_process()
    with work_together(ranks, config.hardware.timeout) as workers:
        if ranks.is_first:
            return evaluate_data(config, plan(config), workers)
        workers.serve_requests(lambda: place(load(config.run), config.hardware))
    return {}


def evaluate_data(config: EvaluateConfig, plan: EvaluationPlan, workers: Workers | None = None) -> dict[str, Any]:
    """Evaluate a finished model and write the results; see `write_evaluation`.

    Args:
        workers: other processes, which answer some of the rows.

    Raises:
        UserError: the calibration or a rule of the model was fitted on these rows, so that figures on them would say
            nothing; an answer is not finite; or the folder cannot be written to.
    """
    opened, data, folder = plan.model, plan.data, plan.folder
    home, labels = enclosing_run(opened.path), opened.labels()
    predictor = replace(place(load(opened), config.hardware), workers=workers)
    rules = fit_rules(config, opened, predictor)
    digest = data.rows.digest(labels)
    fitted = getattr(predictor, "calibration", None)
    if fitted is not None and fitted.digest == digest:
        raise UserError(
            f"{data.rows.source} holds the rows that calibrate was fitted on, so their figures would say nothing: give "
            "other rows"
        )
    for rule in rules:
        if rule.set_on and rule.set_on == digest:
            raise UserError(rule.refusal.format(source=data.rows.source))
    setup = Setup(
        baseline=baseline_of(predictor, home),
        tokens=config.batch.tokens,
        config=config,
        analyses=[partial(plugin.make("analysis", name), config) for name in plan.analyses],
        rules=rules,
    )
    if data.splits is not None:
        setup = replace(setup, train=data.splits.train)
    setup = replace(setup, label_counts=data.label_counts)
    with lock_output(folder), ExitStack() as stack:
        if isinstance(predictor, TextClassifier):
            answers_of = None
            if not config.overwrite:
                answers_of = _provenance(config, opened, digest, predictor)
            shape = len(data.rows), len(evaluated_models(predictor, setup.baseline)), len(labels)
            # what an interrupted evaluation of the same has answered is there
            setup = replace(setup, logits=stack.enter_context(kept_logits(folder / PART, shape, answers_of)))
        setup = replace(setup, progress=stack.enter_context(progress_bar(len(data.rows))))
        evaluation = evaluate_rows(predictor, data.rows, setup)
        return write_evaluation(folder, evaluation, data, config, predictor, home)


def _provenance(config: EvaluateConfig, opened: ModelFolder, digest: str, classifier: TextClassifier) -> dict[str, str]:
    """All that the answers of a classifier, and of the linear model of its run, depend on; `digest` is of the rows."""
    home, files = enclosing_run(opened.path), []
    for name in BASELINE:
        if home is not None and (home / name).is_file():
            files.append(fingerprint(home / name))
    settings = {"tokens": config.batch.tokens, "baseline": files}
    return provenance(digest, opened, classifier, settings)


def write_evaluation(
    folder: Path,
    evaluation: Evaluation,
    data: EvaluationData,
    config: EvaluateConfig,
    model: AnyPredictor,
    home: Path | None,
) -> dict[str, Any]:
    """Write metrics.json, the predictions, report.html and its pictures, each whole or not at all, and print a table.

    Args:
        home: the run folder, whose learning curves are shown.

    Returns:
        The content of metrics.json: figures of the model at the top level, each as value, low, high; those of its
        members and of baselines by their names.
    """
    warnings = [data.learnt] if data.learnt else []
    names = getattr(model, "labels", [])
    if names:
        split, validation = data.split, None
        if split == "all":
            split = "the file"
        if data.splits is not None:
            validation = data.splits.validation
        warnings += warnings_of(evaluation, data.rows, split, data.role, names, validation)
        if data.run is None and not data.label_counts:
            kind = "class" if data.rows.sets is None else "label"
            warnings.append(f"the most frequent {kind} is that of these rows, as the training rows are not known")
    settings = {"evaluate": to_plain(config)}
    if data.run is None:
        own = model.settings.network  # which settings of ours do not describe
        settings["model"] = own or to_plain(model.model)
    else:
        settings["run"] = to_plain(data.run)
    page = evaluation.page(
        data.title,
        f"{data.rows.source}, {evaluation.size}",
        curves=read_metrics_csv(home / "metrics.csv") if home else [],
        notes=data.notes,
        config=settings,
        warnings=warnings,
    )
    metrics = _metrics(evaluation, data, model, warnings)
    with output_folder(folder, EVALUATED, overwrite=config.overwrite) as place:
        for section in page.sections:
            for picture in section.pictures:
                write_atomic(place / f"{picture.name}.png", picture.png)
        name = f"predictions.{config.predictions.name}"
        evaluation.write(place / name)
        for other in Predictions:
            if other is not config.predictions:
                (place / f"predictions.{other.name}").unlink(missing_ok=True)
        write_page(place / "report.html", page)
        write_json(place / "metrics.json", metrics)
    show_evaluation(evaluation, data, warnings, folder, name)
    return metrics


def _metrics(evaluation: Evaluation, data: EvaluationData, model: AnyPredictor, warnings: list[str]) -> dict[str, Any]:
    """The content of metrics.json."""
    is_classifier = plugin.task(model.task).has_classes
    metrics = {**evaluation.scores, **data.about}
    models = {"members": evaluation.members, "baselines": evaluation.baselines, "leads": evaluation.leads}
    for key, of_models in models.items():
        if is_classifier or key == "baselines":
            metrics[key] = {name: figures_to_plain(figures) for name, figures in of_models.items()}
    for finding in evaluation.findings:
        metrics[finding.name] = finding.content
    if is_classifier:
        metrics["warnings"] = warnings
        if calibration := getattr(model, "calibration", None):
            metrics["calibration"] = calibration.name
    return metrics
