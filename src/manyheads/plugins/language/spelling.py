"""Texts as their tokens spell them. Tokenizers only, so that a shipped model needs no more."""

import unicodedata

from tokenizers import Tokenizer


def decode(tokenizer: Tokenizer, ids: list[list[int]]) -> list[str]:
    """The texts of token ids; special tokens are left out, and white space at both ends."""
    return [text.strip() for text in tokenizer.decode_batch(ids, skip_special_tokens=True)]


def same_text(text: str, other: str) -> bool:
    """Whether two texts read the same: in Unicode's composed form, without white space at both ends."""
    return text == other or _composed(text) == _composed(other)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
