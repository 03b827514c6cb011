"""Which text of a pair a token is of, and which tokens are read of a text that is longer than a model reads. Standard
library only, but for the settings."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from manyheads.config import Cutting, Long

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

PROBE = "a b\u2603 \U0001f642 zzqx"  # words, and what no tokenizer has an entry for
HEAD = 4  # one token in so many is of the head where head and tail are kept


def texts_of_marks(tokenizer: "Tokenizer") -> list[int]:
    """Of each mark that the tokenizer puts around the texts of a pair, in turn, which text it is read with: the one its
    type id says or, where these do not tell the texts apart, the one before it."""
    probe = tokenizer.encode(PROBE, PROBE)
    every = list(zip(probe.sequence_ids, probe.type_ids, strict=True))
    told = all(text == type_id for text, type_id in every if text is not None)
    found, last = [], 0
    for text, type_id in every:
        last = last if text is None else text
        if text is None:
            found.append(type_id if told else last)
    return found


def segments_of(encoding: "Encoding", marks: list[int]) -> list[int]:
    """For each token of a pair: 0 in the first text, 1 in the second; plus 2 where the tokenizer's own type id, by
    which the segment table is read, is the other one. RoBERTa and its kin give 0 to both texts.

    Args:
        marks: as of `texts_of_marks`.
    """
    of_marks = iter(marks)
    texts = [next(of_marks, 1) if text is None else text for text in encoding.sequence_ids]
    return [text + 2 * (text != type_id) for text, type_id in zip(texts, encoding.type_ids, strict=True)]


class Kept(NamedTuple):
    """The places of the tokens that are read, a list for each document, and whether each token is in any of them."""

    parts: list[list[int]]
    whole: bool


def kept(sequence_ids: Sequence[int | None], max_length: int, cutting: Cutting) -> Kept:
    """What is read of a text, or pair, that is longer than `max_length` tokens.

    Head and tail: Sun et al. (2019), "How to Fine-Tune BERT for Text Classification?", section 5.3.1. Windows are all
    as long as can be, at most `stride` apart, from the first token to the last, evenly spread.

    Args:
        sequence_ids: of each token, which text it is of, 0 or 1; None is a mark such as [CLS], which is always read.
    """
    places: list[list[int]] = [[], []]
    for at, text in enumerate(sequence_ids):
        if text is not None:
            places[text].append(at)
    room = max_length - (len(sequence_ids) - len(places[0]) - len(places[1]))
    if cutting.long is Long.windows:
        starts = window_starts(len(places[0]), room, cutting)
        chosen = [places[0][start : start + room] for start in starts]
        whole = len(starts) > 1 and all(b - a <= room for a, b in pairwise(starts))
    else:
        rooms = _rooms(len(places[0]), len(places[1]), room)
        chosen = [[at for text, n in zip(places, rooms, strict=True) for at in _shortened(text, n, cutting.long)]]
        whole = False
    marks = [at for at, text in enumerate(sequence_ids) if text is None]
    return Kept([sorted([*marks, *part]) for part in chosen], whole)


def window_starts(n_tokens: int, room: int, cutting: Cutting) -> list[int]:
    """Where windows of `room` tokens begin in a text of more."""
    left = n_tokens - room
    apart = min(cutting.stride or room, room)
    n_steps = min(-(-left // apart), cutting.windows - 1)
    return [left * step // n_steps for step in range(n_steps + 1)] if n_steps else [0]


def _shortened(places: list[int], room: int, long: Long) -> list[int]:
    if len(places) <= room:
        return places
    head = room if long is Long.cut else room // HEAD
    return [*places[:head], *places[len(places) - (room - head) :]]


def _rooms(n_first: int, n_second: int, room: int) -> tuple[int, int]:
    """Tokens that are left of each text: the longer is cut first, as by the tokenizers' own `longest_first`."""
    short, long = sorted((n_first, n_second))
    short, long = (short, room - short) if 2 * short <= room else (room // 2, room - room // 2)
    return (short, long) if n_first <= n_second else (long, short)
