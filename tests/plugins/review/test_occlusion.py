"""What words add to an answer: against asking one text at a time, for any text, within the budget."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from manyheads.evaluation.report import MOST_LETTERS, Example, Page, ReportSection, render
from manyheads.inference.classifier import TextClassifier
from manyheads.inference.folder import load
from manyheads.plugins.review.mistakes import MOST_READ, spans_of, with_words
from tests.conftest import word_tokenizer

TEXT = "A very  good film, not so bad"


@pytest.fixture(scope="module")
def classifier(model_folder: Path) -> TextClassifier:
    return load(model_folder, TextClassifier)


def added_alone(classifier: TextClassifier, texts: list[str], at: int, span: tuple[int, int], answer: str) -> float:
    """One text after the other, by `predict`."""
    cut = [one[: span[0]] + one[span[1] :] if text == at else one for text, one in enumerate(texts)]
    ways = []
    for one in (texts, cut):
        (found,) = classifier.predict([one[0]], one[1:] or None)
        ways.append(found.probabilities[answer])
    return ways[0] - ways[1]


@pytest.mark.parametrize("folder", ["model_folder", "pair_folder", "label_folder"])
def test_each_word_adds_what_is_lost_without_it(folder: str, request: pytest.FixtureRequest) -> None:
    classifier = load(request.getfixturevalue(folder), TextClassifier)
    texts = [TEXT, "the film"] if classifier.pairs else [TEXT]
    (found,) = with_words(classifier, [Example("row 1", texts, "good", "bad")])
    for at, text in enumerate(texts):
        words = {
            (one.start(), one.end()): added_alone(classifier, texts, at, one.span(), "bad")
            for one in re.finditer(r"\w+|[^\w\s]+", text)
        }
        assert "".join(piece for piece, _ in found.parts[at]) == text
        shares, reached = {}, 0
        for piece, share in found.parts[at]:
            shares[reached, reached + len(piece)] = share
            reached += len(piece)
        for span, added in words.items():
            told = added if abs(added) >= 0.01 else 0.0
            assert (shares[span] > 0) is (told > 0)
            assert (shares[span] < 0) is (told < 0)
        largest = max(words.values(), key=abs)
        if at == 0 and abs(largest) >= 0.01:
            assert max(shares.values(), key=abs) == pytest.approx(largest / abs(largest), abs=1e-4) or classifier.pairs
            span = max(words, key=lambda one: abs(words[one]))
            assert f"“{text[slice(*span)]}” {-100 * largest:+.1f}" in found.note or classifier.pairs


@given(text=st.text(max_size=900))
def test_pieces_are_the_text_that_is_shown(classifier: TextClassifier, text: str) -> None:
    (found,) = with_words(classifier, [Example("row 1", [text], "good", "bad")])
    if found.parts:
        assert "".join(piece for piece, _ in found.parts[0]) == text[:MOST_LETTERS]
        assert all(-1 <= share <= 1 for _, share in found.parts[0])
    else:
        assert len(spans_of(word_tokenizer().encode(text), [text])[0]) < 2 or len(text) > MOST_LETTERS


@given(
    texts=st.lists(st.lists(st.sampled_from(["good", "bad", "film", "?", "爱"]), max_size=300), min_size=1, max_size=4)
)
def test_no_more_tokens_are_read_than_are_allowed(
    classifier: TextClassifier, texts: list[list[str]], monkeypatch_logits: list[int]
) -> None:
    monkeypatch_logits.clear()
    examples = [Example("row 1", [" ".join(words)], "good", "bad") for words in texts]
    found = with_words(classifier, examples, most=2000)
    least = sum(
        len(classifier.tokenizer.encode(one.texts[0])) for one, of in zip(examples, found, strict=True) if not of.parts
    )
    assert sum(monkeypatch_logits) - least <= 2000


@pytest.fixture(scope="module")
def monkeypatch_logits(classifier: TextClassifier):
    """Tokens of the texts that the classifier was asked for."""
    patch, asked, ask = pytest.MonkeyPatch(), [], TextClassifier.logits

    def counted(self, texts, pairs=None, **more):
        asked.extend(len(self.tokenizer.encode(one)) for one in texts)
        return ask(self, texts, pairs, **more)

    patch.setattr(TextClassifier, "logits", counted)
    yield asked
    patch.undo()


def test_neighbours_of_a_long_text_go_together(classifier: TextClassifier) -> None:
    text = " ".join(["good bad film"] * 30)
    (found,) = with_words(classifier, [Example("row 1", [text], "good", "bad")], most=92 * 10)
    assert found.note.startswith("removing 10 neighbouring words changes the probability of bad")
    assert len([piece for piece, _ in found.parts[0] if len(piece) > 1]) == 9
    (alone,) = with_words(classifier, [Example("row 1", [text], "good", "bad")], most=92 * 2)
    assert (alone.parts, alone.note) == ([], "")
    assert with_words(classifier, []) == []
    assert MOST_READ >= 2**16


def test_what_a_tokenizer_puts_before_texts_is_no_word() -> None:
    plain, prefixed = word_tokenizer(), word_tokenizer()
    prefixed.normalizer = normalizers.Sequence([normalizers.Prepend("ab: "), *filter(None, [prefixed.normalizer])])
    assert spans_of(prefixed.encode("film a"), ["film a"]) == spans_of(plain.encode("film a"), ["film a"])


def test_words_are_shown_as_text_and_said_in_words() -> None:
    example = Example(
        "row 1", ["<b>a & b"], "good", "bad", parts=[[("<b>a", 1.0), (" & ", 0.0), ("b", -0.5)]], note="said <i>"
    )
    page = render(Page(title="t", subtitle="s", sections=[ReportSection("x", examples=[example])]))
    assert (
        '<mark style="--share:1.00">&lt;b&gt;a</mark> &amp; <mark class="against" style="--share:0.50">b</mark></bdi>'
        in page
    )
    assert "said &lt;i&gt;" in page
