"""Weights to begin with, which `init_from=` names: a folder, a run of our own, or an id of the Hugging Face hub.

A part of the kind `weights` opens them. Its fact `find(name, folder, content)` says what is in a folder with this
config.json, or None where it is of another kind, and imports nothing heavy; its fact `find_file(name, path)` says the
same of a file. Its `make(origin, wanted)` reads the tensors by our names and sizes. Core has the kind of our own runs.

An encoder may take the weights of other models in a way of its own: its fact `from_weights(name, origin)` says how.
"""

import os
from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config import ModelConfig, PairKind, RunConfig
from manyheads.config.conversion import to_plain
from manyheads.config.data import HUB_MODEL
from manyheads.config.facts import hooks, settings_where
from manyheads.config.sentences import format_value
from manyheads.data.rows import Splits
from manyheads.errors import UserError
from manyheads.inference.download import download
from manyheads.inference.format import check_size, read_settings
from manyheads.runs.files import read_json

BYTES = 4  # of a number in weights of ours
FILES = ("config.json", "tokenizer.json", "model.safetensors")
REMEDY = "name a run, a folder of a model of BERT's family, or its id on the Hugging Face hub"


@dataclass(frozen=True, slots=True)
class Origin:
    """Weights to begin with.

    `kind` is the part that opens them. `folder` may also be a single file. `model` are plain values of ModelConfig;
    those that `free` names may be typed otherwise. `max_length` is the longest text in tokens that they know positions
    for, `vocab_size` the most rows that their embedding may have. The content of `files` decides what a run comes to.
    `shape` is what the part itself wants to know when it reads, `prefix` what texts began with in training, and `pair`
    how pairs of texts were read; auto: there were none. With `words_only` they are word vectors, which a network of any
    shape may begin with.
    """

    kind: str
    folder: Path
    model: dict[str, Any]
    max_length: int
    vocab_size: int
    files: tuple[Path, ...]
    shape: Any = None
    prefix: str = ""
    words_only: bool = False
    free: tuple[str, ...] = ()
    pair: PairKind = PairKind.auto

    @property
    def tokenizer(self) -> str:
        return str(self.folder if self.folder.is_file() else self.folder / "tokenizer.json")

    @property
    def of_sentences(self) -> bool:
        """Whether texts of one meaning have similar vectors: sentence-transformers writes modules.json."""
        return (self.folder / "modules.json").is_file()

    @property
    def cuts_longer(self) -> bool:
        """Whether there is no position beyond `max_length`."""
        return self.model.get("positions") == "learned"


def find_origin(name: str, encoder: str = "") -> Origin:
    """What `init_from=name` brings to a model with this `model.encoder`; "": to the one that the weights are of.

    Raises:
        UserError: there is nothing of that name, a file is missing or broken, or it is of a family that cannot be
            read, or of a model that answers by texts.
    """
    folder = folder_of(name)
    origin = _in_file(name, folder) if folder.is_file() else _in_folder(name, folder)
    from_weights = plugin.find("encoder", encoder).facts.get("from_weights") if encoder else None
    if from_weights:
        return plugin.resolve(from_weights)(name, origin)
    if encoder and origin.words_only and origin.model["encoder"] != encoder:
        return replace(origin, model={"d_embedding": origin.model["d_model"]})
    return origin


def with_rows(run: RunConfig, splits: Splits) -> RunConfig:
    """`run` with what its settings with the fact `by_rows` come to: how pairs of texts are read, and those of plugins
    (`Section.resolve`). Several trainings on parts of the rows are resolved once, so that all are of one kind.

    Raises:
        UserError: such a setting cannot be used with these rows.
    """
    run = with_pair(run, splits)
    for resolve in hooks(run, "resolve"):
        run = resolve(run, splits)
    return run


def with_pair(run: RunConfig, splits: Splits) -> RunConfig:
    """`run` with how pairs of texts are read, for `model.pair=auto`: as the weights of `run.init_from` learnt to, or
    compared where they are few and these give texts of one meaning similar vectors. Of single texts nothing reads it,
    and it stays."""
    of_encoder = run.model.facts("encoder")
    is_read = run.model.has_heads or "pair" in of_encoder.get("reads", ())
    if run.model.pair is not PairKind.auto or splits.train.pairs is None or run.task != "classify" or not is_read:
        return run
    pair = PairKind.joint
    if run.init_from:
        origin = find_origin(run.init_from, run.model.encoder)
        of_sentences = origin.of_sentences or of_encoder.get("of_sentences")
        if origin.pair is not PairKind.auto:
            pair = origin.pair
        elif of_sentences and run.optim.may_compare(len(splits.train), len(splits.labels)):
            pair = PairKind.compare
    return replace(run, model=replace(run.model, pair=pair))


def _in_file(name: str, path: Path) -> Origin:
    for part in plugin.parts("weights").values():
        find = part.facts.get("find_file")
        if find and (found := plugin.resolve(find)(name, path)) is not None:
            return found
    raise UserError(f"init_from={format_value(name)} is a file: {REMEDY}")


def _in_folder(name: str, folder: Path) -> Origin:
    if not (folder / "config.json").is_file() and ((folder / "config.yaml").is_file() or (folder / "model").is_dir()):
        folder = folder / "model"
    if not (folder / "config.json").is_file():
        raise UserError(f"init_from={name} is no trained model, as {folder} has no config.json: {REMEDY}")
    content = read_json(folder / "config.json")
    mistakes: list[ValueError] = []
    for part in plugin.parts("weights").values():
        try:
            find = part.facts.get("find")
            found = plugin.resolve(find)(name, folder, content) if find else None
        except ValueError as mistake:
            mistakes.append(mistake)
        else:
            if found is not None:
                return found
    if mistakes:
        raise mistakes[0]
    kinds = ", ".join(plugin.names("weights"))
    raise UserError(f"init_from={name} is none of the models that are read here ({kinds}): name a run")


def find_run(name: str, folder: Path, content: Any) -> Origin | None:
    """A model that a run of ours wrote."""
    if not isinstance(content, dict) or "format" not in content or "model" not in content:
        return None
    refuse_missing(name, folder, [one for one in FILES if not (folder / one).is_file()])
    settings = read_settings(folder / "config.json")
    task = plugin.task(settings.task)
    if not task.is_weights:
        raise UserError(
            f"init_from={name} answers by {task.answers}, but a classifier or a pretrained encoder is needed: "
            "name another"
        )
    weights = folder / "model.safetensors"
    try:
        check_size(weights, weights.stat().st_size // BYTES, settings)
    except ValueError as problem:
        raise UserError(
            f"init_from={name} is no whole model, as {problem}: copy all its files again, or name another"
        ) from problem
    free = settings_where(ModelConfig, weights="free")  # which say nothing of these weights
    model = {key: value for key, value in to_plain(settings.model).items() if key not in free}
    if settings.pairs and model["segments"] == "pairs" and not settings.model.reads_apart:
        model["segments"] = "always"  # single texts are then what a first text was
    files = tuple(folder / one for one in FILES)
    pair = settings.model.pair if settings.pairs else PairKind.auto
    return Origin("run", folder, model, settings.max_length, settings.vocab_size, files, pair=pair)


def n_words(origin: Origin | None, n_ids: int, run: RunConfig) -> int:
    """Rows of the embedding for a tokenizer that gives `n_ids` ids: as many as the weights have, if there are any.

    Raises:
        UserError: they have too few.
    """
    if origin is None:
        return n_ids
    if n_ids > origin.vocab_size:
        raise UserError(
            f"tokenizer.path={run.tokenizer.path} gives {n_ids:,} ids, but the weights of init_from={run.init_from} "
            f"have {origin.vocab_size:,} words: it is not the tokenizer they were trained with"
        )
    return origin.vocab_size


def folder_of(name: str) -> Path:
    """The folder or file that `init_from=name` means: itself, or the local copy of what the hub has by that name.

    Raises:
        UserError: neither a folder nor an id, or the hub does not give it, or has no weights of it as safetensors.
    """
    path = os.path.expanduser(name)
    if os.path.isdir(path) or os.path.isfile(path):
        return Path(path).absolute()
    found = HUB_MODEL.fullmatch(name)
    if os.path.exists(path) or found is None:
        raise UserError(
            f"init_from={format_value(name)} is neither a folder nor an id on the Hugging Face hub: {REMEDY}"
        )
    folder = download(name, "init_from")
    if (folder / "config.json").is_file() and not any(folder.glob("model*.safetensors")):
        raise UserError(
            f"init_from={name} has no weights as safetensors, and others, which could run code, are not fetched: name "
            f"a revision that has them, often {found['id']}@refs/pr/1, or a local folder"
        )
    return folder


def refuse_missing(name: str, folder: Path, missing: list[str], remedy: str = REMEDY) -> None:
    """Raises UserError: a file is missing."""
    if missing:
        raise UserError(f"init_from={name} is no whole model, as {folder} has no {missing[0]}: {remedy}")


def file_digests(run: RunConfig) -> dict[str, str]:
    """By the setting that names them the hash of the files that a run begins with: their content decides what it comes
    to, wherever they lie. What is missing has none."""
    named: dict[str, list[Path]] = {}
    if run.init_from:
        named["init_from"] = [*find_origin(run.init_from, run.model.encoder).files]
    elif run.tokenizer.path:
        path = Path(run.tokenizer.path).expanduser()
        named["tokenizer.path"] = [path / "tokenizer.json" if path.is_dir() else path]
    found = dict[str, str]()
    for name, files in named.items():
        digest = sha256()
        for path in (one for one in files if one.is_file()):
            with path.open("rb") as file:
                digest.update(path.name.encode() + file_digest(file, "sha256").digest())
        found[name] = digest.hexdigest()
    return found
