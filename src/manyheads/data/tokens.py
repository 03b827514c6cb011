"""Text to token ids, whole, cut or in windows. Torch and tokenizers only, so that a shipped model needs no more.

A tokenizer puts marks such as [CLS] and [SEP] around a text. A document is what the network reads at once: a text, a
pair of texts, or one window of a text that is longer than `data.max_length`.

N tokens of all rows, end to end; row i is `ids_N[offsets[i]:offsets[i + 1]]` . C labels
"""

import mmap
import os
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from typing import Any, NamedTuple, TypeVar

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import Cutting, Long
from manyheads.config.data import CUT
from manyheads.data.formats.fields import FIELD, field_mark, field_parts, unit_ids
from manyheads.data.ids.terms import UNIT
from manyheads.data.tokenizer import PROBE, tokenizer_errors
from manyheads.distributed.machine import n_cores
from manyheads.errors import UserError

T = TypeVar("T")
HEAD = 4  # one token in four is of the head where head and tail are kept
MAX_ROWS_AT_ONCE = 4096  # of more, several threads each encode a part
ROWS_OF_THREAD = 1024  # rows that each of several threads encodes at a time
PARALLEL = "TOKENIZERS_PARALLELISM"  # which the library reads at each call
ID_BYTES = 4
FAILS = "the tokenizer fails on a text: use another one"


class Windows(NamedTuple):
    """Where long texts are read in windows: window w is `ids_N[bounds[w]:bounds[w + 1]]`, and row i has the windows
    `firsts[i]` to `firsts[i + 1] - 1`. Both int64."""

    bounds: Tensor
    firsts: Tensor


@dataclass(slots=True)
class Tokens:
    """Token ids of all rows of a split.

    Attributes:
        ids_N: int32.
        offsets: int64 of n_rows + 1.
        segments_N: uint8, see `segments_of`; None: rows have one text.
        labels: int32 class ids or, where a row has any number of labels, uint8 `(n_rows, C)` with a 1 for each it has.
        n_truncated: rows that were cut to the length allowed.
        targets: the tokens of the texts that answer the rows.
        windows: where the windows of each row are; its tokens are those of its windows, end to end.
        vocabulary: says what ids are, where words of the rows are masked.
        held: the memory that a file of them is mapped to.
        probabilities_nC: of each class, from which rows are learnt in place of labels; None: from labels.
        any_of_n: whether a row has one of the classes that have a probability, bool; None: no such rows.
        weights_n: factors of the rows' losses, float32, of a mean of 1; None: all are 1.
    """

    ids_N: Tensor
    offsets: Tensor
    segments_N: Tensor | None
    labels: Tensor
    n_truncated: int = 0
    targets: "Tokens | None" = None
    windows: Windows | None = None
    vocabulary: Any = None
    held: Any = None
    probabilities_nC: Tensor | None = None
    any_of_n: Tensor | None = None
    weights_n: Tensor | None = None

    def __len__(self) -> int:
        return self.offsets.numel() - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens of each row, its target included: `(n_rows,)` int64."""
        lengths = self.offsets.diff()
        return lengths if self.targets is None else lengths + self.targets.lengths

    @property
    def counts(self) -> Tensor:
        """How much each row counts in a step of training: 1 or, where words are masked, the number of its words."""
        if self.vocabulary is None:
            return torch.ones(len(self), dtype=torch.int64)
        return self.offsets.diff() - self.vocabulary.n_marks

    @property
    def documents(self) -> Tensor:
        """Tokens of each document: int64."""
        return self.offsets.diff() if self.windows is None else self.windows.bounds.diff()

    def sizes(self) -> list[tuple[int, int, int, int]]:
        """The sizes of documents: tokens, among them those of the second text of a pair and second marks at the end of
        the first (`embeddings.is_surplus`), and how many documents there are of this size."""
        sizes = self.documents << 32  # one number takes less memory than three
        if self.segments_N is not None:  # read as by `embeddings.in_second`
            parts_N = ((self.segments_N & 1).long() << 1) + (self.segments_N >> 2)
            sizes = sizes + F.pad(parts_N.cumsum(0), (1, 0))[self.offsets].diff()
        found, counts = sizes.unique(return_counts=True)
        return [
            (size >> 32, size % 2**32 >> 1, size & 1, count)
            for size, count in zip(found.tolist(), counts.tolist(), strict=True)
        ]


def drop_pages(tokens: Tokens) -> None:
    """Let go of the pages of a file of tokens that were read: the system keeps them as long as it has memory."""
    if tokens.held is not None:
        tokens.held.madvise(mmap.MADV_DONTNEED)
    if tokens.targets is not None:
        drop_pages(tokens.targets)


def multi_hot(sets: Sequence[tuple[int, ...]], n_classes: int) -> Tensor:
    """A 1 for each label of a row: uint8 `(n, C)`. `sets` are the ids of the labels of each row."""
    rows: list[int] = []
    labels: list[int] = []
    for row, ids in enumerate(sets):
        rows += [row] * len(ids)
        labels += ids
    marks_nC = torch.zeros(len(sets), n_classes, dtype=torch.uint8)
    marks_nC[rows, labels] = 1
    return marks_nC


def encode(
    tokenizer: Tokenizer,
    texts: list[str],
    pairs: list[str] | None,
    labels: list[int] | None,
    max_length: int,
    cutting: Cutting = CUT,
    look_up: "LookUp | None" = None,
) -> Tokens:
    """Token ids of `texts`, each cut to `max_length` tokens, marks included, or read in windows of that length.

    Of a pair the longer text is cut first. Without `labels` all are 0.

    Args:
        look_up: of a table of words (ids/words.py): with many texts it is quicker to look words up.

    Raises:
        UserError: the tokenizer fails on a text, or its marks leave no room for one.
    """
    room = max_length - tokenizer.num_special_tokens_to_add(pairs is not None)
    if room < 1:
        raise UserError(f"data.max_length={max_length} leaves no room next to the special tokens: use a larger one")
    assert cutting.long is not Long.windows or pairs is None, "checks.check_long comes first"
    marks = None if pairs is None else texts_of_marks(tokenizer)
    field, units = None, set[int]()
    if cutting.long is not Long.windows and any(FIELD in text for text in chain(texts, pairs or ())):
        field = field_mark(tokenizer)
    cuts_end = cutting.long is Long.cut and field is None
    if not cuts_end and any(text.startswith(UNIT) for text in texts):
        units = unit_ids(tokenizer)

    def encode_from(start: int, size: int) -> FlatTokens:
        rows = slice(start, start + size)
        batch = texts[rows] if pairs is None else list(zip(texts[rows], pairs[rows], strict=True))
        with tokenizer_errors(FAILS):
            encodings = tokenizer.encode_batch_fast(batch)
        part = FlatTokens()
        for encoding in encodings:
            ids = encoding.ids
            segments = [] if marks is None else segments_of(encoding, marks)
            if len(ids) <= max_length:
                part.ids.extend(ids)
                part.segments += bytes(segments)
                part.bounds.append(len(part.ids))
                part.n_truncated += len(ids) == max_length and bool(encoding.overflowing)  # cut by the library
            else:
                parts = field_parts(encoding, field, units, max_length, cutting.long)
                part.add_cut(encoding, segments, kept_tokens(parts, max_length, cutting))
            part.firsts.append(len(part.bounds) - 1)
        return part

    parts = None
    if look_up is not None:
        with tokenizer_errors(FAILS):
            parts = look_up(texts, pairs, room, cutting)
    if parts is None:
        if cuts_end:  # the library does so faster than we do afterwards
            tokenizer.enable_truncation(max_length, strategy="longest_first")
        try:
            if len(texts) <= MAX_ROWS_AT_ONCE:
                parts = [encode_from(0, len(texts))]
            else:
                parts = in_threads(encode_from, len(texts))
        finally:
            tokenizer.no_truncation()
    ids, segments, bounds, firsts = array("i"), bytearray(), array("q", [0]), array("q", [0])
    for part in parts:
        firsts.extend(at + len(bounds) - 1 for at in part.firsts[1:])
        bounds.extend(at + len(ids) for at in part.bounds[1:])
        ids += part.ids
        segments += part.segments
    bounds_of_documents = torch.frombuffer(bounds, dtype=torch.int64)
    firsts_of_rows = torch.frombuffer(firsts, dtype=torch.int64)
    has_windows = len(bounds) > len(firsts)
    return Tokens(
        ids_N=torch.frombuffer(ids, dtype=torch.int32) if ids else torch.empty(0, dtype=torch.int32),
        offsets=bounds_of_documents[firsts_of_rows],
        segments_N=None if pairs is None else torch.tensor(segments, dtype=torch.uint8),
        labels=torch.as_tensor([0] * len(texts) if labels is None else labels, dtype=torch.int32),
        n_truncated=sum(part.n_truncated for part in parts),
        windows=Windows(bounds_of_documents, firsts_of_rows) if has_windows else None,
    )


def in_threads(encode_from: Callable[[int, int], T], n_rows: int) -> list[T]:
    """Many rows, by a thread for each core. Meanwhile the library keeps to one core a call, as its own threads hinder
    one another, and take nothing out of its objects."""
    before = os.environ.get(PARALLEL)
    os.environ[PARALLEL] = "false"
    try:
        if 0 < n_rows <= ROWS_OF_THREAD:
            return [encode_from(0, n_rows)]
        with ThreadPoolExecutor(n_cores()) as threads:
            return list(threads.map(encode_from, range(0, n_rows, ROWS_OF_THREAD), repeat(ROWS_OF_THREAD)))
    finally:
        del os.environ[PARALLEL]
        if before is not None:
            os.environ[PARALLEL] = before


@dataclass(slots=True)
class FlatTokens:
    """The tokens of some rows, flat; `bounds` are of documents in tokens, `firsts` of rows in documents."""

    ids: "array[int]" = field(default_factory=lambda: array("i"))
    segments: bytearray = field(default_factory=bytearray)
    bounds: list[int] = field(default_factory=lambda: [0])
    firsts: list[int] = field(default_factory=lambda: [0])
    n_truncated: int = 0

    def add_cut(self, encoding: Encoding, segments: list[int], kept: "KeptTokens") -> None:
        """Add what is kept of a row that is too long."""
        ids = encoding.ids
        for places in kept.documents:
            self.ids.extend([ids[at] for at in places])
            if segments:
                self.segments += bytes([segments[at] for at in places])
            self.bounds.append(len(self.ids))
        self.n_truncated += not kept.is_whole


# From first and second texts, how many tokens are read at once without marks, and what becomes of longer rows, to the
# tokens of the rows; None: texts cannot be looked up.
LookUp = Callable[[list[str], list[str] | None, int, Cutting], list[FlatTokens] | None]


class KeptSpans(NamedTuple):
    """What is read of a row that is too long: of each document, of each of its texts, which tokens; and whether each
    token is in any."""

    documents: list[list[list[slice]]]
    is_whole: bool

    def of(self, texts: Sequence[bytes]) -> list[list[bytes]]:
        """Of each document the ids of its texts, int32, by those of the whole texts."""
        documents: list[list[bytes]] = []
        for spans_of_texts in self.documents:
            kept: list[bytes] = []
            for ids, spans in zip(texts, spans_of_texts, strict=True):
                kept.append(b"".join(ids[ID_BYTES * span.start : ID_BYTES * span.stop] for span in spans))
            documents.append(kept)
        return documents


def kept_spans(lengths: Sequence[int], room: int, cutting: Cutting) -> KeptSpans:
    """What is read of a text, or pair, of more than `room` tokens.

    Head and tail: Sun et al. (2019), "How to Fine-Tune BERT for Text Classification?", section 5.3.1. Windows are all
    as long as can be, at most `stride` apart, from the first token to the last, evenly spread.

    Args:
        lengths: tokens of each text, without marks, which are always read.
    """
    if cutting.long is Long.windows:
        starts = window_starts(lengths[0], room, cutting)
        is_whole = len(starts) > 1 and all(later - former <= room for former, later in pairwise(starts))
        return KeptSpans([[[slice(start, start + room)]] for start in starts], is_whole)
    rooms = _share_room(lengths, room)
    return KeptSpans([[_ends(n, at_most, cutting.long) for n, at_most in zip(lengths, rooms, strict=True)]], False)


class KeptTokens(NamedTuple):
    """What is read of a long text: the places of the tokens of each document, and whether each token is in any."""

    documents: list[list[int]]
    is_whole: bool


def kept_tokens(parts: Sequence[int | None], max_length: int, cutting: Cutting) -> KeptTokens:
    """What is read of a text, or pair, that is longer than `max_length` tokens; see `kept_spans`.

    Args:
        parts: of each token, which text, or column of it, it is of; None is a mark such as [CLS], always read.
    """
    marks: list[int] = []
    texts: dict[int, list[int]] = {}
    for at, text in enumerate(parts):
        if text is None:
            marks.append(at)
        else:
            texts.setdefault(text, []).append(at)
    kept = kept_spans([*map(len, texts.values())], max_length - len(marks), cutting)
    documents: list[list[int]] = []
    for spans_of_texts in kept.documents:
        places = list(marks)
        for text, spans in zip(texts.values(), spans_of_texts, strict=True):
            for span in spans:
                places += text[span]
        documents.append(sorted(places))
    return KeptTokens(documents, kept.is_whole)


def window_starts(n_tokens: int, room: int, cutting: Cutting) -> list[int]:
    """Where windows of `room` tokens begin in a text of more."""
    n_left = n_tokens - room
    stride = min(cutting.stride or room, room)
    n_steps = min(-(-n_left // stride), cutting.windows - 1)
    if n_steps == 0:
        return [0]
    return [n_left * step // n_steps for step in range(n_steps + 1)]


def _ends(n_tokens: int, room: int, long: Long) -> list[slice]:
    """The head and, if it is kept, the tail of a text that has `room` tokens."""
    if n_tokens <= room:
        return [slice(0, n_tokens)]
    n_head = room if long is Long.cut else room // HEAD
    return [slice(0, n_head), slice(n_tokens - (room - n_head), n_tokens)]


def _share_room(lengths: Sequence[int], room: int) -> list[int]:
    """Tokens that are left of each text: the longer are cut first, as by the tokenizers' own `longest_first`."""
    rooms = [0] * len(lengths)
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    for n_left, at in zip(range(len(lengths), 0, -1), by_length, strict=True):
        rooms[at] = min(lengths[at], room // n_left)
        room -= rooms[at]
    return rooms


def texts_of_marks(tokenizer: Tokenizer) -> list[int]:
    """Of each mark that the tokenizer puts around the texts of a pair, in turn, which text it is read with: the one its
    type id says or, where these do not tell the texts apart, the one before it; 4 if it repeats the one that ends the
    first text."""
    probe = tokenizer.encode(PROBE, PROBE)
    both = list(zip(probe.sequence_ids, probe.type_ids, strict=True))
    types_tell = all(text == type_id for text, type_id in both if text is not None)
    found: list[int] = []
    before, last = None, None  # the text before a mark, and the mark before it
    for token_id, (text, type_id) in zip(probe.ids, both, strict=True):
        if text is not None:
            before, last = text, None
        else:
            of = type_id if types_tell else before or 0
            found.append(4 if of == before == 0 and token_id == last else of)
            last = token_id
    return found


def segments_of(encoding: Encoding, marks: list[int]) -> list[int]:
    """For each token of a pair: 0 in the first text, 1 in the second; plus 2 where the tokenizer's own type id, by
    which the segment table is read, is the other one: RoBERTa and its kin give 0 to both texts; and 4 for a second mark
    at the end of the first text, as they write it.

    Args:
        marks: see `texts_of_marks`.
    """
    of_marks = iter(marks)
    segments: list[int] = []
    for text, type_id in zip(encoding.sequence_ids, encoding.type_ids, strict=True):
        if text is None:
            text = next(of_marks, 1)
        segments.append(text if text & 1 == type_id else text + 2)
    return segments
