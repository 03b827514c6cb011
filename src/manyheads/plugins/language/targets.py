"""The tokens of target texts, which answer rows: none may be cut, and all must come back from their tokens."""

from collections.abc import Callable
from itertools import pairwise

from tokenizers import Tokenizer

from manyheads.config import RunConfig
from manyheads.config.sentences import format_value
from manyheads.data.prepare_tokens import check_marks, long_text_notes, unknown_notes
from manyheads.data.rows import ROWS_AT_ONCE, Rows, Splits
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError
from manyheads.plugins.language.spelling import decode, same_text


def tokens_with_targets(
    run: RunConfig, splits: Splits, tokenizer: Tokenizer, encoded: Callable[[Rows, int], Tokens]
) -> dict[str, Tokens]:
    """The tokens of the texts, and those of their targets."""
    check_marks(tokenizer, "a target")
    max_length, tokens = run.data.max_length, dict[str, Tokens]()
    for name, rows in splits.by_name().items():
        assert rows.targets is not None, "the column of the answers is target"
        tokens[name] = encoded(rows, max_length)
        splits.notes += long_text_notes(name, tokens[name], run.data)
        if name == "train" and run.tokenizer.path:
            splits.notes += unknown_notes(tokens[name], tokenizer)
        targets = encoded(Rows(rows.targets, None, rows.labels, rows.source, rows.numbers), max_length)
        check_lengths(rows, targets, tokenizer, max_length)
        splits.notes += check_spelling(rows, targets, tokenizer, name)
        tokens[name].targets = targets
    return tokens


def check_lengths(rows: Rows, targets: Tokens, tokenizer: Tokenizer, max_length: int) -> None:
    """No target may be cut, as the model would learn to stop in the middle.

    Raises:
        UserError: one is longer than `max_length` tokens; names its row.
    """
    if not targets.n_truncated:
        return
    assert rows.targets is not None
    longer: dict[int, int] = {}  # tokens by row
    for row in (targets.lengths == max_length).nonzero().flatten().tolist():
        n_tokens = len(tokenizer.encode(rows.targets[row]))
        if n_tokens > max_length:
            longer[row] = n_tokens
    first = min(longer)
    raise UserError(
        f"{rows.source}, row {rows.numbers[first]}: the target has {longer[first]} tokens with its marks, more than "
        f"data.max_length={max_length}: use data.max_length={max(longer.values())}, as the longest has, or shorten it"
    )


def check_spelling(rows: Rows, targets: Tokens, tokenizer: Tokenizer, split: str) -> list[str]:
    """Notes on the targets that tokens cannot spell, such as letters that no training text has.

    Raises:
        UserError: there are such targets in the training split.
    """
    assert rows.targets is not None
    changed: list[tuple[int, str]] = []  # row, and the text that its tokens spell
    for start in range(0, len(rows), ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, len(rows))
        bounds = targets.offsets[start : stop + 1].tolist()
        written = decode(tokenizer, [targets.ids_N[begin:end].tolist() for begin, end in pairwise(bounds)])
        for row, text in zip(range(start, stop), written, strict=True):
            if not same_text(rows.targets[row], text):
                changed.append((row, text))
    if not changed:
        return []
    first, text = changed[0]
    found = (
        f"{rows.source}, row {rows.numbers[first]}: the target '{format_value(rows.targets[first])}' comes back from "
        f"its tokens as '{format_value(text)}' ({len(changed):,} of {len(rows):,} targets change)"
    )
    if split == "train":
        raise UserError(
            f"{found}: use tokenizer.kind=bpe or tokenizer.kind=characters with tokenizer.lowercase=false, "
            "or a larger tokenizer.vocab_size"
        )
    return [f"{split}: {found}: such rows cannot be answered right"]
