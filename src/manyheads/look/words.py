"""The tokens of a text as a reader knows them: in the letters that were typed."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

MARK, UNKNOWN = "mark", "unknown"
SPACE = "\u2423"  # what a token of white space alone is shown as


@dataclass(frozen=True, slots=True)
class Word:
    """One token.

    `text` is what was typed, `read` the entry of the vocabulary; `kind` is mark ([CLS] and its like), unknown, or
    empty; `part` 0 or 1 says which text it is of; `glued`, that nothing stands between it and the token before.
    """

    text: str
    read: str
    kind: str
    part: int
    glued: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """A text, or pair, as the model reads it; `n_cut` tokens at the end were cut off."""

    ids: list[int]
    segments: list[int]
    words: list[Word]
    n_cut: int


def read_words(tokenizer: Tokenizer, text: str, pair: str | None, max_length: int) -> Reading:
    """Tokens as `encode` of manyheads.data.tokens makes them, each with the letters it stands for."""
    whole = tokenizer.encode(text, pair)
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    try:
        encoding = tokenizer.encode(text, pair)
    finally:
        tokenizer.no_truncation()
    unknown = getattr(tokenizer.model, "unk_token", None)
    typed = (text, pair or "")
    words: list[Word] = []
    ends: dict[int, int] = {}
    for at, read in enumerate(encoding.tokens):
        part, (start, end) = encoding.type_ids[at], encoding.offsets[at]
        mark = bool(encoding.special_tokens_mask[at]) and start == end
        part = min(part, 1) if pair is not None else 0
        letters = "" if mark else typed[part][start:end]
        bare = letters.strip()
        glued = bool(bare) and ends.get(part) == start and letters[:1].strip() != ""
        if not mark:
            ends[part] = end
        kind = MARK if mark else UNKNOWN if read == unknown else ""
        words.append(Word(bare or (SPACE if letters else read), read, kind, part, glued and not mark))
    return Reading(encoding.ids, list(encoding.type_ids), words, len(whole.ids) - len(encoding.ids))


def plain(word: Word) -> dict[str, Any]:
    """What the page is told of a token."""
    return {"text": word.text, "read": word.read, "kind": word.kind, "part": word.part, "glued": word.glued}
