"""Texts to pieces that a model can read whole: nothing of a long text is left out. Torch and tokenizers only.

N tokens, end to end, before or behind . P pieces
"""

import torch
from tokenizers import Tokenizer
from torch import Tensor

from manyheads.data.batches import Planned, gather
from manyheads.data.tokens import Tokens

WHOLE = 2**40  # tokens: no text is cut
MOST_HELD_OUT = 2**17  # tokens in which words are hidden to judge a model: more would only take longer


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
    """Ids of the marks before a text, and of those behind it."""
    probe = tokenizer.encode("a")
    is_text = [sequence is not None for sequence in probe.sequence_ids]
    first, last = is_text.index(True), len(is_text) - is_text[::-1].index(True)
    ids = torch.tensor(probe.ids, dtype=torch.int32)
    return ids[:first], ids[last:]


def held_out(tokens: Tokens, most: int = MOST_HELD_OUT) -> Tokens:
    """Rows of at most so many tokens, drawn the same way every time; at least one."""
    if tokens.ids_N.numel() <= most:
        return tokens
    order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(0))
    n_rows = int((tokens.offsets.diff()[order].cumsum(0) <= most).sum())
    batch = gather(tokens, Planned(order[: max(1, n_rows)].sort().values, 1.0))
    segments_N = None if batch.segments_N is None else batch.segments_N.byte()
    ids_N, offsets = batch.ids_N.int(), batch.layout.offsets
    return Tokens(ids_N, offsets, segments_N, batch.labels_B, vocabulary=tokens.vocabulary)
