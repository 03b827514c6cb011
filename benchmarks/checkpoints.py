"""What checkpoints cost: a step with and without them, and one save, of a classifier of 4 layers of 256.

    python benchmarks/checkpoints.py

Takes half a minute with nothing else running. Runs of 20 steps in turns: one without checkpoints, one that looks
between its steps whether it is to save, one that saves after every third. Figures are medians with the least and the
greatest; they go to checkpoints.json. The disk is that of the temporary folder.
"""

import json
import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from manyheads.config import Metric, ModelConfig, RunConfig
from manyheads.data.tokens import Tokens
from manyheads.distributed.collectives import Votes
from manyheads.distributed.signals import Stop
from manyheads.nn import assemble
from manyheads.runs.resume import Start
from manyheads.training import checkpoint as saving
from manyheads.training.checkpoint import Checkpoint, KeepBest
from manyheads.training.trainer import run_trainer

RESULTS = Path(__file__).with_suffix(".json")
STEPS, FIRST, TURNS = 20, 5, 2  # steps of a run, those left out, runs of each kind
EVERY = {"without checkpoints": 0, "with checkpoints, none due": STEPS + 1, "with a save every third step": 3}
VOCABULARY, ROWS, LENGTH = 8192, 32, 50


class Clock(Callback):
    """Milliseconds from the end of each step to that of the next."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.since = 0.0

    def on_train_batch_end(self, *_: Any) -> None:
        now = perf_counter()
        self.times.append((now - self.since) * 1000)
        self.since = now


def main() -> None:
    steps: dict[str, list[float]] = {kind: [] for kind in EVERY}
    saves: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for kind, every in EVERY.items():
                steps[kind] += train(Path(folder, f"{turn}-{every}"), every, saves)[FIRST:]
        (last, *_) = sorted(Path(folder).glob("*/checkpoints/step-*"))
        n_bytes = sum(file.stat().st_size for file in last.iterdir())
    results = {
        "step, ms": {kind: spread(times) for kind, times in steps.items()},
        "save, ms": spread(saves),
        "save, MB": round(n_bytes / 1e6, 1),
        "threads": torch.get_num_threads(),
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def train(folder: Path, every: int, saves: list[float]) -> list[float]:
    """The times of the steps of one run; those of its saves are added to `saves`."""
    folder.mkdir()
    run = RunConfig(model=ModelConfig(n_layers=4, n_heads=4, d_model=256, d_k=64, d_v=64, d_ff=1024))
    run.trainer.update(max_steps=STEPS, max_epochs=1)
    run.batch.rows, run.checkpoint.every = ROWS, every
    network = assemble(run.model, vocab_size=VOCABULARY, n_classes=4, max_length=LENGTH)
    keep, clock = KeepBest(Metric.accuracy, network, folder / "checkpoints"), Clock()
    votes = Votes(run.hardware.timeout)
    checkpoint = Checkpoint(run.checkpoint, Stop(), votes, keep, Start(), data="", started=0.0) if every else None
    save = saving.save

    def timed(*given: Any, **named: Any) -> Path:
        began = perf_counter()
        made = save(*given, **named)
        saves.append((perf_counter() - began) * 1000)
        return made

    saving.save = timed
    tokens = {"train": rows(STEPS), "validation": rows(1)}
    run_trainer(run, network, tokens, list("abcd"), [keep, clock], folder, (), checkpoint)
    saving.save = save
    return clock.times


def rows(n_batches: int) -> Tokens:
    """Batches of `ROWS` random texts."""
    n, generator = n_batches * ROWS, torch.Generator().manual_seed(0)
    ids_N = torch.randint(5, VOCABULARY, (n * LENGTH,), dtype=torch.int32, generator=generator)
    return Tokens(ids_N, torch.arange(n + 1) * LENGTH, None, torch.arange(n) % 4)


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "min": round(min(values), 1), "max": round(max(values), 1)}


if __name__ == "__main__":
    main()
