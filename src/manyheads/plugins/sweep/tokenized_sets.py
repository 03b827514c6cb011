"""The data that `ablate` compares on, tokenized once for all runs."""

import hashlib
from dataclasses import dataclass, replace

from manyheads.config import DataConfig, RunConfig
from manyheads.data.prepare_tokens import prepare_tokens
from manyheads.data.tokenizer import tokenizer_sizes
from manyheads.data.tokens import Tokens
from manyheads.plugins.sweep.sets import ReadSet


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the data decides about a model's size and costs; `texts` are those of training, see `Tokens.sizes`."""

    vocab_size: int
    n_classes: int
    max_length: int
    n_segments: int
    texts: list[tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True)
class TokenizedSet:
    """What every run on the same data shares. `digest` is of tokens, labels, votes and weights: it tells other data."""

    name: str
    data: DataConfig
    labels: list[str]
    tokens: dict[str, Tokens]
    sizes: Sizes
    digest: str


def tokenize(found: ReadSet, run: RunConfig) -> TokenizedSet:
    """Tokenize the texts; of `run` only the tokenizer counts."""
    tokenizer, tokens = prepare_tokens(found.splits, replace(run, data=found.data))
    pairs = found.splits.train.pairs is not None
    digest = hashlib.blake2b(digest_size=16)
    for split in tokens.values():
        tensors = [split.ids_N, split.offsets, split.labels.long(), *(split.windows or ())]
        for further in (split.segments_N, split.probabilities_nC, split.any_of_n, split.weights_n):
            if further is not None:
                tensors.append(further)
        for tensor in tensors:
            digest.update(tensor.numpy().tobytes())
    sizes = Sizes(
        vocab_size=tokenizer_sizes(tokenizer, pairs=pairs).n_ids,
        n_classes=len(found.splits.labels),
        max_length=found.data.max_length,
        n_segments=2 if pairs else 0,
        texts=tokens["train"].sizes(),
    )
    return TokenizedSet(found.name, found.data, found.splits.labels, tokens, sizes, digest.hexdigest())
