"""`init_from=`: trained weights bring their shape and their tokenizer, and are trained on in small steps."""

import os
from collections.abc import Mapping
from typing import Any

from manyheads.config import RunConfig
from manyheads.config.names import Setting, settings
from manyheads.config.plain import convert, show
from manyheads.door.overrides import Typed
from manyheads.door.presets import conf_folder
from manyheads.door.verbs import VERBS
from manyheads.family.origin import Origin, find_origin, folder_of
from manyheads.family.shapes import FREE

PRESETS = {"model": "from_weights", "optim": "finetune"}
FURTHER = {"model": "from_weights", "optim": "further"}  # of `pretrain`
MORE = ("matches",)  # may be added to weights that lack them
PARTS_OF_DROPOUT = ("dropout_embedding", "dropout_residual", "dropout_classifier")
OF_TOKENIZERS = ("tokenizer.kind", "tokenizer.vocab_size", "tokenizer.lowercase")


def imply_finetuning(verb: str, typed: Typed) -> None:
    """`init_from=` means model=from_weights and optim=finetune (`pretrain`: further); another optim may be typed.

    Raises:
        ValueError: a preset of a shape was typed beside it.
    """
    name = typed.values.get("init_from")
    if not name:
        return
    preset = typed.groups.get("model")
    if preset not in (None, PRESETS["model"]) and (conf_folder() / "model" / f"{preset}.yaml").is_file():
        raise ValueError(
            f"model={preset} is a shape of its own, but init_from={name} brings the one of its weights: leave one of "
            "them away"
        )
    for group, choice in (FURTHER if verb == "pretrain" else PRESETS).items():
        if group in VERBS[verb].groups and group not in typed.groups:
            typed.groups[group] = choice
            typed.words.append(f"{group}={choice}")


def settled_origin(values: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """Put into `values` what the weights of `init_from` fix: the shape, the tokenizer, and how long texts may be.

    Returns:
        What was typed, but a folder of weights as the absolute path that counts for a run from anywhere.

    Raises:
        ValueError: the weights cannot be used, or a setting that was typed is another than theirs.
    """
    name = typed.get("init_from", values.get("init_from"))
    if not name:
        return typed
    if os.path.isdir(os.path.expanduser(name)):
        name = str(folder_of(name))
    origin = find_origin(name)
    known = settings(RunConfig)
    for key, theirs in origin.model.items():
        setting = f"model.{key}"
        if (setting in typed and (key in FREE or (key in MORE and not theirs))) or (
            "model.dropout" in typed and key in PARTS_OF_DROPOUT
        ):
            continue
        one = known[setting]
        if setting in typed and _read(setting, one, typed[setting]) != _read(setting, one, theirs):
            raise ValueError(
                f"{setting}={shown(typed[setting])}, but the weights of init_from={name} have {shown(theirs)}: leave "
                "it away, or leave init_from away and train from scratch"
            )
        values["model"][key] = theirs
    _settle_tokenizer(name, origin, values["tokenizer"], typed)
    _settle_length(name, origin, values["data"], typed)
    return typed | {"init_from": name}


def _read(name: str, one: Setting, value: Any) -> Any:
    return convert(name, one.kind, value, one.default)


def _settle_tokenizer(name: str, origin: Origin, tokenizer: dict[str, Any], typed: Mapping[str, Any]) -> None:
    for setting in OF_TOKENIZERS:
        if setting in typed:
            raise ValueError(
                f"{setting}={shown(typed[setting])} does nothing with init_from={name}, whose tokenizer comes along: "
                "leave it away"
            )
    path = typed.get("tokenizer.path")
    if path and os.path.realpath(os.path.expanduser(path)) not in _files(origin):
        raise ValueError(
            f"tokenizer.path={path}, but the weights of init_from={name} know the ids of their own tokenizer alone: "
            "leave it away"
        )
    tokenizer["path"] = origin.tokenizer


def _files(origin: Origin) -> tuple[str, ...]:
    return os.path.realpath(origin.tokenizer), os.path.realpath(origin.folder)


def _settle_length(name: str, origin: Origin, data: dict[str, Any], typed: Mapping[str, Any]) -> None:
    longest = origin.max_length
    if "data.max_length" not in typed:
        data["max_length"] = min(data["max_length"], longest)
    elif typed["data.max_length"] > longest and origin.cuts_longer:
        raise ValueError(
            f"data.max_length={typed['data.max_length']}, but the weights of init_from={name} know {longest} "
            f"positions: use {longest} at the most"
        )


def shown(value: Any) -> str:
    """A value as it is typed, a choice by its name."""
    return show(
        [getattr(one, "name", one) for one in value] if isinstance(value, list) else getattr(value, "name", value)
    )
