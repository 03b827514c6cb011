"""The terms of texts that the linear model of this folder counts, for predict.py."""

from collections import Counter
from functools import cache
from itertools import pairwise
from re import match
from unicodedata import category, name, normalize
from zlib import crc32


def list_terms(texts: list[str], kind: str) -> list[tuple[int, int, int]]:
    """The number of a text, a term of it, and how often it has that, of all terms of all texts.

    Args:
        kind: what is counted: "words" and pairs of neighbours, runs of "characters", or "both".
    """
    found = []
    for at, text in enumerate(texts):
        found += [(at, term, count) for term, count in count_terms(text, kind).items()]
    return found


def count_terms(text: str, kind: str) -> Counter[int]:
    """How often a text has each term; a term is known by its checksum."""
    terms: list[str] = []
    if units := match("(?:\u241f[^\u241f]+\u241f)+", text):  # what is read of other columns of a row
        terms += [f"\u241f{unit}" for unit in units[0].strip("\u241f").split("\u241f\u241f")]
        text = text[units.end() :]
    text = " ".join(normalize("NFC", normalize("NFC", text).casefold()).split())
    if kind != "characters":
        words = "".join(map(letter_of_word, text)).split()
        terms += words
        terms += [f"{one} {other}" for one, other in pairwise(words)]
    if kind != "words" and text:
        spaced = f" {text} "
        for n in (2, 3, 4):
            terms += [f"\n{spaced[at : at + n]}" for at in range(len(spaced) - n + 1)]
    return Counter(crc32(term.encode("utf-8", "surrogatepass")) for term in terms)


@cache
def letter_of_word(letter: str) -> str:
    """What a letter is in a word: itself, nothing where it has no width, or a space where it ends the word."""
    if letter == "\u200b":
        return " "
    if category(letter) == "Cf" or "VARIATION SELECTOR" in name(letter, ""):
        return ""
    is_of_word = letter.isalnum() or letter == "_" or category(letter).startswith("M")
    return letter if is_of_word else " "
