"""What it costs that two processes train together on the CPU, joined by gloo: a step beside that of two strangers.

    python benchmarks/ranks.py

Takes two minutes on two cores with nothing else running. Both times two processes with one thread each train a
classifier of 4 layers of 256 on 32 texts of 50 tokens a step: once as two runs that know nothing of each other, once as
one run that shares a batch of 64, adds up 5.3 million gradients and votes on what is to come. So cores and memory are
as busy in both, and the rest is what being together costs. Medians of the steps of all turns with the least and the
greatest; they go to ranks.json.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from checkpoints import FIRST, LENGTH, VOCABULARY, Clock, rows, spread
from machine import machine

RESULTS = Path(__file__).with_suffix(".json")
TURNS, STEPS, TEXTS, RANKS = 3, 20, 32, 2
KINDS = {"two runs": 1, "one run of two processes": RANKS}


def main() -> None:
    if sys.argv[1:]:
        return print(json.dumps(train(Path(sys.argv[1]))))
    steps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    ratios: list[float] = []
    for _ in range(TURNS):
        for kind, n_ranks in KINDS.items():
            steps[kind] += (new := turn(n_ranks))
            ratios += [statistics.median(new)] if n_ranks == 1 else []
        ratios[-1] = statistics.median(new) / ratios[-1]
    results = {
        "machine": machine(),
        "step, ms": {kind: spread(times) for kind, times in steps.items()},
        "together / apart, of each turn": [round(one, 3) for one in ratios],
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def turn(n_ranks: int) -> list[float]:
    """The times of the steps of two processes, which are `n_ranks` of a run each."""
    with TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        free.close()
        started = []
        for rank in range(RANKS):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "LOCAL_WORLD_SIZE": RANKS}
            own = {name: str(value) for name, value in place.items()} | meet if n_ranks > 1 else {}
            Path(folder, "0" if n_ranks > 1 else str(rank)).mkdir(exist_ok=True)
            started.append(
                subprocess.Popen(
                    [sys.executable, __file__, str(Path(folder, "0" if n_ranks > 1 else str(rank)))],
                    env=os.environ | {"OMP_NUM_THREADS": "1"} | own,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        said = [process.communicate()[0] for process in started]
    return [time for lines in said for time in json.loads(lines.splitlines()[-1])[FIRST:]]


def train(folder: Path) -> list[float]:
    """Milliseconds of each step of this process."""
    import torch

    from manyheads.config import Metric, ModelConfig, RunConfig
    from manyheads.distributed.collectives import Votes
    from manyheads.distributed.launch import settled_hardware
    from manyheads.distributed.signals import Stop
    from manyheads.nn import assemble
    from manyheads.runs.resume import Start
    from manyheads.training.checkpoint import Checkpoint, KeepBest
    from manyheads.training.trainer import run_trainer

    torch.manual_seed(0)
    run = RunConfig(model=ModelConfig(n_layers=4, n_heads=4, d_model=256, d_k=64, d_v=64, d_ff=1024))
    run.hardware = settled_hardware(run.hardware)
    n_ranks = run.hardware.devices
    run.batch.rows = TEXTS * n_ranks
    run.trainer.update(max_steps=STEPS, max_epochs=1)
    run.checkpoint.every = STEPS + 1
    network = assemble(run.model, vocab_size=VOCABULARY, n_classes=4, max_length=LENGTH)
    keep, clock = KeepBest(Metric.accuracy, network, folder / "checkpoints"), Clock()
    votes = Votes(run.hardware.timeout)
    checkpoint = Checkpoint(run.checkpoint, Stop(), votes, keep, Start(), data="", started=0.0)
    tokens: dict[str, Any] = {"train": rows(STEPS * n_ranks), "validation": rows(1)}
    run_trainer(run, network, tokens, list("abcd"), [keep, clock], folder, (), checkpoint)
    return clock.times


if __name__ == "__main__":
    main()
