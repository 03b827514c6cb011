"""Weights to begin with, which `init_from=` names: a folder, a run of our own, or an id of the Hugging Face hub.

They are found by the config.json that lies beside them.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.config import ModelConfig, RunConfig, Task
from manyheads.config.data import HUB_MODEL
from manyheads.config.facts import having
from manyheads.config.fields import show, to_plain
from manyheads.huggingface.shapes import Shape, read_shape
from manyheads.inference.format import check_size, read_settings
from manyheads.inference.hub import hub_folder
from manyheads.runs.folder import read_json

BYTES = 4  # of a number in weights of ours
FILES = ("config.json", "tokenizer.json", "model.safetensors")
REMEDY = "name a run, a folder of a model of BERT's family, or its id on the Hugging Face hub"


@dataclass(frozen=True, slots=True)
class Origin:
    """Weights to begin with.

    `model` are plain values of ModelConfig, `max_length` the longest text in tokens that they know positions for,
    `vocab_size` the rows of their embedding. `own` says that a run of ours wrote them, else `shape` is their family's.
    """

    folder: Path
    own: bool
    model: dict[str, Any]
    max_length: int
    vocab_size: int
    shape: Shape | None = None

    @property
    def tokenizer(self) -> str:
        return str(self.folder / "tokenizer.json")

    @property
    def cuts_longer(self) -> bool:
        """Whether there is no position beyond `max_length`."""
        return self.model.get("positions") == "learned"


def find_origin(name: str) -> Origin:
    """What `init_from=name` brings.

    Raises:
        ValueError: there is nothing of that name, a file is missing or broken, or it is of a family that cannot be
            read, or of a model that answers by texts.
    """
    folder = folder_of(name)
    if not (folder / "config.json").is_file() and ((folder / "config.yaml").is_file() or (folder / "model").is_dir()):
        folder = folder / "model"
    missing = [one for one in FILES if not (folder / one).is_file()]
    if "config.json" in missing:
        raise ValueError(f"init_from={name} is no trained model, as {folder} has no config.json: {REMEDY}")
    content = read_json(folder / "config.json")
    if isinstance(content, dict) and "format" in content and "model" in content:
        _refuse_missing(name, folder, missing)
        return _own(name, folder)
    shape = read_shape(folder)
    _refuse_missing(name, folder, [one for one in missing if one == "tokenizer.json"])
    return Origin(folder, False, shape.model, shape.max_length, shape.vocab_size, shape)


def origin_of(run: RunConfig) -> Origin | None:
    """The weights that a run begins with, if any.

    Raises:
        ValueError: they cannot be found or used.
    """
    return find_origin(run.init_from) if run.init_from else None


def n_words(origin: Origin | None, n_ids: int, run: RunConfig) -> int:
    """Rows of the embedding for a tokenizer that gives `n_ids` ids: as many as the weights have, if there are any.

    Raises:
        ValueError: they have too few.
    """
    if origin is None:
        return n_ids
    if n_ids > origin.vocab_size:
        raise ValueError(
            f"tokenizer.path={run.tokenizer.path} gives {n_ids:,} ids, but the weights of init_from={run.init_from} "
            f"have {origin.vocab_size:,} words: it is not the tokenizer they were trained with"
        )
    return origin.vocab_size


def folder_of(name: str) -> Path:
    """The folder that `init_from=name` means: itself, or the local copy of what the hub has by that name.

    Raises:
        ValueError: neither a folder nor an id, or the hub does not give it, or has no weights of it as safetensors.
    """
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return Path(path).absolute()
    found = HUB_MODEL.fullmatch(name)
    if os.path.exists(path) or found is None:
        what = "a file" if os.path.exists(path) else "neither a folder nor an id on the Hugging Face hub"
        raise ValueError(f"init_from={show(name)} is {what}: {REMEDY}")
    folder = hub_folder(name, "init_from")
    if (folder / "config.json").is_file() and not any(folder.glob("model*.safetensors")):
        raise ValueError(
            f"init_from={name} has no weights as safetensors, and others, which could run code, are not fetched: name "
            f"a revision that has them, often {found['id']}@refs/pr/1, or a local folder"
        )
    return folder


def _refuse_missing(name: str, folder: Path, missing: list[str]) -> None:
    if missing:
        raise ValueError(f"init_from={name} is no whole model, as {folder} has no {missing[0]}: {REMEDY}")


def _own(name: str, folder: Path) -> Origin:
    settings = read_settings(folder / "config.json")
    if settings.task is Task.seq2seq:
        raise ValueError(
            f"init_from={name} answers by texts, but a classifier or a pretrained encoder is needed: name another"
        )
    weights = folder / "model.safetensors"
    try:
        check_size(weights, weights.stat().st_size // BYTES, settings)
    except ValueError as problem:
        raise ValueError(
            f"init_from={name} is no whole model, as {problem}: copy all its files again, or name another"
        ) from problem
    free = having(ModelConfig, weights="free")  # which say nothing of these weights
    model = {key: value for key, value in to_plain(settings.model).items() if key not in free}
    if settings.pairs and model["segments"] == "pairs" and settings.model.pair.name == "joint":
        model["segments"] = "always"  # single texts are then what a first text was
    return Origin(folder, True, model, settings.max_length, settings.vocab_size)
