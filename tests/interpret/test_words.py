"""Tokens in the letters that were typed, and the same ids as in training."""

import pytest
from tokenizers import processors

from manyheads.config import TokenizerConfig, TokenizerKind
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import train_tokenizer
from manyheads.data.tokens import encode
from manyheads.interpret.maps import SPACE, read_words

TEXTS = ["The train left, on time", "naïve 爱 🙂 films", "  two  spaces\tand a tab ", "", "so not-so so", "\u2028<b>"]


@pytest.fixture(scope="module", params=TokenizerKind)
def tokenizer(request):
    texts = ["the train left the station on time", "two films and a tab", "so naïve a crew"] * 4
    rows = Rows(texts, None, [0] * len(texts), "x", range(len(texts)))
    return train_tokenizer(rows, TokenizerConfig(kind=request.param, vocab_size=300))


@pytest.mark.parametrize("pair", [None, "left on time"])
def test_ids_are_those_of_training_also_where_they_are_cut(tokenizer, pair):
    for text in TEXTS:
        for max_length in (64, 8):
            tokens = encode(tokenizer, [text], None if pair is None else [pair], None, max_length)
            reading = read_words(tokenizer, text, pair, max_length)
            assert reading.ids == tokens.ids_N.tolist()
            assert pair is None or reading.segments == tokens.segments_N.tolist()
            assert len(reading.words) == len(reading.ids)
            assert reading.n_cut == len(read_words(tokenizer, text, pair, 999).ids) - len(reading.ids)
    assert tokenizer.truncation is None


def test_the_letters_are_those_that_were_typed(tokenizer):
    words = read_words(tokenizer, "The train, LEFT on time", None, 64).words
    assert [words[0].text, words[-1].text] == ["[CLS]", "[SEP]"]
    assert [words[0].kind, words[-1].kind] == ["mark", "mark"]
    inner = words[1:-1]
    assert "".join(one.text for one in inner if one.text != SPACE) == "Thetrain,LEFTontime"
    assert not inner[0].glued
    assert not words[-1].glued
    shown = "".join(one.text if one.glued else f" {one.text}" for one in inner)
    assert shown.replace(SPACE, " ").split() == ["The", "train,", "LEFT", "on", "time"]


def test_words_the_vocabulary_lacks_are_shown_as_typed():
    texts = ["the train left"] * 3
    rows = Rows(texts, None, [0] * 3, "x", range(3))
    tokenizer = train_tokenizer(rows, TokenizerConfig(vocab_size=60))
    words = read_words(tokenizer, "the 🙂 train", None, 64).words
    assert [(one.text, one.kind) for one in words if one.read == "[UNK]"] == [("🙂", "unknown")]


def test_a_pair_is_told_apart(tokenizer):
    reading = read_words(tokenizer, "on time", "on time", 64)
    assert [one.part for one in reading.words] == reading.segments
    first = [one.text for one in reading.words if one.part == 0 and not one.kind]
    assert first == [one.text for one in reading.words if one.part == 1 and not one.kind]


def test_a_pair_is_told_apart_also_where_the_tokenizer_gives_both_texts_one_type_id():
    texts = ["the train left on time"] * 3
    tokenizer = train_tokenizer(Rows(texts, None, [0] * 3, "x", range(3)), TokenizerConfig(vocab_size=100))
    marks = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=marks
    )
    reading = read_words(tokenizer, "the train", "left on time", 64)
    texts = ["".join(one.text for one in reading.words if one.part == part and not one.kind) for part in (0, 1)]
    assert [text.replace(SPACE, "") for text in texts] == ["thetrain", "leftontime"]
    assert reading.segments == encode(tokenizer, ["the train"], ["left on time"], None, 64).segments_N.tolist()
