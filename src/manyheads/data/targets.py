"""Target texts against the tokenizer: each must fit, and come back from its tokens as it was written."""

import unicodedata
from itertools import pairwise

from tokenizers import Tokenizer

from manyheads.config.plain import show
from manyheads.data.rows import Rows
from manyheads.data.tokens import ROWS_AT_ONCE, Tokens


def marks(tokenizer: Tokenizer) -> tuple[int, int] | None:
    """Ids of the marks before and after a text, if there are just these two: a target starts with one and ends with
    the other."""
    ids = tokenizer.encode("").ids
    return (ids[0], ids[1]) if len(ids) == 2 and ids[0] != ids[1] else None


def check_marks(tokenizer: Tokenizer) -> None:
    """A model must be told where to start and say where it ends.

    Raises:
        ValueError: the tokenizer has not one mark before a text and another after it.
    """
    if marks(tokenizer) is None:
        raise ValueError(
            "tokenizer.path names a tokenizer that does not put one mark before a text and another after it, as a "
            "target needs: give another one, or leave it empty to train one"
        )


def decode(tokenizer: Tokenizer, ids: list[list[int]]) -> list[str]:
    """The texts of token ids; special tokens are left out, and white space at both ends."""
    return [text.strip() for text in tokenizer.decode_batch(ids, skip_special_tokens=True)]


def same_text(text: str, other: str) -> bool:
    """Whether two texts read the same: in Unicode's composed form, without white space at both ends."""
    return text == other or _settled(text) == _settled(other)


def check_lengths(rows: Rows, targets: Tokens, tokenizer: Tokenizer, max_length: int) -> None:
    """No target may be cut, as the model would learn to stop in the middle.

    Raises:
        ValueError: one is longer than `max_length` tokens; names its row.
    """
    if not targets.n_truncated:
        return
    assert rows.targets is not None
    full = (targets.lengths == max_length).nonzero().flatten().tolist()
    lengths = {at: len(tokenizer.encode(rows.targets[at])) for at in full}
    first = next(at for at in full if lengths[at] > max_length)
    raise ValueError(
        f"{rows.source}, row {rows.numbers[first]}: the target has {lengths[first]} tokens with its marks, more than "
        f"data.max_length={max_length}: use data.max_length={max(lengths.values())}, as the longest has, or shorten it"
    )


def check_spelling(rows: Rows, targets: Tokens, tokenizer: Tokenizer, split: str) -> list[str]:
    """Notes on the targets that tokens cannot spell, such as letters that no training text has.

    Raises:
        ValueError: there are such targets in the training split.
    """
    assert rows.targets is not None
    spoilt: list[tuple[int, str]] = []
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = range(start, min(start + ROWS_AT_ONCE, len(rows)))
        bounds = targets.offsets[start : some.stop + 1].tolist()
        ids = [targets.ids_N[a:b].tolist() for a, b in pairwise(bounds)]
        written = decode(tokenizer, ids)
        spoilt += [(at, text) for at, text in zip(some, written, strict=True) if not same_text(rows.targets[at], text)]
    if not spoilt:
        return []
    first, text = spoilt[0]
    found = (
        f"{rows.source}, row {rows.numbers[first]}: the target '{show(rows.targets[first])}' comes back from its "
        f"tokens as '{show(text)}' ({len(spoilt):,} of {len(rows):,} targets change)"
    )
    if split == "train":
        raise ValueError(
            f"{found}: use tokenizer.kind=bpe or tokenizer.kind=characters with tokenizer.lowercase=false, "
            "or a larger tokenizer.vocab_size"
        )
    return [f"{split}: {found}: such rows cannot be answered right"]


def _settled(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
