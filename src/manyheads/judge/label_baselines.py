"""What needs no training of ours where rows have any number of labels: the bar to clear.

n rows . C labels
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch

from manyheads.data.rows import Rows
from manyheads.judge.baselines import joined
from manyheads.judge.label_answers import LabelAnswered, marks_in
from manyheads.judge.label_scores import Bools, LabelAnswers, change_of_labels, score_given
from manyheads.judge.scores import Floats
from manyheads.thresholds import best, count, no_counts

MOST_FREQUENT = "most frequent label"
TFIDF = "TF-IDF + logistic regression"
TOLERANCE = 0.01  # of the regression: two thirds of the time of scikit-learn's 0.0001, logits 0.0001 apart


@dataclass(slots=True)
class LabelBaseline:
    """One baseline's answers on one split, judged; `seconds` is fitting and answering. `lead` is how much better the
    model answers the same rows, figure by figure, with paired intervals."""

    name: str
    scores: LabelAnswers
    seconds: float
    lead: LabelAnswers


def label_baselines(
    train: Rows | None, validation: Rows, model: LabelAnswered, *, n_resamples: int = 1000, seed: int = 0
) -> list[LabelBaseline]:
    """Both baselines, fitted on `train`, with thresholds tuned on `validation`, as those of a `model` are, and judged
    on the rows that it answered. Without `train` it is the most frequent label of these rows alone."""
    rows, marks_nC, n_labels = model.rows, model.marks_nC, len(model.names)
    draws, found = {"n_resamples": n_resamples, "seed": seed}, []
    for name in (MOST_FREQUENT, TFIDF) if train else (MOST_FREQUENT,):
        started = perf_counter()
        if train is None or name == MOST_FREQUENT:
            given_nC = most_frequent(marks_nC if train is None else marks_in(train, n_labels), len(rows))
        else:
            given_nC = tfidf_labels(train, validation, rows, n_labels)
        seconds = perf_counter() - started
        lead = change_of_labels(marks_nC, model.given_nC, given_nC, **draws)
        found.append(LabelBaseline(name, score_given(marks_nC, given_nC, **draws), seconds, lead))
    return found


def most_frequent(train_nC: Bools, n_rows: int) -> Bools:
    """The label that most rows of `train_nC` have (of equals the first), for every row."""
    given_nC = np.zeros((n_rows, train_nC.shape[1]), dtype=bool)
    given_nC[:, train_nC.sum(0).argmax()] = True
    return given_nC


def tfidf_labels(train: Rows, validation: Rows, rows: Rows, n_labels: int) -> Bools:
    """A logistic regression for each label on TF-IDF of words and pairs of neighbouring words.

    scikit-learn's defaults, but words of one letter count too, and what only one text has does not, which halves the
    time. Thresholds are tuned on `validation`. Where `train` has no word
    twice it answers as `most_frequent` does.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    one_or_more_letters = r"(?u)\b\w+\b"
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=one_or_more_letters, min_df=2)
    train_nC = marks_in(train, n_labels)
    try:
        train_nW = words.fit_transform(joined(train))
    except ValueError:  # it has no other way to say that no word is left
        return most_frequent(train_nC, len(rows))
    counts, at = no_counts(n_labels), [words.transform(joined(one)) for one in (validation, rows)]
    logits_nC, asked_nC = logistic(train_nW, train_nC, at)
    count(counts, torch.from_numpy(logits_nC), torch.from_numpy(marks_in(validation, n_labels)))
    thresholds_C = best(counts).thresholds_C.numpy()
    return asked_nC >= np.log(thresholds_C / (1 - thresholds_C))


def logistic(train_nW: Any, train_nC: Bools, asked: Sequence[Any]) -> list[Floats]:
    """Logits of each label for each of `asked`, by a regression of its own; a label that no training row has, or that
    all have, is told the same of every text."""
    from sklearn.linear_model import LogisticRegression

    columns: list[list[Floats]] = []
    for own_n in train_nC.T:
        if own_n.all() or not own_n.any():
            same = 100.0 if own_n.all() else -100.0
            columns.append([np.full(one.shape[0], same) for one in asked])
            continue
        model = LogisticRegression(solver="liblinear", tol=TOLERANCE, random_state=0).fit(train_nW, own_n)
        columns.append([model.decision_function(one) for one in asked])
    return [np.stack(of_one, axis=1) for of_one in zip(*columns, strict=True)]
