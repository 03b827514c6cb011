"""Evaluations that are written: the summary and report of a run, and the folder of the verb `evaluate`."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import EvaluateConfig, Predictions
from manyheads.config.conversion import to_plain
from manyheads.data.disk_cache import fingerprint
from manyheads.data.rows import Rows, Splits
from manyheads.errors import UserError
from manyheads.evaluation.answered import evaluated_models
from manyheads.evaluation.classification import frequent_label
from manyheads.evaluation.evaluation import Evaluation, Setup, warnings_of
from manyheads.evaluation.evaluation_data import EVALUATED, PART, EvaluationData
from manyheads.evaluation.logits import kept_logits
from manyheads.evaluation.report import installed_versions, write_page
from manyheads.evaluation.tables import show_evaluation
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import AnyPredictor, load, place
from manyheads.inference.format import ModelFolder, enclosing_run
from manyheads.inference.predict import origin
from manyheads.inference.rules import fit_rules
from manyheads.inference.workers import Workers
from manyheads.linear.model import BASELINE, LinearBaseline
from manyheads.runs.files import refuse_unwritable, write_atomic, write_json
from manyheads.runs.metrics_csv import read_metrics_csv
from manyheads.runs.summary import Summary, facts, figures_to_plain, lead_line, models_of, with_baselines, words_of
from manyheads.runs.verb_output import output_folder
from manyheads.terminal import progress_bar


def evaluate_rows(predictor: AnyPredictor, rows: Rows, setup: Setup) -> Evaluation:
    """The evaluation of the task that the model has.

    Raises:
        UserError: there are no rows, or none that suit the model.
    """
    return plugin.resolve(plugin.task(predictor.task).evaluate)(predictor, rows, setup)


def baseline_of(predictor: AnyPredictor, home: Path | None) -> LinearBaseline | None:
    """The linear model of the run folder `home`, which every run of a classifier fits."""
    return predictor.baseline(home) if isinstance(predictor, TextClassifier) else None


def evaluate_run(
    splits: Splits, predictor: AnyPredictor, training: dict[str, Any], config: dict[str, Any], folder: Path
) -> Summary:
    """Evaluate what a run shipped, as it was shipped, and write summary.json and report.html into `folder`. `training`
    holds the figures of Summary that only the training loop knows, `config` the run's settings."""
    baseline, labels = baseline_of(predictor, folder), splits.labels
    named = {"validation": splits.validation} | ({} if splits.test is None else {"test": splits.test})
    split, rows = list(named.items())[-1]
    setup = Setup(train=splits.train, baseline=baseline)
    last = evaluate_rows(predictor, rows, setup)
    members = {  # of another split the figures alone are kept: scores hold C x C numbers
        name: last.members if name == split else evaluate_rows(predictor, one, replace(setup, compare=False)).members
        for name, one in named.items()
    }
    shipped = {split: next(iter(models.values())) for split, models in members.items()}
    summary = Summary(
        output=str(folder),
        rows={name: len(one) for name, one in splits.by_name().items()},
        validation=shipped["validation"],
        test=shipped.get("test", {}),
        judged_on=split,
        baselines=last.baselines,
        leads=last.leads,
        linear=predictor.share if isinstance(predictor, TextClassifier) else 0.0,
        digests=splits.digests(),
        versions=installed_versions(),
        members=members,
        terms=baseline.linear.terms.value if baseline else "",
        most_frequent=labels[frequent_label(rows, len(labels), setup)] if labels else "",
        warnings=warnings_of(last, rows, split, split, labels, splits.validation),
        **training,
    )
    page = last.page(
        last.title,
        f"{rows.source}, {split} split, {last.size}",
        curves=read_metrics_csv(folder / "metrics.csv"),
        facts=facts(summary),
        notes=splits.notes,
        config=config,
        warnings=summary.warnings,
    )
    write_page(folder / "report.html", page)
    summary.write(folder / "summary.json")
    return summary


def evaluate_data(
    config: EvaluateConfig,
    opened: ModelFolder,
    data: EvaluationData,
    analyses: Sequence[str],
    folder: Path,
    workers: Workers | None,
) -> dict[str, Any]:
    """Evaluate a finished model on `data` and write the results into `folder`; see `write_evaluation`.

    Args:
        analyses: the names of those that the settings ask for.
        workers: other processes, which answer some of the rows.

    Raises:
        UserError: the rows set something in the model, so that its figures on them would say nothing; or an answer is
            not finite, or the folder cannot be written to.
    """
    home, labels = enclosing_run(opened.path), opened.labels()
    predictor = replace(place(load(opened), config.hardware), workers=workers)
    rules = fit_rules(config, opened, predictor)
    fitted = getattr(predictor, "calibration", None)
    if fitted is not None and fitted.digest == data.rows.digest(labels):
        raise UserError(
            f"{data.rows.source} holds the rows that calibrate was fitted on, which say nothing: judge others"
        )
    for rule in rules:
        if rule.set_on and rule.set_on == data.rows.digest(labels):
            raise UserError(rule.refusal.format(source=data.rows.source))
    baseline = baseline_of(predictor, home)
    with _results_folder(folder), ExitStack() as stack:
        kept = None
        if isinstance(predictor, TextClassifier):
            files = [home / name for name in BASELINE if home and (home / name).is_file()]
            plain = {"tokens": config.batch.tokens, "baseline": [fingerprint(one) for one in files]}
            of = None if config.overwrite else origin(data.rows.digest(labels), opened, predictor, plain)
            shape = len(data.rows), len(evaluated_models(predictor, baseline)), len(labels)
            kept = stack.enter_context(kept_logits(folder / PART, shape, of))
        setup = Setup(
            train=data.splits.train if data.splits else None,
            most_frequent=labels.index(data.most_frequent) if data.most_frequent else None,
            baseline=baseline,
            tokens=config.batch.tokens,
            config=config,
            progress=stack.enter_context(progress_bar(len(data.rows))),
            logits=kept,
            analyses=[partial(plugin.make("analysis", name), config) for name in analyses],
            rules=rules,
        )
        evaluation = evaluate_rows(predictor, data.rows, setup)
        return write_evaluation(folder, evaluation, data, config, predictor, home)


@contextmanager
def _results_folder(folder: Path) -> Iterator[None]:
    """The folder is made, and goes again if nothing came of it."""
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()


def write_evaluation(
    folder: Path,
    evaluation: Evaluation,
    data: EvaluationData,
    config: EvaluateConfig,
    model: AnyPredictor,
    home: Path | None,
) -> dict[str, Any]:
    """Write metrics.json, the predictions, report.html and its pictures, each whole or not at all, and print a table;
    `home` is the run folder, whose learning curves are shown. A UserError where the folder cannot be written to.

    Returns:
        The content of metrics.json: figures of the model at the top level, each as value, low, high; those of its
        members and of baselines by their names.
    """
    classes = isinstance(model, TextClassifier)
    warnings = [data.learnt] if data.learnt else []
    if classes:
        split, validation = "the file" if data.split == "all" else data.split, data.splits and data.splits.validation
        warnings += warnings_of(evaluation, data.rows, split, data.role, model.labels, validation)
        if data.run is None and not data.most_frequent:
            kind = "class" if data.rows.sets is None else "label"
            warnings.append(f"the most frequent {kind} is that of these rows, as the training rows are not known")
    judged_as = {"model": to_plain(model.model)} if data.run is None else {"run": to_plain(data.run)}
    page = evaluation.page(
        data.title,
        f"{data.rows.source}, {evaluation.size}",
        curves=read_metrics_csv(home / "metrics.csv") if home else [],
        notes=data.notes,
        config={"evaluate": to_plain(config), **judged_as},
        warnings=warnings,
    )
    fitted = getattr(model, "calibration", None)
    metrics = {**evaluation.scores, **data.about}
    models = {"members": evaluation.members, "baselines": evaluation.baselines, "leads": evaluation.leads}
    for key, of_models in models.items():
        if classes or key == "baselines":
            metrics[key] = {name: figures_to_plain(figures) for name, figures in of_models.items()}
    for finding in evaluation.findings:
        metrics[finding.name] = finding.content
    if classes:
        metrics["warnings"] = warnings
    if fitted:
        metrics["calibration"] = fitted.name
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


def card_figures(summary: Summary) -> dict[str, str]:
    """What a model card says of the split judged last: the first four figures of the model, and the main one of the
    others, with their intervals."""
    split, first = summary.judged_on, next(iter(summary.validation))
    models = with_baselines(models_of(summary, split), summary.baselines)
    own = next(iter(models))
    shown = {f"{split} {words_of(name)}": figure.words for name, figure in list(models[own].items())[:4]}
    for name, figures in models.items():
        if name != own and first in figures:
            shown[f"{split} {words_of(first)} of the {name}"] = figures[first].words
    return shown


def card_notes(summary: Summary, data: str) -> list[str]:
    """What a model card says of the training, the lead and the warnings."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    rows = ", ".join(f"{n:,} for {name}" for name, n in summary.rows.items())
    lead = lead_line(summary.leads, summary.baselines, summary.judged_on)
    said = [f"{line[:1].upper()}{line[1:]}." for line in (lead, *summary.warnings) if line]
    return [f"Trained on {data} until {day} (UTC); rows: {rows}. 95 % intervals are in brackets.", *said]
