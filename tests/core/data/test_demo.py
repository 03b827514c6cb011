"""The demo is the same everywhere, quick, without repeats, and beyond a bag of words."""

import re
import subprocess
import sys
import time
from collections import Counter, defaultdict

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from manyheads.data.formats.demo import N_ROWS, demo_splits

SPLITS = demo_splits()
ROWS = [row for split in SPLITS.values() for row in split]


def test_sizes_and_balance():
    assert {name: len(rows) for name, rows in SPLITS.items()} == N_ROWS
    counts = Counter(label for _, label in ROWS)
    assert len(counts) == 9
    assert max(counts.values()) - min(counts.values()) <= 1


def test_no_sentence_occurs_twice():
    assert len({text for text, _ in ROWS}) == len(ROWS)


def test_every_sentence_holds_its_ambiguous_word_and_reads_like_one():
    for text, label in ROWS:
        assert re.search(rf"\b{label.split('-')[0]}\b", text)
        assert re.fullmatch(r"[A-Z][A-Za-z' ,-]*\.", text), text
        assert "  " not in text


def test_another_process_makes_the_same_sentences_within_a_second():
    code = "from manyheads.data.formats.demo import demo_splits; print(hash(1), demo_splits()['test'][-1])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"{hash(1)} {SPLITS['test'][-1]}"
    start = time.perf_counter()
    assert demo_splits(1)["test"] != SPLITS["test"]
    assert time.perf_counter() - start < 1


def test_the_same_words_in_another_order_have_another_label():
    labels: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for seed in range(2, 12):
        for rows in demo_splits(seed).values():
            for text, label in rows:
                labels[tuple(sorted(re.findall(r"\w+", text.lower())))].add(label)
    assert sum(len(found) > 1 for found in labels.values()) > 10


def test_a_bag_of_words_stays_behind():
    words = TfidfVectorizer(ngram_range=(1, 2))
    train, test = ([list(column) for column in zip(*SPLITS[name], strict=True)] for name in ("train", "test"))
    model = LinearSVC().fit(words.fit_transform(train[0]), train[1])
    assert 0.6 < model.score(words.transform(test[0]), test[1]) <= 0.85
