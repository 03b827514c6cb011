"""One training run in memory: classifier, batches, module and Trainer put together, and what comes of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from tokenizers import Tokenizer

from manyheads.config import RunConfig
from manyheads.data.module import TextData
from manyheads.data.rows import Splits
from manyheads.data.tokens import Tokens, reach
from manyheads.fit.classify import LitClassifier, class_weights
from manyheads.fit.keep import KeepBest
from manyheads.fit.logs import MetricsFile, make_loggers
from manyheads.fit.meter import Meter
from manyheads.fit.trainer import build_trainer
from manyheads.nn import Classifier, assemble
from manyheads.nn.cost import count_parameters


@dataclass(frozen=True, slots=True)
class Training:
    """What only the training loop knows; `seconds` and the speed are of the training steps of all processes."""

    parameters: int
    epochs: int
    steps: int
    seconds: float
    real_tokens_per_s: float
    padding_share: float
    truncated_share: float
    precision: str
    best: dict[str, Any]
    train: dict[str, float]


def assemble_classifier(run: RunConfig, splits: Splits, tokenizer: Tokenizer) -> Classifier:
    """The untrained classifier: what `run.model` describes, in the sizes that the data asks for.

    Its embedding has a row for every id, also where a tokenizer that was not trained here leaves ids out.
    """
    pairs = splits.train.pairs is not None
    pl.seed_everything(run.seed, workers=True, verbose=False)
    return assemble(
        run.model,
        vocab_size=reach(tokenizer, pairs=pairs).ids,
        n_classes=len(splits.labels),
        max_length=run.data.max_length,
        n_segments=2 if pairs else 0,
    )


def fit(
    run: RunConfig, classifier: Classifier, tokens: dict[str, Tokens], labels: list[str], folder: Path
) -> Training | None:
    """Train `classifier` in place and leave it with the best epoch's weights, on the CPU.

    Returns:
        The figures of the run; None in a process that is not the first of several.

    Raises:
        ValueError: training diverged; said by the first process alone, the others end quietly.
    """
    meter, keep = Meter(), KeepBest(run.checkpoint.metric, folder / "checkpoints")
    trainer = build_trainer(run, folder, [meter, keep], make_loggers(run.logger, folder))
    data = TextData(tokens, run.batch, run.seed, max_steps=trainer.max_steps)
    module = LitClassifier(
        classifier,
        optim=run.optim,
        class_weights_C=class_weights(run.optim.class_weights, tokens["train"].labels, labels),
        n_steps=data.n_steps(trainer.max_epochs, trainer.max_steps, trainer.world_size),
    )
    trainer.fit(module, data)
    if not trainer.is_global_zero:
        return None
    if module.diverged_in is not None:
        raise ValueError(
            f"training diverged in epoch {module.diverged_in}: its loss is not a finite number at "
            f"optim.lr={run.optim.lr:g}; use a smaller rate, such as optim.lr={run.optim.lr / 10:g}, and a new folder: "
            f"{folder} keeps the figures so far in run.log and metrics.csv, and holds no model"
        )
    best = keep.restore(classifier.cpu().eval())
    return Training(
        parameters=count_parameters(classifier),
        epochs=trainer.current_epoch,
        steps=trainer.global_step,
        seconds=meter.seconds,
        real_tokens_per_s=meter.tokens_per_s,
        padding_share=meter.padding_share,
        truncated_share=tokens["train"].n_truncated / max(1, len(tokens["train"])),
        precision=str(trainer.precision),
        best=best,
        train=train_figures(trainer, best.get("epoch", trainer.current_epoch)),
    )


def train_figures(trainer: pl.Trainer, epoch: int) -> dict[str, float]:
    """The training split's figures of `epoch` (from 1), without their prefix."""
    rows = [row for logger in trainer.loggers if isinstance(logger, MetricsFile) for row in logger.rows.values()]
    kept = [row for row in rows if row.get("epoch") == epoch - 1 and "train_loss" in row]
    return {
        key.removeprefix("train_"): value
        for key, value in (kept[-1] if kept else {}).items()
        if key.startswith("train_")
    }
