"""How often the 95 % intervals of evaluation/metrics.py hold the figure of all texts.

A population of `ROWS` texts is made of numbers alone: each has a class, drawn by its share, and logits that tell it
more or less. Its figures are known, since all of it is judged. Then n texts are drawn from it, again and again, and
judged as `manyheads evaluate` does; counted is how often an interval holds the population's figure.

    python benchmarks/coverage.py benchmarks/coverage.json                 with REPEATS=100 in front a glance
    python benchmarks/coverage.py benchmarks/coverage.json "90 labels"     populations with this in their name alone

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

from manyheads.evaluation.intervals import mean_interval
from manyheads.evaluation.metrics import change_of_answers, score, score_labels
from manyheads.plugins.judge.decisions import cost_figures
from manyheads.runs.summary import Figures

Array = NDArray[Any]
ROWS, SIZES, SEED = 200_000, (50, 500, 5_000), 0
REPEATS = int(os.environ.get("REPEATS", "1000"))
RARE = [0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.015, 0.005]
POPULATIONS = {  # shares of the classes, how far a class stands out, and what its logits are multiplied by: 1 is honest
    "4 even classes": ([0.25] * 4, 2.5, 1.5),
    "4 even classes, calibrated": ([0.25] * 4, 2.5, 1.0),
    "8 classes, the rarest 0.5 %": (RARE, 2.5, 1.5),
    "20 even classes": ([0.05] * 20, 3.0, 1.5),
    "77 even classes": ([1 / 77] * 77, 3.5, 1.5),
    "6 labels, the rarest 2 %": ([0.5, 0.3, 0.15, 0.08, 0.04, 0.02], 2.5, 1.5),
    "90 labels, Zipf's sizes": ([0.5 / rank for rank in range(1, 91)], 2.5, 1.5),  # 2.5 labels in a row
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


def costs_of(n_classes: int) -> Array:
    """What answers cost `(C, C)`: a mistake 1, the first class in place of another 5, the last one missed 20."""
    costs_CC = 1.0 - np.eye(n_classes)
    costs_CC[1:, 0], costs_CC[-1, :-1] = 5, 20
    return costs_CC


def judged(name: str, rows: Any) -> tuple[Figures, Figures, list[Array]]:
    """Every figure of the first model on some rows, and of its differences to the second; and for either model the
    classes or labels that rows have or are given, of which macro figures are the mean."""
    labels, *both = (part[rows] for part in population(name))
    n_classes = both[0].shape[1]
    names = [str(at) for at in range(n_classes)]
    if "labels" in name:
        scores = score_labels(labels, both[0], names, [0.5] * n_classes)
        given = [one >= 0.5 for one in both]
        losses = [-np.log(np.where(labels, one, 1 - one)).sum(1) for one in both]
        occur = [labels.any(0) | one.any(0) for one in given]
    else:
        scores = score(labels, both[0], names)
        given = [one.argmax(1) for one in both]
        losses = [-np.log(one[np.arange(len(labels)), labels]) for one in both]
        occur = [np.bincount(np.concatenate([labels, one]), minlength=n_classes) > 0 for one in given]
    (change,) = change_of_answers(labels, given[0], [given[1]], n_classes)
    figures, change = scores.figures, change | {"loss": mean_interval(losses[1] - losses[0])}
    if "labels" not in name:
        cheapest, ones, costs_CC = (both[0] @ costs_of(n_classes)).argmin(1), np.ones_like(labels), costs_of(n_classes)
        cost = cost_figures(labels, given[0], cheapest, ones, costs_CC)
        figures = figures | {"cost": cost["likeliest"], "least expected cost": cost["least_cost"]}
        change = change | {"cost": cost["change"]}
    return figures, change, occur


@cache
def truth(name: str) -> tuple[dict[str, float], dict[str, float], list[dict[str, Array]]]:
    """The figures of all texts, the differences, and the figures of each class by either model."""
    figures, changes, _ = judged(name, slice(None))
    labels, *both = population(name)
    of_class = []
    for one in both:
        marks_nC = labels if "labels" in name else np.eye(one.shape[1], dtype=bool)[labels]
        given_nC = one >= 0.5 if "labels" in name else np.eye(one.shape[1], dtype=bool)[one.argmax(1)]
        right_C, had_C, given_C = (part.sum(0) for part in (marks_nC & given_nC, marks_nC, given_nC))
        of_class.append({
            "macro_f1": 2 * right_C / (had_C + given_C), "macro_precision": right_C / given_C,
            "macro_recall": right_C / had_C,
        })  # fmt: skip
    plain = ({key: one.value for key, one in part.items()} for part in (figures, changes))
    return *plain, of_class


def tried(case: tuple[str, int, int]) -> dict[str, tuple[float, float, float, float]]:
    """Of one draw: whether each interval holds the truth, lies above it, how wide it is, and whether it leans."""
    name, n, at = case
    figures, changes, occur = judged(name, np.random.default_rng((SEED, n, at)).integers(ROWS, size=n))
    true, true_changes, of_class = truth(name)
    macro = [
        {key: float(each_C[some].mean()) for key, each_C in one.items()}
        for one, some in zip(of_class, occur, strict=True)
    ]
    true = true | macro[0]
    true_changes = true_changes | {key: macro[1][key] - macro[0][key] for key in macro[0]}
    every = [(key, one, true[key]) for key, one in figures.items()]
    every += [(f"change of {key}", one, true_changes[key]) for key, one in changes.items()]
    every += [(f"{key} of all classes", figures[key], truth(name)[0][key]) for key in macro[0]]
    return {
        key: (one.low <= mean <= one.high, mean < one.low, one.high - one.low, one.leans) for key, one, mean in every
    }


def main(path: str, named: str = "") -> None:
    record: dict[str, Any] = {"repeats": REPEATS, "rows": ROWS, "populations": {}}
    if named:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    with ProcessPoolExecutor(int(os.environ.get("WORKERS", "2"))) as pool:
        for n, name in product(SIZES, [name for name in POPULATIONS if named in name]):
            tries = list(pool.map(tried, [(name, n, at) for at in range(REPEATS)], chunksize=20))
            of_name = record["populations"].setdefault(name, {})
            for key in tries[0]:
                holds, above, width, leans = np.mean([one[key] for one in tries], axis=0).tolist()
                cell = {"holds": holds, "above": above, "below": 1 - holds - above, "width": width}
                if leans:
                    leaning = [one[key][0] for one in tries if one[key][3]]
                    cell |= {"leans": leans, "holds if it leans": float(np.mean(leaning))}
                of_name.setdefault(key, {})[str(n)] = {part: round(value, 4) for part, value in cell.items()}
                print(f"{name}, n={n}: {key} held in {holds:.3f}, width {width:.4f}", flush=True)
            Path(path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
