"""The tokens of a text as a reader knows them: in the letters that were typed."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Encoding, Tokenizer

from manyheads.config import Cutting
from manyheads.config.data import CUT
from manyheads.data.windows import kept, segments_of, texts_of_marks

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
    """A text, or pair, as the model reads it; `n_cut` of its tokens are not read.

    `segments` are as of `segments_of`, zeros for a single text; `lengths` are the tokens of its windows, end to end; of
    a text that is read at once there is one.
    """

    ids: list[int]
    segments: list[int]
    words: list[Word]
    n_cut: int
    lengths: list[int]


def read_words(tokenizer: Tokenizer, text: str, pair: str | None, max_length: int, cutting: Cutting = CUT) -> Reading:
    """Tokens as `encode` of manyheads.data.tokens makes them, each with the letters it stands for."""
    encoding = tokenizer.encode(text, pair)
    unknown = getattr(tokenizer.model, "unk_token", None)
    typed = [text] if pair is None else [text, pair]
    segments = [0] * len(encoding) if pair is None else segments_of(encoding, texts_of_marks(tokenizer))
    parts = [list(range(len(encoding)))]
    if len(encoding) > max_length:
        parts = kept(encoding.sequence_ids, max_length, cutting).parts
    read = [at for part in parts for at in part]
    return Reading(
        ids=[encoding.ids[at] for at in read],
        segments=[segments[at] for at in read],
        words=[word for part in parts for word in _words(encoding, part, segments, typed, unknown)],
        n_cut=len(encoding) - len(set(read)),
        lengths=list(map(len, parts)),
    )


def _words(
    encoding: Encoding, places: list[int], segments: list[int], typed: list[str], unknown: str | None
) -> list[Word]:
    """The tokens at `places`, one behind the other."""
    words: list[Word] = []
    ends: dict[int, int] = {}
    for at in places:
        read, part, (start, end) = encoding.tokens[at], segments[at] & 1, encoding.offsets[at]
        mark = bool(encoding.special_tokens_mask[at]) and start == end
        letters = "" if mark else typed[part][start:end]
        bare = letters.strip()
        glued = bool(bare) and ends.get(part) == start and letters[:1].strip() != ""
        if not mark:
            ends[part] = end
        kind = MARK if mark else UNKNOWN if read == unknown else ""
        words.append(Word(bare or (SPACE if letters else read), read, kind, part, glued and not mark))
    return words


def plain(word: Word) -> dict[str, Any]:
    """What the page is told of a token."""
    return {"text": word.text, "read": word.read, "kind": word.kind, "part": word.part, "glued": word.glued}
