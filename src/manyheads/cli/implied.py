"""What follows from what is typed: from trained weights, from one limit of training, from a run that is resumed.

Each function changes `values`, the nested settings that presets have made, before what was typed is put over them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from manyheads.cli.overrides import Typed
from manyheads.cli.verbs import VERBS, preset_file, schema_of
from manyheads.config import OptimConfig, Resume, RunConfig
from manyheads.config.conversion import convert, section_and_key, to_plain
from manyheads.config.facts import settings, settings_where
from manyheads.config.sentences import format_value, one_of
from manyheads.config.trainer_flags import END_FLAGS
from manyheads.errors import UserError
from manyheads.inference.download import is_hub_name
from manyheads.inference.origin import Origin, find_origin, folder_of

LIMITS = tuple(f"trainer.{flag}" for flag in END_FLAGS)
BY_DATA = settings_where(OptimConfig, by_data=True)
PRESETS = {"model": "from_weights", "optim": "finetune"}
Tried = Callable[[str, Any], list[Any]]  # `Verb.takes_several`


def imply_finetuning(verb: str, typed: Typed) -> None:
    """`init_from=` means model=from_weights and optim=finetune, or what a verb has in its place; another optim may be
    typed.

    Raises:
        UserError: a preset of a shape was typed with it.
    """
    name = typed.values.get("init_from")
    if not name:
        return
    preset = typed.groups.get("model")
    if preset not in (None, PRESETS["model"]) and preset_file("model", preset):
        raise UserError(
            f"model={preset} is a shape of its own, but init_from={name} brings the one of its weights: "
            "remove one of them"
        )
    for group, choice in (PRESETS | {**VERBS[verb].from_weights}).items():
        if group in VERBS[verb].groups and group not in typed.groups:
            typed.choose(group, choice)


def merge_search(values: dict[str, Any], typed: Typed) -> None:
    """Put what is searched over what an experiment searches: a setting that is given one value is searched no more."""
    theirs = typed.values.pop("search", values.get("search"))
    if isinstance(theirs, dict):
        values["search"] = {key: given for key, given in theirs.items() if key not in typed.values} | typed.search
    elif theirs is not None:
        values["search"] = theirs


def apply_pretrained(
    values: dict[str, Any],
    typed: dict[str, Any],
    own: Mapping[str, Any] = MappingProxyType({}),
    tried: Tried | None = None,
) -> dict[str, Any]:
    """Put into `values` what the weights of `init_from` fix: the shape, the tokenizer, and how long texts may be. Each
    value of a search counts as typed.

    Args:
        own: what the experiment itself sets, which stays where weights leave a choice.
        tried: `takes_several` of a verb that searches.

    Returns:
        What was typed, but a folder of weights as the absolute path that counts for a run from anywhere.

    Raises:
        UserError: the weights cannot be used, or a setting that was typed is another than theirs.
    """
    name = typed.get("init_from", values.get("init_from"))
    if not name:
        return typed
    name = str(folder_of(name)) if os.path.isdir(os.path.expanduser(name)) else name
    origin = find_origin(name)
    for searched in searched_settings(values, tried) if tried else [{}]:
        _bring_shape(name, origin, values["model"], typed | searched, own)
        _bring_tokenizer(name, origin, values["tokenizer"], typed | searched)
        _bring_length(name, origin, values["data"], typed | searched)
    return typed | {"init_from": name}


def searched_settings(values: Mapping[str, Any], tried: Tried) -> list[dict[str, Any]]:
    """Settings of a search in which each of its values, or end of a range, occurs; of no search the empty one alone."""
    search = values.get("search")
    if not isinstance(search, dict) or not search:
        return [{}]
    few = {str(name): tried(str(name), given) for name, given in search.items()}
    first = {name: of[0] for name, of in few.items()}
    return [first, *(first | {name: value} for name, of in few.items() for value in of[1:])]


def _bring_shape(
    name: str, origin: Origin, model: dict[str, Any], typed: Mapping[str, Any], own: Mapping[str, Any]
) -> None:
    known = settings(RunConfig)
    for key, theirs in origin.model.items():
        one = known[f"model.{key}"]
        if one.facts.null in typed or (one.name in {*typed, *own} and one.facts.weights != "fixed"):
            continue
        given = typed.get(one.name, theirs)
        if given is not theirs and convert(one, given) != convert(one, theirs):
            raise UserError(
                f"{one.name}={_shown(given)}, but the weights of init_from={name} have {_shown(theirs)}: remove it, or "
                "remove init_from and train from scratch"
            )
        model[key] = theirs


def _bring_tokenizer(name: str, origin: Origin, tokenizer: dict[str, Any], typed: Mapping[str, Any]) -> None:
    for setting in settings_where(RunConfig, weights="unused"):
        if setting in typed:
            raise UserError(
                f"{setting}={_shown(typed[setting])} does nothing with init_from={name}, whose tokenizer comes along: "
                "remove it"
            )
    path = typed.get("tokenizer.path")
    theirs = (os.path.realpath(origin.tokenizer), os.path.realpath(origin.folder))
    if path and os.path.realpath(os.path.expanduser(path)) not in theirs:
        raise UserError(
            f"tokenizer.path={path}, but the weights of init_from={name} know the ids of their own tokenizer alone: "
            "remove it"
        )
    tokenizer["path"] = origin.tokenizer


def _bring_length(name: str, origin: Origin, data: dict[str, Any], typed: Mapping[str, Any]) -> None:
    longest = origin.max_length
    if "data.max_length" not in typed:
        data["max_length"] = min(data["max_length"], longest)
    elif typed["data.max_length"] > longest and origin.cuts_longer:
        raise UserError(
            f"data.max_length={typed['data.max_length']}, but the weights of init_from={name} know {longest} "
            f"positions: use {longest} at the most"
        )


def _shown(value: Any) -> str:
    """A value as it is typed, a choice by its name."""
    return format_value([getattr(one, "name", one) for one in value] if isinstance(value, list) else value)


def settle_limits(values: dict[str, Any], typed: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Let a limit of training take the place of those that the data decides, and one that was typed that of a budget.

    Args:
        typed: by dotted name, already among `values`; what a search varies counts as typed.
        own: what the experiment itself sets.

    Raises:
        UserError: a limit and a budget were typed.
    """
    search = values.get("search")
    named = {**(search if isinstance(search, dict) else {}), **typed}
    limit = next((name for name in LIMITS if name in named), None)
    for name in BY_DATA if limit or any(name in own for name in LIMITS) else ():
        keeps = f"optim.{name}" in named or (limit is None and f"optim.{name}" in own)
        if not keeps and name in values.get("optim", {}):
            values["optim"][name] = 0
    if limit is None or not values.get("budget"):
        return
    if typed.get("budget"):
        given = named[limit]
        said = ",".join(map(format_value, given)) if isinstance(given, list) else format_value(given)
        raise UserError(
            f"{limit}={said} does nothing with budget={typed['budget']}, which says how long the run trains: "
            "remove one of them"
        )
    values["budget"] = ""


def settle_paths(verb: str, values: dict[str, Any]) -> None:
    """Make the paths in settings absolute, so that they mean the same from anywhere."""
    of_hub = settings_where(schema_of(verb), hub=True)
    for name in settings_where(schema_of(verb), path=True):
        section, key = section_and_key(values, name)
        found, may_be = section[key], name in of_hub
        section[key] = (
            [_absolute(one, may_be) for one in found] if isinstance(found, list) else _absolute(found, may_be)
        )


def _absolute(path: Any, of_hub: bool) -> Any:
    if not isinstance(path, str) or path in ("", "-") or (of_hub and is_hub_name(path)):
        return path
    return os.path.abspath(os.path.expanduser(path))


def resumed_folder(verb: str, words: Sequence[str]) -> tuple[list[str], str]:
    """The words without `resume=FOLDER`, and the folder: empty where there is no such word.

    Raises:
        UserError: it is no run.
    """
    named = [word for word in words if word.startswith("resume=") and word[7:] not in Resume.__members__]
    if "resume" not in settings(schema_of(verb)) or not named:
        return list(words), ""
    folder = os.path.abspath(os.path.expanduser(named[-1][7:]))
    if named[-1] == "resume=" or not os.path.isfile(os.path.join(folder, "config.yaml")):
        raise UserError(
            f"{named[-1]} is neither {one_of(list(Resume.__members__))} nor the folder of a run with its config.yaml"
        )
    return [word for word in words if word not in named], folder


def resumed_values(values: dict[str, Any], folder: str, typed: Typed, usual: Mapping[str, Any]) -> dict[str, Any]:
    """The settings `values` of the run in `folder`, with which it is resumed.

    Args:
        usual: the flags of the Trainer by the presets of such a run.

    Raises:
        UserError: a preset or another folder was typed; or the settings, which may be anybody's, name a place outside
            of the folder to write to, and nobody has typed it.
    """
    unused = [f"{group}={name}" for group, name in typed.groups.items()]
    unused += [f"{name}={typed.values[name]}" for name in ("output", "resume", "again") if name in typed.values]
    if unused:
        raise UserError(
            f"{unused[0]} does nothing with resume={folder}, which resumes it with the settings in its config.yaml: "
            "remove it"
        )
    for name in settings_where(RunConfig, written_to=True):
        section, key = section_and_key(values, name)
        place = section[key]
        path, home = (os.path.realpath(os.path.expanduser(one)) for one in (place, folder))
        if place and name not in typed.values and os.path.commonpath([path, home]) != home:
            raise UserError(
                f"{name}={place} in {os.path.join(folder, 'config.yaml')} is a place outside of that folder to write "
                f"to: type {name}={place} if it is meant, or {name}= for the usual one"
            )
    _free_limits(values, typed, usual)
    return values | {"output": folder, "resume": "must"}


def _free_limits(values: dict[str, Any], typed: Typed, usual: Mapping[str, Any]) -> None:
    """Where one limit of training was typed, the other is no longer what the budget or the data of the run came to."""
    trainer, by_data = values["trainer"], any(values["optim"][name] for name in BY_DATA)
    is_limited = any(name in typed.values for name in LIMITS)
    for key in END_FLAGS if is_limited else ():
        if f"trainer.{key}" not in typed.values and values["budget"]:
            trainer[key] = -1
        elif f"trainer.{key}" not in typed.values and by_data and trainer.get(key) not in (None, -1):
            trainer[key] = max(trainer[key], usual[key])  # a run that has passed the preset's limit resumes, too


def repeated_values(run: RunConfig, typed: Typed, usual: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a `run` that is trained once more, in another folder: what its budget and its data came to is
    kept, so that it ends with the same weights. Folds are left as they were typed: each came to limits of its own."""
    values = to_plain(run)
    _free_limits(values, typed, usual)
    if not run.data.folds or run.data.fold is not None:
        values["budget"] = ""
        values["optim"] |= dict.fromkeys(BY_DATA, 0)
    for name, other in (("path", "hub"), ("hub", "path")):
        if typed.values.get(f"data.{name}"):
            values["data"] |= {other: "", "source": "files" if name == "path" else "hub"}
    values["data"]["cache"] = ""  # which may lie anywhere, where the file is a stranger's
    return values | {"output": "", "resume": "never", "dry": False}


def apply_other_pretrained(values: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """`apply_pretrained` where a run is trained once more. Its own settings count as typed where weights leave a
    choice. Nothing is to be done for the weights that the run itself began with."""
    if "init_from" not in typed:
        return typed
    free = (*settings_where(RunConfig, weights="default"), *settings_where(RunConfig, weights="free"))
    kept = {name: values["model"][name.removeprefix("model.")] for name in free if name.startswith("model.")}
    return typed | {"init_from": apply_pretrained(values, kept | typed)["init_from"]}
