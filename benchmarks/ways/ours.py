"""manyheads by its command line: trained with `test=false`, then judged once on the test split by `evaluate`."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from manyheads.processor import cpu_multiplies_bf16
from ways.recipes import Task, data_folder, filled, minilm, words_of
from ways.rows import UNLABELLED, data_words, read
from ways.store import locked


class RunError(Exception):
    """What a command said last before it failed."""


def train_and_judge(task: Task, folder: Path, home: Path) -> dict[str, Any]:
    """Train in `home`, or go on there where an earlier start was stopped; the figures and what was answered.

    Raises:
        RunError: a command failed.
    """
    run, answered = home / "run", home / "answered"
    places = {"data": str(data_folder()), "unlabelled": str(folder / UNLABELLED)}
    words = words_of(task)
    kept = pretraining_of_all(words, home.parent / task.name)
    if kept:
        lend(kept, run / "pretrain")
    if any("{minilm}" in word for word in words):
        places["minilm"] = str(minilm())
    fixed = [f"output={run}", f"seed={task.seed}", "test=false", "resume=auto"]
    started = time.perf_counter()
    command(["train", *data_words(task, folder), *fixed, *filled(words, places)], home / "train.log")
    seconds = time.perf_counter() - started
    if kept:
        lend(run / "pretrain", kept)
    shutil.rmtree(answered, ignore_errors=True)
    precision = ["hardware.precision=bf16"] if cpu_multiplies_bf16() else []
    judged = ["evaluate", f"run={run}", "split=test", f"output={answered}", "bootstrap=100", *precision]
    command(judged, home / "evaluate.log")
    summary = json.loads((run / "summary.json").read_text())
    stages = [json.loads(file.read_text()) for file in sorted(run.glob("*/summary.json"))]  # before the training
    given = read(answered / "predictions.csv")
    return {
        "command_seconds": round(seconds),  # of the last start alone
        "wall_seconds": round(wall_seconds(summary, stages)),
        "seconds": round(sum(stage["seconds"] for stage in [summary, *stages])),  # of the training steps
        "parameters": summary["parameters"],
        "steps": summary["steps"],
        "precision": summary["precision"],
        "best": summary["best"],
        "linear": summary["linear"],
        "real_tokens_per_s": round(summary["real_tokens_per_s"]),
        "validation": {name: value_of(figure) for name, figure in summary["validation"].items()},
        "given": [(row.get("label", row.get("labels", "")), row["prediction"]) for row in given],
    }


def pretraining_of_all(words: list[str], beginning: Path) -> Path | None:
    """Where the pretraining lies that all draws of few rows begin by: its texts are those of all rows, whichever have a
    label. None for words that do not learn from the others' texts."""
    if not any("{unlabelled}" in word for word in words):
        return None
    amount = next(word.partition("=")[2] for word in words if word.startswith("pretrain.before="))
    return beginning.with_name(f"{beginning.name}-pretrained-{amount}")


def lend(done: Path, to: Path) -> None:
    """Copy the pretraining `done`, if it is, to where none is; it appears whole or not at all."""
    with locked(to.with_name(f"{to.name}.lock")):
        if (done / "summary.json").is_file() and not to.exists():
            part = to.with_name(f"{to.name}.part")
            shutil.rmtree(part, ignore_errors=True)  # of one that was stopped
            shutil.copytree(done, part)
            part.rename(to)


def wall_seconds(summary: dict[str, Any], stages: list[dict[str, Any]]) -> float:
    """From the first start to the figures. A run counts the stages before it, unless these ended in a start of their
    own."""
    return max(summary["wall_seconds"], summary["seconds"] + sum(stage["wall_seconds"] for stage in stages))


def value_of(figure: Any) -> float:
    """Of a figure with or without an interval."""
    return round(figure["value"] if isinstance(figure, dict) else figure, 5)


def command(words: list[str], log: Path) -> None:
    """`manyheads` with these words; all it says goes to `log`.

    Raises:
        RunError: it failed.
    """
    with log.open("a", encoding="utf-8") as said:
        said.write(f"\n$ manyheads {' '.join(words)}\n")
        said.flush()
        done = subprocess.run([sys.executable, "-m", "manyheads.cli", *words], stdout=said, stderr=said, env=os.environ)
    if done.returncode:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        raise RunError(f"manyheads {words[0]} ended with {done.returncode}: {lines[-1] if lines else 'nothing said'}")
