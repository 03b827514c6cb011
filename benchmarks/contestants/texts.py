"""Texts to token ids, once for all contestants: one WordPiece tokenizer, learned from the training texts."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from contestants.settings import VOCAB_SIZE, Text
from manyheads.cli.compose import compose
from manyheads.data.prepare_tokens import prepare_tokens
from manyheads.data.sources import read_splits
from manyheads.data.tokens import Tokens


def tokenize(text: Text, data: Path, *, with_test: bool) -> tuple[Tokenizer, dict[str, Tokens]]:
    """The tokenizer, and the tokens of the train, validation and, if wanted, test rows."""
    words = [f"data.path={data / text.folder}", f"data.max_length={text.max_length}"]
    run = compose("train", [*words, f"tokenizer.vocab_size={VOCAB_SIZE}"])
    return prepare_tokens(read_splits(run.data, run.seed, with_test=with_test), run)


def prepare(text: Text, data: Path, folder: Path) -> list[int]:
    """Write the ids of the training rows and the tokenizer into `folder`; returns the length of each row in tokens."""
    tokenizer, tokens = tokenize(text, data, with_test=False)
    train = tokens["train"]
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"ids": train.ids_N, "offsets": train.offsets, "labels": train.labels}, folder / "train.safetensors")
    return train.lengths.tolist()


def read(folder: Path) -> tuple[Tokenizer, Tokens]:
    """What `prepare` wrote."""
    found = load_file(folder / "train.safetensors")
    tokens = Tokens(found["ids"], found["offsets"], None, found["labels"])
    return Tokenizer.from_file(str(folder / "tokenizer.json")), tokens


def n_classes(tokens: Tokens) -> int:
    return int(torch.max(tokens.labels)) + 1
