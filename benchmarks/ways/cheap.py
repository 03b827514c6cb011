"""Models that need no network: their answers to the test rows.

Whatever is chosen is chosen on the validation part; then a model is fitted on all rows of train.csv.

n rows . C labels
"""

import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.rows import Rows, Splits
from ways.rows import read

Answer = Callable[[Rows, Rows], list[int]]  # fitted on the first, to the second
Point = tuple[float, ...]
STRENGTHS = [4.0**at for at in range(-5, 6)]  # of a linear model, C: the inverse of its penalty
RATES = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
EPOCHS = [5.0, 15.0, 50.0, 150.0, 500.0]
FEW, MOST_WORDS = 2000, 100_000_000  # rows up to which fastText's search begins by more epochs; words it reads at most
MANY = 20_000  # rows from which fastText has its usual two million buckets
MIDDLE_C, MIDDLE_OF_LABELS, MIDDLE_RATE, MIDDLE_EPOCHS, MIDDLE_EPOCHS_OF_FEW = 1.0, 4.0, 0.3, 15.0, 150.0


def answers(way: str, splits: Splits, everything: Rows, seed: int) -> tuple[list[int], list[int], dict[str, Any]]:
    """Answers to the validation rows by a model fitted on the training part, to the test rows by one fitted on
    `everything`, and what was chosen."""
    assert splits.test is not None
    fit, chosen = choose(way, splits, seed)
    return fit(splits.train, splits.validation), fit(everything, splits.test), chosen


def choose(way: str, splits: Splits, seed: int) -> tuple[Answer, dict[str, Any]]:
    """The settings that are best on the validation part: C, or the rate and the epochs of fastText."""
    if way == "majority":
        return most_frequent, {}
    machine: Callable[..., list[int]] = partial(fasttext, seed=seed)
    names: tuple[str, ...] = ("rate", "epochs")
    ladders: tuple[list[float], ...] = (RATES, epochs_for(splits.train))
    middle: Point = (MIDDLE_RATE, MIDDLE_EPOCHS_OF_FEW if len(splits.train) <= FEW else MIDDLE_EPOCHS)
    if way != "fasttext":
        machine, names = (shared_words if way == "pairs" else words), ("strength",)
        ladders, middle = (STRENGTHS,), (MIDDLE_C,)

    def score(point: Point) -> float:
        given = machine(splits.train, splits.validation, **dict(zip(names, point, strict=True)))
        return float(np.mean(np.equal(given, splits.validation.labels)))

    best, tried = climb(score, ladders, middle)
    settings = dict(zip(names, best, strict=True))
    return partial(machine, **settings), {**settings, "tried": tried}


def climb(score: Callable[[Point], float], ladders: tuple[list[float], ...], middle: Point) -> tuple[Point, int]:
    """The best point of a grid, and how many were tried.

    The grid holds the middle of each ladder and its neighbours. While the best point lies on an edge of the grid and
    the ladder continues, the grid grows by that step. Of points that are level the nearest to the middle wins.
    """
    start = [
        min(ladder.index(at) if at in ladder else len(ladder) - 1, len(ladder) - 1)
        for ladder, at in zip(ladders, middle, strict=True)
    ]
    low = [max(0, at - 1) for at in start]
    high = [min(len(ladder) - 1, at + 1) for ladder, at in zip(ladders, start, strict=True)]
    found: dict[tuple[int, ...], float] = {}
    while True:
        for at in product(*(range(one, other + 1) for one, other in zip(low, high, strict=True))):
            if at not in found:
                found[at] = score(tuple(ladder[step] for ladder, step in zip(ladders, at, strict=True)))
        best = max(found, key=lambda at: (found[at], -sum(abs(one - mid) for one, mid in zip(at, start, strict=True))))
        grown = False
        for axis, ladder in enumerate(ladders):
            if best[axis] == low[axis] > 0:
                low[axis], grown = low[axis] - 1, True
            elif best[axis] == high[axis] < len(ladder) - 1:
                high[axis], grown = high[axis] + 1, True
        if not grown:
            return tuple(ladder[step] for ladder, step in zip(ladders, best, strict=True)), len(found)


def epochs_for(train: Rows) -> list[float]:
    """As many as fastText may read in `MOST_WORDS` words; one choice at least."""
    n_words = sum(len(line(text).split()) for text in joined(train))
    return [one for one in EPOCHS if one * n_words <= MOST_WORDS] or EPOCHS[:1]


def joined(rows: Rows) -> list[str]:
    """One text a row: both texts of a pair with a separator between them, which no bigram crosses unseen."""
    if rows.pairs is None:
        return rows.texts
    return [f"{text} pairseparator {pair}" for text, pair in zip(rows.texts, rows.pairs, strict=True)]


def most_frequent(train: Rows, rows: Rows) -> list[int]:
    """Of equals the first."""
    counts = Counter(train.labels)
    return [max(sorted(counts), key=lambda label: counts[label])] * len(rows)


def words(train: Rows, rows: Rows, *, strength: float) -> list[int]:
    """A linear SVC on TF-IDF of words, of one letter too, and bigrams."""
    return linear(
        {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}, joined(train), train, joined(rows), strength
    )


def shared_words(train: Rows, rows: Rows, *, strength: float) -> list[int]:
    """A linear SVC on TF-IDF of what two texts share and what one of them has alone, in words and bigrams."""
    pairs = [list(zip(one.texts, one.pairs or [], strict=True)) for one in (train, rows)]
    return linear({"analyzer": lambda pair: shared_and_lone(*pair)}, pairs[0], train, pairs[1], strength)


def linear(terms: dict[str, Any], texts: list[Any], train: Rows, others: list[Any], strength: float) -> list[int]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    vectors = TfidfVectorizer(**terms)
    machine = LinearSVC(C=strength, random_state=0).fit(vectors.fit_transform(texts), train.labels)
    return [int(one) for one in machine.predict(vectors.transform(others))]


def fasttext(train: Rows, rows: Rows, *, rate: float, epochs: float, seed: int) -> list[int]:
    """fastText with word bigrams (Joulin et al., 2016) on one thread, which makes a seed mean something.

    It learns rows in their order: of a file sorted by class it would remember the last classes best.
    """
    from fasttext import train_supervised

    lines = [f"__label__{label} {line(text)}\n" for text, label in zip(joined(train), train.labels, strict=True)]
    random.Random(seed).shuffle(lines)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        buckets = 2_000_000 if len(train) > MANY else 200_000
        how = {"wordNgrams": 2, "thread": 1, "seed": seed, "verbose": 0, "bucket": buckets}
        try:
            model = train_supervised(file.name, lr=rate, epoch=int(epochs), **how)
        except RuntimeError:  # "Encountered NaN": the rate is too high
            return most_frequent(train, rows)
    given, _ = model.predict([line(text) for text in joined(rows)])
    return [int(labels[0].removeprefix("__label__")) for labels in given]


def line(text: str) -> str:
    """In lower case, punctuation apart, as fastText's own examples prepare a text."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


def shared_and_lone(first: str, second: str) -> list[str]:
    """Terms of a pair by the side they are on, and how many words are on one side alone."""
    found = []
    for terms in (str.split, lambda text: [" ".join(two) for two in pairwise(text.split())]):
        one, other = (set(terms(line(text))) for text in (first, second))
        found += [f"both {term}" for term in one & other]
        found += [f"first {term}" for term in one - other] + [f"second {term}" for term in other - one]
        found += [f"{len(one - other)} alone in first", f"{len(other - one)} alone in second"]
    return found


def answer_labels(folder: Path) -> dict[str, Any]:
    """TF-IDF and logistic regression a label, strength and each label's threshold chosen on validation.csv.

    Returns:
        `truth` and `answers`, the labels of a row joined by `|`, `validation` micro-F1, and what was `chosen`.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.multiclass import OneVsRestClassifier

    parts = {name: read(folder / f"{name}.csv") for name in ("train", "validation", "test")}
    labels = sorted({label for row in parts["train"] for label in row["labels"].split("|") if label})
    names = {part: [row["labels"].split("|") for row in rows] for part, rows in parts.items()}
    truth = {part: np.array([[one in given for one in labels] for given in rows]) for part, rows in names.items()}
    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
    vectors.fit(row["text"] for row in parts["train"])
    features = {name: vectors.transform(row["text"] for row in rows) for name, rows in parts.items()}

    def fitted(strength: float) -> tuple[Any, np.ndarray, float]:
        machine = OneVsRestClassifier(LogisticRegression(C=strength, solver="liblinear"))
        machine.fit(features["train"], truth["train"].astype(int))
        chance_nC = machine.predict_proba(features["validation"])
        threshold_C = thresholds(chance_nC, truth["validation"])
        micro = f1_score(truth["validation"], chance_nC >= threshold_C, average="micro")
        return machine, threshold_C, float(micro)

    (strength,), tried = climb(lambda point: fitted(*point)[2], (STRENGTHS,), (MIDDLE_OF_LABELS,))
    machine, threshold_C, micro = fitted(strength)
    answers = machine.predict_proba(features["test"]) >= threshold_C
    given = ["|".join(name for name, is_given in zip(labels, row, strict=True) if is_given) for row in answers]
    chosen = {"strength": strength, "tried": tried}
    return {"validation": micro, "chosen": chosen, "truth": [row["labels"] for row in parts["test"]], "answers": given}


def thresholds(chance_nC: np.ndarray, truth_nC: np.ndarray) -> np.ndarray:
    """Of each label the one of 0.02, 0.04 .. 0.98 with the best F1, of equals the nearest to a half: `(C,)`."""
    grid = sorted((at / 50 for at in range(1, 50)), key=lambda one: abs(one - 0.5))

    def f1(threshold: float, chance_n: np.ndarray, truth_n: np.ndarray) -> float:
        given_n = chance_n >= threshold
        return 2 * np.sum(given_n & truth_n) / max(1, np.sum(given_n) + np.sum(truth_n))

    labels = zip(chance_nC.T, truth_nC.T, strict=True)
    return np.array([max(grid, key=partial(f1, chance_n=chance_n, truth_n=truth_n)) for chance_n, truth_n in labels])
