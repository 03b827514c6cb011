"""Target texts that do not fit, or do not come back from their tokens, are said before the first step."""

import pytest
from tokenizers import Tokenizer, models, processors

from manyheads.config import TokenizerConfig, TokenizerKind
from manyheads.data.prepare_tokens import check_marks
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import start_and_end_marks, train_tokenizer
from manyheads.data.tokens import encode
from manyheads.plugins.language.spelling import decode, same_text
from manyheads.plugins.language.targets import check_lengths, check_spelling

TARGETS = ["One two", "three  four ", "fünf\n[six]", "Ünïcode é", "3-3-21"]


def rows_of(targets):
    return Rows(["a text"] * len(targets), None, [0] * len(targets), "t.csv", range(2, 2 + len(targets)), targets)


def tokenizer_of(kind, rows, **more):
    return train_tokenizer(rows, TokenizerConfig(kind=kind, vocab_size=400, **more))


@pytest.mark.parametrize("kind", [TokenizerKind.characters, TokenizerKind.bpe])
def test_texts_come_back_from_their_tokens(kind):
    rows = rows_of(TARGETS)
    tokenizer = tokenizer_of(kind, rows, lowercase=False)
    ids = [tokenizer.encode(text).ids for text in TARGETS]
    assert decode(tokenizer, ids) == [text.strip() for text in TARGETS]
    assert check_spelling(rows, encode(tokenizer, TARGETS, None, None, 64), tokenizer, "train") == []


def test_characters_are_seen_singly_and_rare_ones_are_unknown():
    rows = Rows(["aa b", "ab"], None, [0, 0], "t.csv", [1, 2], ["b", "cA"])
    tokenizer = tokenizer_of(TokenizerKind.characters, rows, lowercase=False)
    assert tokenizer.encode("ab c").tokens == ["[CLS]", "a", "b", " ", "c", "[SEP]"]
    assert tokenizer.encode("aéA").tokens == ["[CLS]", "a", "[UNK]", "A", "[SEP]"]
    lower = tokenizer_of(TokenizerKind.characters, rows, lowercase=True)
    assert lower.encode("CAb").tokens == ["[CLS]", "c", "a", "b", "[SEP]"]
    few = train_tokenizer(
        rows_of(["ab" * 9, "cdefghijklmnop"]), TokenizerConfig(kind=TokenizerKind.characters, vocab_size=16)
    )
    assert few.get_vocab_size() == 16
    assert few.encode("ab").tokens == ["[CLS]", "a", "b", "[SEP]"]


def test_same_texts():
    assert same_text("é", "e\u0301")
    assert same_text(" a\n", "a")
    assert not same_text("a b", "a  b")
    assert not same_text("A", "a")


def test_a_training_target_that_changes_is_one_sentence():
    rows = rows_of(["one", "Two", "Three"])
    tokenizer = tokenizer_of(TokenizerKind.wordpiece, rows)
    tokens = encode(tokenizer, rows.targets or [], None, None, 64)
    found = "t.csv, row 3: the target 'Two' comes back from its tokens as 'two' (2 of 3 targets change)"
    with pytest.raises(ValueError, match="row 3") as refused:
        check_spelling(rows, tokens, tokenizer, "train")
    assert str(refused.value) == (
        f"{found}: use tokenizer.kind=bpe or tokenizer.kind=characters with tokenizer.lowercase=false, or a larger "
        "tokenizer.vocab_size"
    )
    assert check_spelling(rows, tokens, tokenizer, "test") == [f"test: {found}: such rows cannot be answered right"]


def test_a_target_that_would_be_cut_is_one_sentence():
    rows = rows_of(["abcd", "abcdef", "abcdefgh"])
    tokenizer = tokenizer_of(TokenizerKind.characters, rows)
    check_lengths(rows, encode(tokenizer, rows.targets or [], None, None, 10), tokenizer, 10)
    with pytest.raises(ValueError, match="row 3") as refused:
        check_lengths(rows, encode(tokenizer, rows.targets or [], None, None, 6), tokenizer, 6)
    assert str(refused.value) == (
        "t.csv, row 3: the target has 8 tokens with its marks, more than data.max_length=6: use data.max_length=10, as "
        "the longest has, or shorten it"
    )


def test_a_target_starts_with_one_mark_and_ends_with_another():
    tokenizer = tokenizer_of(TokenizerKind.characters, rows_of(["ab"]))
    assert start_and_end_marks(tokenizer) == (2, 3)
    check_marks(tokenizer, "a target")
    one = Tokenizer(models.WordLevel({"[UNK]": 0, "[E]": 1}, unk_token="[UNK]"))
    one.post_processor = processors.TemplateProcessing(single="$A [E]", pair="$A $B [E]", special_tokens=[("[E]", 1)])
    assert start_and_end_marks(one) is None
    with pytest.raises(ValueError, match="one mark before a text and another after it"):
        check_marks(one, "a target")
