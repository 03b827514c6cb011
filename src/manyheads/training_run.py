"""The entry of `manyheads train`: `train` checks settings and rows and finds where a resumed run continues.

Nothing here imports torch, which takes seconds: a mistake is reported before. What follows the checks (tokens, network,
fit, model folder, evaluation, report) is in training/pipeline.py. A run in several processes, and one that trains a
model for each fold, call `train` once for each process or fold; they come last.
"""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from manyheads.config import DataConfig, Resume, RunConfig
from manyheads.config.facts import hooks
from manyheads.config.figures import figures_of
from manyheads.config.plugins import refuse_unnamed
from manyheads.config.required import RequirementError, bounds_of, check_reached
from manyheads.config.trainer_flags import check_training
from manyheads.data.checks import check_memory, check_rows
from manyheads.data.opening import add_further_rows
from manyheads.data.rows import Splits
from manyheads.data.sources import read_rows
from manyheads.distributed.launch import n_to_start, run_on_all_ranks, validate_world_size
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.inference.origin import file_digests, with_rows
from manyheads.runs.config_file import read_run, save_run
from manyheads.runs.files import read_json
from manyheads.runs.folder import is_unbegun, named_folder, refuse_taken, reserved_folder, start_folder
from manyheads.runs.lock import lock_run_folder
from manyheads.runs.many import train_in_turn
from manyheads.runs.resolve import with_data, with_resolved
from manyheads.runs.resume import changed_settings, check_limits, find_start, refuse_other_input
from manyheads.runs.summary import Summary, read_summary, written_summary
from manyheads.terminal import say, typed_path
from manyheads.training.context import RunContext

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
    from torch import nn

    from manyheads.data.datamodule import TextData

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

    start = find_start(run)
    splits = None if data is None else data.splits
    if splits is None:
        splits = read_rows(run, with_test=run.test)
        add_further_rows(run, splits)
    unresolved = start.with_resolved(run)
    run = with_data(unresolved, n_rows=len(splits.train), n_classes=len(splits.labels), multi=splits.multi)
    run = with_rows(run, splits)
    refuse_unusable_rows(run, splits)
    if start.finished:
        folder = named_folder(run.output)
        refuse_other_input(splits.digests(), file_digests(run), folder)
        check_limits(start, run)
        print(f"{typed_path(Path(run.output))} is finished: summary.json and report.html in it have its figures")
        check_requirements(run, folder)
        return None
    notes = [*start.notes]
    if start.knows_budget(run):
        notes += check_limits(start, run)
    context = RunContext(
        run=run,
        typed=unresolved,
        splits=splits,
        start=start,
        began=clock - start.seconds,
        callbacks=callbacks,
        user_network=network,
        notes=notes,
    )

    from manyheads.training.pipeline import run_pipeline  # imports torch: all that was checked above needs none

    summary = run_pipeline(context)
    if summary is not None:
        check_requirements(context.run, context.folder, summary)
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


def train_on_all_ranks(run: RunConfig, n_local: int) -> Summary | None:
    """`train` in `n_local` processes of this machine, which are started for it."""
    if run.resume is Resume.never:
        refuse_taken(run.output)
    elif (folder := named_folder(run.output)).is_dir():
        with lock_run_folder(folder):
            pass  # if another run holds the folder, this one is refused before anything is started
    with reserved_folder(run.output) as folder:
        run_on_all_ranks("train", run, n_local=n_local, timeout=run.hardware.timeout, folder=folder)
        summary = read_summary(folder / "summary.json")
        check_requirements(run, folder, summary)
        return summary


def train_folds(run: RunConfig, callbacks: "Sequence[Callback]") -> None:
    """Cross-validation: one run for each fold, in the folders fold-1, fold-2, ... within that of `run`; then
    predictions, figures and report.html of all rows, each answered by the model that was not trained on it. With
    `run.refit` another run follows, on all rows in all-rows/, and the models of the folds are removed.

    A fold that was stopped is resumed, a finished one is left as it is.
    """
    if run.dry:
        run = with_rows(run, read_rows(run, with_test=False, with_unread=True))  # all rows, as below
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
    folder = start_folder(run.output, resume=run.resume is not Resume.never)
    folds = [folder / f"fold-{fold}" for fold in range(1, run.data.folds + 1)]

    def train_fold(fold: RunConfig) -> None:
        say(f"{Path(fold.output).name.replace('-', ' ')} of {run.data.folds}: {typed_path(Path(fold.output))}")
        train(fold, callbacks=callbacks)

    with lock_run_folder(folder):
        if (folder / "config.yaml").is_file():
            saved = read_run(folder)
            run = with_resolved(run, saved)
            for note in changed_settings(saved, run, folder, step=0):
                log.warning("%s", note)
        elif run.resume is Resume.must or not is_unbegun(folder):
            raise UserError(f"output={folder} holds no run with folds to resume: name another folder")
        else:
            run = with_rows(run, splits)  # once, so that the run on all rows is of the kind that is judged
            save_run(run, folder / "config.yaml")
        train_in_turn([run_of_fold(run, number, place) for number, place in enumerate(folds, start=1)], train_fold)
        if not (folder / "metrics.json").is_file():
            from manyheads.evaluation.folds import judge_folds

            judge_folds(run, splits, folder, folds)
        if run.refit:
            train_in_turn([run_of_fold(run, 0, folder / "all-rows")], train_fold)
            for place in folds:
                shutil.rmtree(place / "model", ignore_errors=True)
                shutil.rmtree(place / "checkpoints", ignore_errors=True)
    if run.require:
        check_reached(run.require, read_json(folder / "metrics.json"), f"all rows of {folder}")


def run_of_fold(run: RunConfig, number: int, folder: Path) -> RunConfig:
    """The settings of a fold, from 1, in `folder`; 0 is the run on all rows. `require` is about all rows together."""
    data = replace(run.data, fold=number)
    return replace(run, data=data, output=str(folder), resume=Resume.auto, test=True, require="")
