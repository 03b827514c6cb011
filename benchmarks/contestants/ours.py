"""manyheads: in a bare loop, and through all of its own `fit`."""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from contestants.settings import CLIP, DROPOUT, LR, N_STEPS, PINNED, VOCAB_SIZE, WEIGHT_DECAY, Shape, Text
from contestants.texts import n_classes
from contestants.turns import Turns
from manyheads.cli.compose import compose
from manyheads.config import Precision, RunConfig
from manyheads.data.batches import Batch, Batches
from manyheads.data.datamodule import TextData
from manyheads.data.tokens import Tokens
from manyheads.inference.precision import choose_precision
from manyheads.nn import Classifier, assemble
from manyheads.training.context import RunContext
from manyheads.training.optim import clip_gradients, make_optimizer, make_schedule
from manyheads.training.trainer import fit, keep_freed_memory

LOG_EVERY = 50
ENDLESS = [
    *(f"trainer.max_steps={N_STEPS}", "trainer.max_epochs=-1"),
    *("trainer.limit_val_batches=0", f"checkpoint.every={N_STEPS}"),
]


def our_run(shape: Shape, text: Text, *more: str) -> RunConfig:
    """The config of what is measured: the shape, what peers have too, and all else pinned."""
    d_head = shape.d_model // shape.n_heads
    words = [
        *(f"model.{name}={getattr(shape, name)}" for name in ("d_model", "n_layers", "n_heads", "d_ff")),
        *(f"model.d_k={d_head}", f"model.d_v={d_head}", f"data.max_length={text.max_length}"),
        *(f"model.dropout={DROPOUT}", f"model.dropout_attention={DROPOUT}"),
        *(f"optim.lr={LR}", f"optim.weight_decay={WEIGHT_DECAY}", f"trainer.gradient_clip_val={CLIP}"),
    ]
    return compose("train", [*PINNED.split(), *words, *ENDLESS, *more])


def shipped_run() -> RunConfig:
    """The default, whatever it is on the day."""
    return compose("train", [*ENDLESS, "hardware.accelerator=cpu"])


def our_network(run: RunConfig, n_classes: int) -> Classifier:
    torch.manual_seed(run.seed)
    return assemble(run.model, vocab_size=VOCAB_SIZE, n_classes=n_classes, max_length=run.data.max_length)


def by_fit(run: RunConfig, folder: Path, tokens: Tokens, turns: Turns) -> None:
    """manyheads' own `fit`, as the command line runs it."""
    fit_by_the_clock(folder, run, our_network(run, n_classes(tokens)), tokens, turns)


def fit_by_the_clock(folder: Path, run: RunConfig, network: Classifier, tokens: Tokens, turns: Turns) -> None:
    """Train; each step is reported to the clock when the next one begins."""
    of_last_step: list[tuple[int, int, int]] = []

    def between_steps(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        if of_last_step:
            turns.step(*of_last_step.pop())
        of_last_step.append(counts(inputs[1]))

    network.register_forward_pre_hook(between_steps)
    fit_in(folder, run, network, {"train": tokens, "validation": tokens})


def fit_in(folder: Path, run: RunConfig, network: Classifier, tokens: dict[str, Tokens]) -> None:
    """Train `network` in place by manyheads' own `fit`."""
    labels = [str(one) for one in range(n_classes(tokens["train"]))]
    context = RunContext(run=run, typed=run, splits=SimpleNamespace(labels=labels), began=perf_counter())
    context.network, context.tokens, context.folder = network, tokens, folder
    fit(context)


def by_hand(shape: Shape, text: Text, tokens: Tokens, turns: Turns) -> None:
    """Our network, batches, optimiser and precision in a bare loop."""
    keep_freed_memory()
    run = our_run(shape, text)
    network = our_network(run, n_classes(tokens))
    optimizer = make_optimizer(network, run.optim)
    is_bf16 = choose_precision(run.hardware.precision, torch.device("cpu")) is Precision.bf16
    schedule = make_schedule(optimizer, run.optim, N_STEPS)
    for step, batch in enumerate(endless(run, tokens)):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
            logits_BC = network(batch.ids_N, batch.layout, batch.segments_N).float()
            loss = F.cross_entropy(logits_BC, batch.labels_B)
        loss.backward()
        clip_gradients(network, CLIP, "norm")
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % LOG_EVERY == 0:
            loss.item()
        turns.step(*counts(batch.layout))


def endless(run: RunConfig, tokens: Tokens) -> Iterator[Batch]:
    """Our batches, epoch after epoch."""
    data = TextData({"train": tokens}, run.batch, run.seed)
    epoch = 0
    while True:
        yield from Batches(tokens, data.plan(epoch))
        epoch += 1


def counts(layout: Any) -> tuple[int, int, int]:
    """Real tokens, cells of the attention grid, rows."""
    return int(layout.offsets[-1]), layout.n_documents * layout.longest, layout.n_documents
