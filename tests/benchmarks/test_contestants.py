"""The contestants in truth, small: each tells its clock of every step, with what was in it."""

from collections import Counter
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
import torch
from contestants.settings import PINNED, Shape, Text, Way
from tokenizers import Tokenizer, models

from manyheads.cli.compose import compose
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
    run(lambda clock: ours.by_fit(ours.our_run(SHAPE, TEXT), tmp_path, tokens, clock), by_fit)
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


def test_what_is_measured_hangs_on_no_default():
    """Every setting of the parts that decide the speed is typed; a new one has to be pinned, too."""
    from contestants import ours

    of_the_shape = {"d_model", "n_layers", "n_heads", "d_ff", "d_k", "d_v", "dropout", "dropout_attention"}
    of_the_shape.add("bidirectional")  # which recurrent encoders alone read, and which is there with their plugin
    others = {"lr", "weight_decay"}  # typed anyway
    pinned = {word.partition("=")[0] for word in PINNED.split()}
    run = ours.our_run(SHAPE, TEXT)
    for part in ("model", "optim", "batch", "guard"):
        read = [one for one in fields(getattr(run, part)) if not one.metadata["facts"].only_with]  # not with init_from=
        names = {one.name for one in read} - (of_the_shape if part == "model" else set())
        names -= others if part == "optim" else {name for name in names if name.endswith("_options")}
        assert names == {word.partition(".")[2] for word in pinned if word.startswith(f"{part}.")}


def test_the_shipped_default_is_trained_as_it_comes(tokens, tmp_path):
    from contestants import ours

    assert ours.shipped_run().model == compose("train", []).model
    run(lambda clock: ours.by_fit(ours.shipped_run(), tmp_path, tokens, clock), Clock(2))


@pytest.mark.parametrize(("rows", "n_groups"), [(64, 2), (128, 1)])
def test_the_search_tries_what_may_be_faster(monkeypatch, rows, n_groups):
    """Rows both ways from 32, both attentions, and of the fastest without groups and in fp32."""
    pytest.importorskip("accelerate")
    from contestants import huggingface as hf

    asked = []

    def trial(model, tokenizer, tokens, way):
        asked.append(way)
        speed = 100 - 20 * abs(hf.ROWS.index(way.rows) - hf.ROWS.index(rows)) + 5 * (way.attention == "sdpa")
        return Counter(tokens=(speed + 5 * way.by_length + 5 * way.bf16) * 2, seconds=2)

    monkeypatch.setattr(hf, "trial", trial)
    monkeypatch.setattr(hf, "cpu_multiplies_bf16", lambda: True)
    found = hf.search(str, None, None, 1e9)  # pyright: ignore[reportArgumentType]
    fastest = Way(rows=rows, by_length=True, bf16=True, attention="sdpa")
    assert {"tokens_per_s": 115, **asdict(fastest)} == found[0]
    assert {32, rows} <= {one["rows"] for one in found if one["attention"] == "eager"}
    assert replace(fastest, by_length=False) in asked
    assert replace(fastest, bf16=False) in asked
    assert asked.count(fastest) == 2
    asked.clear()
    assert hf.search(str, None, None, 0.0)  # pyright: ignore[reportArgumentType]
    assert len(asked) == 1, "the time is up: what has been tried is all there is"


@pytest.mark.slow
def test_a_trial_of_the_trainer_ends(tokens, tokenizer, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from contestants import huggingface as hf

    monkeypatch.setattr(hf, "WARM_UP", 0.0)
    monkeypatch.setattr(hf, "SECONDS", 0.0)

    def bert(attention):
        return hf.make_bert(SHAPE, 3, attention)

    found = hf.search(bert, tokenizer, tokens, 600)
    assert {one["attention"] for one in found} == {"eager", "sdpa"}
    assert all(one["tokens_per_s"] > 0 for one in found)


@pytest.mark.slow
def test_the_trainer_reads_each_row_once_an_epoch(tokens, tokenizer):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from contestants import huggingface

    def bert(attention):
        return huggingface.make_bert(SHAPE, 3, attention)

    every = {"tokens": int(tokens.offsets[-1]), "rows": N_ROWS}
    for way in (huggingface.DEFAULTS, huggingface.PADDED, Way(rows=20, by_length=True)):
        clock = Clock(-(-N_ROWS // way.rows))
        assert (
            run(lambda clock, way=way: huggingface.by_trainer(bert, TEXT, tokenizer, tokens, clock, way), clock)
            == every
        )
        if way.to_longest_allowed:
            assert all(cells == rows * TEXT.max_length for _, cells, rows in clock.told)


@pytest.mark.parametrize("train", ["train_ours", "train_peer"])
def test_the_accuracy_of_either_is_that_of_its_last_weights(train, tokens, tokenizer, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    import accuracy_parity as parity

    monkeypatch.setattr(parity, "SHAPE", SHAPE)
    monkeypatch.setattr(parity, "EPOCHS", 1)
    splits = {"train": tokens, "validation": tokens, "test": tokens}
    found = parity.accuracies(getattr(parity, train)(TEXT, tokenizer, splits, 1e-3, 0), splits)
    assert found["validation"] == found["test"]
    assert 0 < found["test"] < 1
