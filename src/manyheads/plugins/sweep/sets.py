"""The data that `ablate` compares on, found and read before torch is imported; tokenized_sets.py has its tokens."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from manyheads.config import DataConfig
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.errors import UserError
from manyheads.plugins.sweep.config import AblateConfig

ROOT = "MANYHEADS_DATA"


@dataclass(frozen=True, slots=True)
class ReadSet:
    """Train and validation of one data, read and checked."""

    name: str
    data: DataConfig
    splits: Splits


def read_sets(config: AblateConfig) -> list[ReadSet]:
    """Train and validation of each of `config.sets`, or of `config.data` where that is empty.

    A missing validation split is carved out of train by the first seed, the same for all runs.

    Raises:
        UserError: data that is not there, the same name twice, or what `read_splits` finds wrong in it.
    """
    named: dict[str, DataConfig] = {}
    for asked in config.sets:
        name = _name(asked)
        if name in named:
            raise UserError(f"sets holds {name} twice: name each data once")
        named[name] = _where(asked, config.data)
    if not config.sets:
        data = config.data
        name = _name(data.path) if data.path else data.hub.rsplit("/", 1)[-1] or data.source
        named[name] = data
    found = [ReadSet(name, data, read_splits(data, config.seed, with_test=False)) for name, data in named.items()]
    for one in found:
        if one.splits.multi:
            raise UserError(
                f"{one.name} has rows with any number of labels, but ablate compares by accuracy, which needs one "
                "class a row: name other data"
            )
    return found


def _name(asked: str) -> str:
    """What the table calls a file or folder."""
    path = Path(asked)
    if path.suffix == "" or path.is_dir():
        return path.name
    return path.name.partition(".")[0]


def _where(asked: str, data: DataConfig) -> DataConfig:
    """The settings `data` with the place of one of `sets`."""
    if asked == "demo":
        return replace(data, source="demo", path="")
    root = os.environ.get(ROOT)
    places = [Path(asked).expanduser()]
    if root:
        places.insert(0, Path(root, asked))
    for place in places:
        if place.exists():
            return replace(data, source="files", path=str(place.absolute()))
    looked = f"not in ${ROOT} ({root})" if root else f"${ROOT} is not set"
    raise UserError(
        f"sets holds {asked}, which is neither demo nor a file or folder here, and {looked}: "
        f"set {ROOT} to the folder that holds {asked}, or leave it out of sets"
    )
