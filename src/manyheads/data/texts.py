"""Texts of rows: what cannot be one, their Unicode, and the hashes that tell them apart.

Standard library at first: a mistake is reported before torch is imported.
"""

import unicodedata
from array import array
from collections.abc import Sequence
from typing import Any

from manyheads.data.table import lists_of

NOT_UTF8 = "holds half a character (a lone surrogate), which UTF-8 cannot write"
BLANK = {"Cc", "Cf", "Zl", "Zp", "Zs"}  # general categories of Unicode: controls, signs of no width, white space
TYPES = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object", bytes: "bytes"}


def hash_texts(texts: Any, pairs: Any) -> tuple[Any, dict[int, str]]:
    """Hash every text, or every pair of texts.

    Returns:
        The hashes, int64; and by index why a cell is not a text, see `text_faults`.
    """
    hashes, faults = hash_cells(texts, "the text")
    if pairs is None:
        return hashes, faults
    from manyheads.data.hashes import pair_hashes

    second, second_faults = hash_cells(pairs, "the second text")
    return pair_hashes(hashes, second), faults | second_faults


def hash_cells(cells: Any, what: str) -> tuple["array[int]", dict[int, str]]:
    """Hash every cell; and by index why one is not a text. `what` names the cell in that sentence."""
    known = getattr(cells, "checked", None)  # of a stream, which is read once
    if known is not None:
        return known
    hashes, faults = array("q"), dict[int, str]()
    for part in lists_of(cells):
        texts, part_faults = part, text_faults(part, what)
        if part_faults:
            texts = [cell if isinstance(cell, str) else "" for cell in part]
        for at, why in part_faults.items():
            faults[len(hashes) + at] = why
        hashes.extend(map(hash, texts))
    return hashes, faults


def text_faults(texts: Sequence[Any], what: str) -> dict[int, str]:
    """By index, why a cell cannot be a text: null, not a string, blank, or not encodable."""
    are_seen = {*map(type, texts)} <= {str} and not any(map(is_blank, texts))
    if are_seen and (all(map(str.isascii, texts)) or is_encodable("".join(texts))):
        return {}  # as nearly always: quicker than cell by cell
    faults: dict[int, str] = {}
    for index, text in enumerate(texts):
        if text is None or text == "":
            faults[index] = f"{what} is empty"
        elif not isinstance(text, str):
            faults[index] = f"{what} is not a string but {type_in_words(text)}"
        elif text.isspace():
            faults[index] = f"{what} is only white space"
        elif is_blank(text):
            faults[index] = f"{what} has only signs that cannot be seen"
        elif not is_encodable(text):
            faults[index] = f"{what} {NOT_UTF8}"
    return faults


def is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen: it holds white space, controls and signs of no width alone, or nothing."""
    if text[:1].isalnum():  # as nearly always, and quicker
        return False
    return all(unicodedata.category(sign) in BLANK for sign in text)


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can write it: it holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def type_in_words(cell: object) -> str:
    """What a cell is that should be a text, for a sentence."""
    return TYPES.get(type(cell), f"of type {type(cell).__name__}")
