"""A run as the words that somebody would type for it: the way back from settings to a command line."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from manyheads.config import RunConfig, Task
from manyheads.config.names import settings
from manyheads.config.plain import show, to_plain
from manyheads.config.run import default_trainer
from manyheads.door.ends import BY_DATA, LIMITS
from manyheads.door.idle import refuse_idle
from manyheads.door.origin import MORE, PRESETS
from manyheads.door.plain_yaml import VERBATIM, read_yaml
from manyheads.door.presets import conf_folder
from manyheads.door.verbs import VERBS
from manyheads.family.shapes import FREE

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
    decided = {"data.max_length", *(f"model.{name}" for name in (*FREE, *MORE))}
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
        refuse_idle(run, {name: value})
    except ValueError:
        return False
    return True


def _needs_quotes(name: str, text: str) -> bool:
    if name in VERBATIM:
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
