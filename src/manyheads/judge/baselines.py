"""What needs no training of ours: the bar a Transformer has to clear before anyone believes in it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from manyheads.data.rows import Rows
from manyheads.judge.scores import Answers, Interval, change_of_answers, score_answers

POINTS = 100  # of a share
MAJORITY = "most frequent class"
MOST_WEIGHTS = 100_000_000  # of a linear machine, in eight bytes, and as many while it is fitted
TFIDF = "TF-IDF + linear SVM"


@dataclass(slots=True)
class Baseline:
    """One baseline's answers on one split, judged; `seconds` is fitting and answering. `lead` is how much better the
    model answers the same rows, figure by figure, with paired intervals."""

    name: str
    scores: Answers
    seconds: float
    lead: Answers | None = None


def judge_baselines(
    train: Rows,
    rows: Rows,
    n_classes: int,
    model: Sequence[int] | None = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Baseline]:
    """Both baselines, fitted on `train` and judged on `rows` with the resamples of `score(..., seed=seed)`, and where
    the answers of a `model` to these rows are given, its lead."""
    judged = []
    for name, answer in ((MAJORITY, majority_baseline), (TFIDF, tfidf_baseline)):
        started = perf_counter()
        answers = answer(train, rows)
        seconds = perf_counter() - started
        scores = score_answers(rows.labels, answers, n_classes, n_resamples=n_resamples, seed=seed)
        lead = None
        if model is not None:
            lead = change_of_answers(rows.labels, answers, [model], n_classes, n_resamples=n_resamples, seed=seed)[0]
        judged.append(Baseline(name, scores, seconds, lead))
    return judged


def lead_words(lead: Interval, name: str) -> str:
    """How far a model is ahead of the baseline `name`, in points of a share, and how sure that is."""
    value, low, high = (POINTS * one for one in (lead.value, lead.low, lead.high))
    between = f"95 % interval {low:.1f} to {high:.1f}"
    if low > 0:
        return f"beats {name} by {value:.1f} points ({between})"
    if high < 0:
        return f"falls short of {name} by {-value:.1f} points ({between})"
    return f"cannot be told from {name}: {value:+.1f} points ({between})"


def majority_baseline(train: Rows, rows: Rows) -> list[int]:
    """The most frequent class of `train` (of equals the first), for every row."""
    counts = Counter(train.labels)
    return [max(sorted(counts), key=lambda label: counts[label])] * len(rows)


def tfidf_baseline(train: Rows, rows: Rows) -> list[int]:
    """A linear support vector machine on TF-IDF of words and pairs of neighbouring words.

    scikit-learn's defaults, but words of one letter count too: a stronger bar on most data. Of so many words that they
    and the classes would fill the memory only the most frequent count. Where `train` holds one class, or no word, it
    answers as `majority_baseline` does.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    one_or_more_letters = r"(?u)\b\w+\b"
    n_classes, texts = len(set(train.labels)), joined(train)
    words = TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=one_or_more_letters, max_features=MOST_WEIGHTS // max(1, n_classes)
    )
    split = words.build_analyzer()
    if n_classes < 2 or not any(split(text) for text in texts):
        return majority_baseline(train, rows)
    machine = LinearSVC(random_state=0).fit(words.fit_transform(texts), train.labels)
    return [int(answer) for answer in machine.predict(words.transform(joined(rows)))] if len(rows) else []


def joined(rows: Rows) -> list[str]:
    """One text a row: both texts of a pair with a separator between them, which no bigram crosses unseen."""
    if rows.pairs is None:
        return rows.texts
    return [f"{text} pairseparator {pair}" for text, pair in zip(rows.texts, rows.pairs, strict=True)]
