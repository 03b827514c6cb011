"""Texts to the terms that a linear model counts: words, and pairs of neighbouring words. Standard library only.

E terms of all texts, end to end; text i has those from `bounds[i]` to `bounds[i + 1] - 1`
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

WORD = re.compile(r"\w+")


class Counted(NamedTuple):
    """The numbers of the terms of each text, each once (int64), and how often it has them (float)."""

    terms_E: "array[int]"
    counts_E: "array[float]"
    bounds: "array[int]"


def terms_of(text: str, pair: str | None = None) -> list[str]:
    """The terms of a text, in lower case; of a pair what both texts have, what one of them has alone, and how many
    words these are."""
    if pair is None:
        words = WORD.findall(text.lower())
        return [*words, *_neighbours(words)]
    first, second = (WORD.findall(one.lower()) for one in (text, pair))
    found = []
    for one, other in ((set(first), set(second)), (set(_neighbours(first)), set(_neighbours(second)))):
        found += [f"both {term}" for term in one & other]
        found += [f"first {term}" for term in one - other] + [f"second {term}" for term in other - one]
        found += [f"{len(one - other)} alone in first", f"{len(other - one)} alone in second"]
    return found


def counted(texts: Sequence[str], pairs: Sequence[str] | None) -> Counted:
    """The terms of many texts by their numbers: those of two terms are the same about once in four thousand million."""
    found = Counted(array("q"), array("f"), array("q", [0]))
    for text, pair in zip(texts, pairs or [None] * len(texts), strict=True):
        counts = Counter(number_of(term) for term in terms_of(text, pair))
        found.terms_E.extend(counts)
        found.counts_E.extend(counts.values())
        found.bounds.append(len(found.terms_E))
    return found


def number_of(term: str) -> int:
    """32 bits that stand for a term, the same everywhere."""
    return crc32(term.encode("utf-8", "surrogatepass"))


def _neighbours(words: list[str]) -> list[str]:
    return [f"{one} {other}" for one, other in pairwise(words)]
