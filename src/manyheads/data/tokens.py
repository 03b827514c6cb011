"""Text to token ids. Torch and tokenizers only, so that a shipped model needs no more.

N tokens of all rows, end to end; row i is `ids_N[offsets[i]:offsets[i + 1]]`
"""

from array import array
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

UNKNOWN = "[UNK]"
SPECIAL = ("[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]")  # their ids are 0 to 4
ROWS_AT_ONCE = 4096
MOST_BYTES = 2**28  # of a tokenizer.json
MOST_IDS = 2_000_000  # as of tokenizer.vocab_size
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
    try:
        probe = tokenizer.encode(PROBE, PROBE) if pairs else tokenizer.encode(PROBE)
    except BaseException as problem:  # a panic of the library is no Exception, and its errors are nothing narrower
        if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
            raise
        raise ValueError(f"it fails on a text ({problem})") from problem
    largest = max([*tokenizer.get_vocab(with_added_tokens=True).values(), *probe.ids], default=0)
    return Reach(largest + 1, max(probe.type_ids, default=0) + 1)


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
    try:
        tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as problem:  # the library raises nothing narrower
        raise ValueError(f"tokenizer.path={path} is not a tokenizer.json ({problem}): name one, or train one") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if tokenizer.num_special_tokens_to_add(False) == 0:
        raise ValueError(
            f"tokenizer.path={path} puts no marks such as [CLS] and [SEP] around a text: "
            "give one with a post-processor, or leave it empty to train one"
        )
    _check_reach(tokenizer, path, pairs=pairs)
    return tokenizer


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
            for encoding in tokenizer.encode_batch_fast(batch):
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
