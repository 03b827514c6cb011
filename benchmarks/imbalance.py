"""What helps where few rows are of some classes: weights of classes, or drawing their rows more often.

The training rows of a set are thinned to a long tail: of the class at place r of C, most frequent first, at most
n * RATIO^(-r / (C - 1)) rows are kept, where n are those of the first; drawn by SEED. The figures are of the
validation rows, which stay as they are; the test rows are not read.

    python benchmarks/imbalance.py FOLDER benchmarks/imbalance.json      FOLDER holds train.csv and validation.csv
"""

import csv
import json
import os
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.metrics import accuracy_score, f1_score

RATIO, SEED, SEEDS = 50, 0, (0, 1, 2)
ARMS = {
    "nothing": [],
    "optim.class_weights=balanced": ["optim.class_weights=balanced"],
    "optim.focal_gamma=2": ["optim.focal_gamma=2"],
    "batch.balance=sqrt": ["batch.balance=sqrt"],
    "batch.balance=uniform": ["batch.balance=uniform"],
}
MODEL = "model.d_model=64 model.n_heads=2 model.d_ff=128 model.n_layers=1 trainer.max_epochs=6 linear=false"
FIGURES = {"accuracy": accuracy_score, "macro_f1": lambda true, given: f1_score(true, given, average="macro")}


def thin(source: Path, target: Path) -> dict[str, int]:
    """Write the thinned set; returns the training rows of each class."""
    with (source / "train.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    counts = Counter(row["label"] for row in rows).most_common()
    random.Random(SEED).shuffle(rows)
    left = {
        label: min(n, int(counts[0][1] * RATIO ** (-at / (len(counts) - 1)))) for at, (label, n) in enumerate(counts)
    }
    kept, sizes = [], dict(left)
    for row in rows:
        if left[row["label"]]:
            left[row["label"]] -= 1
            kept.append(row)
    with (target / "train.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["text", "label"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(kept)
    for name in ("validation.csv", "test.csv"):  # the validation rows are judged in place of the test rows
        (target / name).write_bytes((source / "validation.csv").read_bytes())
    return sizes


def answers(data: Path, folder: Path, arm: list[str], seed: int) -> tuple[list[str], list[str]]:
    """The labels of the validation rows, and what a network that was trained so answers."""
    words = [*MODEL.split(), *arm, f"seed={seed}", f"data.path={data}", f"output={folder}", "data=files"]
    program = str(Path(sys.executable).with_name("manyheads"))
    subprocess.run([program, "train", "checkpoint.metric=macro_f1", *words], check=True, capture_output=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    subprocess.run([program, "evaluate", f"run={folder}", f"output={folder / 'judged'}"], check=True,
                   capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    with (folder / "judged" / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [row["label"] for row in rows], [row["prediction"] for row in rows]


def compared(true: np.ndarray, arms: dict[str, np.ndarray]) -> dict[str, dict[str, list[float]]]:
    """Of each arm, whose answers are `(seeds, rows)`: the mean of each figure over seeds, and what it leads `nothing`
    by, with the points of 2.5 and 97.5 % of 300 resamples of the rows, the same for both."""
    draws = np.random.default_rng(0).integers(len(true), size=(300, len(true)))
    found: dict[str, dict[str, list[float]]] = {}
    for name, figure in FIGURES.items():
        first = None
        for arm, given in arms.items():
            values = np.array([np.mean([figure(true[at], one[at]) for one in given])
                               for at in [np.arange(len(true)), *draws]])  # fmt: skip
            first = values if first is None else first
            lead = values - first
            seeds = [round(figure(true, one), 4) for one in given]
            found.setdefault(arm, {})[name] = [
                round(float(values[0]), 4),
                *np.percentile(values[1:], (2.5, 97.5)).round(4),
            ]
            found[arm][f"{name}_lead"] = [round(float(lead[0]), 4), *np.percentile(lead[1:], (2.5, 97.5)).round(4)]
            found[arm][f"{name}_of_seeds"] = seeds
    return found


def main(source: str, report: str) -> None:
    with TemporaryDirectory() as scratch:
        data = Path(scratch, "data")
        data.mkdir()
        sizes, arms, true = thin(Path(source), data), {}, None
        for arm, words in ARMS.items():
            with ThreadPoolExecutor(2) as pool:
                jobs = [pool.submit(answers, data, Path(scratch, f"{len(arms)}-{seed}"), words, seed) for seed in SEEDS]
            results = [one.result() for one in jobs]
            true, given = results[0][0], [one[1] for one in results]
            print(arm, [[round(figure(true, one), 4) for one in given] for figure in FIGURES.values()], flush=True)
            arms[arm] = np.array(given)
        found = {"set": Path(source).name, "ratio": RATIO, "training rows": sizes, "model": MODEL, "seeds": SEEDS,
                 "arms": compared(np.array(true), arms)}  # fmt: skip
        Path(report).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
