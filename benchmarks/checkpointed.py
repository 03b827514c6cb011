"""A training with the checkpoints of a run, for benchmarks that time its steps."""

from pathlib import Path

from lightning.pytorch.callbacks import Callback

from manyheads.config import RunConfig
from manyheads.data.tokens import Tokens
from manyheads.nn import Classifier
from manyheads.training.build import make_objective
from manyheads.training.checkpoint import Checkpoint
from manyheads.training.module import LitModule
from manyheads.training.trainer import build_trainer, exact_products, prepare_data


def train_checkpointed(
    run: RunConfig,
    network: Classifier,
    tokens: dict[str, Tokens],
    labels: list[str],
    folder: Path,
    callbacks: list[Callback],
    checkpoint: Checkpoint | None,
) -> None:
    """Train `network` in place; None saves nothing."""
    module = LitModule(network, make_objective(run, tokens["train"], labels), optim=run.optim)
    trainer = build_trainer(run, folder, [*callbacks, *([checkpoint] if checkpoint else [])], [])
    data = prepare_data(run, network, tokens, trainer)
    with exact_products(trainer):
        if checkpoint is None:
            trainer.fit(module, data)
        else:
            checkpoint.fit(trainer, module, data)
