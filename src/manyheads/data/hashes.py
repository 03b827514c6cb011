"""Rows told apart by hashes of their texts, and by class.

Hashes have 64 bits: of 10 million different texts two have the same hash once in 400,000 times.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from manyheads.data.table import lists_of


def stable_hashes(cells: list[Any]) -> np.ndarray:
    """Hashes of texts that are the same in every process, unlike Python's: int64. What is no text counts as empty."""
    texts = (cell.encode("utf-8", "surrogatepass") if isinstance(cell, str) else b"" for cell in cells)
    return np.frombuffer(b"".join(blake2b(text, digest_size=8).digest() for text in texts), dtype=np.int64)


def pair_hashes(first: Sequence[int] | np.ndarray, second: Sequence[int] | np.ndarray) -> np.ndarray:
    """Hashes of pairs by those of both texts: int64."""
    former, latter = (np.asarray(one, dtype=np.int64).view(np.uint64) for one in (first, second))
    both = former * np.uint64(0x9E3779B97F4A7C15) + latter
    return ((both ^ (both >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)).view(np.int64)


def stable_text_hashes(texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
    """Stable hashes of texts, or of pairs of texts."""
    columns = [texts] if pairs is None else [texts, pairs]
    found = [np.concatenate([stable_hashes(part) for part in lists_of(column)]) for column in columns]
    return found[0] if pairs is None else pair_hashes(*found)


def repeats(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows that hold the text of an earlier one, ascending, and for each the first row that holds it."""
    ordered = np.sort(hashes)  # far faster than to sort their places, too
    several = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    order = np.flatnonzero(several[np.searchsorted(several[:-1], hashes)] == hashes) if len(several) else several
    order = order[np.argsort(hashes[order], kind="stable")]
    ordered = hashes[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    later = order[~is_first]
    firsts = order[is_first][np.cumsum(is_first)[~is_first] - 1]
    back = np.argsort(later)
    return later[back], firsts[back]


def count_shared(hashes: np.ndarray, others: np.ndarray) -> tuple[int, int, int]:
    """How many rows hold a text that `others` hold, the first of them, and the first there."""
    found = rows_among(hashes, others)
    if not len(found):
        return 0, 0, 0
    return len(found), int(found[0]), int(np.flatnonzero(others == hashes[found[0]])[0])


def rows_among(hashes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The rows that hold a text that `others` hold, ascending. By sorting: tables of hashes do not fit into a cache."""
    order, known = np.argsort(hashes), np.sort(others)
    asked = hashes[order]
    at = np.searchsorted(known, asked)
    at[at == len(known)] = 0
    return np.sort(order[known[at] == asked] if len(known) else order[:0])


def firsts_by_class(labels: Sequence[int], later: np.ndarray) -> dict[int, np.ndarray]:
    """The rows but the `later` ones, ascending, by their class; classes in the order in which they occur."""
    firsts = np.delete(np.arange(len(labels)), later)
    of_firsts = np.asarray(labels)[firsts]
    order = np.argsort(of_firsts, kind="stable")
    classes, starts = np.unique(of_firsts[order], return_index=True)
    rows = dict(zip(classes.tolist(), np.split(firsts[order], starts[1:]), strict=True))
    return dict(sorted(rows.items(), key=lambda one: one[1][0]))
