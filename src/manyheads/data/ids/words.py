"""Texts to the ids of their tokens, without marks: each as a whole, or word by word from a table of words read before.

A tokenizer that parts texts at spaces before all else gives a word the same ids in every text, and most words of a
corpus come again and again: to look them up is several times as fast. The steps of a tokenizer say whether it is one of
these, and the first texts are read both ways. Torch and tokenizers only, so that a shipped model needs no
more.
"""

import json
import logging
import unicodedata
from array import array
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import chain
from operator import methodcaller
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from manyheads.config import Cutting
from manyheads.data.tokenizer import PROBE, bert_pieces
from manyheads.data.tokens import (
    ID_BYTES,
    MAX_ROWS_AT_ONCE,
    FlatTokens,
    in_threads,
    kept_spans,
    segments_of,
    texts_of_marks,
)

MOST_WORDS = 2**18  # in a table: some 60 MB
LONGEST = 64  # letters: a longer "word" is a text without spaces, and does not come again
COMPARED = 64  # texts that are read both ways
UNICODE = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase"}  # steps that change no space, and nothing on both sides of one
CLEANING = UNICODE | {"BertNormalizer", "StripAccents", "Strip"}  # may leave nothing of a word, or part it
DROP_SPACES = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
MARK_SPACES = (
    {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True},
    {"type": "Metaspace", "prepend_scheme": "always", "split": True},
)
OF_WORDS = DROP_SPACES | {"Split", "Punctuation", "Digits"}  # may follow, as each word is a text to them
log = logging.getLogger(__name__)


class Parting(Enum):
    """Where a tokenizer parts texts before all else, into what it then reads as if each were a text."""

    signs = "at white space, which it drops, and around signs of punctuation"
    spaces = "at white space, which it drops"
    marks = "at spaces, of which each becomes a mark of the word after it"
    unknown = "in some other way, so that texts are read as a whole"


class Frame(NamedTuple):
    """What a tokenizer puts around texts: the ids of marks and the texts, in their order.

    Attributes:
        parts: the id of a mark as int32, or which text comes here, 0 or 1.
        segments: of each part, see `tokens.segments_of`.
    """

    parts: list[bytes | int]
    segments: list[int]

    def around(self, texts: Sequence[bytes]) -> list[bytes]:
        """The ids of each part, by those of the texts, int32."""
        return [texts[part] if isinstance(part, int) else part for part in self.parts]

    def segments_of(self, parts: list[bytes]) -> bytes:
        """The segment of each token, by the ids of each part."""
        return b"".join(bytes([of]) * (len(part) // ID_BYTES) for of, part in zip(self.segments, parts, strict=True))


def frame_of(tokenizer: Tokenizer, *, pairs: bool) -> Frame | None:
    """The frame of a text, or of a pair; None: there is more to it, or no token for any letter of `PROBE`."""
    both = tokenizer.encode(PROBE, PROBE) if pairs else tokenizer.encode(PROBE)
    segments = segments_of(both, texts_of_marks(tokenizer)) if pairs else [0] * len(both)
    frame = Frame([], [])
    for id, text, segment in zip(both.ids, both.sequence_ids, segments, strict=True):
        if text is None or text not in frame.parts:
            frame.parts.append(_as_bytes([id]) if text is None else text)
            frame.segments.append(segment)
    (alone,) = read_whole(tokenizer, [PROBE])
    if not alone or b"".join(frame.around([alone, alone])) != _as_bytes(both.ids):
        return None
    return frame


def read_whole(tokenizer: Tokenizer, texts: list[str]) -> list[bytes]:
    """The ids of each text, int32, without marks."""

    def read(start: int, size: int) -> list[bytes]:
        encodings = tokenizer.encode_batch_fast(texts[start : start + size], add_special_tokens=False)
        return [_as_bytes(encoding.ids) for encoding in encodings]

    return [*chain.from_iterable(in_threads(read, len(texts)))]


def _as_bytes(ids: list[int]) -> bytes:
    return array("i", ids).tobytes()


class Words:
    """The ids of words, or other parts of texts, that a tokenizer has read. It must not change meanwhile."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.parting = tokenizer, parting_of(tokenizer)
        self.known: dict[str, bytes] = {}
        self._frames: dict[bool, Frame | None] = {}
        self._is_tried = False

    def frame(self, *, pairs: bool) -> Frame | None:
        """What the tokenizer puts around a text, or a pair; None: it does not read texts word by word."""
        if self.parting is Parting.unknown:
            return None
        if pairs not in self._frames:
            self._frames[pairs] = frame_of(self.tokenizer, pairs=pairs)
        return self._frames[pairs]

    def look_up(
        self, texts: list[str], pairs: list[str] | None, room: int, cutting: Cutting
    ) -> list[FlatTokens] | None:
        """The tokens of rows: see `tokens.LookUp`."""
        frame = self.frame(pairs=pairs is not None)
        if frame is None:
            return None
        columns = [texts] if pairs is None else [texts, pairs]
        parts: list[FlatTokens] = []
        for start in range(0, len(texts), MAX_ROWS_AT_ONCE):
            part = FlatTokens()
            found = [self.read(column[start : start + MAX_ROWS_AT_ONCE]) for column in columns]
            for row in zip(*found, strict=True):
                documents = [row]
                if sum(map(len, row)) > room * ID_BYTES:
                    kept = kept_spans([len(ids) // ID_BYTES for ids in row], room, cutting)
                    documents = kept.of(row)
                    part.n_truncated += not kept.is_whole
                for document in documents:
                    ids = frame.around(document)
                    part.ids.frombytes(b"".join(ids))
                    if pairs is not None:
                        part.segments += frame.segments_of(ids)
                    part.bounds.append(len(part.ids))
                part.firsts.append(len(part.bounds) - 1)
            parts.append(part)
        return parts

    def read(self, texts: list[str]) -> list[bytes]:
        """As `read_whole`, which the first texts are compared with."""
        if not self._is_tried:
            self._is_tried, first = True, texts[:COMPARED]
            if self.parting is not Parting.unknown and self._read(first) != read_whole(self.tokenizer, first):
                log.warning("the tokenizer reads words otherwise in texts: texts are read as a whole, which is slower")
                self.parting = Parting.unknown
        if self.parting is Parting.unknown:
            return read_whole(self.tokenizer, texts)
        return self._read(texts)

    def _read(self, texts: list[str]) -> list[bytes]:
        if len(self.known) > MOST_WORDS:
            self.known.clear()
        split = bert_pieces if self.parting is Parting.signs else methodcaller("split", " ")
        rows: list[bytes] = []
        missing: list[int] = []
        for at, text in enumerate(texts):
            ids = self._found(split(text))
            if ids is None:
                missing.append(at)
            rows.append(ids or b"")
        if missing:
            self._learn({word for at in missing for word in split(texts[at])})
        whole: list[int] = []
        for at in missing:
            ids = self._found(split(texts[at]))
            if ids is None:
                whole.append(at)
            rows[at] = ids or b""
        if whole:
            for at, ids in zip(whole, read_whole(self.tokenizer, [texts[at] for at in whole]), strict=True):
                rows[at] = ids
        return rows

    def _found(self, words: list[str]) -> bytes | None:
        """The ids of a text, by its words; None: not all of them are known."""
        try:
            return b"".join(map(self.known.__getitem__, words))
        except KeyError:
            return None

    def _learn(self, words: Iterable[str]) -> None:
        new = [word for word in words if len(word) <= LONGEST and word not in self.known]
        if self.parting is Parting.marks:
            new = [*filter(is_plain, new)]
        self.known.update(zip(new, read_whole(self.tokenizer, new), strict=True))


def is_plain(word: str) -> bool:
    """Whether a word is one for all steps that mark spaces: it is not empty and holds no white space, in whatever form,
    and no sign that is a mark of a space (U+2581)."""
    signs = unicodedata.normalize("NFKC", word)
    return bool(signs) and not any(sign == "\u2581" or unicodedata.category(sign)[0] in "CZ" for sign in signs)


def parting_of(tokenizer: Tokenizer) -> Parting:
    """Where a tokenizer parts texts, by its steps."""
    added = tokenizer.get_added_tokens_decoder().values()
    if added and not (tokenizer.encode_special_tokens and all(token.special for token in added)):
        return Parting.unknown  # they are looked for in whole texts
    normalizing = {step["type"] for step in _steps(tokenizer.normalizer)}
    first, *others = _steps(tokenizer.pre_tokenizer) or [{"type": "none"}]
    if any(step["type"] not in OF_WORDS for step in others):
        return Parting.unknown
    if first["type"] in DROP_SPACES and normalizing <= CLEANING:
        return Parting.signs if first["type"] == "BertPreTokenizer" else Parting.spaces
    if any(wanted.items() <= first.items() for wanted in MARK_SPACES) and normalizing <= UNICODE:
        return Parting.marks
    return Parting.unknown


def _steps(step: Any) -> list[dict[str, Any]]:
    """A normalizer or pre-tokenizer as its file has it; of a sequence each step."""
    if step is None:
        return []
    found: list[dict[str, Any]] = []
    rest = [json.loads(step.__getstate__())]
    while rest:
        first = rest.pop(0)
        if first["type"] == "Sequence":
            rest = [*first.get("normalizers", []), *first.get("pretokenizers", []), *rest]
        else:
            found.append(first)
    return found
