"""The data of a comparison: found and read before torch is imported, then tokenized once for all its runs."""

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.config import DataConfig, RunConfig, Source
from manyheads.config.ablate import AblateConfig
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.fit.checks import check_long

if TYPE_CHECKING:
    from manyheads.ablate.budget import Sizes
    from manyheads.data.tokens import Tokens

ROOT = "MANYHEADS_DATA"


@dataclass(frozen=True, slots=True)
class Found:
    """Data that was read and checked; the test split is not among it."""

    name: str
    data: DataConfig
    splits: Splits


@dataclass(frozen=True, slots=True)
class Prepared:
    """What every run on the same data shares. `digest` is of tokens and labels: other data has another."""

    name: str
    data: DataConfig
    labels: list[str]
    tokens: "dict[str, Tokens]"
    sizes: "Sizes"
    digest: str


def read_sets(config: AblateConfig) -> list[Found]:
    """Train and validation of each of `config.sets`, or of `config.data` where that is empty.

    A missing validation split is carved out of train by the first seed, the same for all runs.

    Raises:
        ValueError: data that is not there, the same name twice, or what `read_splits` finds wrong in it.
    """
    named = [(_name(one), _where(one, config.data)) for one in config.sets] or [(own_name(config.data), config.data)]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"sets holds {name} twice: name each data once")
    found = [Found(name, data, read_splits(data, config.seed, with_test=False)) for name, data in named]
    for one in found:
        check_long(one.data, pairs=one.splits.train.pairs is not None)
        if one.splits.multi:
            raise ValueError(
                f"{one.name} has rows with any number of labels, but ablate compares by the share of rows whose one "
                "class is told: name other data"
            )
    return found


def prepare(found: Found, run: RunConfig) -> Prepared:
    """Tokenize; nothing of `run` counts but its tokenizer and `data`."""
    import hashlib

    from manyheads.ablate.budget import Sizes
    from manyheads.data.cache import prepare_tokens
    from manyheads.data.tokens import reach

    tokenizer, tokens = prepare_tokens(found.splits, replace(run, data=found.data))
    pairs = found.splits.train.pairs is not None
    digest = hashlib.blake2b(digest_size=16)
    for split in tokens.values():
        for tensor in (split.ids_N, split.offsets, split.labels, *(split.windows or ())):
            digest.update(tensor.numpy().tobytes())
    sizes = Sizes(
        vocab_size=reach(tokenizer, pairs=pairs).ids,
        n_classes=len(found.splits.labels),
        max_length=found.data.max_length,
        n_segments=2 if pairs else 0,
        lengths=tuple(sorted(Counter(tokens["train"].documents.tolist()).items())),
    )
    return Prepared(found.name, found.data, found.splits.labels, tokens, sizes, digest.hexdigest())


def own_name(data: DataConfig) -> str:
    """What the table calls the data of the section `data`."""
    return _name(data.path) if data.path else data.hub.rsplit("/", 1)[-1] or data.source.name


def _name(asked: str) -> str:
    path = Path(asked)
    return path.name if path.suffix == "" or path.is_dir() else path.name.partition(".")[0]


def _where(asked: str, data: DataConfig) -> DataConfig:
    if asked == "demo":
        return replace(data, source=Source.demo, path="")
    root = os.environ.get(ROOT)
    places = ([Path(root, asked)] if root else []) + [Path(asked).expanduser()]
    for place in places:
        if place.exists():
            return replace(data, source=Source.files, path=str(place.absolute()))
    looked = f"not in ${ROOT} ({root})" if root else f"${ROOT} is not set"
    raise ValueError(
        f"sets holds {asked}, which is neither demo nor a file or folder here, and {looked}: "
        f"set {ROOT} to the folder that holds {asked}, or leave it out of sets"
    )
