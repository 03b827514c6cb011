"""The tokens of texts in which words are hidden: all of a long text, in pieces.

N tokens of all pieces . P pieces
"""

from collections.abc import Callable

import torch
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.config import RunConfig
from manyheads.data.batches import Planned, gather
from manyheads.data.rows import Rows, Splits
from manyheads.data.tokens import Tokens
from manyheads.errors import UserError
from manyheads.plugins.language.masks import Vocabulary, vocabulary
from manyheads.plugins.language.networks import hold_out

WHOLE = 2**40  # tokens: no text is cut
MOST_HELD_OUT = 2**17  # tokens in which words are hidden to judge a model: more would only take longer


def tokens_in_pieces(
    run: RunConfig, splits: Splits, tokenizer: Tokenizer, encoded: Callable[[Rows, int], Tokens]
) -> dict[str, Tokens]:
    """All tokens of the texts, in pieces in which words can be hidden; pairs are cut. Of validation a part suffices."""
    pairs, max_length = splits.train.pairs is not None, run.data.max_length
    known = vocabulary(tokenizer, pairs=pairs)
    tokens: dict[str, Tokens] = {}
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

    Args:
        tokens: of single texts, none of which was cut.

    Returns:
        A row a piece, without labels.
    """
    before, after = marks_around(tokenizer)
    n_marks = before.numel() + after.numel()
    # how many pieces each row becomes, and of each piece its row, its number there, and its span among the row's words
    n_words = tokens.offsets.diff() - n_marks
    n_pieces = (n_words.clamp(min=1) + max_length - n_marks - 1) // (max_length - n_marks)
    row_P = torch.arange(len(tokens)).repeat_interleave(n_pieces)
    number_P = torch.arange(row_P.numel()) - (n_pieces.cumsum(0) - n_pieces)[row_P]
    start_P = n_words[row_P] * number_P // n_pieces[row_P]
    end_P = n_words[row_P] * (number_P + 1) // n_pieces[row_P]
    # spans of ids, each longer than its words by the marks, which are then written at both ends
    length_P = end_P - start_P + n_marks
    offsets = torch.nn.functional.pad(length_P.cumsum(0), (1, 0))
    shift_P = tokens.offsets[row_P] + start_P - offsets[:-1]
    ids_N = tokens.ids_N[torch.arange(int(offsets[-1])) + shift_P.repeat_interleave(length_P)]
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
    """Rows with at most `most` tokens together, always the same; at least one row."""
    if tokens.ids_N.numel() <= most:
        return tokens
    order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(0))
    n_rows = int((tokens.offsets.diff()[order].cumsum(0) <= most).sum())
    batch = gather(tokens, Planned(order[: max(1, n_rows)].sort().values, 1.0))
    segments_N = None if batch.segments_N is None else batch.segments_N.byte()
    ids_N, offsets = batch.ids_N.int(), batch.layout.offsets
    return Tokens(ids_N, offsets, segments_N, batch.labels_B, vocabulary=tokens.vocabulary)


def check_held_out(tokens: Tokens) -> None:
    """Refuse validation `tokens` that are too few to hide one of them: there would be no figure."""
    ids_N, lengths = tokens.ids_N.long(), tokens.offsets.diff()
    rows_N = torch.arange(len(tokens)).repeat_interleave(lengths)
    positions_N = torch.arange(ids_N.numel()) - tokens.offsets[:-1].repeat_interleave(lengths)
    vocabulary: Vocabulary = tokens.vocabulary
    if not hold_out(ids_N, rows_N, positions_N, vocabulary.special_V[ids_N], vocabulary.mask).words_P.numel():
        raise UserError(
            f"the validation texts hold {ids_N.numel():,} tokens, marks included, too few to hide one and judge by it: "
            "give more texts, or a larger part of them by data.validation_share"
        )
