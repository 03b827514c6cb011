"""RunConfig to Lightning's Trainer."""

import logging
import warnings
from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint

from manyheads.config import CheckpointConfig, Metric, RunConfig
from manyheads.fit.hardware import trainer_hardware
from manyheads.fit.logs import EpochLines, make_loggers, shows_bar


def build_trainer(run: RunConfig, folder: Path, callbacks: list[Callback]) -> pl.Trainer:
    """The Trainer of a run that lives in `folder`; `run.trainer` adds to these flags."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", module="lightning", message=".*LeafSpec.*")
    hardware = trainer_hardware(run.hardware)
    return pl.Trainer(
        **hardware,  # pyright: ignore[reportArgumentType]
        accumulate_grad_batches=run.batch.accumulate,
        callbacks=[*callbacks, *checkpoints(run.checkpoint, folder), EpochLines()],
        logger=make_loggers(run.logger, folder),
        enable_progress_bar=shows_bar(),
        log_every_n_steps=run.logger.every,
        default_root_dir=folder,
        use_distributed_sampler=False,
        reload_dataloaders_every_n_epochs=1,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **run.trainer,
    )


def checkpoints(checkpoint: CheckpointConfig, folder: Path) -> list[Callback]:
    """Keep the best epoch's weights; stop when `patience` epochs bring no better one."""
    monitor = f"validation_{checkpoint.metric.name}"
    mode = "min" if checkpoint.metric is Metric.loss else "max"
    keep = ModelCheckpoint(
        folder / "checkpoints", "best", monitor=monitor, mode=mode, enable_version_counter=False, save_weights_only=True
    )
    if checkpoint.patience == 0:
        return [keep]
    return [keep, EarlyStopping(monitor, mode=mode, patience=checkpoint.patience)]
