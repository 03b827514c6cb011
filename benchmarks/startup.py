"""How long a command takes until it has answered or is done: startup.json.

    MANYHEADS_DATA=<folder of NAME/train.csv> python benchmarks/startup.py [ROUNDS]

Each command is a process of its own and they take turns, nothing else running; the seconds are those a user waits.
`first step` is `manyheads train` on ag_news_10k, whose tokens were cached before, until its first batch has been learnt
from; `predict` answers one text by an untrained model of 4 x 256 with 30,522 tokens. `imports` are the seconds that the
packages take which these commands import, of a process of its own (`python -X importtime`).
Figures go to startup.json and, as a table, to docs/results/performance.md; `table` in place of ROUNDS measures nothing.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from contestants.tables import fill_document, markdown
from machine import machine
from prediction import read, ship, spread

RESULTS = Path(__file__).with_suffix(".json")
DOCUMENT = RESULTS.parents[1] / "docs" / "results" / "performance.md"
CLI = [sys.executable, "-m", "manyheads"]
# ends the process as soon as the first batch has been learnt from
FIRST_STEP = """
import os, sys
from manyheads.cli import main as cli
def call(verb, config, call=cli.call):
    from dataclasses import replace
    config = replace(config, output=f"{config.output}-{os.getpid()}")
    from manyheads.training.logs import Meter
    Meter.on_train_batch_end = lambda *_: os._exit(0)
    return call(verb, config)
cli.call = call
sys.exit(cli.main() or 3)
"""
PACKAGES = ("torch", "lightning.pytorch", "torchmetrics", "hydra", "omegaconf", "tokenizers", "sklearn", "matplotlib")
PACKAGES += ("datasets", "numpy", "safetensors", "rich")


def main() -> None:
    if sys.argv[1:] != ["table"]:
        measure(int(sys.argv[1]) if sys.argv[1:] else 5)
    fill_document(DOCUMENT, {"startup": table(json.loads(RESULTS.read_text()))})


def measure(n_rounds: int) -> None:
    data = os.environ.get("MANYHEADS_DATA")
    if not data:
        sys.exit("MANYHEADS_DATA is not set: it names the folder that holds ag_news_10k/train.csv")
    results = {"machine": machine(), "versions": {name: version(name) for name in ("torch", "lightning", "hydra-core")}}
    with tempfile.TemporaryDirectory() as scratch:
        of = commands(Path(data) / "ag_news_10k", Path(scratch))
        seconds(*of["first step"])  # fills the cache
        results["rounds"] = [{name: round(seconds(*one), 3) for name, one in of.items()} for _ in range(n_rounds)]
        results["imports"] = {name: imports(of[name][0]) for name in ("predict", "first step")}
    results["seconds"] = {name: spread([one[name] for one in results["rounds"]]) for name in of}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps({name: results[name] for name in ("seconds", "imports")}, indent=1))


def table(results: dict[str, Any]) -> str:
    """Medians of the rounds (least to most)."""
    titles = {
        "help": "`manyheads --help`",
        "help of a verb": "`manyheads train --help`",
        "mistake in a setting": "a mistake in a setting",
        "mistake in the data": "a mistake in the data, ag_news_10k",
        "predict": "`manyheads predict`, one text",
        "first step": "first training step, cached ag_news_10k",
    }
    lines = []
    for name, title in titles.items():
        found, imported = results["seconds"][name], results["imports"].get(name, {})
        shown = f"{found['median']:.2f} ({found['min']:.2f}-{found['max']:.2f})"
        parts = [
            f"{package} {imported[package]:.1f}" for package in ("torch", "lightning.pytorch") if package in imported
        ]
        lines.append([title, shown, ", ".join(parts)])
    return markdown(["", "seconds", "of which imports, under the profiler"], lines)


def commands(data: Path, scratch: Path) -> dict[str, tuple[list[str], int]]:
    """Each command and the exit code it is to have."""
    tokenizer, texts = read(data)
    ship(scratch / "run" / "model", tokenizer)
    train = [sys.executable, "-c", FIRST_STEP, "train", f"data.path={data}", f"data.cache={scratch / 'cache'}"]
    return {
        "help": ([*CLI, "--help"], 0),
        "help of a verb": ([*CLI, "train", "--help"], 0),
        "mistake in a setting": ([*CLI, "train", "model.n_haeds=4"], 2),
        "mistake in the data": ([*CLI, "train", f"data.path={data}", "data.label=kind"], 2),
        "predict": ([*CLI, "predict", f"run={scratch / 'run'}", f"text={texts[0]}"], 0),
        "first step": ([*train, f"output={scratch / 'out'}"], 0),
    }


def seconds(command: list[str], code: int) -> float:
    """How long a process takes."""
    started = perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    taken = perf_counter() - started
    assert done.returncode == code, done.stderr
    return taken


def imports(command: list[str]) -> dict[str, float]:
    """Seconds of each package that a command imports, its own imports included, by name."""
    timed = [command[0], "-X", "importtime", *command[1:]]
    said = subprocess.run(timed, capture_output=True, text=True).stderr
    lines = re.findall(r"import time:\s+\d+ \|\s+(\d+) \|\s+(\S+)", said)
    return {name: round(int(taken) / 1e6, 3) for taken, name in lines if name in PACKAGES}


if __name__ == "__main__":
    main()
