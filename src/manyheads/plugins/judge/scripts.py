"""In which writing system a text is."""

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import islice

LETTERS = 200  # of a text, by which its script is recognised


def script_of(text: str) -> str:
    """The writing system of most letters at the beginning of a text, by Unicode's names of them, such as `latin` or
    `cjk`; `none` where there is no letter."""
    letters = (sign for sign in text if sign.isalpha())
    counts = Counter(map(_script_of_letter, islice(letters, LETTERS)))
    if not counts:
        return "none"
    return counts.most_common(1)[0][0]


@lru_cache(maxsize=2**14)
def _script_of_letter(letter: str) -> str:
    return re.split("[ -]", unicodedata.name(letter, "unknown"))[0].lower()
