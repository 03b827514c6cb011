"""How often the 95 % intervals of evaluation/metrics.py hold the figure of all texts.

A population of `ROWS` texts is made of numbers alone: each has a class, drawn by its share, and logits that tell it
more or less. Its figures are known, since all of it is judged. Then n texts are drawn from it, again and again, and
judged as `manyheads evaluate` does; counted is how often an interval holds the population's figure.

    python benchmarks/coverage.py benchmarks/coverage.json     half an hour; with REPEATS=100 in front a glance

n rows . C classes or labels
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyheads.evaluation.intervals import gap_interval, mean_interval
from manyheads.evaluation.metrics import EDGES, change_of_answers, score, score_labels
from manyheads.runs.summary import Figures

Array = NDArray[Any]
ROWS, SIZES, SEED = 200_000, (50, 500, 5_000), 0
REPEATS, RESAMPLES = int(os.environ.get("REPEATS", "1000")), 300
RARE = [0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.015, 0.005]
POPULATIONS = {  # shares of the classes, how far a class stands out, and what its logits are multiplied by: 1 is honest
    "4 even classes": ([0.25] * 4, 2.5, 1.5),
    "4 even classes, calibrated": ([0.25] * 4, 2.5, 1.0),
    "8 classes, the rarest 0.5 %": (RARE, 2.5, 1.5),
    "6 labels, the rarest 2 %": ([0.5, 0.3, 0.15, 0.08, 0.04, 0.02], 2.5, 1.5),
}


@cache
def population(name: str) -> tuple[Array, Array, Array]:
    """Classes `(n,)` or marks `(n, C)` of all texts, and the probabilities `(n, C)` of two models, whose mistakes are
    mostly the same."""
    shares, d, sure = POPULATIONS[name]
    random, shape = np.random.default_rng(SEED), (ROWS, len(shares))
    if "labels" in name:
        labels = marks_nC = random.random(shape) < shares
        prior_C = np.log(shares) - np.log1p(-np.array(shares)) - d**2 / 2
    else:
        labels = random.choice(len(shares), size=ROWS, p=shares)
        marks_nC, prior_C = np.eye(len(shares), dtype=bool)[labels], np.log(shares)
    same_nC, found = random.normal(size=shape), []
    for _ in range(2):
        noise_nC = 0.8 * same_nC + 0.6 * random.normal(size=shape)
        logits_nC = sure * (d * (noise_nC + d * marks_nC) + prior_C)
        if "labels" in name:
            found.append(1 / (1 + np.exp(-logits_nC)))
        else:
            powers_nC = np.exp(logits_nC - logits_nC.max(1, keepdims=True))
            found.append(powers_nC / powers_nC.sum(1, keepdims=True))
    return labels, found[0], found[1]


def judged(name: str, rows: Any, seed: int, n_resamples: int) -> Figures:
    """Every figure of the first model on some rows, and of its differences to the second."""
    labels, ours, others = (part[rows] for part in population(name))
    n_classes, draws = ours.shape[1], {"n_resamples": n_resamples, "seed": seed}
    names = [str(at) for at in range(n_classes)]
    if "labels" in name:
        scores = score_labels(labels, ours, names, [0.5] * n_classes, **draws)
        given = ours >= 0.5, others >= 0.5
        losses = [-np.log(np.where(labels, one, 1 - one)).sum(1) for one in (ours, others)]
    else:
        scores = score(labels, ours, names, **draws)
        given = ours.argmax(1), others.argmax(1)
        losses = [-np.log(one[np.arange(len(labels)), labels]) for one in (ours, others)]
        sure = ours.max(1)
        more = draws | {"n_resamples": n_resamples if n_resamples == 1 else 1000}  # the ends are rarer than a variance
        scores.figures["calibration_error"] = gap_interval(np.digitize(sure, EDGES), sure, given[0] == labels, **more)
    (change,) = change_of_answers(labels, given[0], [given[1]], n_classes, **draws)
    changes = {f"change of {key}": change[key] for key in ("accuracy", "macro_f1", "micro_f1")}
    return scores.figures | changes | {"change of loss": mean_interval(losses[1] - losses[0])}


def tried(case: tuple[str, int, int, dict[str, float]]) -> dict[str, tuple[float, float, float]]:
    """Of one draw: whether each interval holds the truth, lies above it, and how wide it is."""
    name, n, at, truth = case
    rows = np.random.default_rng((SEED, n, at)).integers(ROWS, size=n)
    found = judged(name, rows, at, RESAMPLES)
    return {
        key: (one.low <= truth[key] <= one.high, truth[key] < one.low, one.high - one.low) for key, one in found.items()
    }


def main(path: str) -> None:
    record: dict[str, Any] = {"repeats": REPEATS, "resamples": RESAMPLES, "rows": ROWS, "populations": {}}
    with ProcessPoolExecutor(int(os.environ.get("WORKERS", "2"))) as pool:
        for n, name in product(SIZES, POPULATIONS):
            truth = {key: one.value for key, one in judged(name, slice(None), 0, 1).items()}
            tries = list(pool.map(tried, [(name, n, at, truth) for at in range(REPEATS)], chunksize=20))
            of_name = record["populations"].setdefault(name, {key: {"truth": truth[key]} for key in truth})
            for key in truth:
                holds, above, width = np.mean([one[key] for one in tries], axis=0).tolist()
                of_name[key][str(n)] = {"holds": holds, "above": above, "below": 1 - holds - above, "width": width}
                print(f"{name}, n={n}: {key} {truth[key]:.4f} held in {holds:.3f}, width {width:.4f}", flush=True)
            Path(path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
