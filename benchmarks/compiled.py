"""What `hardware.compile` costs and gains on this machine: compiled.json.

    python benchmarks/compiled.py

Takes about eight minutes with nothing else running. A classifier of 4 layers of 256, dropout 0.1, lengths of texts as
in ag_news_10k (short) and in imdb cut at 256 tokens (long256), see gpu.py.

- epoch: the first epoch of a run with and without compiled layers, each in a process of its own with an empty cache of
  compiled code: seconds, those until the first step was done, and the number of graphs.
- steps: two copies of a network, one compiled, take each batch in turn: milliseconds of a step, how many times as fast
  a compiled one is, and the largest difference of two losses. Code is compiled before.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

import torch
from gpu import MODES, N_CLASSES, Clock, Size, rows_of
from machine import machine
from torch import nn
from torch._dynamo.utils import counters

from manyheads.config import BatchConfig, HardwareConfig, RunConfig
from manyheads.config.facts import replace_settings
from manyheads.config.training import Compile
from manyheads.data.batches import Batches, plan_epoch
from manyheads.data.tokens import Tokens
from manyheads.nn import Classifier, assemble
from manyheads.nn.layer_calls import make_call
from manyheads.training.objectives import Classify
from manyheads.training.trainer import run_trainer

RESULTS = Path(__file__).with_suffix(".json")
TEXTS = {"short": 10_000, "long256": 2_000}  # rows of an epoch
TOKENS, ROWS, VOCABULARY, LONGEST = 8192, 64, 30_522, 256
FIRST, STEPS = 6, 60  # batches to warm up, all batches


def main() -> None:
    if sys.argv[1:]:
        part, texts, *mode = sys.argv[1:]
        print(json.dumps(epoch(texts, *mode) if part == "epoch" else steps(texts)))
        return
    results: dict[str, Any] = {"machine": machine() | {"threads": torch.get_num_threads(), "torch": torch.__version__}}
    for texts in TEXTS:
        found = {f"epoch, compile={mode}": measured("epoch", texts, mode) for mode in MODES}
        results[texts] = found | {"steps": measured("steps", texts)}
        print(texts, json.dumps(results[texts], indent=1), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def measured(*asked: str) -> dict[str, Any]:
    """What one process answers that finds no compiled code."""
    with tempfile.TemporaryDirectory() as empty:
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": empty}
        since = time.time()
        answer = subprocess.run([sys.executable, __file__, *asked], env=environment, check=True, stdout=subprocess.PIPE)
    found = json.loads(answer.stdout.splitlines()[-1])
    if first := found.pop("first step", None):
        found["seconds to the first step"] = round(first - since, 1)
    return found


def epoch(texts: str, mode: str) -> dict[str, Any]:
    """One epoch of `manyheads train`, without validation."""
    run = RunConfig(
        model=model(),
        batch=BatchConfig(tokens=TOKENS, rows=ROWS),
        hardware=HardwareConfig(compile=Compile[mode]),
        trainer={"max_epochs": 1, "limit_val_batches": 0, "gradient_clip_val": 1.0},
    )
    clock, split, since = Clock(1), rows(texts), perf_counter()
    labels = [str(one) for one in range(N_CLASSES)]
    run_trainer(run, network(), {"train": split, "validation": split}, labels, [clock])
    return {
        "first step": clock.first,
        "seconds": round(perf_counter() - since, 1),
        "steps": clock.steps,
        "graphs": counters["stats"]["unique_graphs"],
    }


def steps(texts: str) -> dict[str, Any]:
    """Steps of two equal networks in turn."""
    split = rows(texts)
    plan = plan_epoch(split.lengths, tokens=TOKENS, rows=ROWS, seed=0, epoch=0)
    task, networks = Classify(torch.ones(N_CLASSES), label_smoothing=0.0), {mode: network() for mode in MODES}
    networks["always"].encoder.call = make_call(mode="default")
    optimizers = {mode: torch.optim.AdamW(networks[mode].parameters(), lr=1e-4, fused=True) for mode in MODES}
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    difference = 0.0
    for at, batch in enumerate(islice(Batches(split, plan), STEPS)):
        losses = {}
        for mode in MODES if at % 2 else MODES[::-1]:
            torch.manual_seed(at)
            since = perf_counter()
            with torch.autocast("cpu", torch.bfloat16):
                loss = task.training_loss(networks[mode], batch).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(networks[mode].parameters(), 1.0)
            optimizers[mode].step()
            optimizers[mode].zero_grad()
            losses[mode] = loss.item()
            if at >= FIRST:
                times[mode].append(1000 * (perf_counter() - since))
        difference = max(difference, abs(losses["never"] - losses["always"]))
    ratios = [never / always for never, always in zip(times["never"], times["always"], strict=True)]
    return {
        **{f"ms, compile={mode}": quarters(of_mode) for mode, of_mode in times.items()},
        "times as fast": quarters(ratios),
        "largest difference of a loss": difference,
        "graphs": counters["stats"]["unique_graphs"],
    }


def model() -> Any:
    changes = {"n_layers": 4, "n_heads": 4, "d_model": 256, "d_k": 64, "d_v": 64, "d_ff": 1024, "dropout": 0.1}
    return replace_settings(RunConfig(), {f"model.{name}": value for name, value in changes.items()}).model


def network() -> Classifier:
    torch.manual_seed(0)
    return assemble(model(), vocab_size=VOCABULARY, n_classes=N_CLASSES, max_length=LONGEST).train()


def rows(texts: str) -> Tokens:
    size = Size(rehearse=False)
    size.vocabulary, size.max_length = VOCABULARY, LONGEST
    size.rows = TEXTS[texts] * (1 if texts == "short" else 4)  # gpu.py makes a quarter as many long texts
    return rows_of(size, "short" if texts == "short" else "long")


def quarters(values: list[float]) -> list[float]:
    """The median between the quartiles."""
    return [round(one, 3) for one in quantiles(values, n=4)]


if __name__ == "__main__":
    main()
