"""What needs no training of ours where rows have any number of labels: the bar to clear.

n rows . C labels
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from manyheads.data.rows import Rows
from manyheads.judge.baselines import TFIDF
from manyheads.judge.label_answers import LabelAnswered, marks_in
from manyheads.judge.label_scores import Bools, LabelAnswers, change_of_labels, score_given
from manyheads.ship.linear import LinearBaseline

MOST_FREQUENT = "most frequent label"


@dataclass(slots=True)
class LabelBaseline:
    """One baseline's answers on one split, judged; `seconds` is answering. `lead` is how much better the
    model answers the same rows, figure by figure, with paired intervals."""

    name: str
    scores: LabelAnswers
    seconds: float
    lead: LabelAnswers


def label_baselines(
    train: Rows | None,
    model: LabelAnswered,
    linear: LinearBaseline | None = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[LabelBaseline]:
    """The most frequent label of `train`, and the `linear` model where training fitted one, with its own thresholds,
    judged on the rows that a `model` answered. Without `train` it is the most frequent label of these rows."""
    rows, marks_nC = model.rows, model.marks_nC
    train_nC = marks_nC if train is None else marks_in(train, len(model.names))
    answers: dict[str, Callable[[], Bools]] = {MOST_FREQUENT: lambda: most_frequent(train_nC, len(rows))}
    if linear is not None:
        answers[TFIDF] = lambda: labels_given(linear, rows)
    draws, found = {"n_resamples": n_resamples, "seed": seed}, []
    for name, answer in answers.items():
        started = perf_counter()
        given_nC = answer()
        seconds = perf_counter() - started
        lead = change_of_labels(marks_nC, model.given_nC, given_nC, **draws)
        found.append(LabelBaseline(name, score_given(marks_nC, given_nC, **draws), seconds, lead))
    return found


def labels_given(linear: LinearBaseline, rows: Rows) -> Bools:
    """`(n, C)`: which labels a linear model gives."""
    probabilities_nC = linear.logits(rows.texts, rows.pairs).double().sigmoid()
    return (probabilities_nC >= torch.tensor(linear.thresholds, dtype=torch.float64)).numpy()


def most_frequent(train_nC: Bools, n_rows: int) -> Bools:
    """The label that most rows of `train_nC` have (of equals the first), for every row."""
    given_nC = np.zeros((n_rows, train_nC.shape[1]), dtype=bool)
    given_nC[:, train_nC.sum(0).argmax()] = True
    return given_nC
