"""What it saves to train only the word vectors that training texts read: a step with the whole table, and with these.

    python benchmarks/seen_words.py

Takes two minutes with nothing else running. A classifier of MiniLM's shape, with its 30,522 tokens and with the 250,000
of a multilingual vocabulary, learns from batches of 32 texts of 20 tokens. Among these 2,500 different ones occur
(banking77 has 2,420). Runs of `STEPS` steps take turns; ratios are taken within a round. Figures go to seen_words.json.
"""

import json
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from machine import machine

from manyheads.config import ModelConfig, RunConfig
from manyheads.config.facts import replace_settings
from manyheads.data.tokens import Tokens
from manyheads.nn import assemble
from manyheads.training import weights
from manyheads.training.trainer import run_trainer

RESULTS = Path(__file__).with_suffix(".json")
MODEL = ModelConfig(n_layers=6, n_heads=12, d_model=384, d_k=32, d_v=32, d_ff=1536)
VOCABULARIES, SEEN = (30_522, 250_000), 2_500
ROWS, LENGTH = 32, 20  # of a batch
ROUNDS, STEPS, FIRST = 5, 16, 4  # steps of a run, and those of them that are not timed


class Clock(Callback):
    """When each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.ends.append(perf_counter())


def main() -> None:
    found: dict[str, Any] = {}
    for n_ids in VOCABULARIES:
        rounds = [
            {name: seconds_of_step(n_ids, most) for name, most in (("whole", 0.0), ("seen", 0.75))}
            for _ in range(ROUNDS)
        ]
        ratios = sorted(one["whole"] / one["seen"] for one in rounds)
        found[f"{n_ids:,} tokens"] = {
            "step, ms": {name: round(1000 * median(one[name] for one in rounds), 1) for name in ("whole", "seen")},
            "whole / seen": [round(ratio, 2) for ratio in (ratios[0], median(ratios), ratios[-1])],
        }
    found["machine"] = machine() | {"threads": torch.get_num_threads()}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def seconds_of_step(n_ids: int, most_seen: float) -> float:
    """The median over the steps of a run that leaves words out where a smaller share than `most_seen` occurs."""
    weights.MOST_SEEN = most_seen
    run = replace_settings(RunConfig(model=MODEL), {"batch.rows": ROWS, "optim.average": 0})
    run.trainer.update(max_steps=STEPS, max_epochs=1, limit_val_batches=0)
    torch.manual_seed(0)
    network, clock = assemble(MODEL, vocab_size=n_ids, n_classes=77, max_length=LENGTH), Clock()
    run_trainer(run, network, {"train": texts(STEPS), "validation": texts(1)}, [*map(str, range(77))], [clock])
    steps = [after - before for before, after in zip(clock.ends[FIRST:], clock.ends[FIRST + 1 :], strict=False)]
    return median(steps)


def texts(n_batches: int) -> Tokens:
    """Texts of random ids, all of one length."""
    n = n_batches * ROWS
    ids_N = torch.randint(SEEN, (n * LENGTH,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    return Tokens(ids_N, torch.arange(n + 1) * LENGTH, None, torch.arange(n) % 77)


if __name__ == "__main__":
    main()
