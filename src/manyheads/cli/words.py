"""A run as typed words, and words that a search varies.

What `manyheads tune` varies: settings that were typed with several values, or with two ends.

A run as the words that somebody would type for it: the way back from settings to a command line.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manyheads.cli.errors import refuse_unused
from manyheads.cli.implied import BY_DATA, LIMITS, PRESETS, settled_origin
from manyheads.cli.overrides import Parsed, Typed
from manyheads.cli.verbs import VERBS, conf_folder
from manyheads.config import RunConfig, Task
from manyheads.config.facts import having, settings
from manyheads.config.fields import show, to_plain
from manyheads.config.run import default_trainer
from manyheads.config.tune import is_range, make_axis
from manyheads.runs.config_file import read_yaml


def searched(
    verb: str, words: Sequence[str], parse: Callable[[str], Parsed]
) -> tuple[list[str], dict[str, list[Any] | str]]:
    """The words of a plain run, and what the others search: {"optim.lr": "log:1e-4..1e-2", "model.n_heads": [2, 4]}.

    Texts and presets are never searched: a comma in them is theirs.

    Raises:
        ValueError: a setting is typed twice, or its values cannot be listed.
    """
    if verb != "tune":
        return list(words), {}
    known, rest, search = settings(RunConfig), [], {}
    for word in words:
        key, _, value = word.partition("=")
        key, value = key.strip(), value.strip()
        is_number_or_choice = key.startswith("trainer.") or (key in known and known[key].kind is not str)
        several = _several(key, value, parse) if is_number_or_choice else None
        if several is None:
            rest.append(word)
        elif key in search:
            raise ValueError(f"{word}: {key} is searched already: type all its values once")
        else:
            search[key] = several
    return rest, search


def settle_search(values: dict[str, Any], search: dict[str, list[Any] | str], typed: Typed) -> None:
    """Put what was typed over what an experiment searches: a setting that is given one value is searched no more.

    Raises:
        ValueError: a setting is typed both with one value and with several.
    """
    for key in search:
        if key in typed.values:
            raise ValueError(f"{key} is typed twice, with one value and with several: remove one of them")
    theirs = typed.values.pop("search", values.get("search"))
    if isinstance(theirs, dict):
        values["search"] = {key: given for key, given in theirs.items() if key not in typed.values} | search
    elif theirs is not None:
        values["search"] = theirs


def with_origin(values: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """`settled_origin`, to which each value of a search counts as typed."""
    for setting in searched_settings(values):
        both = settled_origin(values, typed | setting)
        typed = {name: value for name, value in both.items() if name not in setting}
    return typed


def searched_settings(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Settings of a search in which each of its values, or end of a range, occurs; of no search the empty one alone."""
    search = values.get("search")
    if not isinstance(search, dict) or not search:
        return [{}]
    axes = [make_axis(str(name), given) for name, given in search.items()]
    few = {axis.name: list(axis.values or (axis.low, axis.high)) for axis in axes}
    first = {name: of[0] for name, of in few.items()}
    return [first, *(first | {name: value} for name, of in few.items() for value in of[1:])]


def _several(key: str, value: str, parse: Callable[[str], Parsed]) -> list[Any] | str | None:
    """None for one value, and for what nobody can read, which is said elsewhere."""
    if is_range(value):
        return value
    try:
        parsed = parse(value)
    except ValueError:
        return None
    if parsed.sweep and not parsed.values:
        raise ValueError(
            f"{key}={value} names no values one by one: list them, such as {key}=1,2,3, or give a range, such as "
            f"{key}=1..3"
        )
    return parsed.values if parsed.sweep else None


PLAIN = re.compile(r"[A-Za-z_][\w./-]*")  # read as a text without quotes


def plain_settings(run: RunConfig) -> dict[str, Any]:
    """Every setting by its dotted name, in the order of declaration; choices by their names."""
    plain, found = to_plain(run), {}
    for name in settings(RunConfig):
        section, _, key = name.rpartition(".")
        if name == "trainer":
            found |= {f"trainer.{flag}": value for flag, value in plain["trainer"].items()}
        else:
            found[name] = (plain[section] if section else plain)[key]
    return found


def as_words(run: RunConfig, quote: Callable[[str], str]) -> list[str]:
    """`key=value` of every setting that is not as usual and that something reads, in the order of declaration.

    Args:
        quote: how Hydra's grammar quotes a text.
    """
    known, words, usual = settings(RunConfig), [], usual_settings(run.task, bool(run.init_from))
    plain = plain_settings(run)
    if not run.budget and any(plain.get(name) != usual.get(name) for name in LIMITS):
        usual |= {f"optim.{name}": 0 for name in BY_DATA}  # a limit that is typed takes their place
    for name, value in plain.items():
        if value == usual.get(name, ...) or not _is_read(run, name, value):
            continue
        is_text = name in known and known[name].kind is str
        words.append(f"{name}={value if is_text and not _needs_quotes(name, value) else _typed(value, quote)}")
    return words


def read_settings(run: RunConfig) -> dict[str, Any]:
    """`plain_settings` without those that nothing reads."""
    return {name: value for name, value in plain_settings(run).items() if _is_read(run, name, value)}


def usual_settings(task: Task, has_weights: bool) -> dict[str, Any]:
    """What a run has by default, by dotted name: the presets of its task, shape and optimiser included. What the
    weights of `init_from` decide is left out."""
    usual = {name: getattr(one.default, "name", one.default) for name, one in settings(RunConfig).items()}
    usual |= {f"trainer.{flag}": value for flag, value in default_trainer().items()}
    usual |= _global_preset("task", {"task": task.name}) | {"task": usual["task"]}  # which is typed to choose it
    if not has_weights:
        return usual | {f"model.{name}": value for name, value in _preset("model", VERBS["train"].groups).items()}
    usual |= _global_preset("optim", PRESETS)
    decided = {"data.max_length", *having(RunConfig, weights="default"), *having(RunConfig, weights="free")}
    return {name: value for name, value in usual.items() if name not in decided}


def _preset(group: str, chosen: Mapping[str, str | None]) -> dict[str, Any]:
    return read_yaml(conf_folder() / group / f"{chosen[group]}.yaml") or {}


def _global_preset(group: str, chosen: Mapping[str, str | None]) -> dict[str, Any]:
    """A preset that sets several sections, by dotted name."""
    found: dict[str, Any] = {}
    for name, value in _preset(group, chosen).items():
        found |= {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
    return found


def _is_read(run: RunConfig, name: str, value: Any) -> bool:
    if name in LIMITS and run.budget:
        return False
    try:
        refuse_unused(run, {name: value})
    except ValueError:
        return False
    return True


def _needs_quotes(name: str, text: str) -> bool:
    if name in having(RunConfig, verbatim=True):
        return False
    return text == "null" or (len(text) > 1 and text[0] == text[-1] and text[0] in "'\"")


def _typed(value: Any, quote: Callable[[str], str]) -> str:
    """A value in Hydra's grammar; a mapping as YAML."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_yaml(one)}" for key, one in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(_typed(one, quote) for one in value) + "]"
    if isinstance(value, str):
        return (
            value
            if PLAIN.fullmatch(value) and value.lower() not in ("null", "true", "false", "nan", "inf")
            else quote(value)
        )
    return repr(value) if isinstance(value, float) else show(value)


def _yaml(value: Any) -> str:
    """As JSON, but a number with its point, without which YAML reads 1e-05 as a text."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text
