"""What follows from what is typed: from trained weights, from data of one's own, from a limit of training, from a run
that is resumed or trained once more.

Presets that are implied are chosen as if they had been typed. All other functions change `values`, the settings by
dotted name as presets or a run have them.
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import manyheads.plugin as plugin
from manyheads.cli.overrides import Typed
from manyheads.cli.presets import preset_values
from manyheads.cli.verbs import VERBS, preset_file, schema_of
from manyheads.config import OptimConfig, Resume, RunConfig
from manyheads.config.blocks import options_of
from manyheads.config.conversion import Values, convert, named_values
from manyheads.config.facts import settings, settings_where
from manyheads.config.sentences import format_list, format_value, one_of
from manyheads.config.trainer_flags import END_FLAGS
from manyheads.errors import UserError
from manyheads.inference.download import is_hub_name
from manyheads.inference.origin import Origin, find_origin, folder_of

OPTIONS = re.compile("(.+)_options")
LIMITS = tuple(f"trainer.{flag}" for flag in END_FLAGS)
BY_DATA = settings_where(OptimConfig, by_data=True)
PRESETS = {"model": "from_weights", "optim": "finetune"}
Tried = Callable[[str, Any], list[Any]]  # `Verb.takes_several`


def imply_presets(verb: str, typed: Typed, config_dir: str | None) -> None:
    """Choose the presets that `init_from=`, `data.path=` and `data.hub=` mean, unless others were typed.

    Raises:
        UserError: a preset of a shape was typed together with weights, which have their own.
    """
    if typed.values.get("again"):
        return  # all its settings are those of a run
    _imply_finetuning(verb, typed, config_dir)
    if typed.values.get("data.path"):
        source = "files"
    elif typed.values.get("data.hub"):
        source = "hub"
    else:
        return
    if "data" in typed.groups:
        return
    if typed.groups.get("experiment") and preset_values(verb, typed.groups, config_dir)["data.source"] in (
        "files",
        "hub",
    ):
        return  # the experiment has chosen its data, of which the path is another copy
    typed.choose("data", source)


def _imply_finetuning(verb: str, typed: Typed, config_dir: str | None) -> None:
    """`init_from=` means model=from_weights and optim=finetune, or what a verb or the encoder has in its place; another
    optim may be typed. Word vectors alone leave the model, and how it learns, to what is typed."""
    name = typed.values.get("init_from")
    if not name:
        return
    preset, encoder = typed.groups.get("model"), ""
    has_shape = preset not in (None, PRESETS["model"]) and bool(preset_file("model", preset or ""))
    if has_shape:
        encoder = preset_values(verb, {"model": preset}, config_dir)["model.encoder"]
    origin = find_origin(name, encoder)
    if has_shape and not origin.words_only:
        raise UserError(
            f"model={preset} is a shape of its own, but init_from={name} brings the one of its weights: "
            "remove one of them"
        )
    of_encoder = plugin.find("encoder", encoder or origin.model.get("encoder", "transformer")).facts.get("presets", {})
    if has_shape and not of_encoder:
        return
    for group, choice in (PRESETS | {**VERBS[verb].from_weights, **of_encoder}).items():
        if group in VERBS[verb].groups and group not in typed.groups:
            typed.choose(group, choice)


def merge_search(values: Values, typed: Typed) -> None:
    """Put what is searched over what an experiment searches: a setting that is given one value is searched no more."""
    search = typed.values.pop("search", values.get("search"))
    if isinstance(search, dict):
        search = {name: given for name, given in search.items() if name not in typed.values} | typed.search
    if search is not None:
        values["search"] = search


def apply_pretrained(values: Values, typed: Values, own: Values, tried: Tried | None = None) -> Values:
    """Put into `values` what the weights of `init_from` fix: the shape, the tokenizer, and how long texts may be. Each
    value of a search counts as typed.

    Args:
        own: what the experiment itself sets, which is kept where weights leave a choice.
        tried: `takes_several` of a verb that searches.

    Returns:
        What was typed, but a folder of weights as the absolute path that counts for a run from anywhere.

    Raises:
        UserError: the weights cannot be used, or a setting that was typed is another than theirs.
    """
    name = typed.get("init_from", values.get("init_from"))
    if not name:
        return typed
    if os.path.exists(os.path.expanduser(name)):
        name = str(folder_of(name))
    origin = find_origin(name, typed.get("model.encoder", values["model.encoder"]))
    for searched in searched_settings(values, tried) if tried else [{}]:
        _bring_shape(name, origin, values, typed | searched, own)
        _bring_tokenizer(name, origin, values, typed | searched, own)
        _bring_length(name, origin, values, typed | searched)
    return typed | {"init_from": name}


def searched_settings(values: Values, tried: Tried) -> list[Values]:
    """Settings of a search in which each of its values, or end of a range, occurs; of no search the empty one alone."""
    search = values.get("search")
    if not isinstance(search, dict) or not search:
        return [{}]
    tried_values = {str(name): tried(str(name), given) for name, given in search.items()}
    first = {name: several[0] for name, several in tried_values.items()}
    found = [first]
    for name, several in tried_values.items():
        found += [first | {name: value} for value in several[1:]]
    return found


def _bring_shape(name: str, origin: Origin, values: Values, typed: Values, own: Values) -> None:
    known = settings(RunConfig)
    for key, value in origin.model.items():
        one = known[f"model.{key}"]
        is_chosen = one.name in typed or one.name in own
        is_free = one.facts.weights != "fixed" or key in origin.free
        if one.facts.null in typed or (is_chosen and is_free):
            continue
        theirs = convert(one, value)
        of_weights = {one.name: theirs}
        if kind := OPTIONS.match(key):  # each of them may be typed
            options = {**options_of(kind[1], origin.model.get(kind[1], values[f"model.{kind[1]}"])), **theirs}
            of_weights |= {f"{one.name}.{option}": value for option, value in options.items()}
        for setting, value in of_weights.items():
            if setting in typed and (convert(one, typed[setting]) if setting == one.name else typed[setting]) != value:
                raise UserError(
                    f"{setting}={format_list(typed[setting])}, but the weights of init_from={name} have "
                    f"{format_list(value)}: remove it, or remove init_from and train from scratch"
                )
        values[one.name] = theirs


def _bring_tokenizer(name: str, origin: Origin, values: Values, typed: Values, own: Values) -> None:
    for setting in settings_where(RunConfig, weights="unused"):
        if setting in typed:
            raise UserError(
                f"{setting}={format_list(typed[setting])} does nothing with init_from={name}, whose tokenizer comes "
                "along: remove it"
            )
    path = typed.get("tokenizer.path")
    theirs = (os.path.realpath(origin.tokenizer), os.path.realpath(origin.folder))
    if path and os.path.realpath(os.path.expanduser(path)) not in theirs:
        raise UserError(
            f"tokenizer.path={path}, but the weights of init_from={name} know the ids of their own tokenizer alone: "
            "remove it"
        )
    values["tokenizer.path"] = origin.tokenizer
    if "tokenizer.prefix" not in typed | own:
        values["tokenizer.prefix"] = origin.prefix


def _bring_length(name: str, origin: Origin, values: Values, typed: Values) -> None:
    longest = origin.max_length
    if "data.max_length" not in typed:
        values["data.max_length"] = min(values["data.max_length"], longest)
    elif typed["data.max_length"] > longest and origin.cuts_longer:
        raise UserError(
            f"data.max_length={typed['data.max_length']}, but the weights of init_from={name} know {longest} "
            f"positions: use {longest} at the most"
        )


def settle_limits(values: Values, typed: Values, own: Values) -> None:
    """Let a limit of training take the place of those that the data decides, and one that was typed that of a budget.

    Args:
        typed: already among `values`; what a search varies counts as typed.
        own: what the experiment itself sets.

    Raises:
        UserError: a limit and a budget were typed.
    """
    named = dict(typed)
    if isinstance(search := values.get("search"), dict):
        named = search | typed
    typed_limits = [name for name in LIMITS if name in named]
    own_limits = [name for name in LIMITS if name in own]
    if not typed_limits and not own_limits:
        return
    for key in BY_DATA:
        name = f"optim.{key}"
        is_kept = name in named or (name in own and not typed_limits)
        if name in values and not is_kept:
            values[name] = 0
    if not typed_limits or not values.get("budget"):
        return
    if typed.get("budget"):
        given = named[typed_limits[0]]
        shown = ",".join(map(format_value, given)) if isinstance(given, list) else format_value(given)
        raise UserError(
            f"{typed_limits[0]}={shown} does nothing with budget={typed['budget']}, which says how long the run "
            "trains: remove one of them"
        )
    values["budget"] = ""


def settle_paths(verb: str, values: Values) -> None:
    """Make the paths in settings absolute, so that they mean the same from anywhere.

    Raises:
        UserError: one is an address.
    """
    of_hub = settings_where(schema_of(verb), hub=True)
    for name in settings_where(schema_of(verb), path=True):
        found = values[name]
        if isinstance(found, list):
            values[name] = [_absolute(name, one, name in of_hub) for one in found]
        else:
            values[name] = _absolute(name, found, name in of_hub)


def _absolute(name: str, path: str, may_be_on_hub: bool) -> str:
    if "://" in path:
        raise UserError(f"{name}={path} is an address: download what is there, and give its path here")
    if path in ("", "-") or (may_be_on_hub and is_hub_name(path)):
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


def resumed_values(verb: str, run: RunConfig, folder: str, typed: Typed) -> Values:
    """The settings of the `run` in `folder`, with which it is resumed.

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
    values = named_values(run)
    home = os.path.realpath(folder)
    for name in settings_where(RunConfig, written_to=True):
        place = values[name]
        path = os.path.realpath(os.path.expanduser(place))
        if place and name not in typed.values and os.path.commonpath([path, home]) != home:
            raise UserError(
                f"{name}={place} in {os.path.join(folder, 'config.yaml')} is a place outside of that folder to write "
                f"to: type {name}={place} if it is meant, or {name}= for the usual one"
            )
    _free_limits(verb, values, run, typed)
    return values | {"output": folder, "resume": Resume.must}


def repeated_values(verb: str, run: RunConfig, typed: Typed) -> Values:
    """The settings of a `run` that is trained once more, in another folder: what its budget and its data came to is
    kept, so that it ends with the same weights. Folds are left as they were typed: each came to limits of its own."""
    values = named_values(run)
    _free_limits(verb, values, run, typed)
    if not run.data.folds or run.data.fold is not None:
        values["budget"] = ""
        values |= {f"optim.{name}": 0 for name in BY_DATA}
    if typed.values.get("data.path"):
        values |= {"data.hub": "", "data.source": "files"}
    if typed.values.get("data.hub"):
        values |= {"data.path": "", "data.source": "hub"}
    values["data.cache"] = ""  # which may lie anywhere, where the file is a stranger's
    return values | {"output": "", "resume": Resume.never, "dry": False}


def _free_limits(verb: str, values: Values, run: RunConfig, typed: Typed) -> None:
    """Where one limit of training was typed, the other is no longer what the budget or the data of the run came to."""
    if not any(name in typed.values for name in LIMITS):
        return
    groups = {"optim": PRESETS["optim"]} if run.optim.limits_by_data else {}
    usual = preset_values(verb, groups)["trainer"]
    trainer = dict(values["trainer"])
    for flag in END_FLAGS:
        if f"trainer.{flag}" in typed.values:
            continue
        if run.budget:
            trainer[flag] = -1
        elif run.optim.limits_by_data and trainer.get(flag) not in (None, -1):
            trainer[flag] = max(trainer[flag], usual[flag])  # a run that has passed the preset's limit resumes, too
    values["trainer"] = trainer


def apply_other_pretrained(values: Values, typed: Values) -> Values:
    """`apply_pretrained` where a run is trained once more. Its own settings count as typed where weights leave a
    choice. Nothing is to be done for the weights that the run itself began with."""
    if "init_from" not in typed:
        return typed
    free = (*settings_where(RunConfig, weights="default"), *settings_where(RunConfig, weights="free"))
    kept = {name: values[name] for name in free if name.startswith("model.")}
    return typed | {"init_from": apply_pretrained(values, kept | typed, {})["init_from"]}
