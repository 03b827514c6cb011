"""RunConfig to Lightning's Trainer."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, EarlyStopping

from manyheads.config import CheckpointConfig, Metric, RunConfig
from manyheads.fit.hardware import trainer_hardware
from manyheads.fit.logs import EpochLines, make_loggers, shows_bar

LIGHTNING_NOISE = (  # warnings about what Lightning does itself, or what we mean to do
    ".*does not have many workers",
    ".*smaller than the logging interval",
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
)


def build_trainer(run: RunConfig, folder: Path, callbacks: list[Callback]) -> pl.Trainer:
    """The Trainer of a run that lives in `folder`; `run.trainer` adds to these flags.

    Raises:
        ValueError: flags that Lightning refuses.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for noise in LIGHTNING_NOISE:
        warnings.filterwarnings("ignore", module=r"lightning\.", message=noise)
    flags: dict[str, Any] = {**trainer_hardware(run.hardware), **run.trainer}
    try:
        return lightning_trainer(run, folder, callbacks, flags)
    except MisconfigurationException as refusal:
        raise ValueError(f"Lightning refuses the flags of hardware and trainer: {refusal}") from refusal


def lightning_trainer(run: RunConfig, folder: Path, callbacks: list[Callback], flags: dict[str, Any]) -> pl.Trainer:
    """What the config decides is in `flags`; the rest is ours to set."""
    return pl.Trainer(
        accumulate_grad_batches=run.batch.accumulate,
        callbacks=[*callbacks, *early_stopping(run.checkpoint), EpochLines()],
        logger=make_loggers(run.logger, folder),
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


def early_stopping(checkpoint: CheckpointConfig) -> list[Callback]:
    """Stop when `patience` epochs bring no better figure; none if patience is 0."""
    mode = "min" if checkpoint.metric is Metric.loss else "max"
    monitor = f"validation_{checkpoint.metric.name}"
    return [EarlyStopping(monitor, mode=mode, patience=checkpoint.patience)] if checkpoint.patience else []
