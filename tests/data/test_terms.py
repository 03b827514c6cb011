"""Terms against scikit-learn's own, and numbers that stand for them."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from manyheads.data.terms import counted, number_of, terms_of

ANALYSE = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\w+").build_analyzer()


@settings(deadline=None)
@given(st.text())
def test_terms_are_words_and_neighbours(text):
    assert Counter(terms_of(text)) == Counter(ANALYSE(text))


def test_terms_of_a_pair_say_on_which_side_they_are():
    assert sorted(terms_of("A dog runs", "a dog sleeps now")) == sorted(
        [
            *("both a", "both dog", "first runs", "second sleeps", "second now"),
            *("1 alone in first", "2 alone in second"),
            *("both a dog", "first dog runs", "second dog sleeps", "second sleeps now"),
            *("1 alone in first", "2 alone in second"),
        ]
    )


@pytest.mark.parametrize("pairs", [None, ["so", "", "good film"]])
def test_each_text_has_its_own_terms_each_counted(pairs):
    texts = ["good good film", "", "Film"]
    terms_E, counts_E, bounds = counted(texts, pairs)
    assert bounds[0] == 0
    assert len(bounds) == 4
    assert len(terms_E) == len(counts_E) == bounds[-1]
    for at, text in enumerate(texts):
        of_text = slice(bounds[at], bounds[at + 1])
        wanted = Counter(number_of(term) for term in terms_of(text, None if pairs is None else pairs[at]))
        assert dict(zip(terms_E[of_text], counts_E[of_text], strict=True)) == wanted


def test_numbers_are_the_same_everywhere():
    assert (number_of("film"), number_of("good film")) == (2185543202, 1536849326)
    assert 0 <= number_of("\ud800") < 2**32, "half of a letter, as broken files have it"
