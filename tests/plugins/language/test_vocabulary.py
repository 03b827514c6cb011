"""Marks and words, beside what the tokenizers library says of a text."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from manyheads.config import TokenizerConfig, TokenizerKind
from manyheads.data.rows import Rows
from manyheads.data.tokenizer import train_tokenizer
from manyheads.plugins.language.masks import vocabulary

TEXTS = ["unbelievable stories, retold badly", "The retelling was un-believably bad", "stories of bad believers"] * 3


def learnt(kind, vocab_size=70):
    rows = Rows(TEXTS, None, [0] * len(TEXTS), "x", range(len(TEXTS)))
    return train_tokenizer(rows, TokenizerConfig(kind=TokenizerKind[kind], vocab_size=vocab_size))


def test_marks_are_special_and_words_are_not():
    tokenizer = learnt("wordpiece")
    known = vocabulary(tokenizer, pairs=True)
    names = [tokenizer.id_to_token(at) for at in range(known.special_V.numel())]
    assert [name for name, special in zip(names, known.special_V, strict=True) if special] == [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip
    assert (known.mask, known.n_marks) == (4, 3)
    assert vocabulary(tokenizer, pairs=False).n_marks == 2


def test_an_id_without_an_entry_is_no_word_and_a_tokenizer_needs_a_mask():
    tokenizer = Tokenizer(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "a": 2, "far": 9}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    tokenizer.add_special_tokens(["[CLS]", "[SEP]"])
    with pytest.raises(ValueError, match=r"without a token such as \[MASK\]"):
        vocabulary(tokenizer, pairs=False)
    tokenizer.add_special_tokens(["<mask>"])
    known = vocabulary(tokenizer, pairs=False)
    assert torch.arange(known.special_V.numel())[~known.special_V].tolist() == [2, 9]
