"""The linear classifier that answers beside a network, fitted to the training rows at once; it is seldom far behind.

Wang and Manning (2012), "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification".

n rows . U terms . C classes
"""

import random
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from manyheads.config import Terms
from manyheads.data.rows import Rows
from manyheads.data.terms import number_of, terms_of
from manyheads.data.tokens import marks_of
from manyheads.nn.linear import LinearModel

STRENGTH = 16.0  # of each row against the pull to zero: anything from 4 to 64 is level
OF_LABELS = 4.0  # the same where each label is told by itself
TOLERANCE = 1e-3
MOST_STEPS = 200
MANY = 2000  # rows from which a term must be in two of them: a quarter of the terms, which answer as well
MOST_ROWS = 200_000  # of more rows so many
MOST_VOTES = 5_000_000  # numbers, of the most frequent terms: fitting takes twenty times their memory
SURE = 10.0  # logit of a class that all rows have, or none


def fit_linear(rows: Rows, n_classes: int, weights_C: np.ndarray | None = None) -> LinearModel | None:
    """Logistic regression by scikit-learn; None where there is no term, or one class alone.

    Args:
        weights_C: how much a row of each class counts, or what a row has of each label; None: all alike.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfVectorizer

    if len(rows) > MOST_ROWS:  # drawn, as classes may come in turn
        rows = rows.pick(sorted(random.Random(0).sample(range(len(rows)), MOST_ROWS)))  # noqa: S311 - no secret
    texts = [(text, None) for text in rows.texts] if rows.pairs is None else zip(rows.texts, rows.pairs, strict=True)
    limits: dict[str, Any] = {"min_df": 2 if len(rows) > MANY else 1, "max_features": max(1, MOST_VOTES // n_classes)}
    words = TfidfVectorizer(analyzer=lambda one: terms_of(*one), **limits)  # pyright: ignore[reportArgumentType]
    try:
        x_nU = words.fit_transform(texts)
    except ValueError:  # it has no other way to say that no term is left
        return None
    if rows.sets is None and len(set(rows.labels)) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few steps more change nothing that is seen
        if rows.sets is None:
            votes_UC, bias_C = of_classes(x_nU, np.array(rows.labels), n_classes, weights_C)
        else:
            votes_UC, bias_C = of_labels(x_nU, marks_of(rows.sets, n_classes).numpy(), weights_C)
    numbers = np.array([number_of(term) for term in words.get_feature_names_out()], dtype=np.int64)
    numbers, order = np.unique(numbers, return_index=True)  # of two terms with one number the first
    rarity_U, votes_UC, bias_C = (
        torch.from_numpy(one.astype(np.float32)) for one in (words.idf_[order], votes_UC[order], bias_C)
    )
    return LinearModel(torch.from_numpy(numbers), rarity_U, votes_UC, bias_C, Terms.words)


def of_classes(
    x_nU: Any, labels: np.ndarray, n_classes: int, weights_C: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Votes `(U, C)` and bias `(C,)`, of which a row has one class."""
    from sklearn.linear_model import LogisticRegression

    weights_n = None if weights_C is None else weights_C[labels]
    machine = LogisticRegression(C=STRENGTH, max_iter=MOST_STEPS, tol=TOLERANCE).fit(x_nU, labels, weights_n)
    coef_CU, intercept_C = machine.coef_, machine.intercept_
    if len(machine.classes_) == 2:  # for the second against the first
        coef_CU, intercept_C = (np.concatenate((-one / 2, one / 2)) for one in (coef_CU, intercept_C))
    votes_UC, bias_C = np.zeros((x_nU.shape[1], n_classes)), np.full(n_classes, intercept_C.min() - SURE)
    votes_UC[:, machine.classes_], bias_C[machine.classes_] = coef_CU.T, intercept_C
    return votes_UC, bias_C


def of_labels(x_nU: Any, marks_nC: np.ndarray, weights_C: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The same of which a row has any number, each label by itself."""
    found = list(_each_label(x_nU, marks_nC, [None] * marks_nC.shape[1] if weights_C is None else weights_C))
    return np.stack([votes_U for votes_U, _ in found], axis=1), np.array([bias for _, bias in found])


def _each_label(x_nU: Any, marks_nC: np.ndarray, weights: Iterable[Any]) -> Iterator[tuple[np.ndarray, float]]:
    from sklearn.linear_model import LogisticRegression

    for marks_n, weight in zip(marks_nC.T, weights, strict=True):
        if len(set(marks_n.tolist())) < 2:
            yield np.zeros(x_nU.shape[1]), SURE if marks_n.any() else -SURE
            continue
        machine = LogisticRegression(C=OF_LABELS, solver="liblinear", tol=10 * TOLERANCE, random_state=0)
        machine.fit(x_nU, marks_n, None if weight is None else np.where(marks_n > 0, weight, 1.0))
        intercept_1: Any = machine.intercept_
        yield machine.coef_[0], float(intercept_1[0])
