"""What the guards against a non-finite loss or gradient cost: a step with and without them, in turns.

    python benchmarks/guards.py

Takes half a minute with nothing else running. One run of a classifier of 4 layers of 256, on batches that are all of
one size; in every second step the guards are away: the loss is not multiplied, rows without a finite loss are not
looked for, the optimiser is given no flag, and nothing is read. The norm of the gradient is computed in both, for
clipping. Figures go to guards.json.
"""

import json
import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning.pytorch as pl
import torch
from machine import machine
from torch import Tensor

from manyheads.config import ModelConfig, RunConfig
from manyheads.config.facts import replace_settings
from manyheads.data.batches import Batch
from manyheads.data.tokens import Tokens
from manyheads.nn import assemble
from manyheads.training.guard import Guard
from manyheads.training.module import LitModule
from manyheads.training.optim import clip_gradients
from manyheads.training.trainer import run_trainer

RESULTS = Path(__file__).with_suffix(".json")
STEPS, FIRST = 64, 4  # steps of the run, those left out
VOCABULARY, ROWS, LENGTH = 8192, 64, 50


class Bare(LitModule):
    """The module without guards."""

    def training_step(self, batch: Batch, index: int) -> Tensor:
        losses_B = self.objective.training_loss(self.network, batch)
        self.train_loss.update(losses_B.detach())
        self.log("loss", losses_B.detach().mean(), batch_size=len(losses_B), prog_bar=True)
        return losses_B.sum() * batch.scale

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        clip_gradients(self.network, gradient_clip_val, gradient_clip_algorithm)
        optimizer.found_inf = None


class Turns(Guard):
    """Guards of every second step, and the milliseconds from the end of each step to that of the next."""

    times: list[float]
    since = 0.0

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        pl_module.__class__ = LitModule if batch_idx % 2 else Bare

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % 2:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        now = perf_counter()
        self.times.append((now - self.since) * 1000)
        self.since = now


def main() -> None:
    run = RunConfig(model=ModelConfig(n_layers=4, n_heads=4, d_model=256, d_k=64, d_v=64, d_ff=1024))
    # the work of the average every tenth step would fall on one of the two
    run = replace_settings(run, {"batch.rows": ROWS, "optim.average": 0})
    run.trainer.update(max_steps=STEPS, max_epochs=1, limit_val_batches=0)
    network = assemble(run.model, vocab_size=VOCABULARY, n_classes=4, max_length=LENGTH)
    turns = Turns(run)
    turns.times = []
    run_trainer(run, network, {"train": rows(STEPS), "validation": rows(1)}, list("abcd"), [turns])
    without, guarded = turns.times[FIRST::2], turns.times[FIRST + 1 :: 2]
    results = {
        "step, ms": {"without guards": spread(without), "with guards": spread(guarded)},
        "difference of neighbours, ms": spread([b - a for a, b in zip(without, guarded, strict=True)]),
        "machine": machine() | {"threads": torch.get_num_threads()},
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def rows(n_batches: int) -> Tokens:
    """Batches of `ROWS` random texts."""
    n, generator = n_batches * ROWS, torch.Generator().manual_seed(0)
    ids_N = torch.randint(5, VOCABULARY, (n * LENGTH,), dtype=torch.int32, generator=generator)
    return Tokens(ids_N, torch.arange(n + 1) * LENGTH, None, torch.arange(n) % 4)


def spread(values: list[float]) -> dict[str, float]:
    quarters = statistics.quantiles(values, n=4)
    return {name: round(value, 2) for name, value in zip(("lower", "median", "upper"), quarters, strict=True)}


if __name__ == "__main__":
    main()
