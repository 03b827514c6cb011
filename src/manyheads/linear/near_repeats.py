"""Texts that nearly repeat another, by the runs of letters that they share."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

from manyheads.data.ids.terms import fold_case
from manyheads.data.rows import Rows

ALIKE = 0.8  # from this Jaccard similarity on two texts are near repeats
RUN = 5  # letters, of which a text is seen as a set
CANDIDATES, HASHES = 0.65, 128  # of candidates: the similarity that MinHash estimates, and from how many hashes


def both_texts(rows: Rows) -> Iterator[str]:
    """Of each row its text, or those of a pair as one."""
    if rows.pairs is None:
        yield from rows.texts
        return
    for text, pair in zip(rows.texts, rows.pairs, strict=True):
        yield f"{text} {pair}"


def letter_runs(text: str) -> set[int]:
    """Hashes of its runs of five letters, composed and in lower case; of a shorter text the whole."""
    letters = " ".join(fold_case(text).split())
    return {crc32(letters[at : at + RUN].encode()) for at in range(max(1, len(letters) - RUN + 1))}


class NearRepeat(NamedTuple):
    """A row, by its split and its place there, and the earlier one that it is most like."""

    split: str
    at: int
    other_split: str
    other_at: int
    similarity: float


def near_repeats(samples: dict[str, Rows]) -> dict[str, list[NearRepeat]]:
    """By split its rows that nearly repeat an earlier row of it, or one of a split before. Equal texts are no near
    repeats.

    Two texts are compared by the Jaccard similarity of their runs of letters. MinHash finds candidates (Broder, 1997,
    "On the resemblance and containment of documents"), whose similarity is then computed.
    """
    from datasketch import MinHash, MinHashLSH  # of the extra `audit`

    index = MinHashLSH(threshold=CANDIDATES, num_perm=HASHES, weights=(0.1, 0.9))
    texts: dict[tuple[str, int], str] = {}  # by split and place
    known: set[str] = set()
    places: dict[str, tuple[str, int]] = {}  # of texts, whose case and white space do not count
    found: dict[str, list[NearRepeat]] = {name: [] for name in samples}
    for name, rows in samples.items():
        for at, text in enumerate(both_texts(rows)):
            if text in known:
                continue
            known.add(text)
            plain_text = " ".join(fold_case(text).split())
            if plain_text in places:
                found[name].append(NearRepeat(name, at, *places[plain_text], 1.0))
                continue
            places[plain_text] = name, at
            runs = letter_runs(text)
            signature = MinHash(HASHES, hashfunc=int)
            signature.update_batch(runs)
            candidates: list[Any] = index.query(signature)
            similar = []
            for place in candidates:
                others = letter_runs(texts[place])
                similar.append((len(runs & others) / len(runs | others), place))
            if similar:
                similarity, (other_split, other_at) = max(similar)
                if similarity >= ALIKE:
                    found[name].append(NearRepeat(name, at, other_split, other_at, similarity))
            texts[name, at] = text
            index.insert((name, at), signature)
    return found
