"""What needs no training of ours where rows have any number of labels: the bar to clear.

n rows . C labels
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyheads.judge.label_scores import Bools, LabelAnswers, change_of_labels, score_given

MOST_FREQUENT = "most frequent label"


@dataclass(slots=True)
class LabelBaseline:
    """One baseline's answers on one split, judged. `lead` is how much better the model answers the same rows, figure by
    figure, with paired intervals."""

    name: str
    scores: LabelAnswers
    lead: LabelAnswers


def label_baselines(
    marks_nC: Bools, answers: dict[str, Bools], model_nC: Bools, *, n_resamples: int = 1000, seed: int = 0
) -> list[LabelBaseline]:
    """The labels that cheap models give, by their names, judged beside those that a `model` gives to the same rows."""
    draws: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed}
    return [
        LabelBaseline(
            name, score_given(marks_nC, given_nC, **draws), change_of_labels(marks_nC, model_nC, given_nC, **draws)
        )
        for name, given_nC in answers.items()
    ]


def always(label: int, n_rows: int, n_labels: int) -> Bools:
    """One label for every row."""
    given_nC = np.zeros((n_rows, n_labels), dtype=bool)
    given_nC[:, label] = True
    return given_nC


def most_frequent(counts: Sequence[int]) -> int:
    """Of the labels with so many rows each the one that has most, of equals the first."""
    return int(np.argmax(counts))
