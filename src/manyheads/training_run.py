"""The whole story of `manyheads train`, from the top: rows, tokens, network, fit, ship, evaluate, report.

`train` checks what can be checked without torch, `train_here` does the rest in this process, `train_on_all_ranks` in
several. Below them come their steps in order, then the run folder and its log, then cross-validation.
"""

import atexit
import gc
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from manyheads.config import DataConfig, Resume, RunConfig
from manyheads.config.conversion import to_plain
from manyheads.config.data import data_name
from manyheads.config.facts import hooks
from manyheads.config.figures import figures_of
from manyheads.config.plugins import refuse_unnamed
from manyheads.config.required import RequirementError, bounds_of, check_reached
from manyheads.config.trainer_flags import check_training
from manyheads.data.checks import check_memory, check_rows
from manyheads.data.rows import Splits
from manyheads.data.sources import read_rows
from manyheads.distributed.heartbeat import monitor_peers
from manyheads.distributed.launch import n_to_start, run_on_all_ranks, validate_world_size
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.inference.origin import file_digests
from manyheads.runs.config_file import read_run, save_run
from manyheads.runs.files import read_json, write_atomic
from manyheads.runs.folder import (
    RANKS,
    is_unbegun,
    named_folder,
    ranks_folder,
    refuse_taken,
    reserved_folder,
    start_folder,
)
from manyheads.runs.lock import lock_run_folder
from manyheads.runs.many import train_in_turn
from manyheads.runs.resolve import resolution_notes, with_data
from manyheads.runs.restart import RestartRequested
from manyheads.runs.resume import changed_settings, check_limits, find_restart, find_start, refuse_other_input
from manyheads.runs.summary import Summary, read_summary, written_summary
from manyheads.terminal import say
from manyheads.training.context import RunContext

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers import Logger
    from torch import nn

    from manyheads.data.datamodule import TextData
    from manyheads.inference.folder import AnyPredictor

log = logging.getLogger("manyheads")


def train(
    run: RunConfig,
    *,
    data: "TextData | None" = None,
    network: "nn.Module | None" = None,
    callbacks: "Sequence[Callback]" = (),
) -> Summary | None:
    """Train the model that `run` describes, evaluate it and write its run folder.

    Args:
        data: rows in memory, `TextData.from_rows(..., run=run)`, in place of those that `run` names.
        network: a module of your own in place of the one that `run.model` describes: `network(ids, layout)` returns
            logits `(B, C)`. It is copied, starts with the weights it has, and reads ids below the size of the
            vocabulary. `manyheads.load(folder, network=...)` opens the trained model.
        callbacks: your own, which the Trainer calls after its others. What their `state_dict` holds (numbers, texts and
            tensors) is saved and restored with the run.

    Returns:
        The figures of summary.json. None after a dry run, where the run is already finished, and in all processes but
        the first of several.

    Raises:
        Stopped: a signal or `trainer.max_time` ended the run, whose state is saved.
        RestartRequested: in several processes: whoever started them is to start them again.
        RequirementError: everything is written, but a figure does not meet `require`.
        UserError: a mistake in the settings, the data or the hardware that is asked for, in one sentence and before
            anything is written; or training diverged.
    """
    clock = perf_counter()
    check_training(run.trainer)
    for refuse in hooks(run, "refuse"):
        refuse(run, "here")
    n_local = 0 if run.dry else n_to_start(run.hardware)
    if callbacks:
        check_callbacks(callbacks, run.hardware.devices, n_local)
    if data is not None:
        run = replace(run, data=data_in_memory(run, data, n_local))
    if network is not None:
        refuse_user_network(run, n_local)

    if run.data.folds and run.data.fold is None:
        return train_folds(run, callbacks)
    if n_local:
        refuse_unnamed(n_local)
        return train_on_all_ranks(run, n_local)
    run = replace(run, hardware=validate_world_size(run.hardware))

    # Settings and rows are checked first, since the import of torch takes seconds.
    start = find_start(run)
    splits = data.splits if data is not None and data.splits is not None else read_rows(run, with_test=run.test)
    asked = start.with_resolved(run)
    run = with_data(asked, n_rows=len(splits.train), n_classes=len(splits.labels), multi=splits.multi)
    refuse_unusable_rows(run, splits)
    if start.finished:
        folder = named_folder(run.output)
        refuse_other_input(splits.digests(), file_digests(run), folder)
        check_limits(start, run)
        print(f"{run.output} is finished: summary.json and report.html in it have its figures")
        return check_requirements(run, folder)
    notes = [*start.notes, *resolution_notes(asked, run)]
    if start.knows_budget(run):
        notes += check_limits(start, run)
    return train_here(
        RunContext(
            run=run,
            splits=splits,
            start=start,
            began=clock - start.seconds,
            callbacks=callbacks,
            user_network=network,
            notes=notes,
        )
    )


def train_here(context: RunContext) -> Summary | None:
    """The rest of `train`, which needs torch: tokens, network, fit, ship, evaluate, report."""
    from manyheads.data.token_cache import prepare_tokens
    from manyheads.evaluation.tables import show_summary
    from manyheads.training.build import assemble_network
    from manyheads.training.dry_run import plan_figures, show_plan
    from manyheads.training.own_parts import check_part
    from manyheads.training.trainer import check_tokens, check_trainer

    splits = context.splits
    check_trainer(context.run)
    context.tokenizer, context.tokens = prepare_tokens(splits, context.run)
    context.network = assemble_network(context.run, splits, context.tokenizer, context.user_network)
    check_part(context.run, context.network)
    measure(context)
    if context.run.dry:
        show_plan(plan_figures(context.run, splits, context.tokens, context.network), splits.notes)
        return None
    check_tokens(context.start, context.tokens)
    files = file_digests(context.run)

    notes = [*splits.notes, *context.notes]
    with run_folder(context.run, notes) as folder, loggers_of(context.run, folder) as loggers:
        context.folder, context.loggers = folder, loggers
        training = fit_with_restarts(context)
        if training is None:  # another process than the first
            return None
        model = ship(context, training)
        training |= {"wall_seconds": perf_counter() - context.began, "files": files}
        summary = judge(context, model, training)
    show_summary(summary, context.folder / "run.log")
    check_requirements(context.run, context.folder, summary)
    return summary


def measure(context: RunContext) -> None:
    """Resolve the settings that are found by trying: the largest batch that fits, and the steps of a new budget."""
    from manyheads.training.batch_size import settle_batch
    from manyheads.training.budget import settle_budget

    asked, labels = context.run, context.splits.labels
    context.run = settle_batch(context.run, context.network, context.tokens, labels)
    new_budget = not context.start.knows_budget(context.run)
    if new_budget:
        context.run = settle_budget(context.run, context.network, context.tokens, labels)
    context.notes += resolution_notes(asked, context.run)
    if new_budget:
        context.notes += check_limits(context.start, context.run)


def fit_with_restarts(context: RunContext) -> dict[str, Any] | None:
    """Train the network, and again from the newest checkpoint where a guard asks for it. Processes of several leave
    that to whoever started them.

    Returns:
        The figures of the training; None in all processes but the first.
    """
    import torch

    from manyheads.distributed.collectives import destroy_groups
    from manyheads.training.build import assemble_network
    from manyheads.training.trainer import fit

    several = this_process().n_ranks > 1
    while True:
        try:
            with monitor_peers(context.folder / RANKS, context.run.hardware.timeout):
                training = fit(context)
            if several:
                atexit.register(destroy_groups)  # not after a failure: closing would wait for the others
            return training
        except RestartRequested:
            if several:
                raise
        gc.collect()  # a Trainer and its module refer to each other, and the exception referred to both
        torch.cuda.empty_cache()  # which does nothing where there is no GPU
        context.start = find_restart(context.folder, context.run)
        for note in context.start.notes:
            log.info("%s", note)
        context.network = assemble_network(context.run, context.splits, context.tokenizer, context.user_network)


def ship(context: RunContext, training: dict[str, Any]) -> "AnyPredictor":
    """Write the model folder and open it again: what is evaluated is what a user will load.

    The linear model is fitted here, once. It lies in model/ with `linear=true`, where both answer together; else in the
    run folder as the baseline, which `TextClassifier.baseline(run folder)` opens.
    """
    from manyheads.inference.batching import network_logits
    from manyheads.inference.folder import load, save
    from manyheads.linear.blend import Tuned, tune
    from manyheads.linear.fit import fit_linear, too_many
    from manyheads.linear.model import write_baseline
    from manyheads.training.objectives import class_weights

    run, splits, network = context.run, context.splits, context.network
    labels, tuned = splits.labels, Tuned()
    if run.task == "classify":
        weights_C = None
        if run.optim.class_weights != "none":
            weights_C = class_weights(run.optim.class_weights, context.tokens["train"].labels, labels)
        linear = fit_linear(
            splits.train, len(labels), None if weights_C is None else weights_C.numpy(), splits.validation
        )
        if linear is None and too_many(splits.train, len(labels)):
            log.warning("no linear model: one of %s classes would take hours", f"{len(labels):,}")
        logits_nC = None
        if splits.multi or (run.linear and linear is not None):
            logits_nC = network_logits(network, context.tokens["validation"])
        tuned = tune(logits_nC, linear, splits.validation, len(labels), weights_C, answers=run.linear)
    figures: dict[str, str] = {}
    if best := training["best"]:
        how = f"of the network in {training['precision']}"  # as it was trained, which is not as it is evaluated
        figures[f"validation {best['metric']}, {how}"] = f"{best['value']:.4f}"
    save(
        context.folder / "model",
        network,
        task=run.task,
        model=run.model,
        data=run.data,
        tokenizer=context.tokenizer,
        pairs=splits.train.pairs is not None,
        labels=labels,
        tuned=tuned,
        figures=figures,
    )
    if tuned.baseline and not tuned.blend:
        write_baseline(context.folder, tuned.baseline)
    return load(context.folder / "model", network=getattr(network, "module", None))  # that of an `OwnNetwork`


def judge(context: RunContext, model: "AnyPredictor", training: dict[str, Any]) -> Summary:
    """Evaluate the model, write the figures and the report, and tell the model card and the loggers."""
    from manyheads.evaluation.results import card_figures, card_notes, evaluate_run
    from manyheads.inference.card import add_results

    run = context.run
    summary = evaluate_run(context.splits, model, training, to_plain(run), context.folder)
    card = context.folder / "model" / "README.md"
    text = card.read_text(encoding="utf-8")
    write_atomic(card, add_results(text, card_figures(summary), card_notes(summary, data_name(run.data))))
    for logger in context.loggers:
        logger.log_metrics(flat_figures(summary), summary.steps)
    return summary


def train_on_all_ranks(run: RunConfig, n_local: int) -> Summary | None:
    """`train` in `n_local` processes of this machine, which are started for it."""
    if run.resume is Resume.never:
        refuse_taken(run.output)
    elif (folder := named_folder(run.output)).is_dir():
        with lock_run_folder(folder):
            pass  # else it is refused before anything is started
    with reserved_folder(run.output) as folder:
        run_on_all_ranks("train", run, n_local=n_local, timeout=run.hardware.timeout, folder=folder)
        summary = read_summary(folder / "summary.json")
        check_requirements(run, folder, summary)
        return summary


def check_callbacks(callbacks: "Sequence[Callback]", devices: int, n_local: int) -> None:
    """Refuse callbacks that save checkpoints, or that the `n_local` processes started here cannot be given."""
    from lightning.pytorch.callbacks import Checkpoint

    if n_local:
        raise UserError(
            f"callbacks cannot be handed to the {n_local} processes that hardware.devices={devices} starts: start the "
            f"script itself by torchrun --nproc-per-node={n_local}"
        )
    for one in callbacks:
        if isinstance(one, Checkpoint):
            raise UserError(
                f"{type(one).__name__} among the callbacks saves checkpoints, which train does itself "
                "(checkpoint.every): remove it, or use a Trainer of your own"
            )


def refuse_user_network(run: RunConfig, n_local: int) -> None:
    """Refuse settings that cannot be combined with a module of the user's own."""
    refused = {
        f"task={run.task}": run.task != "classify",
        f"init_from={run.init_from}": bool(run.init_from),
        f"data.folds={run.data.folds}": bool(run.data.folds),
        f"hardware.devices={run.hardware.devices}": bool(n_local),
        f"optim.few={run.optim.few}": bool(run.optim.few),
    }
    for setting, is_refused in refused.items():
        if is_refused:
            raise UserError(f"{setting} does not go with network=, a module of your own: remove one of them")


def data_in_memory(run: RunConfig, data: "TextData", n_local: int) -> DataConfig:
    """The settings `data` of a run on rows in memory.

    Raises:
        UserError: it holds no rows, or other processes would need them.
    """
    if data.splits is None:
        raise UserError("this TextData holds no rows: make it by TextData.from_rows(..., run=run)")
    if run.data.folds or n_local:
        what = f"data.folds={run.data.folds}" if run.data.folds else f"hardware.devices={run.hardware.devices}"
        raise UserError(f"{what} reads rows from files, but rows in memory were given: write them to a file")
    return replace(run.data, source="memory", path="", hub="")


def refuse_unusable_rows(run: RunConfig, splits: Splits) -> None:
    """Refuse rows that lack what the settings need, that `require` cannot be computed on, or that memory cannot
    hold."""
    if run.task == "classify":
        bounds_of(run.require, figures_of("labels" if splits.multi else "classes", "table"))
    check_rows(run, splits)
    check_memory(splits, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def check_requirements(run: RunConfig, folder: Path, summary: Summary | None = None) -> None:
    """Compare summary.json in `folder` with `run.require`. Where this package started several processes, the one that
    started them does it.

    Raises:
        RequirementError: a figure does not meet it.
    """
    if run.require and this_process().started_by != "launch":
        written = written_summary(folder)
        try:
            check_reached(run.require, written[written["judged_on"]], f"the {written['judged_on']} rows of {folder}")
        except RequirementError as missed:
            missed.summary = summary
            raise


@contextmanager
def loggers_of(run: RunConfig, folder: Path) -> "Iterator[list[Logger]]":
    """The loggers of plugins, in the first process."""
    loggers: list[Logger] = []
    with ExitStack() as stack:
        if this_process().is_first:
            for make in hooks(run, "logger"):
                loggers += stack.enter_context(make(run, folder))
        yield loggers


def flat_figures(summary: Summary) -> dict[str, float]:
    """The figures of the splits as a logger takes them: `test/accuracy`, `test/accuracy_low`, `test/accuracy_high`."""
    from manyheads.evaluation.intervals import plain

    ends = {"value": "", "low": "_low", "high": "_high"}
    figures: dict[str, float] = {}
    for split in ("validation", "test"):
        for name, interval in plain(getattr(summary, split)).items():
            for key, value in interval.items():
                figures[f"{split}/{name}{ends[key]}"] = value
    return figures


@contextmanager
def run_folder(run: RunConfig, notes: list[str]) -> Iterator[Path]:
    """The folder of the run, locked while the block lasts, with config.yaml and the log of this process in it."""
    folder = start_folder(run.output, resume=run.resume is not Resume.never)
    ranks, file = this_process(), folder / "run.log"
    with lock_run_folder(folder):
        if ranks.is_first:
            save_run(run, folder / "config.yaml")
        if ranks.n_ranks > 1:
            place = ranks_folder(folder, run.hardware.timeout)
            file = file if ranks.is_first else place / f"rank-{ranks.rank}.log"
        with run_log(file, notes):
            yield folder


@contextmanager
def run_log(file: Path, notes: list[str]) -> Iterator[None]:
    """The log goes to `file` while the block lasts, in the first process also to the screen. It starts with `notes`."""
    before = log.level, log.propagate
    screen = [logging.StreamHandler()] if this_process().is_first else []
    written = logging.FileHandler(file, encoding="utf-8")
    written.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    handlers = [*screen, written]
    for handler in handlers:
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        for note in notes:
            log.info("%s", note)
        yield
    except ValueError as mistake:  # the screen will show it; the folder, too, is to say why it holds no model
        written.handle(
            logging.makeLogRecord({"name": log.name, "levelno": logging.ERROR, "msg": "%s", "args": (mistake,)})
        )
        raise
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
        log.setLevel(before[0])
        log.propagate = before[1]


def train_folds(run: RunConfig, callbacks: "Sequence[Callback]") -> None:
    """Cross-validation: one run for each fold, in the folders fold-1, fold-2, ... within that of `run`; then
    predictions, figures and report.html of all rows, each answered by the model that was not trained on it. With
    `run.refit` another run follows, on all rows in all-rows/, and the models of the folds are removed.

    A fold that was stopped is resumed, a finished one is left as it is.
    """
    if run.dry:
        train(replace(run, data=replace(run.data, fold=1), require=""))
        return
    if this_process().started_by:
        raise UserError(
            f"data.folds={run.data.folds} trains one run after another, each in processes of its own, but "
            f"{this_process().started_by} started several: start it once, with hardware.devices"
        )
    splits = read_rows(run, with_test=False, with_unread=True)
    bounds_of(run.require, figures_of("labels" if splits.multi else "classes"))
    check_rows(run, splits)
    n_folds = run.data.folds
    folder = start_folder(run.output, resume=run.resume is not Resume.never)
    folds = [folder / f"fold-{fold}" for fold in range(1, n_folds + 1)]

    def of_fold(fold: int, place: Path) -> RunConfig:
        data = replace(run.data, fold=fold)
        return replace(run, data=data, output=str(place), resume=Resume.auto, test=True, require="")

    def train_fold(fold: RunConfig) -> None:
        say(f"{Path(fold.output).name} of {n_folds}: {fold.output}")
        train(fold, callbacks=callbacks)

    with lock_run_folder(folder):
        if (folder / "config.yaml").is_file():
            for note in changed_settings(read_run(folder), run, folder, step=0):
                log.warning("%s", note)
        elif run.resume is Resume.must or not is_unbegun(folder):
            raise UserError(f"output={folder} holds no run with folds to resume: name another folder")
        else:
            save_run(run, folder / "config.yaml")
        train_in_turn([of_fold(at, place) for at, place in enumerate(folds, start=1)], train_fold)
        if not (folder / "metrics.json").is_file():
            from manyheads.evaluation.folds import judge_folds

            judge_folds(run, splits, folder, folds)
        if run.refit:
            train_in_turn([of_fold(0, folder / "all-rows")], train_fold)
            for place in folds:
                shutil.rmtree(place / "model", ignore_errors=True)
                shutil.rmtree(place / "checkpoints", ignore_errors=True)
    if run.require:
        check_reached(run.require, read_json(folder / "metrics.json"), f"all rows of {folder}")
