"""Weights to begin with, which `init_from=` names: a folder, a run of our own, or an id of the Hugging Face hub; what
shape a folder of Hugging Face has, without its weights; and which family has a model like ours.

All are found by the config.json that lies beside the weights. What a family cannot say comes out in the reading: a
description counts only if it is read as our model again. Nothing heavy is imported.
"""

import os
from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from manyheads.config import ModelConfig, PairKind, RunConfig, Segments, Task
from manyheads.config.data import HUB_MODEL
from manyheads.config.facts import having
from manyheads.config.fields import listed, make_tokenizer, older_tokenizer, one_of, show, to_plain
from manyheads.huggingface.families import FAMILIES, Given, Marks, Shape, read_config, write_config
from manyheads.inference.format import check_size, hub_folder, read_settings
from manyheads.runs.folder import read_json

BYTES = 4  # of a number in weights of ours
FILES = ("config.json", "tokenizer.json", "model.safetensors")
REMEDY = "name a run, a folder of a model of BERT's family, or its id on the Hugging Face hub"
PINNED: dict[str, Any] = {  # what all families have, whatever our defaults become
    "encoder": "transformer",
    "n_kv_heads": 0,
    "score": "scaled_dot",
    "scores": [],
    "normaliser": "softmax",
    "scale": None,
    "project": True,
    "project_output": True,
    "window": 0,
    "windows": [],
    "causal": False,
    "qk_norm": False,
    "norm": "layer",
    "dropout_tokens": 0.0,
}
INDICES = {"model.safetensors.index.json": ".safetensors", "pytorch_model.bin.index.json": ".bin"}
TABLES = ("learned", "sinusoidal", "none")  # a table of learned positions can hold them all
OF_POOLING = ("model.pooling=", "model.pooler=")
UNSAID = ("dropout", "dropout_embedding", "dropout_residual", "dropout_classifier", "dropout_attention")
UNSAID += ("dropout_tokens", "window", "score", "rotary_base", "rotary_base_window", "zero_output")
"""Settings without a part in what a trained model answers, or said by another of `facts`."""


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
    remedy = older_tokenizer(folder) or REMEDY
    if not os.path.isdir(os.path.expanduser(name)):  # of which older files are not fetched
        local = f"hf download {name.partition('@')[0]} --local-dir FOLDER"
        remedy = f"fetch all of it by {local}, make one there by {make_tokenizer('FOLDER')}, and name the folder"
    _refuse_missing(name, folder, [one for one in missing if one == "tokenizer.json"], remedy)
    return Origin(folder, False, shape.model, shape.max_length, shape.vocab_size, shape)


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


def _refuse_missing(name: str, folder: Path, missing: list[str], remedy: str = REMEDY) -> None:
    if missing:
        raise ValueError(f"init_from={name} is no whole model, as {folder} has no {missing[0]}: {remedy}")


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


def read_shape(folder: str | Path) -> Shape:
    """The shape of the model in `folder`.

    Raises:
        ValueError: no such folder, a file is missing or broken, or a family or an option that our blocks cannot be.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is not a folder"
        raise ValueError(
            f"init_from={folder} {what}: name a run, a folder with config.json, tokenizer.json and model.safetensors, "
            "or a model of the Hugging Face hub"
        )
    path = folder / "config.json"
    given = Given.read(path)
    kind = given.get("model_type", "")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"{path}: model_type={show(kind)} is none that manyheads reads: {one_of(list(FAMILIES))}")
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):  # of any family: another model of it
        given.must_be(name, False)
    for name in ("quantization_config", "auto_map"):
        if given.get(name):
            raise given.wrong(name, given.get(name), "manyheads reads no such model: use one without")
    given.must_be("pruned_heads", {})
    given.must_be("position_embedding_type", "absolute")
    shape = read_config(kind, given)
    shape = replace(shape, model=PINNED | shape.model | _sentence_pooling(folder))
    try:
        model = shape.config()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    of_layer = model.d_model * (4 * model.n_heads * model.d_k + 2 * model.d_ff)
    n_least = model.width_of_words * shape.vocab_size + model.n_layers * of_layer
    n_bytes = sum(file.stat().st_size for file in weight_files(folder))
    if n_least > n_bytes:  # before the memory is allocated
        raise ValueError(
            f"{path} describes a model of at least {n_least:,} numbers, but its weights are "
            f"{n_bytes:,} bytes: the folder is not whole, copy all its files again"
        )
    return shape


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights: safetensors if there are, else PyTorch's own.

    Raises:
        ValueError: there are none, or an index names what is not a file of the folder.
    """
    for name in (
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ):
        if (folder / name).is_file():
            return _named_by(folder / name) if name in INDICES else [folder / name]
    raise ValueError(
        f"init_from={folder} has no weights that manyheads reads: it needs model.safetensors or pytorch_model.bin"
    )


def file_digests(run: RunConfig) -> dict[str, str]:
    """By the setting that names them the hash of the files that a run begins with: their content decides what it comes
    to, wherever they lie. What is missing has none."""
    named: dict[str, list[Path]] = {}
    if run.init_from:
        folder = find_origin(run.init_from).folder
        files = [folder / name for name in ("config.json", "tokenizer.json", "1_Pooling/config.json")]
        named["init_from"] = [*files, *weight_files(folder)]
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


def _named_by(index: Path) -> list[Path]:
    names = Given.read(index).get("weight_map", {})
    found = sorted({name for name in names.values() if isinstance(name, str)}) if isinstance(names, dict) else []
    bad = [name for name in found if Path(name).name != name or not name.endswith(INDICES[index.name])]
    if not found or bad:
        raise ValueError(f"{index} names {listed(bad) if bad else 'no files'}: it must name weights beside it")
    missing = [name for name in found if not (index.parent / name).is_file()]
    if missing:
        raise ValueError(f"{index} names {listed(missing)}, not in its folder: copy all files of the model")
    return [index.parent / name for name in found]


def _sentence_pooling(folder: Path) -> dict[str, Any]:
    """Pooling as a folder of sentence-transformers has it beside the model, if it is one."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return {}
    given = Given.read(path)
    for ours, flag, name in (("first", "cls_token", "cls"), ("max", "max_tokens", "max")):
        if given.get(f"pooling_mode_{flag}") is True or given.get("pooling_mode") == name:
            return {"pooling": ours, "pooler": "none"}
    return {"pooling": "mean", "pooler": "none"}


@dataclass(frozen=True, slots=True)
class Described:
    """`config` is what config.json says of the architecture, `shape` what it is read as."""

    kind: str
    config: dict[str, Any]
    shape: Shape


def describe(
    model: ModelConfig, *, vocab_size: int, max_length: int, has_segments: bool, marks: Marks, pooled: bool = True
) -> Described:
    """The family that has a model like `model`, and its config.json.

    Args:
        has_segments: the network holds vectors of first and second texts.
        pooled: it is to have the same pooling, too.

    Raises:
        ValueError: no family has it; the sentence follows the name of the run.
    """
    refuse_foreign(model)
    kinds = ["bert", "electra", "modernbert"]  # those first that are most likely to be meant
    if "pad" in marks.ids:  # which fixes where its positions begin
        kinds.insert(0 if model.segments is Segments.never else 1, "xlm-roberta" if marks.is_unigram else "roberta")
    kinds.insert(0 if model.segments is Segments.never else 2, "distilbert")
    nearest, least = "", []
    for kind in kinds:
        pads = {"pad_token_id": marks.ids["pad"]} if "pad" in marks.ids else {}
        sizes = {"vocab_size": vocab_size, "max_length": max_length}
        written = write_config(kind, model, marks=marks, has_segments=has_segments, **sizes)
        config = {"model_type": kind, **pads, **written}
        shape = read_config(kind, Given(config))
        shape = replace(shape, model=PINNED | shape.model)
        wrong = differences(model, shape, has_segments=has_segments)
        wrong = [one for one in wrong if pooled or not one.startswith(OF_POOLING)]
        if not wrong:
            return Described(kind, config, shape)
        if not nearest or len(wrong) < len(least):
            nearest, least = kind, wrong
    classes = FAMILIES[nearest].classes
    raise ValueError(
        f"has a shape of its own, which no family of transformers has; nearest to it is {classes}, which has "
        f"{listed(least)}: train one with these settings, or from a model of such a family by init_from, or use "
        "format=transformers"
    )


def refuse_foreign(model: ModelConfig) -> None:
    """Refuse what no family has at all.

    Raises:
        ValueError: as of `describe`.
    """
    why = "which no model of BERT's family has: use format=transformers, or train one from a model of such a family"
    if model.encoder != "transformer" or model.pair is not PairKind.joint:
        name = "encoder" if model.encoder != "transformer" else "pair"
        raise ValueError(f"has model.{name}={show(getattr(model, name))}, {why} by init_from")
    if not model.n_heads * model.d_k == model.n_heads * model.d_v == model.d_model:
        raise ValueError(
            f"has model.n_heads={model.n_heads} with model.d_k={model.d_k} and model.d_v={model.d_v}, which do not "
            f"share out model.d_model={model.d_model} as in every model of BERT's family: use format=transformers, or "
            "train one where d_k = d_v = d_model / n_heads"
        )


def differences(model: ModelConfig, shape: Shape, *, has_segments: bool) -> list[str]:
    """Settings, as they would have to be typed, in which a shape that was read is another than `model`."""
    ours, theirs = facts(model), facts(shape.config())
    wrong = [f"model.{name}={_said(theirs[name])}" for name in ours if ours[name] != theirs.get(name, ours[name])]
    return wrong + (["model.segments=never"] if has_segments and shape.n_segments != 2 else [])


def facts(model: ModelConfig) -> dict[str, Any]:
    """What two models that answer alike have in common: settings by name, said in one way each."""
    layers = range(model.n_layers)
    windows = [model.window_of(layer) for layer in layers]
    said = {name: value for name, value in to_plain(model).items() if name not in UNSAID and name != "segments"}
    said |= {
        "n_kv_heads": model.kv_heads,
        "d_embedding": model.width_of_words,
        "scale": model.scale or model.d_k**-0.5,
        "norm_eps": model.norm_eps or (1e-5 if model.norm == "layer" else 1e-6),
        "scores": [model.score_of(layer) for layer in layers],
        "windows": windows,
        "positions": "learned" if model.positions in TABLES else model.positions,
    }
    if model.positions == "rotary":
        of_windows = model.rotary_base_window or model.rotary_base
        said["rotary_base"] = [of_windows if window else model.rotary_base for window in windows]
    return said


def _said(value: Any) -> str:
    return str(value).replace(" ", "") if isinstance(value, list) else show(value)
