"""manyheads by its command line: trained with `test=false`, then `evaluate` reads the test split, once."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from manyheads.inference.precision import cpu_multiplies_bf16
from ways.recipes import Task, filled, minilm, vectors, words_of
from ways.rows import data_words, read


class RunError(Exception):
    """What a command said last before it failed."""


def train_and_judge(task: Task, folder: Path, home: Path) -> dict[str, Any]:
    """Train in `home`, or resume a training there that was stopped; the figures and the answers.

    Raises:
        RunError: a command failed.
    """
    run, answered = home / "run", home / "answered"
    places = {"vectors": str(vectors())}
    if task.way == "minilm":
        places["minilm"] = str(minilm())
    words = filled(words_of(task), places)
    fixed = [f"seed={task.seed}", "test=false", "resume=auto"]
    started = time.perf_counter()
    command(["train", *data_words(folder), *fixed, *words, f"output={run}"], home / "train.log")
    seconds = time.perf_counter() - started
    shutil.rmtree(answered, ignore_errors=True)
    precision = ["hardware.precision=bf16"] if cpu_multiplies_bf16() else []
    judge = ["split=test", *precision]
    command(["evaluate", *judge, f"run={run}", f"output={answered}"], home / "evaluate.log")
    summary = json.loads((run / "summary.json").read_text())
    given = read(answered / "predictions.csv")
    members = json.loads((answered / "metrics.json").read_text()).get("members", {})
    return {
        "typed": " ".join(["train", *data_words(Path("{data}")), *fixed, *words_of(task), "; evaluate", *judge]),
        "command_seconds": round(seconds),  # of the last start alone
        "wall_seconds": round(summary["wall_seconds"]),  # of all starts
        "seconds": round(summary["seconds"]),  # of the training steps
        "parameters": summary["parameters"],
        "steps": summary["steps"],
        "precision": summary["precision"],
        "best": summary["best"],
        "linear": summary.get("linear"),
        "real_tokens_per_s": round(summary["real_tokens_per_s"]),
        "validation": {name: value_of(figure) for name, figure in summary["validation"].items()},
        "members": {name: {key: value_of(of) for key, of in one.items()} for name, one in members.items()},
        "given": [(row.get("label", row.get("labels", "")), row["prediction"]) for row in given],
    }


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
        done = subprocess.run([sys.executable, "-m", "manyheads", *words], stdout=said, stderr=said, env=os.environ)
    if done.returncode:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        raise RunError(f"manyheads {words[0]} ended with {done.returncode}: {lines[-1] if lines else 'nothing said'}")
