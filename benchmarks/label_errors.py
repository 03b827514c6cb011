"""How many planted wrong labels `manyheads audit` finds among the rows it ranks first.

Of the training rows of each set, at most ROWS drawn, SHARE get another label, drawn with equal probability. The rows
are ranked as in the audit; precision is the share of planted rows among the first as many as were planted. Labels that
were wrong before count as mistakes of the ranking, so the figure is a lower bound. A random order has SHARE.

    python benchmarks/label_errors.py benchmarks/label_errors.json banking77 snips ag_news_10k    in $MANYHEADS_DATA
"""

import csv
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

from manyheads.data.rows import Rows
from manyheads.evaluation.intervals import share_interval
from manyheads.plugins.judge.row_facts import likely_wrong, out_of_fold
from manyheads.runs.summary import figures_to_plain

SHARE, ROWS, SEEDS, FOLDS = 0.03, 8000, (0, 1, 2), 5


def planted(folder: Path, seed: int) -> tuple[Rows, np.ndarray, int]:
    """The rows with wrong labels among them, which rows these are, and the number of classes."""
    with (folder / "train.csv").open(encoding="utf-8", newline="") as file:
        read = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    draw = np.random.default_rng(seed)
    kept = np.sort(draw.choice(len(read), min(ROWS, len(read)), replace=False)).tolist()
    texts, named = zip(*(read[at] for at in kept), strict=True)
    names = sorted({*named})
    labels_n = np.array([names.index(one) for one in named])
    wrong = draw.choice(len(kept), round(SHARE * len(kept)), replace=False)
    labels_n[wrong] = (labels_n[wrong] + draw.integers(1, len(names), len(wrong))) % len(names)
    return Rows([*texts], None, labels_n.tolist(), folder.name, range(len(kept))), wrong, len(names)


def measured(folder: Path, seed: int) -> dict[str, Any]:
    """Precision at the planted count, and how many rows are under suspicion at all."""
    rows, wrong, n_classes = planted(folder, seed)
    begun = time.perf_counter()
    probabilities_nC = out_of_fold(rows, n_classes, FOLDS, seed)
    assert probabilities_nC is not None, f"{folder.name}: a class has too few rows"
    ranked = likely_wrong(rows, probabilities_nC)
    seconds = time.perf_counter() - begun
    found = len({*ranked[: len(wrong)]} & {*wrong.tolist()})
    precision = figures_to_plain({"precision": share_interval(found, len(wrong))})
    return {"rows": len(rows), "planted": len(wrong), "suspects": len(ranked), "seconds": round(seconds, 1)} | precision


def main(out: str, *names: str) -> None:
    data = Path(os.environ["MANYHEADS_DATA"])
    figures: dict[str, Any] = {"machine": machine(), "share": SHARE, "sets": {}}
    for name in names:
        figures["sets"][name] = [measured(data / name, seed) for seed in SEEDS]
        print(
            name, *(f"{one['precision']['value']:.3f}" for one in figures["sets"][name]), f"random {SHARE}", flush=True
        )
    Path(out).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
