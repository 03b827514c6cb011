"""Answers of a classifier to rows that are drawn."""

import numpy as np
import torch

from manyheads.data.rows import Rows
from manyheads.evaluation.answered import LogitStore
from manyheads.evaluation.metrics import Scores, score
from manyheads.runs.summary import NETWORK

NAMES = ["a", "b", "c"]


def drawn(n: int = 900) -> tuple[LogitStore, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    labels, logits = random.integers(3, size=n), random.normal(size=(n, 3)).astype(np.float32)
    logits[np.arange(n), labels] += 1.5
    rows = Rows(["x"] * n, None, labels.tolist(), "x.csv", range(n))
    likely = torch.tensor(logits).double().softmax(-1).numpy()
    return (
        LogitStore(rows, NAMES, {NETWORK: None}, {NETWORK: logits}),
        likely,
        labels,
    )


def judged(n_classes: int = 3, n: int = 90) -> tuple[Scores, LogitStore]:
    """The figures of some rows whose texts are markup, and the answers to them."""
    random = np.random.default_rng(0)
    names = [f"class {at}" for at in range(n_classes)]
    labels, likely = random.integers(n_classes, size=n), random.dirichlet(np.ones(n_classes), n)
    some = Rows([f"<b>text {at}</b>" for at in range(n)], None, labels.tolist(), "x.csv", range(2, n + 2))
    logits = np.log(likely).astype(np.float32)
    return score(labels, likely, names), LogitStore(some, names, {NETWORK: None}, {NETWORK: logits})
