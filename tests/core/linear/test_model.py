"""Terms against other readers of Unicode, and numbers that stand for them."""

import tracemalloc
import unicodedata
from collections import Counter

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from manyheads.config import Terms
from manyheads.data.ids.terms import fold_case, number_of, split_words
from manyheads.linear.model import counted, terms_of, unspaced

NEIGHBOURS = TfidfVectorizer(analyzer="word", ngram_range=(1, 2), token_pattern=r"\S+", lowercase=False)
RUNS = TfidfVectorizer(analyzer="char", ngram_range=(2, 4), lowercase=False).build_analyzer()
KNOWN = st.text(st.characters(exclude_categories=["Cn", "Co", "Cs"]))


@settings(deadline=None)
@given(KNOWN)
def test_terms_are_words_and_neighbours(text):
    seen = regex.sub(r"[[\p{Cf}--\u200b]\p{Variation_Selector=Yes}]", "", fold_case(text), flags=regex.V1)
    words = regex.findall(r"[\p{L}\p{N}\p{M}_]+", seen)
    assert Counter(terms_of(text)) == Counter(NEIGHBOURS.build_analyzer()(" ".join(words)))


@settings(deadline=None)
@given(KNOWN)
def test_characters_are_runs_of_two_to_four_of_the_folded_text(text):
    found = Counter(term.removeprefix("\n") for term in terms_of(text, kind=Terms.characters))
    words = " ".join(fold_case(text).split())
    assert found == (Counter(RUNS(f" {words} ")) if words else Counter())
    assert Counter(terms_of(text, kind=Terms.both)) == Counter(terms_of(text)) + Counter(
        terms_of(text, kind=Terms.characters)
    )


@pytest.mark.parametrize("kind", Terms)
@given(KNOWN)
def test_terms_are_the_same_however_letters_were_composed(kind, text):
    apart, composed = (unicodedata.normalize(form, text) for form in ("NFD", "NFC"))
    assert list(terms_of(apart, kind=kind)) == list(terms_of(composed, kind=kind))
    assert list(terms_of(apart, composed, kind)) == list(terms_of(composed, apart, kind))


@pytest.mark.parametrize(
    "text",
    [
        "caf\u00e9 cr\u00e8me",
        "cafe\u0301 cre\u0300me",
        "हिन्दी फ़िल्म बहुत अच्छी है",
        "தமிழ் மொழி",
        "בְּרֵאשִׁית בָּרָא",
        "كِتَابٌ جَمِيلٌ",
        "ภาษาไทย น้ำ",
        "ကျေးဇူး တင်ပါတယ်",
        "\u0130stanbul stra\u00dfe",
    ],
)
def test_words_stay_whole(text):
    assert split_words(text) == fold_case(text).split()


def test_what_cannot_be_seen_parts_no_word_but_a_space_of_no_width():
    assert split_words("می\u200cخواهم co\u00adoperate ❤\ufe0f") == ["میخواهم", "cooperate"]  # noqa: RUF001
    assert split_words("สวัสดี\u200bครับ") == ["สวัสดี", "ครับ"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("这部电影很好看", True),
        ("とても良い映画", True),
        ("หนังดีมาก", True),
        ("a good film", False),
        ("हिन्दी फ़िल्म", False),
    ],
)
def test_scripts_without_spaces_are_known(text, expected):
    assert unspaced([text]) is expected
    assert unspaced([text, "in many English words there is one " * 20]) is False
    assert unspaced([]) is unspaced(["!"]) is False


def test_terms_of_a_pair_say_on_which_side_they_are():
    assert sorted(terms_of("A dog runs", "a dog sleeps now")) == sorted(
        [
            *("both a", "both dog", "first runs", "second sleeps", "second now"),
            *("1 alone in first", "2 alone in second"),
            *("both a dog", "first dog runs", "second dog sleeps", "second sleeps now"),
            *("1 neighbours alone in first", "2 neighbours alone in second"),
        ]
    )


def test_words_neighbours_and_runs_that_one_text_has_alone_are_counted_apart():
    found = Counter(terms_of("good film", "good bore", Terms.both))
    alone = {term: times for term, times in found.items() if "alone in" in term}
    assert alone == {
        f"{n} alone in {side}": 1 for side in ("first", "second") for n in ("1", "1 neighbours", "15 runs")
    }


def test_counting_a_long_text_does_not_hold_its_runs():
    text = "\u8fd9\u90e8\u7535\u5f71\u5f88\u597d\u770b" * 10_000
    tracemalloc.start()
    try:
        counted([text], None, Terms.both)
        assert tracemalloc.get_traced_memory()[1] < 30 * len(text), "as strings they are some 270 bytes a letter"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", Terms)
@pytest.mark.parametrize("pairs", [None, ["so", "", "good film"]])
def test_each_text_has_its_own_terms_each_counted(pairs, kind):
    texts = ["good good film", "", "Film"]
    terms_E, counts_E, bounds = counted(texts, pairs, kind)
    assert bounds[0] == 0
    assert len(bounds) == 4
    assert len(terms_E) == len(counts_E) == bounds[-1]
    for at, text in enumerate(texts):
        of_text = slice(bounds[at], bounds[at + 1])
        wanted = Counter(number_of(term) for term in terms_of(text, None if pairs is None else pairs[at], kind))
        assert dict(zip(terms_E[of_text], counts_E[of_text], strict=True)) == wanted


def test_numbers_are_the_same_everywhere():
    assert (number_of("film"), number_of("good film")) == (2185543202, 1536849326)
    assert 0 <= number_of("\ud800") < 2**32, "half of a letter, as broken files have it"
