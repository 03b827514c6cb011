"""What checkpoints cost: a step with and without them, and one save, of a classifier of 4 layers of 256; and saves of
one whose state is a gigabyte, for which training waits, or which a thread writes.

    OMP_NUM_THREADS=1 python benchmarks/checkpoints.py

Takes four minutes with nothing else running. Runs of 20 steps in turns: one without checkpoints, one that looks
between its steps whether it is to save, one that saves after every third. Then runs of 6 layers of 768 in turns, which
save after every eighth step, by `checkpoint.background=never` and `always`: how long training stands still for a save,
how long after its beginning that is on the disk, a step while none is written and while one is, and the mean of all
steps with what they wait for. Figures are medians with the least and the greatest; they go to checkpoints.json. The
disk is that of the temporary folder.
"""

import json
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from checkpointed import train_checkpointed
from lightning.pytorch.callbacks import Callback

from manyheads.config import ModelConfig, RunConfig
from manyheads.config.facts import replace_settings
from manyheads.config.training import Background
from manyheads.data.tokens import Tokens
from manyheads.distributed.collectives import Votes
from manyheads.distributed.signals import Stop
from manyheads.nn import assemble
from manyheads.runs.resume import Start
from manyheads.training import checkpoint_writer
from manyheads.training.callbacks import KeepBest
from manyheads.training.checkpoint import Checkpoint

RESULTS = Path(__file__).with_suffix(".json")
STEPS, FIRST, TURNS = 20, 5, 2  # steps of a run, those left out, runs of each kind
EVERY = {"without checkpoints": 0, "with checkpoints, none due": STEPS + 1, "with a save every third step": 3}
VOCABULARY, ROWS, LENGTH = 8192, 32, 50
MODEL = ModelConfig(n_layers=4, n_heads=4, d_model=256, d_k=64, d_v=64, d_ff=1024)
LARGE = ModelConfig(n_layers=6, n_heads=12, d_model=768, d_k=64, d_v=64, d_ff=3072)
LARGE_VOCABULARY, LARGE_ROWS, LARGE_EVERY = 30_522, 4, 8


class Clock(Callback):
    """Milliseconds from the end of each step to that of the next."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.since = 0.0

    def on_train_batch_end(self, *_: Any) -> None:
        now = perf_counter()
        self.times.append((now - self.since) * 1000)
        self.since = now


class Watched(Checkpoint):
    """Notes when training stands still for a save."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.waits: list[tuple[float, float]] = []  # seconds: beginning and end

    def _save(self, *given: Any, **named: Any) -> None:
        began = perf_counter()
        super()._save(*given, **named)
        self.waits.append((began, perf_counter()))


def main() -> None:
    steps: dict[str, list[float]] = {kind: [] for kind in EVERY}
    saves: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for kind, every in EVERY.items():
                clock, _, writes = train(Path(folder, f"{turn}-{every}"), every)
                steps[kind] += clock.times[FIRST:]
                saves += [(end - begin) * 1000 for begin, end in writes]
        n_bytes = size_of_save(Path(folder))
    results = {
        "step, ms": {kind: spread(times) for kind, times in steps.items()},
        "save, ms": spread(saves),
        "save, MB": round(n_bytes / 1e6, 1),
        "of a gigabyte": of_a_gigabyte(),
        "threads": torch.get_num_threads(),
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def of_a_gigabyte() -> dict[str, Any]:
    found: dict[str, dict[str, list[float]]] = {}
    n_bytes = 0
    for _ in range(TURNS):
        for mode in (Background.never, Background.always):
            its = found.setdefault(f"checkpoint.background={mode.name}", {})
            with tempfile.TemporaryDirectory() as folder:
                clock, waits, writes = train(Path(folder, "0"), LARGE_EVERY, large=True, background=mode)
                n_bytes = size_of_save(Path(folder))
            ends = [clock.since - sum(clock.times[at + 1 :]) / 1000 for at in range(STEPS)]
            for (came, left), (_, written) in list(zip(waits, writes, strict=True))[:-1]:  # the last is waited for
                its.setdefault("training stands still, ms", []).append((left - came) * 1000)
                its.setdefault("until it is on the disk, ms", []).append((written - came) * 1000)
            for before, end in list(pairwise(ends))[FIRST - 1 :]:
                begin = max([before, *(left for _, left in waits if left < end)])
                busy = any(since < end and until > begin for since, until in writes)
                kind = "a step while one is written, ms" if busy else "a step, ms"
                its.setdefault(kind, []).append((end - begin) * 1000)
            every = (ends[-1] - ends[FIRST - 1]) / (STEPS - FIRST) * 1000
            its.setdefault("a step with its part of the saves, ms", []).append(every)
    spreads = {kind: {name: spread(times) for name, times in its.items()} for kind, its in found.items()}
    return {"save, MB": round(n_bytes / 1e6, 1), **spreads}


def train(
    folder: Path, every: int, *, large: bool = False, background: Background = Background.never
) -> tuple[Clock, list[tuple[float, float]], list[tuple[float, float]]]:
    """The times of the steps of one run; beginnings and ends of its saves, while training stands still, and while
    their files are written."""
    folder.mkdir()
    run = RunConfig(model=LARGE if large else MODEL)
    run.trainer.update(max_steps=STEPS, max_epochs=1)
    n_rows = LARGE_ROWS if large else ROWS
    run = replace_settings(run, {"checkpoint.every": every, "checkpoint.background": background, "batch.rows": n_rows})
    n_words = LARGE_VOCABULARY if large else VOCABULARY
    network = assemble(run.model, vocab_size=n_words, n_classes=4, max_length=LENGTH)
    keep, clock = KeepBest("accuracy", network, folder / "checkpoints"), Clock()
    votes = Votes(run.hardware.timeout)
    checkpoint = Watched(run.checkpoint, Stop(), votes, keep, Start(), data="", started=0.0) if every else None
    write, writes = checkpoint_writer.write_checkpoint, []

    def timed(*given: Any, **named: Any) -> Path:
        began = perf_counter()
        made = write(*given, **named)
        writes.append((began, perf_counter()))
        return made

    checkpoint_writer.write_checkpoint = timed
    tokens = {"train": rows(STEPS), "validation": rows(1)}
    train_checkpointed(run, network, tokens, list("abcd"), folder, [keep, clock], checkpoint)
    checkpoint_writer.write_checkpoint = write
    return clock, checkpoint.waits if checkpoint else [], writes


def size_of_save(folder: Path) -> int:
    (one, *_) = sorted(folder.glob("*/checkpoints/step-*"))
    return sum(file.stat().st_size for file in one.iterdir())


def rows(n_batches: int) -> Tokens:
    """Batches of `ROWS` random texts."""
    n, generator = n_batches * ROWS, torch.Generator().manual_seed(0)
    ids_N = torch.randint(5, VOCABULARY, (n * LENGTH,), dtype=torch.int32, generator=generator)
    return Tokens(ids_N, torch.arange(n + 1) * LENGTH, None, torch.arange(n) % 4)


def spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "min": round(min(values), 1), "max": round(max(values), 1)}


if __name__ == "__main__":
    main()
