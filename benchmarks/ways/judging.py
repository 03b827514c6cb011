"""The figures of one run's answers, and the answers themselves, row by row, in few characters.

n rows . C labels
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from ways.figures import packed


def of_answers(labels: Sequence[Any], answers: Sequence[Any]) -> dict[str, Any]:
    """Of one answer a row; `right` says of each row whether it was."""
    right_n = np.array([one == other for one, other in zip(labels, answers, strict=True)])
    macro = float(f1_score(list(labels), list(answers), average="macro", zero_division=0.0))  # pyright: ignore
    test = {"accuracy": round(float(right_n.mean()), 5), "macro_f1": round(macro, 5)}
    return {"test": test, "n": len(right_n), "right": packed(right_n)}


def of_labels(truth: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
    """Of any number of labels a row, joined by `|`; `answers` and `truth` say which, the labels in sorted order."""
    sets = [[{name for name in one.split("|") if name} for one in column] for column in (truth, answers)]
    names = sorted(set().union(*sets[0], *sets[1]))
    truth_nC, answer_nC = (np.array([[name in one for name in names] for one in column]) for column in sets)
    figures = {}
    for kind in ("micro", "macro"):
        score = f1_score(truth_nC, answer_nC, average=kind, zero_division=0.0)  # pyright: ignore[reportArgumentType]
        figures[f"{kind}_f1"] = round(float(score), 5)
    return {
        "test": figures,
        "n": len(truth_nC),
        "labels": names,
        "truth": packed(truth_nC),
        "answers": packed(answer_nC),
    }
