"""Refused although each word is in order by itself: a typed setting that nothing would read, and a secret."""

import operator
import os
import re
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any

from manyheads.cli.verbs import Config
from manyheads.config import DataConfig, Long, Nonfinite, PairKind, RunConfig, Schedule
from manyheads.config.conversion import leaves, to_plain
from manyheads.config.facts import Setting, hooks, settings, settings_where
from manyheads.config.sentences import format_list, format_value
from manyheads.errors import UserError

IN_ADDRESS = re.compile(r"//[^/\s@]+@")  # https://user:password@host
NAMED = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
SHORTEST = 8  # letters of a secret
QUESTION = "text"  # which is answered, and may speak of any address
REMEDY = "settings are written into the folder of the run: leave it to the environment"


READ_WHERE: dict[str, tuple[str, Callable[[Any], bool], str]] = {  # by what another setting is, and what to make it
    "optim.decay_share": ("optim.schedule", lambda kind: kind is Schedule.wsd, "wsd"),
    **dict.fromkeys(("optim.few_epochs", "optim.few_strength"), ("optim.few", bool, "50")),
    "optim.compare_rate": ("model.pair", lambda kind: kind in (PairKind.auto, PairKind.compare), "compare"),
    "optim.label_smoothing": ("optim.objective", lambda kind: kind == "cross_entropy", "cross_entropy"),
    "guard.at_most": ("guard.nonfinite", lambda kind: kind is not Nonfinite["raise"], "skip"),
    "model.rotary_base": ("model.positions", lambda kind: kind == "rotary", "rotary"),
    "model.rotary_base_window": ("model.positions", lambda kind: kind == "rotary", "rotary"),
    "model.norm_bias": ("model.norm", lambda kind: kind == "layer", "layer"),
    **dict.fromkeys(settings_where(RunConfig, weights="unused"), ("tokenizer.path", operator.not_, "")),
}


def refuse_unused(config: Config, typed: Mapping[str, Any], varied: Collection[str] = ()) -> None:
    """Refuse a typed setting that nothing would read.

    Args:
        varied: settings and groups of presets that a sweep or search varies: what one of its runs reads is not refused
            for another.
    """
    known = settings(type(config))
    for name, value in typed.items():
        if name not in known:  # a flag, or an option of a block
            continue
        why, default = _why_unread(config, known[name], value), known[name].default
        if not why and value not in (default, to_plain(default)):  # scripts may write down all defaults
            for unread in hooks(config, "unread"):
                why = why or unread(config, name)
            if not why and isinstance(config, RunConfig):
                why = _why_unread_here(config, known[name], varied)
        if why:
            raise UserError(f"{name}={format_list(value)} does nothing {why}")


def _why_unread(config: Config, one: Setting, value: Any) -> str:
    """Why nothing would read a setting, and what to do; empty where something does."""
    facts, data = one.facts, getattr(config, "data", None)
    opens_model = isinstance(getattr(config, "run", None), str) or hasattr(config, "runs")
    if facts.needs == "training" and value and opens_model:
        return "here, where it is kept with the model: remove it"
    reads_own = isinstance(data, DataConfig) and data.source == "run" and not data.path
    if reads_own and one.name.startswith("data.") and one.name != "data.source":
        return (
            "here, where evaluate reads the run's own data as training read it: name other data by data.path=, "
            "data.hub= or data=<preset>, or remove it"
        )
    if isinstance(data, DataConfig):
        if one.name == "data.label" and (data.votes or data.label_columns):
            other = "data.votes" if data.votes else "data.label_columns"
            return f"with {other}, which is read in place of a label: remove one of them"
        if facts.needs == "windows" and data.long is not Long.windows:
            return f"with data.long={data.long.name}: add data.long=windows, or remove it"
        if facts.needs == "hub" and value and data.path:
            return f"with data.path={data.path}, which is read instead of the Hugging Face hub: remove one of them"
        if facts.needs == "hub" and value and data.source != "hub":
            return (
                f"here, where data={data.source} is read: name a dataset of the Hugging Face hub by data.hub=, or "
                "remove it"
            )
        if facts.needs == "folds" and not data.folds:
            return "without folds: add data.folds=5, or remove it"
    if not isinstance(config, RunConfig):
        return ""
    task = config.task
    if not one.is_read_in(task):
        return f"with task={task}: remove it"
    is_missing = facts.needs == "transformer" and not config.model.has_heads
    if is_missing and not config.model.encoder_reads(one.name.removeprefix("model.")):
        return f"with model.encoder={config.model.encoder}: remove it"
    return ""


def _why_unread_here(run: RunConfig, one: Setting, varied: Collection[str]) -> str:
    """Why what another setting is makes this one useless, and what to do; empty where something reads it."""
    if one.name not in READ_WHERE or (one.name == "optim.few_strength" and run.model.pair is PairKind.compare):
        return ""
    if one.name == "optim.compare_rate" and not run.init_from and "init_from" not in varied:
        return "without init_from: name the weights to begin with, or remove it"
    other, is_read, wanted = READ_WHERE[one.name]
    found = attrgetter(other)(run)
    if is_read(found) or not {other, other.partition(".")[0], "experiment"}.isdisjoint(varied):
        return ""
    remedy = f"add {other}={wanted}, or remove it" if wanted else "remove one of them"
    return f"with {other}={format_value(found)}: {remedy}"


def refuse_secrets(values: Any) -> None:
    """Refuse a text that holds what a variable such as $HF_TOKEN holds, or an address with a name or password in it:
    settings are written into the folder of the run.

    Raises:
        UserError: names the setting, never its value.
    """
    known = {word: value for word, value in os.environ.items() if NAMED.search(word) and len(value) >= SHORTEST}
    for name, text in leaves(values):
        if not isinstance(text, str):
            continue
        if name != QUESTION and IN_ADDRESS.search(text):
            raise UserError(f"{name} holds an address with a name or a password in it, and {REMEDY}")
        for word, secret in known.items():
            if secret in text:
                raise UserError(f"{name} holds what ${word} holds, and {REMEDY}")
