"""What typed words imply: trained weights, limits, a run that goes on.

How long a run trains: by a budget, or by limits of epochs and steps.

`init_from=`: trained weights bring their shape and their tokenizer, and are trained on in small steps.

`resume=FOLDER`: a run goes on by the settings in its own config.yaml, and need not be typed again.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from manyheads.cli.overrides import Typed
from manyheads.cli.verbs import VERBS, conf_folder
from manyheads.config import OptimConfig, Resume, RunConfig, trainer_flags
from manyheads.config.facts import Setting, having, settings
from manyheads.config.fields import convert, one_of, show
from manyheads.huggingface.origin import Origin, find_origin, folder_of

LIMITS = tuple(f"trainer.{flag}" for flag in trainer_flags.LIMITS)
BY_DATA = having(OptimConfig, by_data=True)


def settle_end(values: dict[str, Any], typed: Mapping[str, Any]) -> None:
    """Let a limit that was typed, or that a search varies, take the place of a budget, and of limits that the data
    decides, that were not.

    Raises:
        ValueError: both were typed.
    """
    search = values.get("search")
    named = {**(search if isinstance(search, dict) else {}), **typed}
    limit = next((name for name in LIMITS if name in named), None)
    if limit is None:
        return
    for name in BY_DATA:
        if f"optim.{name}" not in named and name in values.get("optim", {}):
            values["optim"][name] = 0
    if not values.get("budget"):
        return
    if typed.get("budget"):
        given = named[limit]
        said = ",".join(map(show, given)) if isinstance(given, list) else show(given)
        raise ValueError(
            f"{limit}={said} does nothing with budget={typed['budget']}, which says how long the run "
            "trains: remove one of them"
        )
    values["budget"] = ""


def keep_limits(values: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Let a limit among the settings `own` of an experiment take the place of those that the data decides."""
    if any(name in own for name in LIMITS):
        for name in BY_DATA:
            if f"optim.{name}" not in own and name in values.get("optim", {}):
                values["optim"][name] = 0


def reopen_end(values: dict[str, Any], typed: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Where a run goes on by one limit that was typed, let the other be no longer what its budget or its data came to.

    Args:
        usual: the flags of the Trainer by the presets of such a run.
    """
    if not any(name in typed for name in LIMITS):
        return
    trainer, by_data = values["trainer"], any(values["optim"][name] for name in BY_DATA)
    for key in (name.removeprefix("trainer.") for name in LIMITS if name not in typed):
        if values["budget"]:
            trainer[key] = -1
        elif by_data and trainer.get(key) not in (None, -1):
            trainer[key] = max(trainer[key], usual[key])  # a run that has passed the preset's goes on, too


PRESETS = {"model": "from_weights", "optim": "finetune"}
FURTHER = {"model": "from_weights", "optim": "further"}  # of `pretrain`


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
            f"model={preset} is a shape of its own, but init_from={name} brings the one of its weights: "
            "remove one of them"
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
        one = known[f"model.{key}"]
        setting = one.name
        if (setting in typed and one.facts.weights in ("default", "free")) or one.facts.null in typed:
            continue
        if setting in typed and _read(setting, one, typed[setting]) != _read(setting, one, theirs):
            raise ValueError(
                f"{setting}={shown(typed[setting])}, but the weights of init_from={name} have {shown(theirs)}: "
                "remove it, or remove init_from and train from scratch"
            )
        values["model"][key] = theirs
    _settle_tokenizer(name, origin, values["tokenizer"], typed)
    _settle_length(name, origin, values["data"], typed)
    return typed | {"init_from": name}


def _read(name: str, one: Setting, value: Any) -> Any:
    return convert(name, one.kind, value, one.default)


def _settle_tokenizer(name: str, origin: Origin, tokenizer: dict[str, Any], typed: Mapping[str, Any]) -> None:
    for setting in having(RunConfig, weights="unused"):
        if setting in typed:
            raise ValueError(
                f"{setting}={shown(typed[setting])} does nothing with init_from={name}, whose tokenizer comes along: "
                "remove it"
            )
    path = typed.get("tokenizer.path")
    if path and os.path.realpath(os.path.expanduser(path)) not in _files(origin):
        raise ValueError(
            f"tokenizer.path={path}, but the weights of init_from={name} know the ids of their own tokenizer alone: "
            "remove it"
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


def resumed_folder(verb: str, words: Sequence[str]) -> tuple[list[str], str]:
    """The words without `resume=FOLDER`, and the folder: empty where there is no such word.

    Raises:
        ValueError: it is no run.
    """
    named = [word for word in words if word.startswith("resume=") and word[7:] not in Resume.__members__]
    if verb not in ("train", "pretrain") or not named:
        return list(words), ""
    folder = os.path.abspath(os.path.expanduser(named[-1][7:]))
    if named[-1] == "resume=" or not os.path.isfile(os.path.join(folder, "config.yaml")):
        raise ValueError(
            f"{named[-1]} is neither {one_of(list(Resume.__members__))} nor the folder of a run with its config.yaml"
        )
    return [word for word in words if word not in named], folder


def resumed_values(values: dict[str, Any], folder: str, typed: Typed, usual: Mapping[str, Any]) -> dict[str, Any]:
    """The settings `values` of the run in `folder`, as those of going on with it.

    Args:
        usual: the flags of the Trainer by the presets of such a run.

    Raises:
        ValueError: a preset or another folder was typed; or the settings, which may be anybody's, name a place outside
            of the folder to write to, and nobody has typed it.
    """
    idle = [f"{group}={name}" for group, name in typed.groups.items()]
    idle += [f"{name}={typed.values[name]}" for name in ("output", "resume") if name in typed.values]
    if idle:
        raise ValueError(
            f"{idle[0]} does nothing with resume={folder}, which goes on there by the settings in its config.yaml: "
            "remove it"
        )
    for name in having(RunConfig, written_to=True):
        section, _, key = name.rpartition(".")
        place = values[section][key]
        if place and name not in typed.values and not _is_within(place, folder):
            raise ValueError(
                f"{name}={place} in {os.path.join(folder, 'config.yaml')} is a place outside of that folder to write "
                f"to: type {name}={place} if it is meant, or {name}= for the usual one"
            )
    reopen_end(values, typed.values, usual)
    return values | {"output": folder, "resume": "must"}


def _is_within(place: str, folder: str) -> bool:
    path, home = (os.path.realpath(os.path.expanduser(one)) for one in (place, folder))
    return os.path.commonpath([path, home]) == home
