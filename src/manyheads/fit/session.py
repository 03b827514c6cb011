"""One training run in memory: batches, module and Trainer put together, and what it leaves behind."""

import logging
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl
import torch

from manyheads.config import RunConfig
from manyheads.data.module import TextData
from manyheads.data.tokens import Tokens
from manyheads.fit.classify import LitClassifier, class_weights
from manyheads.fit.logs import MetricsFile
from manyheads.fit.meter import Meter
from manyheads.fit.trainer import build_trainer
from manyheads.nn import Classifier

log = logging.getLogger("manyheads")


@dataclass(frozen=True)
class Fitted:
    """What a finished `fit` knows. `seconds` and `tokens_per_s` are of this process's training steps."""

    classifier: Classifier
    best: dict[str, float]
    train: dict[str, float]
    epochs: int
    steps: int
    seconds: float
    tokens_per_s: float
    padding_share: float
    precision: str
    is_first: bool


def fit(run: RunConfig, classifier: Classifier, tokens: dict[str, Tokens], labels: list[str], folder: Path) -> Fitted:
    """Train `classifier` in place and leave it with the best epoch's weights.

    Raises:
        ValueError: hardware or logger that is not there, a class weight for no class.
    """
    meter = Meter()
    trainer = build_trainer(run, folder, [meter])
    data = TextData(tokens, run.batch, run.seed, max_steps=trainer.max_steps)
    module = LitClassifier(
        classifier,
        optim=run.optim,
        class_weights_C=class_weights(run.optim.class_weights, tokens["train"].labels, labels),
        n_steps=data.n_steps(trainer.max_epochs, trainer.max_steps, trainer.world_size),
    )
    trainer.fit(module, data)
    best = restore_best(trainer, module)
    return Fitted(
        classifier=classifier.cpu().eval(),
        best=best,
        train=train_figures(trainer, int(best.get("epoch", trainer.current_epoch))),
        epochs=trainer.current_epoch,
        steps=trainer.global_step,
        seconds=meter.seconds,
        tokens_per_s=meter.tokens_per_s,
        padding_share=meter.padding_share,
        precision=str(trainer.precision),
        is_first=trainer.is_global_zero,
    )


def restore_best(trainer: pl.Trainer, module: LitClassifier) -> dict[str, float]:
    """Load the kept weights into `module`; returns the epoch, step and validation figure they were kept for."""
    keep = trainer.checkpoint_callback
    path = getattr(keep, "best_model_path", "")
    if not path:
        return {}
    kept = torch.load(path, map_location="cpu", weights_only=True)
    module.load_state_dict(kept["state_dict"], strict=False)
    figure = float(getattr(keep, "best_model_score", float("nan")))
    return {"epoch": kept["epoch"] + 1, "step": kept["global_step"], "figure": figure}


def train_figures(trainer: pl.Trainer, epoch: int) -> dict[str, float]:
    """The training split's figures of the kept epoch (from 1), without their prefix."""
    rows = [row for logger in trainer.loggers if isinstance(logger, MetricsFile) for row in logger.rows.values()]
    kept = [row for row in rows if row.get("epoch") == epoch - 1 and "train_loss" in row]
    return (
        {key.removeprefix("train_"): value for key, value in kept[-1].items() if key.startswith("train_")}
        if kept
        else {}
    )
