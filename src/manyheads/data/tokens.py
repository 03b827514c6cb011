"""Text to token ids. Torch and tokenizers only, so that a shipped model needs no more.

N tokens of all rows, end to end; row i is `ids_N[offsets[i]:offsets[i + 1]]`
"""

import base64
import json
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.config.plain import show

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")  # their ids are 0 to 4
ROWS_AT_ONCE = 4096
MOST_BYTES = 2**28  # of a tokenizer.json
MOST_IDS = 2_000_000  # as of tokenizer.vocab_size
MOST_GROWTH = 64  # times longer that a tokenizer's replacements may make a text
PROBE = "a b\u2603 \U0001f642 zzqx"  # words, and what no tokenizer has an entry for


@dataclass(slots=True)
class Tokens:
    """Token ids of all rows of a split: `ids_N` int32, `offsets` int64 of n_rows + 1, `segments_N` uint8 or None
    (0 the first text, 1 the second), `labels` int64 class ids. `n_truncated` rows were cut to the length allowed.
    `targets` are the tokens of the texts that rows are answered by, if they are."""

    ids_N: Tensor
    offsets: Tensor
    segments_N: Tensor | None
    labels: Tensor
    n_truncated: int = 0
    targets: "Tokens | None" = None

    def __len__(self) -> int:
        return self.offsets.numel() - 1

    @property
    def lengths(self) -> Tensor:
        """Tokens of each row, its target included: `(n_rows,)` int64."""
        return self.offsets.diff() + (0 if self.targets is None else self.targets.lengths)


class Reach(NamedTuple):
    """How many ids (0, 1, ...) and segments a tokenizer may give; gaps count."""

    ids: int
    segments: int


def reach(tokenizer: Tokenizer, *, pairs: bool = False) -> Reach:
    """Ids of all entries and of the marks around a text: a stranger's tokenizer may give more ids than it has entries.

    Raises:
        ValueError: it fails on a text.
    """
    with tokenizing("it fails on a text"):
        probe = tokenizer.encode(PROBE, PROBE) if pairs else tokenizer.encode(PROBE)
    largest = max([*tokenizer.get_vocab(with_added_tokens=True).values(), *probe.ids], default=0)
    return Reach(largest + 1, max(probe.type_ids, default=0) + 1)


@contextmanager
def tokenizing(what: str) -> Iterator[None]:
    """Say in a sentence that begins with `what` how the library failed. Its panics are no Exception.

    Raises:
        ValueError: it did.
    """
    try:
        yield
    except BaseException as problem:  # its errors are nothing narrower
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise ValueError(f"{what} ({show(problem)})") from problem


def load_tokenizer(path: str | Path, *, pairs: bool = False) -> Tokenizer:
    """A tokenizer from a `tokenizer.json`, or from a folder that holds one; its padding and truncation are reset.

    Raises:
        ValueError: no such file, not a tokenizer, one that puts no marks such as [CLS] and [SEP] around a text,
            fails on one, or gives more ids or, to `pairs`, segments than a model has.
    """
    file = Path(path).expanduser()
    file = file / "tokenizer.json" if file.is_dir() else file
    if not file.is_file():
        raise ValueError(f"tokenizer.path={path} does not exist: name a tokenizer.json, or leave it empty to train one")
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"tokenizer.path={path} is larger than {MOST_BYTES // 2**20} MiB: name a tokenizer.json")
    with tokenizing(f"tokenizer.path={path} is not a tokenizer.json: name one, or train one"):
        text = file.read_text(encoding="utf-8")
        if "charsmap" in text or "\\u" in text:  # spelt out or not
            _check_tables(json.loads(text))
        tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if hasattr(tokenizer.model, "dropout"):
        tokenizer.model.dropout = None  # of bpe: a text has the same tokens every time
    _check_growth(tokenizer, path)
    if tokenizer.num_special_tokens_to_add(False) == 0:
        raise ValueError(
            f"tokenizer.path={path} puts no marks such as [CLS] and [SEP] around a text: "
            "give one with a post-processor, or leave it empty to train one"
        )
    _check_reach(tokenizer, path, pairs=pairs)
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
            raise ValueError("a table of characters is cut short")


def _check_growth(tokenizer: Tokenizer, path: str | Path) -> None:
    """Replacements that are replaced again double a text with each line of the file, up to any size."""
    for step in (tokenizer.normalizer, tokenizer.decoder):
        if step is not None and _growth(json.loads(step.__getstate__())) > MOST_GROWTH:
            raise ValueError(
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
        raise ValueError(f"tokenizer.path={path} cannot be used, as {problem}: {remedy}") from problem
    if reached.ids > MOST_IDS:
        raise ValueError(
            f"tokenizer.path={path} gives the id {reached.ids - 1:,}, but ids must be below {MOST_IDS:,}: {remedy}"
        )
    if reached.segments > 2:
        raise ValueError(
            f"tokenizer.path={path} marks texts by segment {reached.segments - 1}, but a pair has segments 0 and 1: "
            f"{remedy}"
        )


def encode(
    tokenizer: Tokenizer, texts: list[str], pairs: list[str] | None, labels: list[int] | None, max_length: int
) -> Tokens:
    """Token ids of `texts`, each cut to `max_length` tokens, special ones included.

    Of a pair the longer text is cut first. Without `labels` all are 0.
    """
    room = max_length - tokenizer.num_special_tokens_to_add(pairs is not None)
    if room < 1:
        raise ValueError(f"data.max_length={max_length} leaves no room beside the special tokens: use a larger one")
    ids, segments, lengths = array("i"), bytearray(), [0]
    n_truncated = 0
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    try:
        for start in range(0, len(texts), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            batch = texts[rows] if pairs is None else list(zip(texts[rows], pairs[rows], strict=True))
            with tokenizing("the tokenizer fails on a text: use another one"):
                encodings = tokenizer.encode_batch_fast(batch)
            for encoding in encodings:
                ids.extend(encoding.ids)
                lengths.append(len(encoding))
                if pairs is not None:
                    segments += bytes(encoding.type_ids)
                if len(encoding) == max_length and encoding.overflowing:
                    n_truncated += 1
    finally:
        tokenizer.no_truncation()
    return Tokens(
        ids_N=torch.frombuffer(ids, dtype=torch.int32) if ids else torch.empty(0, dtype=torch.int32),
        offsets=torch.tensor(list(accumulate(lengths)), dtype=torch.int64),
        segments_N=None if pairs is None else torch.tensor(segments, dtype=torch.uint8),
        labels=torch.tensor(labels if labels is not None else [0] * len(texts), dtype=torch.int64),
        n_truncated=n_truncated,
    )
