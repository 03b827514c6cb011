"""The cost of training together on the CPU by gloo: a step compared with one of independent processes.

    python benchmarks/ranks.py

Takes five minutes on two cores with nothing else running. Each time some processes with one thread each train a
classifier of 4 layers of 256 on 32 texts of 50 tokens a step: once as runs that know nothing of each other, once as
one run that shares its batch, adds up 5.3 million gradients and votes on what is to come. So cores and memory are as
busy in both, and the rest is what being together costs; four processes take turns on two cores in both. Medians of the
steps of all turns with the least and the greatest; they go to ranks.json.
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
TURNS, STEPS, TEXTS, SIZES = 3, 20, 32, (1, 2, 4)


def main() -> None:
    if sys.argv[1:]:
        return print(json.dumps(train(Path(sys.argv[1]))))
    kinds = [(n, n_ranks) for n in SIZES for n_ranks in sorted({1, n})]
    steps: dict[tuple[int, int], list[list[float]]] = {kind: [] for kind in kinds}
    for _ in range(TURNS):
        for kind in kinds:
            steps[kind].append(turn(*kind))
    results: dict[str, Any] = {"machine": machine()}
    for n in SIZES:
        found = {"apart": steps[n, 1], "together": steps[n, n]}
        apart, together = ([statistics.median(one) for one in turns] for turns in found.values())
        times = {f"{name}, ms": spread([one for of in turns for one in of]) for name, turns in found.items()}
        ratios = [round(one / other, 3) for one, other in zip(together, apart, strict=True)]
        shown = times | {"together / apart, of each turn": ratios} if n > 1 else {"a step, ms": times["apart, ms"]}
        results[f"{n} process{'es' if n > 1 else ''}"] = shown
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def turn(n: int, n_ranks: int) -> list[float]:
    """The times of the steps of `n` processes: of one run, if there are `n_ranks` of them, or of a run each."""
    with TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        free.close()
        started = []
        for rank in range(n):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n, "LOCAL_WORLD_SIZE": n}
            own = {name: str(value) for name, value in place.items()} | meet if n_ranks > 1 else {}
            run = Path(folder, "0" if n_ranks > 1 else str(rank))
            run.mkdir(exist_ok=True)
            started.append(
                subprocess.Popen(
                    [sys.executable, __file__, str(run)],
                    env=os.environ | {"OMP_NUM_THREADS": "1"} | own,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        said = [process.communicate()[0] for process in started]
    assert not any(process.returncode for process in started), "a process failed; what it said is above"
    return [time for lines in said for time in json.loads(lines.splitlines()[-1])[FIRST:]]


def train(folder: Path) -> list[float]:
    """Milliseconds of each step of this process."""
    import torch
    from checkpointed import train_checkpointed

    from manyheads.config import ModelConfig, RunConfig
    from manyheads.config.facts import replace_settings
    from manyheads.distributed.collectives import Votes
    from manyheads.distributed.launch import validate_world_size
    from manyheads.distributed.signals import Stop
    from manyheads.nn import assemble
    from manyheads.runs.resume import Start
    from manyheads.training.callbacks import KeepBest
    from manyheads.training.checkpoint import Checkpoint

    torch.manual_seed(0)
    run = RunConfig(model=ModelConfig(n_layers=4, n_heads=4, d_model=256, d_k=64, d_v=64, d_ff=1024))
    hardware = validate_world_size(run.hardware)
    n_ranks = hardware.devices
    run = replace_settings(run, {"hardware": hardware, "batch.rows": TEXTS * n_ranks, "checkpoint.every": STEPS + 1})
    run.trainer.update(max_steps=STEPS, max_epochs=1)
    network = assemble(run.model, vocab_size=VOCABULARY, n_classes=4, max_length=LENGTH)
    keep, clock = KeepBest("accuracy", network, folder / "checkpoints"), Clock()
    votes = Votes(run.hardware.timeout)
    checkpoint = Checkpoint(run.checkpoint, Stop(), votes, keep, Start(), data="", started=0.0)
    tokens: dict[str, Any] = {"train": rows(STEPS * n_ranks), "validation": rows(1)}
    train_checkpointed(run, network, tokens, list("abcd"), folder, [keep, clock], checkpoint)
    return clock.times


if __name__ == "__main__":
    main()
