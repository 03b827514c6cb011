"""Train, judge and ship one model: the whole story of `manyheads train`."""

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
from manyheads.config.facts import hooks
from manyheads.config.fields import check_training, to_plain
from manyheads.config.figures import figures_of
from manyheads.config.plugins import refuse_unnamed
from manyheads.config.required import RequirementError, bounds_of, check_reached
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
from manyheads.runs.restart import RestartRequested
from manyheads.runs.resume import Start, changed_limits, changes, check_limits, find_start, refuse_other_input
from manyheads.terminal import say

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers import Logger
    from tokenizers import Tokenizer
    from torch import nn

    from manyheads.data.datamodule import TextData
    from manyheads.data.tokens import Tokens
    from manyheads.inference.folder import AnyPredictor
    from manyheads.runs.summary import Summary
    from manyheads.training.module import Network

log = logging.getLogger("manyheads")


def train(
    run: RunConfig,
    *,
    data: "TextData | None" = None,
    network: "nn.Module | None" = None,
    callbacks: "Sequence[Callback]" = (),
) -> "Summary | None":
    """Fit the model `run` describes, judge it and leave a run folder behind.

    Args:
        network: a module of your own in the place of the one that `run.model` describes: `network(ids, layout)` gives
            logits `(B, C)`. It is copied, begins with the weights it has, and reads ids below the size of the
            vocabulary. `manyheads.load(folder, network=...)` opens what was trained.
        data: rows that are held in memory, `TextData.from_rows(..., run=run)`, in the place of those `run` names.
        callbacks: of your own, which the Trainer calls after its others. What their `state_dict` holds is saved and put
            back with the run: numbers, texts and tensors.

    Returns:
        The figures of summary.json; nothing after a dry run, where a run is found finished, or in a process that is
        not the first of several.

    Raises:
        Stopped: a signal or `trainer.max_time` ended the run, whose state is saved.
        RestartRequested: in several processes: whoever started them is to start them again.
        RequirementError: all is written, but a figure is not as `require` asks.
        UserError: a mistake in the config, the data or what is asked of the machine, in one sentence, before
            anything is written, those of the data before torch is imported; or training diverged.
    """
    started = perf_counter()
    check_training(run.trainer)
    for refuse in hooks(run, "refuse"):
        refuse(run, "here")
    n_local = 0 if run.dry else n_to_start(run.hardware)
    if callbacks:
        check_callbacks(callbacks, run.hardware.devices, n_local)
    if data is not None:
        run = replace(run, data=data_in_memory(run, data, n_local))
    if network is not None:
        refuse_own_network(run, n_local)
    if run.data.folds and run.data.fold is None:
        return train_folds(run, callbacks)
    if n_local:
        refuse_unnamed(n_local)
        return train_together(run, n_local)
    run = replace(run, hardware=validate_world_size(run.hardware))
    start = find_start(run)
    run = start.settled(run)
    splits = read_checked(run, data)
    if start.finished:
        limited = (run.optim.limited(run.trainer, few=few, n_classes=len(splits.labels)) for few in (False, True))
        changed_limits(start, *(replace(run, trainer=trainer) for trainer in limited))
        refuse_other_input(splits.digests(), file_digests(run), named_folder(run.output))
        print(f"{run.output} is finished: summary.json and report.html in it have its figures")
        return check_figures(run, named_folder(run.output))
    run = replace(run, checkpoint=run.checkpoint.settled(run.task, multi=splits.multi))
    return train_here(run, splits, start, started - start.seconds, callbacks, network)  # torch takes seconds: only now


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
            for note in changes(read_run(folder), run, folder, 0):
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


def check_figures(run: RunConfig, folder: Path, summary: "Summary | None" = None) -> None:
    """Compare what summary.json in `folder` holds with `run.require`; of processes that this package has started, the
    one that started them does.

    Raises:
        RequirementError: a figure is not as it asks.
    """
    if run.require and this_process().started_by != "launch":
        from manyheads.runs.summary import written_summary

        written = written_summary(folder)
        try:
            check_reached(run.require, written[written["judged_on"]], f"the {written['judged_on']} rows of {folder}")
        except RequirementError as missed:
            missed.summary = summary
            raise


def check_callbacks(callbacks: "Sequence[Callback]", devices: int, n_local: int) -> None:
    """Refuse callbacks that cannot be given to the `n_local` processes that are started here, or save checkpoints."""
    from lightning.pytorch.callbacks import Checkpoint

    if n_local:
        raise UserError(
            f"callbacks cannot be handed to the {n_local} processes that hardware.devices={devices} starts: start the "
            f"script itself by torchrun --nproc-per-node={n_local}"
        )
    if saving := next((type(one).__name__ for one in callbacks if isinstance(one, Checkpoint)), ""):
        raise UserError(
            f"{saving} among the callbacks saves checkpoints, which train does itself (checkpoint.every): remove it, "
            "or use a Trainer of your own"
        )


def refuse_own_network(run: RunConfig, n_local: int) -> None:
    """Refuse what cannot have a network of a user's own."""
    refused = {
        f"task={run.task}": run.task != "classify",
        f"init_from={run.init_from}": bool(run.init_from),
        f"data.folds={run.data.folds}": bool(run.data.folds),
        f"hardware.devices={run.hardware.devices}": bool(n_local),
        f"optim.few={run.optim.few}": bool(run.optim.few),
    }
    for word, holds in refused.items():
        if holds:
            raise UserError(f"{word} does not go with network=, a module of your own: remove one of them")


def data_in_memory(run: RunConfig, data: "TextData", n_local: int) -> DataConfig:
    """The settings `data` of a run on rows that are held in memory.

    Raises:
        UserError: they have no rows, or other processes would need them.
    """
    if data.splits is None:
        raise UserError("this TextData holds no rows: make it by TextData.from_rows(..., run=run)")
    if run.data.folds or n_local:
        what = f"data.folds={run.data.folds}" if run.data.folds else f"hardware.devices={run.hardware.devices}"
        raise UserError(f"{what} reads rows from files, but rows in memory were given: write them to a file")
    return replace(run.data, source="memory", path="", hub="")


def read_checked(run: RunConfig, data: "TextData | None" = None) -> Splits:
    """The rows of a run, which have what its settings ask for; those of `data` where they are held in memory."""
    splits = read_rows(run, with_test=run.test) if data is None or data.splits is None else data.splits
    run.checkpoint.settled(run.task, multi=splits.multi)
    if run.task == "classify":
        bounds_of(run.require, figures_of("labels" if splits.multi else "classes", "table"))
    check_rows(run, splits)
    check_memory(splits, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return splits


def train_here(
    run: RunConfig,
    splits: Splits,
    start: Start,
    began: float,
    callbacks: "Sequence[Callback]",
    own: "nn.Module | None" = None,
) -> "Summary | None":
    """`train` from the data on; `began`: the clock when the run began, had nothing interrupted it since."""
    from manyheads.config.data import data_name
    from manyheads.data.cache import prepare_tokens
    from manyheads.evaluation.results import card_figures, card_notes, evaluate_run
    from manyheads.evaluation.tables import show_summary
    from manyheads.inference.card import add_results
    from manyheads.training.module import assemble_network
    from manyheads.training.own_parts import check_part
    from manyheads.training.sizing import plan_figures, settle_batch, settle_budget, settled_notes, show_plan
    from manyheads.training.trainer import check_tokens, check_trainer

    check_trainer(run)
    tokenizer, tokens = prepare_tokens(splits, run)
    network = assemble_network(run, splits, tokenizer, own)
    check_part(run, network)
    asked, run = run, settle_batch(run, network, tokens, splits.labels)
    run = run if start.end else settle_budget(run, network, tokens, splits.labels)
    check_limits(start, run)
    changed = changed_limits(start, run)
    if run.dry:
        return show_plan(plan_figures(run, splits, tokens, network), splits.notes)
    check_tokens(start, tokens)
    notes, files = [*splits.notes, *start.notes, *changed, *settled_notes(asked, run)], file_digests(run)
    with run_folder(run, notes) as folder, loggers_of(run, folder) as loggers:
        network, training = fit_on(
            run, network, splits, tokenizer, tokens, folder, start, began, callbacks, loggers, own
        )
        if training is None:
            return None
        deliverable = ship(run, splits, tokenizer, tokens, network, training, folder / "model")
        known = {**training, "wall_seconds": perf_counter() - began, "files": files}
        summary = evaluate_run(splits, deliverable, known, to_plain(run), folder)
        card = folder / "model" / "README.md"  # which had what is known of the training, and gets what judging found
        said = card_figures(summary), card_notes(summary, data_name(run.data))
        judged = add_results(card.read_text(encoding="utf-8"), *said)
        write_atomic(card, judged)
        for one in loggers:
            one.log_metrics(flat_figures(summary), summary.steps)
    show_summary(summary, folder / "run.log")
    if this_process().is_first:
        check_figures(run, folder, summary)
    return summary


def fit_on(
    run: RunConfig,
    network: "Network",
    splits: Splits,
    tokenizer: "Tokenizer",
    tokens: dict[str, "Tokens"],
    folder: Path,
    start: Start,
    started: float,
    callbacks: "Sequence[Callback]",
    loggers: "Sequence[Logger]",
    own: "nn.Module | None" = None,
) -> "tuple[Network, dict[str, Any] | None]":
    """The network and the figures of its training, begun again from the newest checkpoint where a guard asks for it."""
    import torch

    from manyheads.distributed.collectives import destroy_groups
    from manyheads.training.module import assemble_network
    from manyheads.training.trainer import fit

    while True:
        try:
            with monitor_peers(folder / RANKS, run.hardware.timeout):
                labels = splits.labels
                training = fit(run, network, tokens, labels, folder, start, started, callbacks, loggers)
            if this_process().n_ranks > 1:
                atexit.register(destroy_groups)  # not where it failed: closing would wait for the others
            return network, training
        except RestartRequested:
            if this_process().n_ranks > 1:
                raise
        gc.collect()  # a Trainer and its module hold each other, and the exception, while it is handled, all it passed
        torch.cuda.empty_cache()  # which does nothing where there is no GPU
        start = find_start(replace(run, output=str(folder), resume=Resume.auto))
        for note in start.notes:
            log.info("%s", note)
        network = assemble_network(run, splits, tokenizer, own)


def train_together(run: RunConfig, n_local: int) -> "Summary | None":
    """`train` in `n_local` processes of this machine, which are started for it."""
    if run.resume is Resume.never:
        refuse_taken(run.output)
    elif (folder := named_folder(run.output)).is_dir():
        with lock_run_folder(folder):
            pass  # else it is refused before anything is started
    with reserved_folder(run.output) as folder:
        run_on_all_ranks("train", run, n_local=n_local, timeout=run.hardware.timeout, folder=folder)
        from manyheads.runs.summary import read_summary

        summary = read_summary(folder / "summary.json")
        check_figures(run, folder, summary)
        return summary


@contextmanager
def loggers_of(run: RunConfig, folder: Path) -> "Iterator[list[Logger]]":
    """The loggers of plugins, which the first process has."""
    with ExitStack() as stack:
        makers = hooks(run, "logger") if this_process().is_first else ()
        yield [one for make in makers for one in stack.enter_context(make(run, folder))]


def flat_figures(summary: "Summary") -> dict[str, float]:
    """The figures of the splits as a logger takes them: `test/accuracy`, `test/accuracy_low`, `test/accuracy_high`."""
    from manyheads.evaluation.intervals import plain

    ends = {"value": "", "low": "_low", "high": "_high"}
    return {
        f"{split}/{name}{ends[key]}": value
        for split in ("validation", "test")
        for name, one in plain(getattr(summary, split)).items()
        for key, value in one.items()
    }


@contextmanager
def run_folder(run: RunConfig, notes: list[str]) -> Iterator[Path]:
    """The folder of the run while it goes on, with config.yaml in it, and the log of this process under way."""
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
    """Lines go to `file` for a while, and to the screen from the first process: first what to know of the data."""
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
    except ValueError as mistake:  # the screen shows it in the end; the folder, too, says why it holds no model
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


def ship(
    run: RunConfig,
    splits: Splits,
    tokenizer: "Tokenizer",
    tokens: "dict[str, Tokens]",
    network: "Network",
    training: dict[str, Any],
    folder: Path,
) -> "AnyPredictor":
    """Write the model folder and open it again: what is judged is what a user will load.

    The linear model is fitted here, once, whoever answers: it lies in model/ with `linear=true`, else in the run folder
    as its baseline. `TextClassifier.baseline(run folder)` gives it to whoever judges.
    """
    from manyheads.inference.batching import network_logits
    from manyheads.inference.folder import load, save
    from manyheads.linear.blend import Tuned, tune
    from manyheads.linear.fit import fit_linear, too_many
    from manyheads.linear.model import write_baseline
    from manyheads.training.objectives import class_weights

    labels, tuned = splits.labels, Tuned()
    if run.task == "classify":
        choice = run.optim.class_weights
        weights_C = None if choice == "none" else class_weights(choice, tokens["train"].labels, labels)
        weights = None if weights_C is None else weights_C.numpy()
        linear = fit_linear(splits.train, len(labels), weights, splits.validation)
        if linear is None and too_many(splits.train, len(labels)):
            log.warning("no linear model: one of %s classes would take hours", f"{len(labels):,}")
        needed = splits.multi or (run.linear and linear is not None)
        logits_nC = network_logits(network, tokens["validation"]) if needed else None
        tuned = tune(logits_nC, linear, splits.validation, len(labels), weights_C, answers=run.linear)
    best = training["best"]
    how = f"of the network in {training['precision']}"  # as it was trained, not as it is judged
    figures = {f"validation {best['metric']}, {how}": f"{best['value']:.4f}"} if best else {}
    save(
        folder,
        network,
        task=run.task,
        model=run.model,
        data=run.data,
        tokenizer=tokenizer,
        pairs=splits.train.pairs is not None,
        labels=labels,
        tuned=tuned,
        figures=figures,
    )
    if tuned.baseline and not tuned.blend:
        write_baseline(folder.parent, tuned.baseline)
    return load(folder, network=getattr(network, "module", None))  # that of an `OwnNetwork`
