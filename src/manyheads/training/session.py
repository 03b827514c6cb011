"""One training in memory: network, batches, module and Trainer put together, and what comes of them.

A head that begins at random sends noise into good weights until it has learnt: Kumar et al. (2022), "Fine-Tuning can
Distort Pretrained Features and Underperform Out-of-Distribution", section 4 (LP-FT). So the head of trained weights
begins as a linear classifier of what they see in the training rows, where these are few.

n rows . D width of what the head sees . C classes
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.config import RunConfig, Task
from manyheads.data.batches import Batches, plan_evaluation
from manyheads.data.datamodule import TextData
from manyheads.data.rows import Splits
from manyheads.data.tokens import Tokens, reach
from manyheads.distributed.collectives import Votes
from manyheads.distributed.ranks import this_process
from manyheads.distributed.signals import Stop, seconds_of
from manyheads.huggingface.weights import begin_with, n_words, origin_of
from manyheads.linear.fit import logistic
from manyheads.nn import Classifier, assemble
from manyheads.nn.cost import count_parameters
from manyheads.nn.masked_lm import assemble_masked
from manyheads.nn.seq2seq import assemble_seq2seq
from manyheads.runs.resume import Start
from manyheads.training.averaging import Average
from manyheads.training.checkpoint import Checkpoint, KeepBest
from manyheads.training.guard import Guard
from manyheads.training.logs import Meter, MetricsFile, make_loggers
from manyheads.training.module import Lesson, LitModule, Network
from manyheads.training.objectives import Classify, Pretrain, Tag, Teaching, Translate, class_weights
from manyheads.training.state import hash_tokens
from manyheads.training.trainer import (
    autocast_type,
    build_trainer,
    count_in_steps,
    keep_freed_memory,
    speed_up,
    uses_gpu,
)

MOST_ROWS = 4096  # that are read for it
STRENGTH = 0.1  # of the rows against the pull to zero: a head that knows few rows by heart leaves nothing to learn


@torch.no_grad()
def begin_head(run: RunConfig, classifier: Classifier, tokens: Tokens) -> None:
    """Fit the head to at most `MOST_ROWS` training rows, drawn at even distances, where these are few. No generator is
    touched."""
    rows = torch.arange(min(MOST_ROWS, len(tokens))) * len(tokens) // min(MOST_ROWS, len(tokens))
    labels = tokens.labels[rows]
    weight_CD, bias_C = linear(seen(run, classifier, tokens, rows), labels, classifier.head.out_features)
    classifier.head.weight.copy_(weight_CD)
    classifier.head.bias.copy_(bias_C)


def seen(run: RunConfig, classifier: Classifier, tokens: Tokens, rows: Tensor) -> Tensor:
    """What the head sees in `rows`, as without dropout: `(n, D)` on the CPU, of a text in several parts their mean."""
    on_gpu, dtype = uses_gpu(run.hardware.accelerator), autocast_type(run.hardware)
    device = torch.device("cuda", this_process().local_rank) if on_gpu else torch.device("cpu")
    plan = plan_evaluation(tokens.lengths[rows], tokens=run.batch.tokens, rows=run.batch.rows)
    found = torch.empty(len(rows), classifier.head.in_features)
    classifier.to(device).eval()
    with torch.autocast(device.type, dtype, enabled=dtype is not None):
        for batch in Batches(tokens, [one._replace(rows=rows[one.rows]) for one in plan]):
            near = batch.to(device)
            vectors_BD = near.layout.pooled(classifier.read(near.ids_N, near.layout, near.segments_N))
            found[torch.searchsorted(rows, batch.rows_B)] = vectors_BD.float().cpu()
    classifier.cpu().train()
    return found


def linear(x_nD: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Matrix `(C, D)` and bias `(C,)` of the logistic regression of `labels`, class ids `(n,)` or marks `(n, C)`."""
    middle_D, size = x_nD.mean(0), x_nD.norm(dim=1).mean().clamp(min=1e-6)
    weight_CD, bias_C = logistic((x_nD - middle_D) / size, labels, n_classes, strength=STRENGTH)
    weight_CD = weight_CD / size
    return weight_CD, bias_C - weight_CD @ middle_D


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
    split: int
    left_out: list[int]
    best: dict[str, Any]
    train: dict[str, float]


def assemble_classifier(run: RunConfig, splits: Splits, tokenizer: Tokenizer) -> Classifier:
    """The classifier before training: what `run.model` describes, in the sizes that the data asks for, with the weights
    of `run.init_from`.

    Its embedding has a row for every id, also where a tokenizer that was not trained here leaves ids out.

    Raises:
        ValueError: the weights do not fit.
    """
    pairs = splits.train.pairs is not None
    origin = origin_of(run)
    pl.seed_everything(run.seed, workers=True, verbose=False)
    classifier = assemble(
        run.model,
        vocab_size=n_words(origin, reach(tokenizer, pairs=pairs).ids, run),
        n_classes=len(splits.labels),
        max_length=run.data.max_length,
        n_segments=2 if pairs else 0,
    )
    begin_with(classifier, origin)
    return classifier


def assemble_network(run: RunConfig, splits: Splits, tokenizer: Tokenizer) -> Network:
    """The untrained model of the task: arguments and errors as of `assemble_classifier`."""
    if run.task is Task.classify:
        return assemble_classifier(run, splits, tokenizer)
    origin, pairs = origin_of(run), splits.train.pairs is not None
    pl.seed_everything(run.seed, workers=True, verbose=False)
    n_ids = reach(tokenizer, pairs=pairs).ids
    sizes = {"vocab_size": n_words(origin, n_ids, run), "max_length": run.data.max_length}
    if run.task is Task.seq2seq:
        return assemble_seq2seq(run.model, **sizes)
    masked = assemble_masked(run.model, **sizes, n_segments=2 if pairs else 0)
    begin_with(masked, origin)
    return masked


def check_tokens(start: Start, tokens: dict[str, Tokens]) -> None:
    """A run goes on with the rows it began with: which of them are done is told by their numbers.

    Raises:
        ValueError: texts, their order or their labels are others.
    """
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
) -> Training | None:
    """Train `network` in place and leave it with the best epoch's weights, on the CPU.

    Args:
        start: what it goes on from, if anything.
        started: `perf_counter()` when the run began, less what it took before.

    Returns:
        The figures of the run; None in a process that is not the first of several.

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
    try:
        module = run_trainer(run, network, tokens, labels, [guard, meter, keep], folder, loggers, checkpoint)
    except RuntimeError as error:
        if again := guard.answered():
            raise again from error
        raise
    if not module.trainer.is_global_zero:
        return None
    network.cpu().eval()
    return training_of(module.trainer, network, tokens["train"], guard, meter, keep.restore(), start)


def are_few(run: RunConfig, tokens: Tokens, labels: list[str]) -> bool:
    """Whether `tokens`, the training rows, are at most `optim.few` a class, on average."""
    return len(tokens) <= run.optim.few * len(labels)


def training_of(
    trainer: pl.Trainer,
    network: Network,
    tokens: Tokens,
    guard: Guard,
    meter: Meter,
    best: dict[str, Any],
    start: Start,
) -> Training:
    """The figures of a training that has ended; `tokens` are those it was trained on."""
    return Training(
        parameters=count_parameters(network),
        epochs=trainer.current_epoch,
        steps=trainer.global_step,
        seconds=meter.seconds,
        real_tokens_per_s=meter.tokens_per_s,
        padding_share=meter.padding_share,
        truncated_share=tokens.n_truncated / max(1, len(tokens)),
        precision=str(trainer.precision),
        split=start.again.split,
        left_out=guard.left_out,
        best=best,
        train=train_figures(trainer, best.get("epoch", trainer.current_epoch)),
    )


def run_trainer(
    run: RunConfig,
    network: Network,
    tokens: dict[str, Tokens],
    labels: list[str],
    callbacks: list[Callback],
    folder: Path | None = None,
    loggers: Sequence[Logger] = (),
    checkpoint: Checkpoint | None = None,
) -> LitModule:
    """Train `network` in place to the end of its steps, or until a callback ends it."""
    keep_freed_memory()
    averaging = [Average(run.optim.average)] if run.optim.average else []
    saving = [checkpoint] if checkpoint else []
    trainer = build_trainer(run, folder, [*callbacks, *averaging, *saving], list(loggers))
    split = checkpoint.start.again.split if checkpoint else 1
    data = TextData(tokens, run.batch, run.seed, max_steps=trainer.max_steps, split=split)
    count_in_steps(trainer, run.batch.accumulate, data.per_step(trainer.world_size))
    n_steps = data.n_steps(trainer.max_epochs, trainer.max_steps)
    speed_up(run, network, data, trainer, n_steps)
    module = LitModule(network, make_task(run, tokens["train"], labels), optim=run.optim, n_steps=n_steps)
    if checkpoint:
        checkpoint.fit(trainer, module, data)
    else:
        trainer.fit(module, data)
    return module


def make_task(run: RunConfig, tokens: Tokens, labels: list[str]) -> Lesson:
    """What a batch is trained on; `tokens` are the training rows."""
    smoothing = run.optim.label_smoothing
    if run.task is Task.pretrain:
        assert tokens.vocabulary is not None, "prepare_tokens reads it"
        return Pretrain(run.pretrain, tokens.vocabulary)
    if run.task is Task.seq2seq:
        return Translate(label_smoothing=smoothing)
    weights_C = class_weights(run.optim.class_weights, tokens.labels, labels)
    teaching = Teaching(run.optim.teacher_weight, run.optim.teacher_temperature)
    kind = Tag if tokens.labels.ndim == 2 else Classify
    return kind(weights_C, label_smoothing=smoothing, teaching=teaching)


def train_figures(trainer: pl.Trainer, epoch: int) -> dict[str, float]:
    """The training split's figures of `epoch` (from 1), without their prefix."""
    rows = [row for logger in trainer.loggers if isinstance(logger, MetricsFile) for row in logger.rows.values()]
    kept = [row for row in rows if row.get("epoch") == epoch - 1 and "train_loss" in row]
    return {
        key.removeprefix("train_"): value
        for key, value in (kept[-1] if kept else {}).items()
        if key.startswith("train_")
    }
