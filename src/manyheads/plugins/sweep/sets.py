"""The data that `ablate` compares on: read once, and tokenized once for all runs."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.config import DataConfig, RunConfig
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.errors import UserError
from manyheads.plugins.sweep.config import AblateConfig

if TYPE_CHECKING:
    from manyheads.data.tokens import Tokens

ROOT = "MANYHEADS_DATA"


@dataclass(frozen=True, slots=True)
class ReadSet:
    """Train and validation of one data, read and checked."""

    name: str
    data: DataConfig
    splits: Splits


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the data decides about a model's size and costs; `texts` are those of training, see `Tokens.sizes`."""

    vocab_size: int
    n_classes: int
    max_length: int
    n_segments: int
    texts: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class TokenizedSet:
    """What every run on the same data shares. `digest` is of tokens and labels: other data has another."""

    name: str
    data: DataConfig
    labels: list[str]
    tokens: "dict[str, Tokens]"
    sizes: Sizes
    digest: str


def read_sets(config: AblateConfig) -> list[ReadSet]:
    """Train and validation of each of `config.sets`, or of `config.data` where that is empty.

    A missing validation split is carved out of train by the first seed, the same for all runs.

    Raises:
        UserError: data that is not there, the same name twice, or what `read_splits` finds wrong in it.
    """
    data = config.data
    own = _name(data.path) if data.path else data.hub.rsplit("/", 1)[-1] or data.source
    named = [(_name(one), _where(one, data)) for one in config.sets] or [(own, data)]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"sets holds {name} twice: name each data once")
    found = [ReadSet(name, data, read_splits(data, config.seed, with_test=False)) for name, data in named]
    for one in found:
        if one.splits.multi:
            raise UserError(
                f"{one.name} has rows with any number of labels, but ablate compares by accuracy, which needs one "
                "class a row: name other data"
            )
    return found


def tokenize(found: ReadSet, run: RunConfig) -> TokenizedSet:
    """Tokenize the texts; of `run` only the tokenizer counts."""
    from manyheads.data.token_cache import prepare_tokens
    from manyheads.data.tokens import reach

    tokenizer, tokens = prepare_tokens(found.splits, replace(run, data=found.data))
    pairs = found.splits.train.pairs is not None
    digest = hashlib.blake2b(digest_size=16)
    for split in tokens.values():
        segments = [] if split.segments_N is None else [split.segments_N]
        for tensor in (split.ids_N, split.offsets, split.labels.long(), *(split.windows or ()), *segments):
            digest.update(tensor.numpy().tobytes())
    sizes = Sizes(
        vocab_size=reach(tokenizer, pairs=pairs).ids,
        n_classes=len(found.splits.labels),
        max_length=found.data.max_length,
        n_segments=2 if pairs else 0,
        texts=tokens["train"].sizes(),
    )
    return TokenizedSet(found.name, found.data, found.splits.labels, tokens, sizes, digest.hexdigest())


def _name(asked: str) -> str:
    """What the table calls a file or folder."""
    path = Path(asked)
    return path.name if path.suffix == "" or path.is_dir() else path.name.partition(".")[0]


def _where(asked: str, data: DataConfig) -> DataConfig:
    if asked == "demo":
        return replace(data, source="demo", path="")
    root = os.environ.get(ROOT)
    places = ([Path(root, asked)] if root else []) + [Path(asked).expanduser()]
    for place in places:
        if place.exists():
            return replace(data, source="files", path=str(place.absolute()))
    looked = f"not in ${ROOT} ({root})" if root else f"${ROOT} is not set"
    raise UserError(
        f"sets holds {asked}, which is neither demo nor a file or folder here, and {looked}: "
        f"set {ROOT} to the folder that holds {asked}, or leave it out of sets"
    )
