"""Answers of a classifier to rows that are drawn."""

import numpy as np
import torch

from manyheads.data.rows import Rows
from manyheads.evaluation.answered import LogitStore
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
