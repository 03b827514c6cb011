"""The cheap models: what they answer, and that they never fail on odd rows."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from manyheads.data.rows import Rows
from manyheads.judge import baselines
from manyheads.judge.baselines import (
    MAJORITY,
    TFIDF,
    joined,
    judge_baselines,
    lead_words,
    majority_baseline,
    tfidf_baseline,
)
from manyheads.judge.scores import Interval


def rows(texts: list[str], labels: list[int], pairs: list[str] | None = None) -> Rows:
    return Rows(texts=texts, pairs=pairs, labels=labels, source="rows.csv", numbers=list(range(2, 2 + len(texts))))


TRAIN = rows(["good film", "fine film", "a bad film", "awful, bad", "good good"], [1, 1, 0, 0, 1])
TEST = rows(["good", "so bad"], [1, 0])


def test_majority_is_the_most_frequent_class_of_train() -> None:
    assert majority_baseline(TRAIN, TEST) == [1, 1]
    assert majority_baseline(rows(["a", "b"], [1, 0]), TEST) == [0, 0]


def test_tfidf_is_the_plain_pipeline() -> None:
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\w+")
    pipeline = make_pipeline(words, LinearSVC(random_state=0))
    expected = pipeline.fit(TRAIN.texts, TRAIN.labels).predict(TEST.texts).tolist()
    assert tfidf_baseline(TRAIN, TEST) == expected == [1, 0]


def test_both_are_judged_with_intervals() -> None:
    majority, tfidf = judge_baselines(TRAIN, TEST, 2, n_resamples=50)
    assert (majority.name, tfidf.name) == (MAJORITY, TFIDF)
    assert (majority.scores.accuracy.value, tfidf.scores.accuracy.value) == (0.5, 1.0)
    assert majority.scores.accuracy.low < 0.5 < majority.scores.accuracy.high


def test_the_lead_of_a_model_is_paired() -> None:
    draw = np.random.default_rng(3)
    labels = draw.integers(2, size=60).tolist()
    rows_60 = rows(["good film" if draw.random() < 0.5 else "bad film" for _ in labels], labels)
    model = [label if draw.random() < 0.9 else 1 - label for label in labels]
    _, tfidf = judge_baselines(TRAIN, rows_60, 2, model=model, n_resamples=400, seed=5)
    right = np.equal(model, labels).astype(float) - np.equal(tfidf_baseline(TRAIN, rows_60), labels)
    again = np.random.default_rng(5)
    means = [right[again.integers(60, size=60)].mean() for _ in range(400)]
    assert tfidf.lead is not None
    assert tfidf.lead.accuracy.value == pytest.approx(right.mean())
    half = 1.959964 * np.sqrt(np.var(means) * (60 / 62) ** 2 + 2 / 62**2)
    middle = right.mean() * 60 / 62
    assert (tfidf.lead.accuracy.low, tfidf.lead.accuracy.high) == pytest.approx((middle - half, middle + half))


@pytest.mark.parametrize(
    ("lead", "words"),
    [
        (Interval(0.031, 0.02, 0.042), "beats words by 3.1 points (95 % interval 2.0 to 4.2)"),
        (Interval(-0.05, -0.06, -0.01), "falls short of words by 5.0 points (95 % interval -6.0 to -1.0)"),
        (Interval(0.01, 0.0, 0.02), "cannot be told from words: +1.0 points (95 % interval 0.0 to 2.0)"),
    ],
)
def test_a_lead_is_claimed_where_its_interval_leaves_out_zero(lead: Interval, words: str) -> None:
    assert lead_words(lead, "words") == words


def test_a_pair_is_seen_whole_and_never_bridged() -> None:
    pairs = rows(["same text"] * 4, [0, 1, 0, 1], ["no way", "oh yes", "no thanks", "yes please"])
    assert tfidf_baseline(pairs, pairs) == [0, 1, 0, 1]
    words = TfidfVectorizer(ngram_range=(1, 2)).build_analyzer()(joined(pairs)[0])
    assert "text no" not in words


@pytest.mark.parametrize(
    "train", [rows(["!", "?", "…"], [0, 1, 1]), rows(["one class", "only"], [1, 1]), rows(["", " "], [1, 1])]
)
def test_without_words_or_classes_it_answers_the_majority(train: Rows) -> None:
    assert tfidf_baseline(train, TEST) == [1, 1]


def test_of_very_many_words_and_classes_the_most_frequent_words_count(monkeypatch) -> None:
    monkeypatch.setattr(baselines, "MOST_WEIGHTS", 4)
    texts = ["a rare word", "b word", "a", "b"] * 5
    train = Rows(texts, None, [0, 1, 0, 1] * 5, "x.csv", range(1, 21))
    assert tfidf_baseline(train, train.pick([0, 1, 2, 3])) == [0, 1, 0, 1]
    fitted = []
    monkeypatch.setattr(LinearSVC, "fit", lambda self, x, y: fitted.append(x.shape) or self)
    monkeypatch.setattr(LinearSVC, "predict", lambda self, x: [0] * x.shape[0])
    tfidf_baseline(train, train)
    assert fitted == [(20, 2)]
