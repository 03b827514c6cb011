"""Text to token ids, whole or in windows. Torch and tokenizers only, so that a shipped model needs no more.

N tokens of all rows, end to end; row i is `ids_N[offsets[i]:offsets[i + 1]]`
"""

import base64
import json
import mmap
import os
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Encoding, Regex, Tokenizer, pre_tokenizers
from torch import Tensor
from torch.nn import functional as F

from manyheads.config import Cutting, Long
from manyheads.config.data import CUT
from manyheads.config.sentences import format_value, older_tokenizer
from manyheads.distributed.ranks import n_cores
from manyheads.errors import UserError

PROBE = "a b\u2603 \U0001f642 zzqx"  # words, and what no tokenizer has an entry for
HEAD = 4  # one token in four is of the head where head and tail are kept
UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")  # their ids are 0 to 4
ROWS_AT_ONCE = 4096
AT_A_TIME = 1024  # rows that a thread reads
PARALLEL = "TOKENIZERS_PARALLELISM"  # which the library reads at each call
FAILS = "the tokenizer fails on a text: use another one"
MOST_BYTES = 2**27  # of a tokenizer.json
MOST_IDS = 1_000_000  # the bound of tokenizer.vocab_size; each takes the library and us some 400 bytes
MOST_SIGNS = {b":": 1.25 * MOST_IDS, b"[": 1.25 * MOST_IDS, b",": 3.25 * MOST_IDS}  # of entries and merges, in any form
MOST_GROWTH = 64  # times longer that a tokenizer's replacements may make a text
MOST_SPLIT = 1000  # names of marks that are split where they are typed
MARKS = {  # a tokenizer's own names of them: BERT's, RoBERTa's
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "unk": ("[UNK]", "<unk>"),
}


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
        marks: see `texts_of_marks`.
    """
    of_marks = iter(marks)
    texts = [next(of_marks, 1) if text is None else text for text in encoding.sequence_ids]
    return [text + 2 * (text != type_id) for text, type_id in zip(texts, encoding.type_ids, strict=True)]


class Kept(NamedTuple):
    """The places of the tokens that are read, a list for each document, and whether each token is in any of them."""

    parts: list[list[int]]
    whole: bool


def kept_tokens(sequence_ids: Sequence[int | None], max_length: int, cutting: Cutting) -> Kept:
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


class Windows(NamedTuple):
    """Where long texts are read in parts: window w is `ids_N[bounds[w]:bounds[w + 1]]`, and row i has the windows
    `firsts[i]` to `firsts[i + 1] - 1`. Both int64."""

    bounds: Tensor
    firsts: Tensor


@dataclass(slots=True)
class Tokens:
    """Token ids of all rows of a split: `ids_N` int32, `offsets` int64 of n_rows + 1, `segments_N` uint8 or None
    (see `windows.segments_of`), `labels` int32 class ids or, where a row has any number of them, uint8 marks
    `(n_rows, C)` with a 1 for each it has. `n_truncated` rows were cut to the length allowed.
    `targets` are the tokens of the texts that rows are answered by, if any. With `windows` the tokens of a row are
    those of its windows, end to end. `vocabulary` says what ids are, where words of the rows are hidden, and
    `held` is the memory that a file of them is mapped to."""

    ids_N: Tensor
    offsets: Tensor
    segments_N: Tensor | None
    labels: Tensor
    n_truncated: int = 0
    targets: "Tokens | None" = None
    windows: Windows | None = None
    vocabulary: Any = None
    held: Any = None

    def __len__(self) -> int:
        return self.offsets.numel() - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens of each row, its target included: `(n_rows,)` int64."""
        return self.offsets.diff() + (0 if self.targets is None else self.targets.lengths)

    @property
    def counts(self) -> Tensor:
        """How much each row counts in a step of training: 1 or, where words are hidden, as many as it has of them."""
        if self.vocabulary is None:
            return torch.ones(len(self), dtype=torch.int64)
        return self.offsets.diff() - self.vocabulary.n_marks

    @property
    def documents(self) -> Tensor:
        """Tokens of each text or, where there are any, of each window: int64."""
        return self.offsets.diff() if self.windows is None else self.windows.bounds.diff()

    def sizes(self) -> list[tuple[int, int, int]]:
        """Tokens of a document, those of the second text of a pair among them, and how many documents have as many."""
        lengths = self.documents
        seconds = torch.zeros_like(lengths)
        if self.segments_N is not None:  # read as by `embeddings.in_second`
            seconds = F.pad((self.segments_N & 1).cumsum(0), (1, 0))[self.offsets].diff()
        found, counts = torch.stack([lengths, seconds]).unique(dim=1, return_counts=True)
        return [(*size, count) for size, count in zip(found.T.tolist(), counts.tolist(), strict=True)]


def drop_pages(tokens: Tokens) -> None:
    """Let go of the pages of a file of tokens that were read: the system keeps them as long as it has memory."""
    if tokens.held is not None:
        tokens.held.madvise(mmap.MADV_DONTNEED)
    if tokens.targets is not None:
        drop_pages(tokens.targets)


def multi_hot(sets: list[tuple[int, ...]], n_classes: int) -> Tensor:
    """A 1 for each label of a row: `(n, C)` uint8. `sets` are their ids."""
    marks_nC = torch.zeros(len(sets), n_classes, dtype=torch.uint8)
    rows = [row for row, one in enumerate(sets) for _ in one]
    marks_nC[rows, [label for one in sets for label in one]] = 1
    return marks_nC


class Reach(NamedTuple):
    """How many ids (0, 1, ...) and segments a tokenizer may give; gaps count."""

    ids: int
    segments: int


def reach(tokenizer: Tokenizer, *, pairs: bool = False) -> Reach:
    """Ids of all entries and of the marks around a text: a stranger's tokenizer may give more ids than it has entries.

    Raises:
        UserError: it fails on a text.
    """
    with tokenizing("it fails on a text"):
        probe = tokenizer.encode(PROBE, PROBE) if pairs else tokenizer.encode(PROBE)
    largest = max([*tokenizer.get_vocab(with_added_tokens=True).values(), *probe.ids], default=0)
    return Reach(largest + 1, max(probe.type_ids, default=0) + 1)


@contextmanager
def tokenizing(what: str) -> Iterator[None]:
    """Say in a sentence that begins with `what` how the library failed. Its panics are no Exception.

    Raises:
        UserError: it did.
    """
    try:
        yield
    except BaseException as problem:  # its errors are nothing narrower
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise UserError(f"{what} ({format_value(problem)})") from problem


def read_as_text(tokenizer: Tokenizer) -> list[str]:
    """From here on the name of a mark, such as [SEP], is text where it is typed in one. Returns the names that are read
    as the marks all the same.

    The library can leave marks unread, which tokenizer.json does not keep. Where the model itself has the name as a
    piece, as Unigram has, its first letter is split off before, which the file does keep.
    """
    tokenizer.encode_special_tokens = True
    if not (names := _read_as_marks(tokenizer)):
        return []
    plain = {one.content for one in tokenizer.get_added_tokens_decoder().values() if not one.special}
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names if name in plain])
    if _read_as_marks(tokenizer):
        names = names_of_marks(tokenizer)[:MOST_SPLIT]
        first = "|".join(f"{re.escape(name[:1])}(?={re.escape(name[1:])})" for name in names)
        split = pre_tokenizers.Split(Regex(first), "merged_with_previous")
        before = tokenizer.pre_tokenizer
        tokenizer.pre_tokenizer = split if before is None else pre_tokenizers.Sequence([before, split])
    return _read_as_marks(tokenizer)


def names_of_marks(tokenizer: Tokenizer) -> list[str]:
    """Of those around a text, of all that are special, and of those that are called as such are."""
    probe = tokenizer.encode(PROBE)
    around = [name for name, text in zip(probe.tokens, probe.sequence_ids, strict=True) if text is None]
    special = [one.content for one in tokenizer.get_added_tokens_decoder().values() if one.special]
    called = [name for names in MARKS.values() for name in names if tokenizer.token_to_id(name) is not None]
    return [name for name in dict.fromkeys([*around, *special, *called]) if name]


def _read_as_marks(tokenizer: Tokenizer) -> list[str]:
    """Names of marks that are the mark where they are typed, but for that of all without an entry."""
    names, unknown = names_of_marks(tokenizer), tokenizer.encode(PROBE, add_special_tokens=False).ids
    found = tokenizer.encode_batch_fast(names, add_special_tokens=False)
    marks = zip(names, map(tokenizer.token_to_id, names), found, strict=True)
    return [name for name, mark, of in marks if mark in of.ids and mark not in unknown]


def copied(tokenizer: Tokenizer) -> Tokenizer:
    """One of its own, without padding and truncation, which reads texts alike: the library's own copies do not."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.encode_special_tokens = tokenizer.encode_special_tokens
    copy.no_padding()
    copy.no_truncation()
    return copy


def load_tokenizer(path: str | Path, *, pairs: bool = False, reads_marks: bool = False) -> Tokenizer:
    """A tokenizer from a `tokenizer.json`, or from a folder that holds one; its padding and truncation are reset.

    Args:
        reads_marks: the name of a mark that is typed in a text is that mark, as models were trained before.

    Raises:
        UserError: no such file, not a tokenizer, one that puts no marks such as [CLS] and [SEP] around a text,
            fails on one, gives more ids or, to `pairs`, segments than a model has, or cannot but read marks.
    """
    file = Path(path).expanduser()
    file = file / "tokenizer.json" if file.is_dir() else file
    older = older_tokenizer(file.parent)
    if not file.is_file():
        remedy = older or "name a tokenizer.json, or leave it empty to train one"
        what = f"has no {file.name}" if file.parent.is_dir() and file != Path(path).expanduser() else "does not exist"
        raise UserError(f"tokenizer.path={path} {what}: {remedy}")
    if file.stat().st_size > MOST_BYTES:
        raise UserError(f"tokenizer.path={path} is larger than {MOST_BYTES // 2**20} MiB: name a tokenizer.json")
    content = file.read_bytes()
    if any(content.count(sign) > most for sign, most in MOST_SIGNS.items()):
        raise UserError(f"tokenizer.path={path} lists more than {MOST_IDS:,} entries: name another one, or train one")
    with tokenizing(f"tokenizer.path={path} is not a tokenizer.json: {older or 'name one, or train one'}"):
        if b"charsmap" in content or b"\\u" in content:  # spelt out or not
            _check_tables(json.loads(content))
        tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if hasattr(tokenizer.model, "dropout"):
        tokenizer.model.dropout = None  # of bpe: a text has the same tokens every time
    _check_growth(tokenizer, path)
    if tokenizer.num_special_tokens_to_add(False) == 0:
        raise UserError(
            f"tokenizer.path={path} puts no marks such as [CLS] and [SEP] around a text: "
            "give one with a post-processor, or leave it empty to train one"
        )
    _check_reach(tokenizer, path, pairs=pairs)
    if not reads_marks:
        with tokenizing(f"tokenizer.path={path} fails on a text: give another one, or leave it empty to train one"):
            names = read_as_text(tokenizer)
        if names:
            raise UserError(
                f"tokenizer.path={path} reads '{format_value(names[0])}' that is typed in a text as its mark of that "
                "name: "
                "give another one, or leave it empty to train one"
            )
    return tokenizer


def _check_tables(part: Any) -> None:
    """A table of characters says how long it is, and the library takes the memory for that before it looks."""
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, dict | list):
            _check_tables(inner)
    table = part.get("precompiled_charsmap") if isinstance(part, dict) else None
    if isinstance(table, str):
        table = base64.b64decode(table)
        if int.from_bytes(table[:4], "little") > len(table):
            raise UserError("a table of characters is cut short")


def _check_growth(tokenizer: Tokenizer, path: str | Path) -> None:
    """Replacements that are replaced again double a text with each line of the file, up to any size."""
    for step in (tokenizer.normalizer, tokenizer.decoder):
        if step is not None and _growth(json.loads(step.__getstate__())) > MOST_GROWTH:
            raise UserError(
                f"tokenizer.path={path} makes texts more than {MOST_GROWTH} times longer by what it replaces: "
                "give another one, or leave it empty to train one"
            )


def _growth(step: Any) -> float:
    """How many times longer a text may become by the replacements of a normalizer or decoder."""
    inner = step.get("normalizers") or step.get("decoders") or []
    pattern = step.get("pattern")
    found = pattern.get("String", "") if isinstance(pattern, dict) else ""
    put = step.get("content", step.get("prepend")) or ""
    own = len(put) / len(found) if found else 1 + len(put)
    return prod((max(own, 1.0), *map(_growth, inner)))


def _check_reach(tokenizer: Tokenizer, path: str | Path, *, pairs: bool) -> None:
    remedy = "give another one, or leave it empty to train one"
    try:
        reached = reach(tokenizer, pairs=pairs)
    except ValueError as problem:
        raise UserError(f"tokenizer.path={path} cannot be used, as {problem}: {remedy}") from problem
    if reached.ids > MOST_IDS:
        raise UserError(
            f"tokenizer.path={path} gives the id {reached.ids - 1:,}, but ids must be below {MOST_IDS:,}: {remedy}"
        )
    if reached.segments > 2:
        raise UserError(
            f"tokenizer.path={path} marks texts by segment {reached.segments - 1}, but a pair has segments 0 and 1: "
            f"{remedy}"
        )


def encode(
    tokenizer: Tokenizer,
    texts: list[str],
    pairs: list[str] | None,
    labels: list[int] | None,
    max_length: int,
    cutting: Cutting = CUT,
) -> Tokens:
    """Token ids of `texts`, each cut to `max_length` tokens, special ones included, or read in windows of that length.

    Of a pair the longer text is cut first. Without `labels` all are 0.
    """
    room = max_length - tokenizer.num_special_tokens_to_add(pairs is not None)
    if room < 1:
        raise UserError(f"data.max_length={max_length} leaves no room next to the special tokens: use a larger one")
    assert cutting.long is not Long.windows or pairs is None, "texts.check_long comes first"
    marks = None if pairs is None else texts_of_marks(tokenizer)

    def read(start: int, size: int) -> _Part:
        rows = slice(start, start + size)
        batch = texts[rows] if pairs is None else list(zip(texts[rows], pairs[rows], strict=True))
        with tokenizing(FAILS):
            encodings = tokenizer.encode_batch_fast(batch)
        part = _Part()
        for encoding in encodings:
            ids, segments = encoding.ids, [] if marks is None else segments_of(encoding, marks)
            pieces = [(ids, segments)]
            if len(ids) > max_length:
                places, whole = kept_tokens(encoding.sequence_ids, max_length, cutting)
                part.n_truncated += not whole
                pieces = [([ids[at] for at in one], [segments[at] for at in one] if segments else []) for one in places]
            else:
                part.n_truncated += len(ids) == max_length and bool(encoding.overflowing)
            for ids, segments in pieces:
                part.ids.extend(ids)
                part.segments += bytes(segments)
                part.bounds.append(len(part.ids))
            part.firsts.append(len(part.bounds) - 1)
        return part

    if cutting.long is Long.cut:  # the library cuts texts at their end, which is faster than to cut them afterwards
        tokenizer.enable_truncation(max_length, strategy="longest_first")
    try:
        parts = [read(0, len(texts))] if len(texts) <= ROWS_AT_ONCE else _by_threads(read, len(texts))
    finally:
        tokenizer.no_truncation()
    ids, segments, bounds, firsts = array("i"), bytearray(), array("q", [0]), array("q", [0])
    for part in parts:
        firsts.extend(at + len(bounds) - 1 for at in part.firsts[1:])
        bounds.extend(at + len(ids) for at in part.bounds[1:])
        ids += part.ids
        segments += part.segments
    bounds_, firsts_ = (torch.frombuffer(one, dtype=torch.int64) for one in (bounds, firsts))
    return Tokens(
        ids_N=torch.frombuffer(ids, dtype=torch.int32) if ids else torch.empty(0, dtype=torch.int32),
        offsets=bounds_[firsts_],
        segments_N=None if pairs is None else torch.tensor(segments, dtype=torch.uint8),
        labels=torch.as_tensor([0] * len(texts) if labels is None else labels, dtype=torch.int32),
        n_truncated=sum(part.n_truncated for part in parts),
        windows=Windows(bounds_, firsts_) if len(bounds_) > len(firsts_) else None,
    )


def _by_threads(read: Callable[[int, int], "_Part"], n_rows: int) -> list["_Part"]:
    """Some rows after another by a thread for each core. Meanwhile the library keeps to one core a call, as its own
    threads hinder one another, and take nothing out of its objects."""
    before = os.environ.pop(PARALLEL, None)
    os.environ[PARALLEL] = "false"
    try:
        with ThreadPoolExecutor(n_cores()) as threads:
            return list(threads.map(read, range(0, n_rows, AT_A_TIME), repeat(AT_A_TIME)))
    finally:
        os.environ.pop(PARALLEL)
        os.environ |= {} if before is None else {PARALLEL: before}


@dataclass(slots=True)
class _Part:
    """The tokens of some rows, flat; `bounds` are of documents in tokens, `firsts` of rows in documents."""

    ids: "array[int]" = field(default_factory=lambda: array("i"))
    segments: bytearray = field(default_factory=bytearray)
    bounds: list[int] = field(default_factory=lambda: [0])
    firsts: list[int] = field(default_factory=lambda: [0])
    n_truncated: int = 0
