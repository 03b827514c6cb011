"""The tokens of texts in which words are hidden: all of a long text, in pieces."""

from collections.abc import Callable

import torch
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.data.batches import Planned, gather
from manyheads.data.rows import Rows, Splits
from manyheads.data.tokenizer import Vocabulary, vocabulary
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError
from manyheads.plugins.language.networks import hold_out

WHOLE = 2**40  # tokens: no text is cut
MOST_HELD_OUT = 2**17  # tokens in which words are hidden to judge a model: more would only take longer


def tokens_in_pieces(
    splits: Splits, tokenizer: Tokenizer, max_length: int, encoded: Callable[[Rows, int], Tokens]
) -> dict[str, Tokens]:
    """All that the texts hold, in pieces in which words can be hidden; pairs are cut. A part of validation suffices."""
    pairs = splits.train.pairs is not None
    known, tokens = vocabulary(tokenizer, pairs=pairs), {}
    for name, rows in splits.by_name().items():
        if pairs:
            tokens[name] = encoded(rows, max_length)
        else:
            tokens[name] = in_pieces(encoded(rows, WHOLE), tokenizer, max_length)
        tokens[name].vocabulary = known
    tokens["validation"] = held_out(tokens["validation"])
    check_held_out(tokens["validation"])
    return tokens


def in_pieces(tokens: Tokens, tokenizer: Tokenizer, max_length: int) -> Tokens:
    """Every row longer than `max_length` as several of about the same length, each with the marks around.

    Rows are single texts that were not cut; those of the answer have no labels.
    """
    before, after = marks_around(tokenizer)
    n_marks = before.numel() + after.numel()
    contents = tokens.offsets.diff() - n_marks
    counts = (contents.clamp(min=1) + max_length - n_marks - 1) // (max_length - n_marks)
    row_P = torch.arange(len(tokens)).repeat_interleave(counts)
    place_P = torch.arange(row_P.numel()) - (counts.cumsum(0) - counts)[row_P]
    start_P = contents[row_P] * place_P // counts[row_P]
    length_P = contents[row_P] * (place_P + 1) // counts[row_P] - start_P + n_marks
    offsets = torch.nn.functional.pad(length_P.cumsum(0), (1, 0))
    first_P = tokens.offsets[row_P] + start_P - offsets[:-1]
    ids_N = tokens.ids_N[torch.arange(int(offsets[-1])) + first_P.repeat_interleave(length_P)]
    for at, mark in enumerate(before):
        ids_N[offsets[:-1] + at] = mark
    for at, mark in enumerate(after):
        ids_N[offsets[1:] - after.numel() + at] = mark
    return Tokens(ids_N, offsets, None, torch.zeros_like(row_P))


def marks_around(tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Ids of the marks before a text, and of those after it."""
    probe = tokenizer.encode("a")
    is_text = [sequence is not None for sequence in probe.sequence_ids]
    first, last = is_text.index(True), len(is_text) - is_text[::-1].index(True)
    ids = torch.tensor(probe.ids, dtype=torch.int32)
    return ids[:first], ids[last:]


def held_out(tokens: Tokens, most: int = MOST_HELD_OUT) -> Tokens:
    """Rows of at most this many tokens, drawn the same way every time; at least one."""
    if tokens.ids_N.numel() <= most:
        return tokens
    order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(0))
    n_rows = int((tokens.offsets.diff()[order].cumsum(0) <= most).sum())
    batch = gather(tokens, Planned(order[: max(1, n_rows)].sort().values, 1.0))
    segments_N = None if batch.segments_N is None else batch.segments_N.byte()
    ids_N, offsets = batch.ids_N.int(), batch.layout.offsets
    return Tokens(ids_N, offsets, segments_N, batch.labels_B, vocabulary=tokens.vocabulary)


def check_held_out(tokens: Tokens) -> None:
    """Refuse validation `tokens` that are too few to hide one: nothing would be judged."""
    ids_N, lengths = tokens.ids_N.long(), tokens.offsets.diff()
    rows_N = torch.arange(len(tokens)).repeat_interleave(lengths)
    positions_N = torch.arange(ids_N.numel()) - tokens.offsets[:-1].repeat_interleave(lengths)
    vocabulary: Vocabulary = tokens.vocabulary
    if not hold_out(ids_N, rows_N, positions_N, vocabulary.special_V[ids_N], vocabulary.mask).words_P.numel():
        raise UserError(
            f"the validation texts hold {ids_N.numel():,} tokens, marks included, too few to hide one and judge by it: "
            "give more texts, or a larger part of them by data.validation_share"
        )
