"""A run as the words that somebody would type for it: the way back from settings to a command line."""

import json
import re
from collections.abc import Callable
from typing import Any

from manyheads.config import RunConfig
from manyheads.config.names import settings
from manyheads.config.plain import show, to_plain
from manyheads.config.run import default_trainer
from manyheads.door.idle import refuse_idle
from manyheads.door.overrides import VERBATIM
from manyheads.door.plain_yaml import read_yaml
from manyheads.door.presets import conf_folder
from manyheads.door.verbs import VERBS

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
    """`key=value` of every setting that is not the default and that something reads, in the order of declaration.

    Args:
        quote: how Hydra's grammar quotes a text.
    """
    known, words = settings(RunConfig), []
    usual = {name: _plain_default(one.default) for name, one in known.items()}
    usual |= {f"trainer.{flag}": value for flag, value in default_trainer().items()}
    usual |= {f"model.{name}": value for name, value in _usual_model().items()}
    for name, value in plain_settings(run).items():
        if value == usual.get(name, ...) or not _is_read(run, name, value):
            continue
        is_text = name in known and known[name].kind is str
        words.append(f"{name}={value if is_text and not _needs_quotes(name, value) else _typed(value, quote)}")
    return words


def _usual_model() -> dict[str, Any]:
    """What the preset that train takes unless told says of the model."""
    return read_yaml(conf_folder() / "model" / f"{VERBS['train'].groups['model']}.yaml") or {}


def _plain_default(value: Any) -> Any:
    return getattr(value, "name", value)


def _is_read(run: RunConfig, name: str, value: Any) -> bool:
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
