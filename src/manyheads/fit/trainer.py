"""RunConfig to Lightning's Trainer."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, EarlyStopping, TQDMProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import (
    MisconfigurationException,  # pyright: ignore[reportPrivateImportUsage]
)

from manyheads.config import CheckpointConfig, Metric, RunConfig
from manyheads.fit.cluster import Marks
from manyheads.fit.hardware import trainer_hardware
from manyheads.fit.logs import EpochLines, shows_bar
from manyheads.fit.stop import seconds_of
from manyheads.ranks import this_process

BAR_EVERY = 20  # steps
LIGHTNING_NOISE = (  # warnings about what Lightning does itself, or what we mean to do
    ".*does not have many workers",
    ".*`broadcast_buffers` is deprecated",  # what stands in for it is not in torch 2.11
    ".*`srun` command is available on your system but is not used",
    ".*smaller than the logging interval",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    r".*recommended to use `self\.log\('(train|validation)_",  # torchmetrics has added up the ranks before
)


def check_trainer(run: RunConfig) -> None:
    """Build the Trainer once for nothing: whatever the machine or Lightning refuses is said before a file is written.

    Raises:
        ValueError: devices that are not there, a precision they do not have, flags that Lightning refuses, two
            intervals of validation, a time limit that is no time.
    """
    build_trainer(run, None, [], [])


def build_trainer(run: RunConfig, folder: Path | None, callbacks: list[Callback], loggers: list[Logger]) -> pl.Trainer:
    """The Trainer of a run that lives in `folder`; `run.trainer` adds to these flags.

    Raises:
        ValueError: as of `check_trainer`.
    """
    for part in ("pytorch", "fabric"):
        logging.getLogger(f"lightning.{part}").setLevel(logging.WARNING)
    for noise in LIGHTNING_NOISE:
        warnings.filterwarnings("ignore", module=r"lightning\.", message=noise)
    flags: dict[str, Any] = {**trainer_hardware(run.hardware), **validation(run.trainer)}
    seconds_of(flags.pop("max_time", None))  # kept by fit/stop.py: Lightning would end the run as if it were done
    try:
        return lightning_trainer(run, folder, callbacks, loggers, flags)
    except (ValueError, TypeError, MisconfigurationException, ModuleNotFoundError) as refusal:
        why = " ".join(str(refusal).split())
        raise ValueError(f"Lightning refuses the flags of hardware and trainer: {why}") from refusal


def validation(flags: dict[str, Any]) -> dict[str, Any]:
    """An interval in batches counts them over the whole run: so it may be longer than an epoch.

    Raises:
        ValueError: it is to count them in epochs of its own.
    """
    batches, epochs = flags.get("val_check_interval"), flags.get("check_val_every_n_epoch")
    if not isinstance(batches, int):
        return flags
    if epochs is not None:
        raise ValueError(
            f"trainer.check_val_every_n_epoch={epochs} cannot stand beside trainer.val_check_interval={batches}, an "
            "interval in batches, which are counted over the whole run: leave one of them away"
        )
    return {**flags, "check_val_every_n_epoch": None}


def count_in_steps(trainer: pl.Trainer, accumulate: int, per_step: int) -> None:
    """Let a step be `per_step` batches of each process, and an interval of validation, which counts batches of which a
    step has `accumulate`, be the same steps on however many processes: those that these batches make, or begin."""
    trainer.accumulate_grad_batches = per_step
    if isinstance(trainer.val_check_interval, int):
        trainer.val_check_interval = -(-trainer.val_check_interval // accumulate) * per_step


class BetweenSteps(Callback):
    """Lets a part of an epoch between two validations end with a step, the same on however many processes."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        each, batches = trainer.accumulate_grad_batches, trainer.val_check_batch
        if isinstance(batches, int) and batches < trainer.num_training_batches:
            trainer.val_check_batch = max(each, batches // each * each)


def lightning_trainer(
    run: RunConfig, folder: Path | None, callbacks: list[Callback], loggers: list[Logger], flags: dict[str, Any]
) -> pl.Trainer:
    """What the config decides is in `flags`; the rest is ours to set."""
    watched = [Marks()] if this_process().n_ranks > 1 else []
    return pl.Trainer(
        accumulate_grad_batches=run.batch.accumulate,
        callbacks=[*watched, BetweenSteps(), *callbacks, *early_stopping(run.checkpoint), EpochLines(), *bar()],
        logger=loggers,
        enable_progress_bar=shows_bar(),
        log_every_n_steps=run.logger.every,
        default_root_dir=folder,
        use_distributed_sampler=False,
        reload_dataloaders_every_n_epochs=1,
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **flags,
    )


def bar() -> list[Callback]:
    """A progress bar on a terminal. It reads the loss, and so waits for a GPU, once in `BAR_EVERY` steps alone."""
    return [TQDMProgressBar(refresh_rate=BAR_EVERY)] if shows_bar() else []


def early_stopping(checkpoint: CheckpointConfig) -> list[Callback]:
    """Stop when `patience` epochs bring no better figure; none if patience is 0."""
    mode = "min" if checkpoint.metric is Metric.loss else "max"
    monitor = f"validation_{checkpoint.metric.name}"
    return [EarlyStopping(monitor, mode=mode, patience=checkpoint.patience)] if checkpoint.patience else []
