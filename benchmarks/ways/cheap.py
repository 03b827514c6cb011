"""Models that need no network: their answers to the test rows.

Whatever is chosen is chosen on the validation part; then a model is fitted on all rows of train.csv.

n rows . C labels
"""

import random
import re
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.rows import Rows, Splits
from manyheads.judge.baselines import majority_baseline
from ways.rows import read

Answer = Callable[[Rows, Rows], list[int]]  # fitted on the first, to the second
RATES = (0.1, 0.5, 1.0)
EPOCHS = {10_000: (5, 25, 50), 20_000: (5, 25), 10**9: (5, 15)}  # by the most rows of which so many are tried
MANY = 20_000  # rows from which fastText has its usual two million buckets
STRENGTHS = (1.0, 4.0, 16.0)  # of logistic regression: the inverse of its penalty


def answers(way: str, splits: Splits, everything: Rows, seed: int) -> tuple[list[int], list[int], dict[str, Any]]:
    """Answers to the validation rows by a model fitted on the training part, to the test rows by one fitted on
    `everything`, and what was chosen."""
    assert splits.test is not None
    fit: Answer = {"majority": majority_baseline, "tfidf": tfidf_baseline, "pairs": pair_words}.get(way, tfidf_baseline)
    chosen: dict[str, Any] = {}
    if way == "fasttext":
        fit, chosen = choose_fasttext(splits, seed)
    return fit(splits.train, splits.validation), fit(everything, splits.test), chosen


def tfidf_baseline(train: Rows, rows: Rows) -> list[int]:
    """A linear SVC on TF-IDF of words and pairs of neighbouring words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
    machine = LinearSVC(random_state=0).fit(words.fit_transform(joined(train)), train.labels)
    return [int(answer) for answer in machine.predict(words.transform(joined(rows)))]


def joined(rows: Rows) -> list[str]:
    """One text a row: both texts of a pair with a separator between them, which no bigram crosses unseen."""
    if rows.pairs is None:
        return rows.texts
    return [f"{text} pairseparator {pair}" for text, pair in zip(rows.texts, rows.pairs, strict=True)]


def choose_fasttext(splits: Splits, seed: int) -> tuple[Answer, dict[str, Any]]:
    """The rate and the epochs that are best on the validation part."""
    found = {}
    epochs_tried = next(tried for most, tried in EPOCHS.items() if len(splits.train) <= most)
    for rate, epochs in product(RATES, epochs_tried):
        given = fasttext(splits.train, splits.validation, rate=rate, epochs=epochs, seed=seed)
        found[rate, epochs] = np.mean(np.equal(given, splits.validation.labels))
    rate, epochs = max(found, key=lambda choice: found[choice])
    return partial(fasttext, rate=rate, epochs=epochs, seed=seed), {"lr": rate, "epoch": epochs}


def fasttext(train: Rows, rows: Rows, *, rate: float, epochs: int, seed: int) -> list[int]:
    """fastText with word bigrams (Joulin et al., 2016) on one thread, which makes a seed mean something.

    It learns rows in their order: of a file sorted by class it would remember the last classes best.
    """
    from fasttext import train_supervised

    lines = [f"__label__{label} {line(text)}\n" for text, label in zip(joined(train), train.labels, strict=True)]
    random.Random(seed).shuffle(lines)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        model = train_supervised(
            file.name,
            wordNgrams=2,
            lr=rate,
            epoch=epochs,
            thread=1,
            seed=seed,
            verbose=0,
            bucket=2_000_000 if len(train) > MANY else 200_000,
        )
    given, _ = model.predict([line(text) for text in joined(rows)])
    return [int(labels[0].removeprefix("__label__")) for labels in given]


def line(text: str) -> str:
    """In lower case, punctuation apart, as fastText's own examples prepare a text."""
    return " ".join(re.findall(r"\w+|[^\w\s]", text.lower()))


def pair_words(train: Rows, rows: Rows) -> list[int]:
    """A linear SVC on TF-IDF of what two texts share and what one of them has alone, in words and bigrams."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    pairs = [list(zip(one.texts, one.pairs or [], strict=True)) for one in (train, rows)]
    words = TfidfVectorizer(analyzer=lambda pair: shared_and_lone(*pair))  # pyright: ignore
    machine = LinearSVC(random_state=0).fit(words.fit_transform(pairs[0]), train.labels)
    return [int(one) for one in machine.predict(words.transform(pairs[1]))]


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
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
    words.fit(row["text"] for row in parts["train"])
    features = {name: words.transform(row["text"] for row in rows) for name, rows in parts.items()}
    best: dict[str, Any] = {"validation": -1.0}
    for strength in STRENGTHS:
        machine = OneVsRestClassifier(LogisticRegression(C=strength, solver="liblinear"))
        machine.fit(features["train"], truth["train"].astype(int))
        chances = {name: machine.predict_proba(features[name]) for name in ("validation", "test")}
        threshold_C = thresholds(chances["validation"], truth["validation"])
        micro = float(f1_score(truth["validation"], chances["validation"] >= threshold_C, average="micro"))
        if micro > best["validation"]:
            best = {"validation": micro, "answers": chances["test"] >= threshold_C, "chosen": {"C": strength}}
    given = [[name for name, is_given in zip(labels, row, strict=True) if is_given] for row in best.pop("answers")]
    return best | {"truth": [row["labels"] for row in parts["test"]], "answers": ["|".join(names) for names in given]}


def thresholds(chance_nC: np.ndarray, truth_nC: np.ndarray) -> np.ndarray:
    """Of each label the one of 0.02, 0.04 .. 0.98 with the best F1, of equals the nearest to a half: `(C,)`."""
    grid = sorted((at / 50 for at in range(1, 50)), key=lambda one: abs(one - 0.5))

    def f1(threshold: float, chance_n: np.ndarray, truth_n: np.ndarray) -> float:
        given_n = chance_n >= threshold
        return 2 * np.sum(given_n & truth_n) / max(1, np.sum(given_n) + np.sum(truth_n))

    labels = zip(chance_nC.T, truth_nC.T, strict=True)
    return np.array([max(grid, key=partial(f1, chance_n=chance_n, truth_n=truth_n)) for chance_n, truth_n in labels])
