"""Fine-tuning beside transformers: all begin with the same weights and read the same rows."""

import sys
from pathlib import Path

import finetune
import pytest
from contestants.settings import Way


def test_the_table_says_what_was_measured():
    turn = {"tokens": 100, "cells": 125, "rows": 9, "steps": 3, "seconds": 2.0}
    rounds = [{"a": turn, "c": turn | {"seconds": 1.0}, "f": turn | {"seconds": 0.5}}]
    line = finetune.speed_table(
        {"emotion": {"rounds": rounds, "tokens_per_text": 20.2, "precision": "bf16"}}
    ).splitlines()[-1]
    assert line == (
        "| emotion, bf16, 20 tokens a text: (f) manyheads | 200 (200-200) | 4.00 (4.00-4.00) | 2.00 (2.00-2.00) | 20% |"
    )


def test_an_unknown_set_is_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["finetune.py", "sst9"])
    with pytest.raises(SystemExit, match="sst9 is not a set: choose from "):
        finetune.main()


class EnoughError(Exception):
    """Out of the loop of a contestant."""


class Clock:
    """Stands in for the turns and the driver; ends the training after all rows were read once."""

    def __init__(self, n_rows: int) -> None:
        self.left, self.tokens = n_rows, 0

    def step(self, tokens: int, cells: int, rows: int) -> None:
        assert tokens <= cells
        self.tokens += tokens
        self.left -= rows
        if self.left <= 0:
            raise EnoughError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `prepare` leaves of eighty texts and a small BERT."""
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from contestants import finetuning

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(40))]
    weights, data = tmp_path / "bert", tmp_path / "emotion"
    for place in (weights, data, tmp_path / "made"):
        place.mkdir()
    (weights / "vocab.txt").write_text("\n".join(words) + "\n")
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(words), **shape)
    transformers.BertModel(config).save_pretrained(weights)
    transformers.BertTokenizerFast(str(weights / "vocab.txt")).save_pretrained(weights)
    texts = (f"{' '.join(f'word{k}' for k in range(n % 9 + 1))} word{n % 40},{n % 3}" for n in range(80))
    (data / "train.csv").write_text("text,label\n" + "\n".join(texts) + "\n")
    finetuning.prepare("emotion", tmp_path, weights, tmp_path / "made")
    return tmp_path / "made"


@pytest.mark.slow
def test_all_read_the_same_rows_once(folder):
    from contestants import finetuning
    from contestants.texts import read

    from manyheads.runs.config_file import read_run

    tokenizer, tokens = read(folder)
    run = read_run(folder / "config.yaml")
    text = finetuning.TEXTS["emotion"]
    loops = [
        lambda clock: finetuning.by_plain_loop(run.init_from, tokenizer, tokens, clock, by_length=False),
        lambda clock: finetuning.by_plain_loop(run.init_from, tokenizer, tokens, clock, by_length=True),
        lambda clock: finetuning.by_trainer(run.init_from, text, tokenizer, tokens, clock, Way(by_length=True)),
        lambda clock: finetuning.tune_ours(run, tokenizer, tokens, clock, average=False),
    ]
    for train in loops:
        clock = Clock(len(tokens))
        with pytest.raises(EnoughError):
            train(clock)
        assert clock.tokens == len(tokens.ids_N)
