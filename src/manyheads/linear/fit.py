"""Logistic regression: the linear model of a run by scikit-learn, and a head fitted before the first step.

Wang and Manning (2012), "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification": words and pairs of
words, and logistic regression, one for each class. A term weighs more if it is rare, and if it says much about the
class. What is counted in a text is chosen on validation rows: docs/results/lab-notes.md.

n rows . D features . U terms . E terms of all rows . C classes . M marks: the class of a row, or each label it has
"""

import random
import warnings
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import Terms
from manyheads.data.disk_cache import cached_on_disk
from manyheads.data.rows import ROWS_AT_ONCE, Rows, Splits
from manyheads.linear.blend import (
    best_temperature,
    label_tensor,
    likelihoods,
    log_likelihoods,
    row_weights,
    rows_of_shares,
)
from manyheads.linear.model import Counted, LinearModel, counted, unspaced

MOST_STEPS = 100  # of L-BFGS
STRENGTH = 16.0  # scikit-learn's C, the inverse strength of the L2 penalty: 4 and 64 do as well
TOLERANCE = 0.1  # of the dual problem
OF_LABELS = 4.0  # the same where a row has any number of labels
MANY = 2000  # rows from which a term must be in two of them: a quarter of the terms, which answer as well
MOST_ROWS = 200_000  # at most; of more a sample
MOST_FITTED = 2_000_000_000  # classes times rows: hours, as 10,000 classes of 200,000 rows take
MOST_VOTES = 5_000_000  # numbers, of the most frequent terms
MOST_LETTERS = {Terms.words: 60_000_000, Terms.characters: 6_000_000, Terms.both: 6_000_000}  # 20 million terms, 1 GB
TERMS_AT_ONCE = 2**20  # that are numbered
ROWS_TO_COUNT = 20_000  # texts of a large table whose letters are counted
ROWS_TO_CHOOSE = 4000  # of training, and half as many of validation
LEAST_GAIN = 0.01  # nats a row
LEAST_INFORMATION = 0.5  # nats that every term counts for, in addition to its own
SURE = 10.0  # logit of a class that all rows have, or none


def too_many(rows: Rows, n_classes: int) -> bool:
    """Whether a linear model would take hours, as each of its classes is fitted on all rows."""
    return n_classes * min(len(rows), MOST_ROWS) > MOST_FITTED


def fit_linear(
    rows: Rows,
    n_classes: int,
    weights_C: np.ndarray | None = None,
    validation: Rows | None = None,
    *,
    terms: Terms | None = None,
) -> LinearModel | None:
    """Logistic regression by scikit-learn; None where there is no term, one class alone, or `too_many`.

    Args:
        weights_C: how much a row of each class counts, or what a row has of each label; None: all alike.
        validation: rows by whose likelihood the terms are chosen; None: words, or runs of characters in scripts without
            spaces.
        terms: those that were chosen before.
    """
    rows = rows.readable()
    if rows.voters is not None:
        rows, _ = rows_of_shares(rows)
    if rows.weights is not None:  # what weighs nothing is not there
        rows = rows.pick(np.flatnonzero(rows.weights))
    if (rows.sets is None and len(set(rows.labels)) < 2) or too_many(rows, n_classes):
        return None
    if terms is None and validation is not None:
        terms = choose_terms(rows, n_classes, weights_C, validation)
    elif terms is None:
        terms = Terms.characters if unspaced(rows.texts[:ROWS_TO_CHOOSE]) else Terms.words
    rows = _sample(rows, MOST_ROWS, MOST_LETTERS[terms])
    return fit_counted(counted(rows.texts, rows.pairs, terms), rows, n_classes, weights_C, terms)


def cached_linear(folder: Path, splits: Splits, weights_C: np.ndarray | None) -> LinearModel | None:
    """`fit_linear` of the training rows, with terms chosen on validation; from the cache `folder` where the same rows
    were fitted before, as by another trial of a search."""
    train, validation = (rows.digest(splits.labels) for rows in (splits.train, splits.validation))
    weights = None if weights_C is None else weights_C.tolist()
    kind = [splits.train.pairs is None, splits.train.voters is None]  # which digests do not say
    key = [train, validation, *kind, splits.labels, weights, code_digest(), version("scikit-learn")]

    def fit() -> dict[str, Any]:
        model = fit_linear(splits.train, len(splits.labels), weights_C, splits.validation)
        if model is None:
            return {"terms": None}
        return {"terms": model.terms.name} | {name: one.numpy() for name, one in model.state_dict().items()}

    found = cached_on_disk(folder, "linear", key, fit, _is_linear)
    terms = found.pop("terms")
    if terms is None:
        return None
    return LinearModel(**{name: torch.from_numpy(one) for name, one in found.items()}, terms=Terms[terms])


@cache
def code_digest() -> str:
    """Of the files that make a linear model: one of another formula is not read from the cache."""
    here = Path(__file__).parent
    code = [(here / name).read_bytes() for name in ("blend.py", "fit.py", "model.py", "../data/ids/terms.py")]
    return blake2b(b"".join(code), digest_size=8).hexdigest()


def _is_linear(found: dict[str, Any]) -> bool:
    """Whether a file of the cache holds a whole model, or says that there is none."""
    tensors = {"terms_U", "rarity_U", "votes_UC", "bias_C"}
    return found.keys() == ({"terms"} if found["terms"] is None else {"terms", *tensors})


def choose_terms(rows: Rows, n_classes: int, weights_C: np.ndarray | None, validation: Rows) -> Terms:
    """The terms that make `validation` likeliest, each with its own best temperature there.

    Words come first, then both, between them characters alone where the texts are of scripts without spaces; the first
    are taken unless others are clearly likelier. Where texts are so long that runs of characters would fill the
    memory, runs are tried in scripts without spaces alone. At most 4,000 training rows and 2,000 of validation are
    used, fewer where they are long.
    """
    if unspaced(rows.texts[:ROWS_TO_CHOOSE]):
        kinds = [*Terms]
    elif _letters(rows) > MOST_LETTERS[Terms.both]:
        kinds = [Terms.words]
    else:
        kinds = [Terms.words, Terms.both]
    most_letters = MOST_LETTERS[kinds[-1]] // 6
    train = _sample(rows, ROWS_TO_CHOOSE, most_letters)
    validation = _sample(validation, ROWS_TO_CHOOSE // 2, most_letters)
    labels = label_tensor(validation, n_classes)
    weights = row_weights(labels, None if weights_C is None else torch.from_numpy(weights_C))
    log_likelihood_n: dict[Terms, Tensor] = {}  # of each validation row
    for terms in kinds:
        model = fit_counted(counted(train.texts, train.pairs, terms), train, n_classes, weights_C, terms)
        logits_nC = torch.zeros(len(validation), n_classes)
        if model is not None:
            logits_nC = model.of(counted(validation.texts, validation.pairs, terms))
        scaled_nC = logits_nC / best_temperature(logits_nC, labels, weights)
        logs = log_likelihoods(likelihoods(scaled_nC, labels), weights)
        log_likelihood_n[terms] = logs.reshape(len(validation), -1).sum(1)
    return simplest(log_likelihood_n)


def simplest(logs: dict[Any, Tensor]) -> Any:
    """The first, unless others are likelier by `LEAST_GAIN` beyond chance, at the level of 95 %; then the likeliest."""
    first_n, *_ = logs.values()

    def lead(log_n: Tensor) -> float:
        more_n = log_n - first_n
        return float(more_n.mean() - 1.96 * more_n.std(correction=0) / len(more_n) ** 0.5)

    surely = [name for name, log_n in logs.items() if lead(log_n) > LEAST_GAIN]
    return max(surely, key=lambda name: float(logs[name].sum()), default=next(iter(logs)))


def fit_counted(
    found: Counted, rows: Rows, n_classes: int, weights_C: np.ndarray | None, terms: Terms
) -> LinearModel | None:
    """The model of the terms that were `found` in the rows; None where there is none."""
    from scipy.sparse import csr_array

    terms_U, at_E = _numbered(np.asarray(found.terms_E))  # which copies nothing
    n_rows_U = np.bincount(at_E)
    kept_U = np.flatnonzero(n_rows_U >= (2 if len(rows) > MANY else 1))
    in_most_U = np.argsort(-n_rows_U[kept_U], kind="stable")[: max(1, MOST_VOTES // n_classes)]
    kept_U = np.sort(kept_U[in_most_U])
    if not len(kept_U):
        return None
    rarity_U = np.log((1 + len(rows)) / (1 + n_rows_U[kept_U])) + 1
    places = (at_E, np.array(found.bounds, dtype=np.int32))  # the solver takes no others
    x_nU = csr_array((np.array(found.counts_E, dtype=np.float64), *places), shape=(len(rows), len(terms_U)))[:, kept_U]
    del found, at_E, places  # of many rows as large as what is made of them
    rarity_U *= LEAST_INFORMATION + information(x_nU, rows, n_classes)
    _weigh(x_nU, rarity_U)
    votes_UC, bias_C = fit_classes(x_nU, rows, n_classes, weights_C)
    rarity, votes, bias = (torch.from_numpy(one.astype(np.float32)) for one in (rarity_U, votes_UC, bias_C))
    return LinearModel(torch.from_numpy(terms_U[kept_U]), rarity, votes, bias, terms)


def _numbered(terms_E: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different terms, ascending, and the place of each term among them, int32: `np.unique`, but some at a time, as
    that takes six times the memory of the terms."""
    terms_U, at_E = np.unique(terms_E), np.empty(len(terms_E), dtype=np.int32)
    for start in range(0, len(terms_E), TERMS_AT_ONCE):
        part = slice(start, start + TERMS_AT_ONCE)
        some, places = np.unique(terms_E[part], return_inverse=True)
        at_E[part] = np.searchsorted(terms_U, some)[places]
    return terms_U, at_E


def information(x_nU: Any, rows: Rows, n_classes: int) -> np.ndarray:
    """What each term says about the class, in nats `(U,)`: how far the classes of the rows that have it are from those
    of all rows, as relative entropy. One more row, of all classes by their shares, keeps it low for rare terms.

    Debole and Sebastiani (2003), "Supervised Term Weighting for Automated Text Categorization", of which this is the
    information gain of a term that is there.
    """
    from scipy.sparse import csr_array

    if rows.sets is None:
        label_M, at_M = np.array(rows.labels, dtype=np.int32), np.arange(len(rows), dtype=np.int32)
    else:
        label_M = np.array([label for labels in rows.sets for label in labels], dtype=np.int32)
        at_M = np.repeat(np.arange(len(rows), dtype=np.int32), [len(labels) for labels in rows.sets])
    weight_M = np.ones(len(at_M)) if rows.weights is None else (rows.weights / rows.weights.mean())[at_M]
    rows_Cn = csr_array((weight_M.astype(np.float32), (label_M, at_M)), shape=(n_classes, len(rows)))
    present_nU = csr_array((np.ones(x_nU.nnz, np.float32), x_nU.indices, x_nU.indptr), shape=x_nU.shape)
    found_CU: Any = rows_Cn @ present_nU
    share_C = np.bincount(label_M, weight_M, n_classes) / max(1, weight_M.sum())
    n_terms, at_U, count = x_nU.shape[1], found_CU.indices, found_CU.data.astype(np.float64)
    share = share_C[np.repeat(np.arange(n_classes), np.diff(found_CU.indptr))]
    total_U = np.bincount(at_U, count, n_terms)
    chance = (count + share) / (total_U[at_U] + 1)
    of_found_U = np.bincount(at_U, chance * np.log(chance / share), n_terms)
    others_U = 1 - np.bincount(at_U, share, n_terms)  # the share of the classes that no row with the term has
    return (of_found_U - others_U * np.log1p(total_U) / (total_U + 1)).clip(min=0)


def _weigh(x_nU: Any, rarity_U: np.ndarray) -> None:
    """Make the counts of the terms of each text, in place, a vector of length one, by their rarity; some texts at a
    time."""
    for start in range(0, x_nU.shape[0], ROWS_AT_ONCE):
        bounds = x_nU.indptr[start : start + ROWS_AT_ONCE + 1]
        part = slice(bounds[0], bounds[-1])
        data = x_nU.data[part]
        data *= rarity_U[x_nU.indices[part]]
        text_E = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        data /= np.sqrt(np.bincount(text_E, data**2, len(bounds) - 1))[text_E]


def fit_classes(x_nU: Any, rows: Rows, n_classes: int, weights_C: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Votes `(U, C)` and bias `(C,)`: each class against the rest, two by one regression.

    A class, or label, that no row has is never answered, a label that all have always.
    """
    votes_UC, bias_C = np.zeros((x_nU.shape[1], n_classes), dtype=np.float32), np.zeros(n_classes)
    own_n = np.ones(len(rows)) if rows.weights is None else rows.weights / rows.weights.mean()
    weights_C = np.ones(n_classes) if weights_C is None else weights_C
    if rows.sets is not None:
        for label, marks_n in enumerate(label_tensor(rows, n_classes).bool().numpy().T):
            if marks_n.all() or not marks_n.any():
                bias_C[label] = SURE if marks_n.any() else -SURE
                continue
            weights_n = own_n * np.where(marks_n, weights_C[label], 1.0)
            votes_UC[:, label], bias_C[label] = fit_one(x_nU, marks_n, weights_n, OF_LABELS)
        return votes_UC, bias_C
    labels = np.array(rows.labels)
    weights_n = own_n * weights_C[labels]
    classes = np.unique(labels)
    if len(classes) == 2:  # for the second against the first
        votes_U, bias = fit_one(x_nU, labels == classes[1], weights_n)
        votes_UC[:, classes], bias_C[classes] = np.stack((-votes_U, votes_U), 1) / 2, (-bias / 2, bias / 2)
    elif len(classes) > 2:
        for label in classes:
            votes_UC[:, label], bias_C[label] = fit_one(x_nU, labels == label, weights_n)
    bias_C[np.setdiff1d(np.arange(n_classes), classes)] = bias_C[classes].min() - SURE
    return votes_UC, bias_C


def fit_one(
    x_nU: Any, marks_n: np.ndarray, weights_n: np.ndarray, strength: float = STRENGTH
) -> tuple[np.ndarray, float]:
    """Votes `(U,)` and bias for those that are marked against the others."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    machine = LogisticRegression(C=strength, solver="liblinear", dual=True, tol=TOLERANCE, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few steps more change nothing that is seen
        machine.fit(x_nU, marks_n, weights_n)
    intercept_1: Any = machine.intercept_
    return machine.coef_[0], float(intercept_1[0])


def _sample(rows: Rows, most: int, most_letters: int) -> Rows:
    """A sample of at most `most` rows with at most `most_letters` letters; drawn, as classes may come in turn."""
    share = min(most / max(1, len(rows)), most_letters / max(1, _letters(rows)))
    if share >= 1:
        return rows
    return rows.pick(sorted(random.Random(0).sample(range(len(rows)), max(1, int(share * len(rows))))))  # noqa: S311


def _letters(rows: Rows) -> int:
    """Letters of all texts; of a large table, which is read for them, as its first texts have them."""
    first = rows
    if not getattr(rows.texts, "is_kept", True):
        first = rows.pick(range(min(len(rows), ROWS_TO_COUNT)))
    n_letters = sum(map(len, first.texts)) + sum(map(len, first.pairs or []))
    return n_letters * len(rows) // max(1, len(first))


@torch.enable_grad()
def logistic(
    x_nD: Tensor,
    labels: Tensor,
    n_classes: int,
    *,
    multi: bool = False,
    strength: float,
    weights_n: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Matrix `(C, D)` and bias `(C,)` of logistic regression to `labels`: class ids `(n,)` or their probabilities
    `(n, C)`; with `multi` marks of labels, or their probabilities, `(n, C)`.

    Rows are shifted and scaled to a mean of zero and a mean length of one. The mean loss plus an L2 penalty of the
    matrix is minimised by L-BFGS, which begins at zero: so nothing is drawn.

    Args:
        strength: the inverse strength of the penalty; scikit-learn's C.
        weights_n: factors of the rows' losses; None: all are 1.
    """
    middle_D, size = x_nD.mean(0), x_nD.norm(dim=1).mean().clamp(min=1e-6)
    scaled_nD = (x_nD - middle_D) / size
    weight_CD = torch.zeros(n_classes, x_nD.shape[1], requires_grad=True)
    bias_C = torch.zeros(n_classes, requires_grad=True)
    solver = torch.optim.LBFGS([weight_CD, bias_C], max_iter=MOST_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        logits_nC = F.linear(scaled_nD, weight_CD, bias_C)
        if multi:
            losses_n = F.binary_cross_entropy_with_logits(logits_nC, labels.float(), reduction="none").sum(1)
        else:
            losses_n = F.cross_entropy(logits_nC, labels, reduction="none")
        total = (losses_n if weights_n is None else losses_n * weights_n).mean()
        total = total + weight_CD.square().sum() / (2 * strength * len(x_nD))
        total.backward()
        return total

    solver.step(loss)
    weight_CD = weight_CD.detach() / size
    return weight_CD, bias_C.detach() - weight_CD @ middle_D
