"""Texts to the terms that a linear model counts: words and pairs of neighbouring words, runs of characters, or both.
Standard library only.

A text is composed (NFC, as our tokenizers do it: NFKC would also make `²` a `2`) and case-folded first. A word is a run
of letters, digits and the marks that stand on them, so that a word of Hindi, Thai, Arabic or Hebrew stays whole however
it is composed. Where no spaces stand between words, a "word" is a whole clause, and runs of characters are the terms.

E terms of all texts, end to end; text i has those from `bounds[i]` to `bounds[i + 1] - 1`
"""

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

from manyheads.config import Terms

SHORTEST, LONGEST = 2, 4  # characters of a run: with one of five as good, and half as many terms again
ZERO_WIDTH_SPACE = 0x200B  # stands between words of Thai, Khmer or Burmese
UNSPACED = re.compile(  # Thai, Lao, Burmese, Khmer, kana and Han, Javanese and Tai scripts, rare Han
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua980-\ua9df\uf900-\ufaff\U00020000-\U0003ffff]"
)


class Counted(NamedTuple):
    """The numbers of the terms of each text, each once (int64), and how often it has them (float)."""

    terms_E: "array[int]"
    counts_E: "array[float]"
    bounds: "array[int]"


class _Letters(dict[int, int | None]):
    """For str.translate: what is part of a word stays, what cannot be seen goes, anything else becomes a space."""

    def __missing__(self, code: int) -> int | None:
        letter, kind = chr(code), unicodedata.category(chr(code))
        unseen = kind == "Cf" or "VARIATION SELECTOR" in unicodedata.name(letter, "")
        if code == ZERO_WIDTH_SPACE:
            found = ord(" ")
        elif unseen:
            found = None
        else:
            found = code if letter.isalnum() or letter == "_" or kind.startswith("M") else ord(" ")
        self[code] = found
        return found


_LETTERS = _Letters()


def folded(text: str) -> str:
    """What letters a text has, however they were composed and whether they are capital."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def words_of(text: str) -> list[str]:
    """Its words, in their order."""
    return folded(text).translate(_LETTERS).split()


def runs_of(text: str) -> Iterator[str]:
    """All its runs of two to four characters, of which white space is one; a line break before each keeps them apart
    from words. One by one, as those of a long text would fill the memory."""
    letters = f" {' '.join(folded(text).split())} "
    if len(letters) > SHORTEST:
        for n in range(SHORTEST, LONGEST + 1):
            yield from (f"\n{letters[at : at + n]}" for at in range(len(letters) - n + 1))


def terms_of(text: str, pair: str | None = None, kind: Terms = Terms.words) -> Iterator[str]:
    """The terms of a text; of a pair what both texts have, what one of them has alone, and how many terms of each sort
    these are. Their order is the same in every process."""
    if pair is None:
        for terms in _sorts(text, kind).values():
            yield from terms
        return
    others = _sorts(pair, kind)
    for sort, terms in _sorts(text, kind).items():
        one, other = set(terms), set(others[sort])
        yield from (f"both {term}" for term in sorted(one & other))
        for side, alone in (("first", one - other), ("second", other - one)):
            yield from (f"{side} {term}" for term in sorted(alone))
            yield f"{len(alone)}{sort} alone in {side}"


def counted(texts: Sequence[str], pairs: Sequence[str] | None, kind: Terms = Terms.words) -> Counted:
    """The terms of many texts by their numbers: those of two terms are the same about once in four thousand million."""
    found = Counted(array("q"), array("f"), array("q", [0]))
    for text, pair in zip(texts, pairs or [None] * len(texts), strict=True):
        counts = Counter(map(number_of, terms_of(text, pair, kind)))
        found.terms_E.extend(counts)
        found.counts_E.extend(counts.values())
        found.bounds.append(len(found.terms_E))
    return found


def number_of(term: str) -> int:
    """32 bits that stand for a term, the same everywhere."""
    return crc32(term.encode("utf-8", "surrogatepass"))


def unspaced(texts: Sequence[str]) -> bool:
    """Whether a tenth of the letters are of scripts that put no spaces between words."""
    n_letters = sum(len(word) for text in texts for word in words_of(text))
    return 10 * sum(len(UNSPACED.findall(text)) for text in texts) > n_letters


def _sorts(text: str, kind: Terms) -> dict[str, Iterable[str]]:
    """The terms of a text by their sorts, as how many a pair has alone is said of each."""
    found: dict[str, Iterable[str]] = {}
    if kind is not Terms.characters:
        words = words_of(text)
        found |= {"": words, " neighbours": (f"{one} {other}" for one, other in pairwise(words))}
    if kind is not Terms.words:
        found[" runs"] = runs_of(text)
    return found
