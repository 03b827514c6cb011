"""The contestants in truth, small: each tells its clock of every step, with what was in it."""

from collections import Counter
from typing import Any

import pytest
import torch
from contestants.settings import Shape, Text
from tokenizers import Tokenizer, models

from manyheads.data.tokens import Tokens

SHAPE, TEXT = Shape(d_model=8, n_layers=1, n_heads=2, d_ff=8), Text("", max_length=16)
N_ROWS = 80


class EnoughError(Exception):
    """Out of the loop of a contestant."""


class Clock:
    """Takes down what it is told of and ends the training after some steps."""

    def __init__(self, steps: int) -> None:
        self.left, self.told = steps, []

    def step(self, tokens: int, cells: int, rows: int) -> None:
        self.told.append((tokens, cells, rows))
        self.left -= 1
        if not self.left:
            raise EnoughError


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    """Rows of two to sixteen tokens."""
    lengths = torch.randint(2, 17, (N_ROWS,), generator=torch.Generator().manual_seed(0))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    ids = torch.randint(5, 900, (int(offsets[-1]),), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    return Tokens(ids, offsets, None, torch.arange(N_ROWS) % 3)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return made


def run(train: Any, clock: Clock) -> Counter[str]:
    """Train to the end of the clock; sums of what it was told, which must fit together."""
    with pytest.raises(EnoughError):
        train(clock)
    assert all(0 < tokens <= cells <= rows * TEXT.max_length for tokens, cells, rows in clock.told)
    return Counter(tokens=sum(one[0] for one in clock.told), rows=sum(one[2] for one in clock.told))


def test_ours_by_hand_and_by_fit_read_the_same_rows(tokens, tmp_path):
    from contestants import ours

    by_hand, by_fit = Clock(4), Clock(4)
    run(lambda clock: ours.by_hand(SHAPE, TEXT, tokens, clock), by_hand)
    run(lambda clock: ours.by_fit(SHAPE, TEXT, tmp_path, tokens, clock), by_fit)
    assert by_hand.told == by_fit.told
    assert run(lambda clock: ours.by_hand(SHAPE, TEXT, tokens, clock), Clock(2)) == {
        "tokens": int(tokens.offsets[-1]),
        "rows": N_ROWS,
    }


def test_torch_reads_our_batches(tokens):
    from contestants import ours, torch_encoder

    theirs, own = Clock(3), Clock(3)
    run(lambda clock: torch_encoder.by_hand(SHAPE, TEXT, tokens, clock), theirs)
    run(lambda clock: ours.by_hand(SHAPE, TEXT, tokens, clock), own)
    assert theirs.told == own.told


@pytest.mark.slow
def test_the_trainer_reads_each_row_once_an_epoch(tokens, tokenizer):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from contestants import huggingface

    every = {"tokens": int(tokens.offsets[-1]), "rows": N_ROWS}
    for way in (huggingface.DEFAULTS, huggingface.PADDED, huggingface.Way(rows=20, by_length=True)):
        clock = Clock(-(-N_ROWS // way.rows))
        assert (
            run(lambda clock, way=way: huggingface.by_trainer(SHAPE, TEXT, tokenizer, tokens, clock, way), clock)
            == every
        )
        if way.to_longest_allowed:
            assert all(cells == rows * TEXT.max_length for _, cells, rows in clock.told)
