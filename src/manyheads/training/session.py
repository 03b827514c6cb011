"""One training run in memory: network, batches, module and Trainer put together, and what comes of them."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger

from manyheads.config import RunConfig
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.distributed.collectives import Votes
from manyheads.distributed.signals import Stop, seconds_of
from manyheads.inference.precision import without_tf32
from manyheads.nn import Classifier
from manyheads.nn.cost import count_parameters
from manyheads.runs.resume import Start
from manyheads.training.checkpoint import Checkpoint, KeepBest
from manyheads.training.guard import Guard
from manyheads.training.logs import Meter, MetricsFile, make_loggers
from manyheads.training.module import LitModule, Network, are_few, begin_head, make_task
from manyheads.training.optim import Average
from manyheads.training.state import hash_tokens
from manyheads.training.trainer import build_trainer, count_in_steps, keep_freed_memory, speed_up


def check_tokens(start: Start, tokens: dict[str, Tokens]) -> None:
    """Refuse texts, an order or labels other than those the run began with: rows already trained on are known by their
    numbers."""
    if start.checkpoint is not None and start.progress["data"] != hash_tokens(tokens):
        raise ValueError(
            f"the rows are not those that {start.checkpoint} was trained on: give the same data, "
            "or start a new run in another folder"
        )


def fit(
    run: RunConfig,
    network: Network,
    tokens: dict[str, Tokens],
    labels: list[str],
    folder: Path,
    start: Start,
    started: float,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any] | None:
    """Train `network` in place and leave it with the best epoch's weights, on the CPU. Returns the figures of Summary
    that only the training loop knows, in the first process alone.

    Args:
        start: what it goes on from, if anything.
        started: `perf_counter()` when the run began, less what it took before.
        callbacks: the user's own.

    Raises:
        ValueError: training diverged, or memory runs out whatever the size of a batch.
        StartAgain: it is to go on from its newest checkpoint in another way, which is written down.
        Stopped: it was asked to end, and its state is saved.
    """
    if start.checkpoint is None and isinstance(network, Classifier) and are_few(run, tokens["train"], labels):
        begin_head(run, network, tokens["train"])
    guard = Guard(run, folder, start.again)
    meter, keep = Meter(), KeepBest(run.checkpoint.metric, network, folder / "checkpoints")
    stop = Stop(seconds_of(run.trainer.get("max_time")))
    votes = Votes(run.hardware.timeout)
    known = {"data": hash_tokens(tokens), "teacher": tokens["train"].teacher}
    checkpoint = Checkpoint(run.checkpoint, stop, votes, keep, start, **known, started=started)
    loggers = make_loggers(run.logger, folder)
    ours = [guard, meter, keep]
    try:
        module = run_trainer(run, network, tokens, labels, ours, folder, loggers, checkpoint, callbacks)
    except RuntimeError as error:
        if again := guard.answered():
            raise again from error
        raise
    trainer = module.trainer
    if not trainer.is_global_zero:
        return None
    network.cpu().eval()
    best = keep.restore()
    rows = next(one.rows.values() for one in loggers if isinstance(one, MetricsFile))
    epoch = best.get("epoch", trainer.current_epoch)  # from 1
    kept = [row for row in rows if row.get("epoch") == epoch - 1 and "train_loss" in row]
    return {
        "parameters": count_parameters(network),
        "epochs": trainer.current_epoch,
        "steps": trainer.global_step,
        "seconds": meter.seconds,
        "real_tokens_per_s": meter.tokens_per_s,
        "padding_share": meter.padding_share,
        "truncated_share": tokens["train"].n_truncated / max(1, len(tokens["train"])),
        "precision": str(trainer.precision),
        "split": start.again.split,
        "left_out": guard.left_out,
        "best": best,
        "train": {name[6:]: figure for row in kept[-1:] for name, figure in row.items() if name.startswith("train_")},
    }


def run_trainer(
    run: RunConfig,
    network: Network,
    tokens: dict[str, Tokens],
    labels: list[str],
    callbacks: list[Callback],
    folder: Path | None = None,
    loggers: Sequence[Logger] = (),
    checkpoint: Checkpoint | None = None,
    more: Sequence[Callback] = (),
) -> LitModule:
    """Train `network` in place to the end of its steps, or until a callback ends it.

    The callbacks `more` stand last: what they do before a batch comes after a checkpoint that is saved there, so that a
    run that is resumed does it once.
    """
    keep_freed_memory()
    averaging = [Average(run.optim.average)] if run.optim.average else []
    saving = [checkpoint] if checkpoint else []
    trainer = build_trainer(run, folder, [*callbacks, *averaging, *saving, *more], list(loggers))
    split = checkpoint.start.again.split if checkpoint else 1
    data = TextData(tokens, run.batch, run.seed, split=split)
    count_in_steps(trainer, run.batch.accumulate, data.per_step(trainer.world_size))
    speed_up(run, network, data, trainer, data.n_steps(trainer.max_epochs, trainer.max_steps))
    module = LitModule(network, make_task(run, tokens["train"], labels), optim=run.optim)
    with without_tf32() if trainer.precision == "32-true" else nullcontext():
        if checkpoint:
            checkpoint.fit(trainer, module, data)
        else:
            trainer.fit(module, data)
    return module
