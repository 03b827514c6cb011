"""The shape of a model in a folder of Hugging Face, by its config.json; and the family that has a model like ours.

The second is found by the first: a config.json is written for each family in turn, and counts if it is read as our
model again. So what a family cannot express needs no list. Nothing heavy is imported.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyheads.config import ModelConfig, Segments
from manyheads.config.blocks import options_of
from manyheads.config.conversion import to_plain
from manyheads.config.sentences import format_value, list_names, make_tokenizer, older_tokenizer, one_of
from manyheads.errors import UserError
from manyheads.inference.origin import REMEDY, Origin, refuse_missing
from manyheads.plugins.hub.families import FAMILIES, ConfigFile, MarkIds, Shape, read_config, write_config

FILES = ("config.json", "tokenizer.json", "1_Pooling/config.json")  # next to the weights
PINNED: dict[str, Any] = {  # settings that all families have, whatever our defaults become
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
    **{f"{kind}_options": {} for kind in ("encoder", "score", "normaliser", "activation", "positions", "norm")},
}
INDICES = {"model.safetensors.index.json": ".safetensors", "pytorch_model.bin.index.json": ".bin"}
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TABLES = ("learned", "sinusoidal", "none")  # a table of learned positions can hold them all
OF_POOLING = ("model.pooling=", "model.pooler=")
INCOMPARABLE = ("dropout", "dropout_embedding", "dropout_residual", "dropout_classifier", "dropout_attention")
INCOMPARABLE += ("dropout_tokens", "zero_output", "segments")
INCOMPARABLE += ("window", "score", "rotary_base", "rotary_base_window")
"""Settings that a trained model does not read, or that `comparable_settings` has in another form."""


def find_family(name: str, folder: Path, content: Any) -> Origin | None:
    """A model of BERT's family, as transformers or sentence-transformers write it.

    Raises:
        UserError: see `read_shape`, or there is no tokenizer.json.
    """
    shape = read_shape(folder)
    if not (folder / "tokenizer.json").is_file():
        remedy = older_tokenizer(folder) or REMEDY
        if not os.path.isdir(os.path.expanduser(name)):  # a name on the hub: older files of tokenizers are not fetched
            local = f"hf download {name.partition('@')[0]} --local-dir FOLDER"
            remedy = f"fetch all of it by {local}, make one there by {make_tokenizer('FOLDER')}, and name the folder"
        refuse_missing(name, folder, ["tokenizer.json"], remedy)
    files = (*(folder / file for file in FILES), *weight_files(folder))
    sizes = shape.max_length, shape.vocab_size
    return Origin("bert", folder, shape.model, *sizes, files, shape, read_prefix(folder))


def read_shape(folder: str | Path) -> Shape:
    """The shape of the model in `folder`.

    Raises:
        UserError: there is no such folder, a file is missing or broken, or our blocks lack the family or an option.
    """
    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file():
        what = "has no config.json" if folder.is_dir() else "is not a folder"
        raise UserError(
            f"init_from={folder} {what}: name a run, a folder with config.json, tokenizer.json and model.safetensors, "
            "or a model of the Hugging Face hub"
        )
    path = folder / "config.json"
    given = ConfigFile.read(path)
    kind = given.get("model_type", "")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UserError(
            f"{path}: model_type={format_value(kind)} is none that manyheads reads: {one_of(list(FAMILIES))}"
        )
    for name in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        given.must_be(name, False)
    for name in ("quantization_config", "auto_map"):
        if given.get(name):
            raise given.wrong(name, given.get(name), "manyheads reads no such model: use one without")
    given.must_be("pruned_heads", {})
    if kind != "modernbert":  # whose positions are rotary, whatever is there
        given.must_be("position_embedding_type", "absolute")
    shape = read_config(kind, given)
    shape = replace(shape, model=PINNED | shape.model | read_sentence_pooling(folder))
    try:
        model = shape.config()
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    # sizes are checked before memory is allocated for them: weights have at least a byte a number
    of_layer = model.d_model * (4 * model.n_heads * model.d_k + 2 * model.d_ff)
    n_least = model.width_of_words * shape.vocab_size + model.n_layers * of_layer
    n_bytes = sum(file.stat().st_size for file in weight_files(folder))
    if n_least > n_bytes:
        raise UserError(
            f"{path} describes a model of at least {n_least:,} numbers, but its weights are "
            f"{n_bytes:,} bytes: the folder is not whole, copy all its files again"
        )
    return shape


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights: safetensors if there are any, else PyTorch's own.

    Raises:
        UserError: there are none, or an index names a file that is not in the folder.
    """
    for name in WEIGHTS:
        if (folder / name).is_file():
            return files_of_index(folder / name) if name in INDICES else [folder / name]
    raise UserError(
        f"init_from={folder} has no weights that manyheads reads: it needs model.safetensors or pytorch_model.bin"
    )


def files_of_index(index: Path) -> list[Path]:
    """The files that an index of weights names.

    Raises:
        UserError: it names none, or others than files of weights in its folder.
    """
    names = ConfigFile.read(index).get("weight_map", {})
    found: list[str] = []
    if isinstance(names, dict):
        found = sorted({name for name in names.values() if isinstance(name, str)})
    if not found:
        raise UserError(f"{index} names no files: it must name weights in its folder")
    bad = [name for name in found if Path(name).name != name or not name.endswith(INDICES[index.name])]
    if bad:
        raise UserError(f"{index} names {list_names(bad)}: it must name weights in its folder")
    missing = [name for name in found if not (index.parent / name).is_file()]
    if missing:
        raise UserError(f"{index} names {list_names(missing)}, not in its folder: copy all files of the model")
    return [index.parent / name for name in found]


def read_sentence_pooling(folder: Path) -> dict[str, Any]:
    """Pooling as a folder of sentence-transformers describes it, if it is one."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return {}
    given = ConfigFile.read(path)
    for ours, flag, name in (("first", "cls_token", "cls"), ("max", "max_tokens", "max")):
        if given.get(f"pooling_mode_{flag}") is True or given.get("pooling_mode") == name:
            return {"pooling": ours, "pooler": "none"}
    return {"pooling": "mean", "pooler": "none"}


def read_prefix(folder: Path) -> str:
    """What a folder of sentence-transformers puts before each text: its default, or else what is for classification.
    Nothing where its mean or maximum leaves these tokens out, as ours are of all tokens."""
    path, pooling = folder / "config_sentence_transformers.json", folder / "1_Pooling" / "config.json"
    if not path.is_file():
        return ""
    leaves_out = pooling.is_file() and ConfigFile.read(pooling).get("include_prompt") is False
    if leaves_out and read_sentence_pooling(folder)["pooling"] != "first":
        return ""
    given = ConfigFile.read(path)
    prompts, name = given.get("prompts", {}), given.get("default_prompt_name", "classification")
    for kind, prompt in prompts.items() if isinstance(prompts, dict) else ():
        if kind.lower() == str(name).lower() and isinstance(prompt, str):
            return prompt
    return ""


@dataclass(frozen=True, slots=True)
class Described:
    """A model of ours as a family describes it: `config` is its config.json, `shape` what that is read as."""

    kind: str
    config: dict[str, Any]
    shape: Shape


def describe_as_family(
    model: ModelConfig, *, vocab_size: int, max_length: int, has_segments: bool, marks: MarkIds, pooled: bool = True
) -> Described:
    """The family that has a model like `model`, and its config.json.

    Args:
        has_segments: the network has vectors for first and second texts.
        pooled: whether its pooling must be the same, too.

    Raises:
        UserError: no family has such a model; the rest of a sentence about the run.
    """
    refuse_foreign(model)
    nearest, least = "", []
    for kind in likely_families(model, marks):
        config: dict[str, Any] = {"model_type": kind}
        if "pad" in marks.ids:
            config["pad_token_id"] = marks.ids["pad"]
        config |= write_config(
            kind, model, marks=marks, has_segments=has_segments, vocab_size=vocab_size, max_length=max_length
        )
        shape = read_config(kind, ConfigFile(config))
        shape = replace(shape, model=PINNED | shape.model)
        wrong = differences(model, shape, has_segments=has_segments)
        if not pooled:
            wrong = [setting for setting in wrong if not setting.startswith(OF_POOLING)]
        if not wrong:
            return Described(kind, config, shape)
        if not nearest or len(wrong) < len(least):
            nearest, least = kind, wrong
    classes = FAMILIES[nearest].classes
    raise UserError(
        f"has a shape of its own, which no family of transformers has; nearest to it is {classes}, which has "
        f"{list_names(least)}: train with these settings or by init_from=<such a model>, or use format=transformers"
    )


def likely_families(model: ModelConfig, marks: MarkIds) -> list[str]:
    """The families to try, those first that are most likely to be meant: without segments DistilBERT and RoBERTa, which
    do not tell two texts apart."""
    if model.encoder == "deberta":
        return ["deberta-v2"]
    roberta = []
    if "pad" in marks.ids:  # which fixes where its positions begin
        roberta = ["xlm-roberta" if marks.is_unigram else "roberta"]
    if model.segments is Segments.never:
        return ["distilbert", *roberta, "bert", "electra", "modernbert"]
    if roberta:
        return ["bert", *roberta, "distilbert", "electra", "modernbert"]
    return ["bert", "electra", "distilbert", "modernbert"]


def refuse_foreign(model: ModelConfig) -> None:
    """Refuse models that no family has, whatever its other settings."""
    why = "which no model of BERT's family has: use format=transformers, or train one from a model of such a family"
    if model.encoder not in ("transformer", "deberta"):
        raise UserError(f"has model.encoder={format_value(model.encoder)}, {why} by init_from")
    if model.reads_apart:
        raise UserError(f"has model.pair={format_value(model.pair)}, {why} by init_from")
    if not model.n_heads * model.d_k == model.n_heads * model.d_v == model.d_model:
        raise UserError(
            f"has model.n_heads={model.n_heads} with model.d_k={model.d_k} and model.d_v={model.d_v}, which do not "
            f"share out model.d_model={model.d_model} as in BERT's family: use format=transformers, or train with "
            "d_k = d_v = d_model / n_heads"
        )


def differences(model: ModelConfig, shape: Shape, *, has_segments: bool) -> list[str]:
    """The settings of a shape that was read which are others than those of `model`, as they would have to be typed."""
    ours, theirs = comparable_settings(model), comparable_settings(shape.config())
    wrong = []
    for name, value in ours.items():
        other = theirs.get(name, value)
        if other != value:
            typed = str(other).replace(" ", "") if isinstance(other, list) else format_value(other)
            wrong.append(f"model.{name}={typed}")
    if has_segments and shape.n_segments != 2:
        wrong.append("model.segments=never")
    return wrong


def comparable_settings(model: ModelConfig) -> dict[str, Any]:
    """Settings that two models that answer alike have in common, each in one form: defaults are replaced by values."""
    layers = range(model.n_layers)
    windows = [model.window_of(layer) for layer in layers]
    found = {name: value for name, value in to_plain(model).items() if name not in INCOMPARABLE}
    found["n_kv_heads"] = model.kv_heads
    found["d_embedding"] = model.width_of_words
    found["scale"] = model.scale or model.d_k**-0.5
    found["norm_eps"] = model.norm_eps or (1e-5 if model.norm == "layer" else 1e-6)
    found["scores"] = [model.score_of(layer) for layer in layers]
    found["windows"] = windows
    found["encoder_options"] = {**options_of("encoder", model.encoder), **model.options("encoder")}
    if model.positions in TABLES:
        found["positions"] = "learned"
    if model.positions == "rotary":
        of_windows = model.rotary_base_window or model.rotary_base
        found["rotary_base"] = [of_windows if window else model.rotary_base for window in windows]
    return found
