"""The part of `manyheads train` that needs torch: tokens, network, fit, model folder, evaluation, report.

`run_pipeline` is that story; its steps follow in the order in which it takes them, then the run folder and its log.
"""

import atexit
import gc
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from lightning.pytorch.loggers import Logger

import manyheads.plugin as plugin
from manyheads.config import Resume, RunConfig
from manyheads.config.conversion import to_plain
from manyheads.config.data import data_name
from manyheads.config.facts import hooks
from manyheads.data.disk_cache import cache_folder
from manyheads.data.prepare_tokens import prepare_tokens, splits_as_read
from manyheads.distributed.collectives import destroy_groups
from manyheads.distributed.heartbeat import monitor_peers
from manyheads.distributed.ranks import this_process
from manyheads.evaluation.results import evaluate_run
from manyheads.evaluation.tables import show_summary
from manyheads.inference.batching import network_logits
from manyheads.inference.card import add_results, card_figures, card_notes
from manyheads.inference.folder import AnyPredictor, load, save
from manyheads.inference.origin import file_digests
from manyheads.inference.precision import choose_device
from manyheads.linear.blend import Tuned, divide_head, tune, usual_share
from manyheads.linear.fit import cached_linear, too_many
from manyheads.linear.model import write_baseline
from manyheads.runs.config_file import save_run
from manyheads.runs.files import write_atomic
from manyheads.runs.folder import RANKS, ranks_folder, start_folder
from manyheads.runs.lock import lock_run_folder
from manyheads.runs.restart import RestartRequested
from manyheads.runs.resume import check_limits, find_restart
from manyheads.runs.summary import Summary, figures_to_plain
from manyheads.terminal import screen_handler
from manyheads.training.batch_size import settle_batch
from manyheads.training.budget import settle_budget
from manyheads.training.build import assemble_network
from manyheads.training.context import RunContext
from manyheads.training.dry_run import plan_figures, show_plan
from manyheads.training.logs import explained_choices, introduce
from manyheads.training.objectives import weights_of_linear
from manyheads.training.own_parts import check_part
from manyheads.training.trainer import check_same, check_trainer, fit

log = logging.getLogger("manyheads")


def run_pipeline(context: RunContext) -> Summary | None:
    """Train the network of `context`, evaluate it and write the run folder.

    Returns:
        The figures of summary.json. None after a dry run, and in all processes but the first of several.
    """
    splits = context.splits
    check_trainer(context.run)
    context.tokenizer, context.tokens = prepare_tokens(splits, context.run)
    context.network = assemble_network(context.run, splits, context.tokenizer, context.user_network)
    check_part(context.run, context.network)
    settle_sizes(context)
    if context.run.dry:
        chosen = ", ".join(choice for choice, _ in explained_choices(context))
        figures = plan_figures(context.run, splits, context.tokens, context.network)
        show_plan(figures | {"chosen automatically": chosen or "nothing"}, splits.notes)
        return None
    context.files = file_digests(context.run)  # before training, during which somebody may change the files
    check_same(context.start, context.tokens, context.files)

    with open_run_folder(context.run) as folder, loggers_of(context.run, folder) as loggers:
        context.folder, context.loggers = folder, loggers
        introduce(context)
        training = fit_with_restarts(context)
        if training is None:  # another process than the first
            return None
        model = write_model(context, training)
        training |= {"wall_seconds": perf_counter() - context.began, "files": context.files, "measured": {}}
        for measure in hooks(context.run, "measure"):
            training["measured"] |= measure(context)
        summary = evaluate_model(context, model, training)
    show_summary(summary, context.run, context.folder / "run.log", pairs=splits.train.pairs is not None)
    return summary


def settle_sizes(context: RunContext) -> None:
    """Replace the settings that are found by trying: the largest batch that fits, and the steps of a new budget."""
    labels = context.splits.labels
    context.run = settle_batch(context.run, context.network, context.tokens, labels)
    new_budget = not context.start.knows_budget(context.run)
    if new_budget:
        context.run = settle_budget(context.run, context.network, context.tokens, labels)
    if new_budget:
        context.notes += check_limits(context.start, context.run)


def fit_with_restarts(context: RunContext) -> dict[str, Any] | None:
    """Train the network, and again from the newest checkpoint where a guard requests it. One of several processes
    passes the request on to whoever started them, who restarts them all.

    Returns:
        The figures of the training; None in all processes but the first.
    """
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
        # Outside of `except`, where the exception still refers to the Trainer and its memory.
        gc.collect()  # a Trainer and its module refer to each other
        torch.cuda.empty_cache()  # which does nothing where there is no GPU
        context.start = find_restart(context.folder, context.run)
        for note in context.start.notes:
            log.info("%s", note)
        context.network = assemble_network(context.run, context.splits, context.tokenizer, context.user_network)


def write_model(context: RunContext, training: dict[str, Any]) -> AnyPredictor:
    """Write the model folder and open it again, on the device of the run: what is evaluated is what a user will load.

    A network that answers alone has its logits divided by the temperature with which validation rows are likeliest
    (Guo et al., 2017, "On Calibration of Modern Neural Networks", section 4.2). The linear model is fitted here, once.
    With `linear=true` it lies in model/ and answers together with the network; else it lies in the run folder, as the
    baseline that `TextClassifier.baseline(run folder)` opens.
    """
    run, splits = context.run, context.splits
    tuned, task = Tuned(), plugin.task(run.task)
    if run.task == "classify":
        tuned = fit_members(context)
        if tuned.temperature != 1:
            divide_head(context.network.head, tuned.temperature)
    figures: dict[str, str] = {}
    if best := training["best"]:
        how = f"of the network in {training['precision']}"  # as it was trained, which is not as it is evaluated
        figures[f"validation {best['metric']}, {how}"] = f"{best['value']:.4f}"
    save(
        context.folder / "model",
        context.network,
        task=run.task,
        model=run.model,
        data=run.data,
        tokenizer=context.tokenizer,
        pairs=splits.train.pairs is not None,
        labels=splits.labels,
        kept=splits.kept,
        multi=splits.multi,
        tuned=tuned,
        figures=figures,
        finish=plugin.resolve(task.finish)(context) if task.finish else None,
    )
    if tuned.baseline and not tuned.blend:
        write_baseline(context.folder, tuned.baseline)
    own = getattr(context.network, "module", None)  # of an `OwnNetwork`
    return load(context.folder / "model", network=own).on(choose_device(run.hardware))  # in fp32


def fit_members(context: RunContext) -> Tuned:
    """Fit the linear model; with `linear=true` also the weights with which both members answer, and the thresholds of
    rows with any number of labels."""
    run, splits, n_classes = context.run, splits_as_read(context.splits), len(context.splits.labels)
    weights_C = weights_of_linear(context)
    linear = cached_linear(cache_folder(run.data), splits, None if weights_C is None else weights_C.numpy())
    if linear is None and too_many(splits.train, n_classes):
        log.warning("no linear model: one of %s classes would take hours", f"{n_classes:,}")
    logits_nC = None
    if splits.multi or (run.linear and linear is not None):
        logits_nC = network_logits(context.network, context.tokens["validation"], choose_device(run.hardware))
    prior_share = usual_share(trained=bool(run.init_from), few=run.optim.are_few(len(splits.train), n_classes))
    return tune(
        logits_nC,
        linear,
        splits.validation,
        n_classes,
        weights_C,
        answers=run.linear,
        prior_share=prior_share,
        has_head=context.user_network is None,
    )


def evaluate_model(context: RunContext, model: AnyPredictor, training: dict[str, Any]) -> Summary:
    """Evaluate the model and write the figures and the report; add the figures to the model card and the loggers."""
    run = context.run
    summary = evaluate_run(context.splits, model, training, to_plain(run), context.folder)
    card = context.folder / "model" / "README.md"
    text = card.read_text(encoding="utf-8")
    write_atomic(card, add_results(text, card_figures(summary), card_notes(summary, data_name(run.data))))
    for logger in context.loggers:
        logger.log_metrics(flat_figures(summary), summary.steps)
    return summary


def flat_figures(summary: Summary) -> dict[str, float]:
    """The figures of the splits as a logger takes them: `test/accuracy`, `test/accuracy_low`, `test/accuracy_high`."""
    ends = {"value": "", "low": "_low", "high": "_high"}
    figures: dict[str, float] = {}
    for split in ("validation", "test"):
        for name, interval in figures_to_plain(getattr(summary, split)).items():
            for key, value in interval.items():
                figures[f"{split}/{name}{ends[key]}"] = value
    return figures


@contextmanager
def loggers_of(run: RunConfig, folder: Path) -> Iterator[list[Logger]]:
    """The loggers of plugins, in the first process."""
    loggers: list[Logger] = []
    with ExitStack() as stack:
        if this_process().is_first:
            for make in hooks(run, "logger"):
                loggers += stack.enter_context(make(run, folder))
        yield loggers


@contextmanager
def open_run_folder(run: RunConfig) -> Iterator[Path]:
    """The folder of the run, locked while the block lasts, with config.yaml and the log of this process in it."""
    folder = start_folder(run.output, resume=run.resume is not Resume.never)
    ranks, log_file = this_process(), folder / "run.log"
    with lock_run_folder(folder):
        if ranks.is_first:
            save_run(run, folder / "config.yaml")
        if ranks.n_ranks > 1:
            of_ranks = ranks_folder(folder, run.hardware.timeout)
            if not ranks.is_first:
                log_file = of_ranks / f"rank-{ranks.rank}.log"
        with run_log(log_file):
            yield folder


@contextmanager
def run_log(file: Path) -> Iterator[None]:
    """The log goes to `file` while the block lasts, in the first process also to the screen."""
    before = log.level, log.propagate
    written = logging.FileHandler(file, encoding="utf-8")
    written.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    handlers: list[logging.Handler] = [written]
    if this_process().is_first:
        handlers.insert(0, screen_handler())
    for handler in handlers:
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    except ValueError as mistake:  # the screen will show it; the folder, too, is to say why it holds no model
        record = {"name": log.name, "levelno": logging.ERROR, "msg": "%s", "args": (mistake,)}
        written.handle(logging.makeLogRecord(record))
        raise
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
        log.setLevel(before[0])
        log.propagate = before[1]
