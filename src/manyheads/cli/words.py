"""A run as the words that somebody would type for it: the way back from settings to a command line."""

import json
import re
from collections.abc import Callable
from typing import Any

from manyheads.cli.compose import preset_values
from manyheads.cli.errors import refuse_unused
from manyheads.cli.implied import BY_DATA, LIMITS, PRESETS
from manyheads.config import RunConfig, Task
from manyheads.config.facts import having, settings
from manyheads.config.fields import by_name, show, to_plain

PLAIN = re.compile(r"[A-Za-z_][\w./-]*")  # read as a text without quotes


def plain_settings(run: RunConfig) -> dict[str, Any]:
    """Every setting by its dotted name, in the order of declaration; choices by their names."""
    return by_name(RunConfig, to_plain(run))


def as_words(run: RunConfig, quote: Callable[[str], str]) -> list[str]:
    """`key=value` of every setting that is not as usual and that something reads, in the order of declaration.

    Args:
        quote: how Hydra's grammar quotes a text.
    """
    known, words, usual = settings(RunConfig), [], _usual_settings(run)
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


def _usual_settings(run: RunConfig) -> dict[str, Any]:
    """What such a run has by default, by dotted name, presets included. What weights decide is left out."""
    presets = preset_values("train", {"task": run.task.name} | (PRESETS if run.init_from else {}))
    usual = by_name(RunConfig, presets) | {"task": Task.classify.name}  # another is typed, which chooses the preset
    if not run.init_from:
        return usual
    decided = {"data.max_length", *having(RunConfig, weights="default"), *having(RunConfig, weights="free")}
    return {name: value for name, value in usual.items() if name not in decided}


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
