"""The letters and words of a text, and the other terms that a linear model counts in it.

Standard library only: an exported model holds a copy of this file, so that it counts what the run did. The terms are
words and pairs of neighbouring words, runs of characters, or both; and the units before a text, which say what is in
other columns of its row (data/formats/fields.py). A text is composed (NFC, as our tokenizers do it: NFKC would also
make `²` a `2`) and case-folded first. A word is a run of letters, digits and the marks that stand on them, so that a
word of Hindi, Thai, Arabic or Hebrew stays whole however it is composed. Where no spaces stand between words, a "word"
is a whole clause, and runs of characters are the terms.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from zlib import crc32

UNIT = "\u241f"  # a sign that can be seen, and that nobody types
UNITS = re.compile(f"(?:{UNIT}[^{UNIT}]+{UNIT})+")
MAX_MARKS = 1000  # combining marks on one letter
SHORTEST, LONGEST = 2, 4  # characters of a run: with one of five as good, and half as many terms again
ZERO_WIDTH_SPACE = 0x200B  # is between words of Thai, Khmer or Burmese


def list_terms(texts: list[str], kind: str) -> list[tuple[int, int, int]]:
    """The number of a text, that of a term of it, and how often it has that, of all terms of all texts."""
    return [(at, term, n) for at, text in enumerate(texts) for term, n in count_terms(text, kind).items()]


def count_terms(text: str, kind: str) -> Counter[int]:
    """How often a text has each term, by its number."""
    return Counter(number_of(term) for terms in terms_by_sort(text, kind).values() for term in terms)


def number_of(term: str) -> int:
    """32 bits that stand for a term, the same everywhere."""
    return crc32(term.encode("utf-8", "surrogatepass"))


def terms_by_sort(text: str, kind: str) -> dict[str, Iterable[str]]:
    """The terms of a text by their sorts, as how many a pair has alone is said of each.

    Args:
        kind: what is counted: "words" and pairs of neighbours, runs of "characters", or "both".
    """
    found: dict[str, Iterable[str]] = {}
    text, units = split_units(text)
    if units:
        found[" units"] = [f"{UNIT}{unit}" for unit in units]
    if kind != "characters":
        words = split_words(text)
        found |= {"": words, " neighbours": (f"{one} {other}" for one, other in pairwise(words))}
    if kind != "words":
        found[" runs"] = character_runs(text)
    return found


def split_units(text: str) -> tuple[str, list[str]]:
    """The text without the units before it, and these."""
    if not text.startswith(UNIT) or (found := UNITS.match(text)) is None:
        return text, []
    return text[found.end() :], found[0].strip(UNIT).split(UNIT * 2)


def split_words(text: str) -> list[str]:
    """Its words, in their order."""
    return fold_case(text).translate(_LETTERS).split()


def character_runs(text: str) -> Iterator[str]:
    """All its runs of two to four characters, of which white space is one; a line break before each keeps them apart
    from words. One by one, as those of a long text would fill the memory."""
    letters = f" {' '.join(fold_case(text).split())} "
    if len(letters) > SHORTEST:
        for n in range(SHORTEST, LONGEST + 1):
            yield from (f"\n{letters[at : at + n]}" for at in range(len(letters) - n + 1))


def fold_case(text: str) -> str:
    """A text in lower case and in composed letters (NFC)."""
    if text.isascii():
        return text.lower()
    return normalise_unicode(normalise_unicode(text).casefold())


def normalise_unicode(text: str) -> str:
    """The text in NFC. Python puts the marks of a letter in order in a time that grows with their number squared: runs
    of more than `MAX_MARKS`, which no writing has, stay as they are."""
    if len(text) <= MAX_MARKS:
        return unicodedata.normalize("NFC", text)
    parts = _long_runs_of_marks().split(text)
    for at in range(0, len(parts), 2):  # between the runs
        parts[at] = unicodedata.normalize("NFC", parts[at])
    return "".join(parts)


@lru_cache(maxsize=1)
def _long_runs_of_marks() -> re.Pattern[str]:
    marks = [chr(code) for code in range(0x300, 0x20000) if unicodedata.combining(chr(code))]
    return re.compile(f"([{''.join(marks)}]{{{MAX_MARKS},}})")


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
