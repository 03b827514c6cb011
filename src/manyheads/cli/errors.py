"""What is refused of what was typed, and the sentence for each mistake.

A mistake is shown as one sentence; everything else is a bug and keeps its traceback. The rule:

- a `ValueError` or `OSError` is a mistake if a `raise` statement in a module of manyheads raised it: our own
  code speaks to the user so. The same error from inside torch, Lightning or a built-in called by us is a bug;
- so is one that code of a user's plugin raised, and the sentence names the plugin;
- an `OSError` that names a file is a mistake if manyheads touched the file, directly or through the standard
  library: no such file, no permission;
- a full disk is never a bug, whoever writes to it.
"""

import errno
import opcode
import operator
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import attrgetter
from types import CodeType
from typing import Any

from manyheads.cli.verbs import Config
from manyheads.config import (
    DataConfig,
    Long,
    Nonfinite,
    RunConfig,
    Schedule,
)
from manyheads.config.facts import Setting, having, hooks, settings
from manyheads.config.fields import first_line, leaves, one_of, show, unknown_sentence
from manyheads.config.plugins import plugin_of
from manyheads.terminal import one_line

FULL = (errno.ENOSPC, errno.EDQUOT)
RAISE = opcode.opmap["RAISE_VARARGS"]
IN_ADDRESS = re.compile(r"//[^/\s@]+@")  # https://user:password@host
NAMED = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
SHORTEST = 8  # letters of a secret
QUESTION = "text"  # of predict and look: it is answered, and may speak of any address
REMEDY = "settings are written into the folder of the run: leave it to the environment"


READ_WHERE: dict[str, tuple[str, Callable[[Any], bool], str]] = {  # by what another setting is, and what to make it
    "optim.decay_share": ("optim.schedule", lambda kind: kind is Schedule.wsd, "wsd"),
    "optim.few_epochs": ("optim.few", bool, "50"),
    "optim.label_smoothing": ("optim.objective", lambda kind: kind == "cross_entropy", "cross_entropy"),
    "guard.at_most": ("guard.nonfinite", lambda kind: kind is not Nonfinite["raise"], "skip"),
    "model.rotary_base": ("model.positions", lambda kind: kind == "rotary", "rotary"),
    "model.rotary_base_window": ("model.positions", lambda kind: kind == "rotary", "rotary"),
    "model.norm_bias": ("model.norm", lambda kind: kind == "layer", "layer"),
    **dict.fromkeys(having(RunConfig, weights="unused"), ("tokenizer.path", operator.not_, "")),
}


def user_sentence(error: BaseException) -> str | None:
    """The sentence for a user's mistake, or None for a bug."""
    frames: list[tuple[str, CodeType, int]] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_globals.get("__name__", ""), trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    if getattr(error, "errno", None) in FULL or "(os error 28)" in str(error):  # the second: of safetensors
        return "the disk is full: free some of it, or write to another one"
    if not frames or not isinstance(error, ValueError | OSError):
        return None
    module, code, instruction = frames[-1]
    if (owner := plugin_of(module)) and code.co_code[instruction] == RAISE:
        return one_line(f"plugin {owner}: {error}")
    if _is_ours(module) and code.co_code[instruction] == RAISE:
        return one_line(_file_sentence(error) if isinstance(error, OSError) and error.filename else str(error))
    if isinstance(error, OSError) and error.filename is not None:
        while frames and frames[-1][0].partition(".")[0] in sys.stdlib_module_names:
            frames.pop()
        if frames and _is_ours(frames[-1][0]):
            return one_line(_file_sentence(error))
    return None


def composition_sentence(error: BaseException, chosen: Sequence[str], schema: type) -> str:
    """A mistake in a preset file, from what Hydra, OmegaConf or PyYAML said while composing it."""
    said = str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [type(error).__name__]
    mark = getattr(error, "problem_mark", None)
    file = re.match(r"In '([^']+)'", said)
    where = f"{mark.name} line {mark.line + 1}" if mark else f"preset {file[1] if file else ' '.join(chosen)}"
    key = re.search(r"full_key: (\S+)", said)
    if file and _lacks_header(file[1], key[1] if key and "Key '" in said else "", said, schema):
        return (
            f"{where} lacks the first line `# @package _global_`, without which what it sets counts as settings of "
            f"{file[1].partition('/')[0]}: add that line"
        )
    if key and "Key '" in said:
        return f"{where}: {unknown_sentence(key[1], None, schema).replace('=null ', ' ', 1)}"
    if options := getattr(error, "options", None):
        return f"{where}: {lines[0].partition(': ')[2]}: choose {one_of(list(options))}"
    if missing := getattr(error, "missing_cfg_file", None):
        return f"{where}: its defaults name {missing}, which is no preset: name one that there is, or remove it"
    reason = lines[1] if file and len(lines) > 1 else getattr(error, "problem", None) or lines[0]
    return f"{where}: {key[1] if key else 'it'} cannot be used ({reason}): fix the file"


def _lacks_header(preset: str, key: str, said: str, schema: type) -> bool:
    """Whether a preset such as experiment/x sets a run, or another section, from within its own group: `key` is then
    within the group, where no section has its name, or has the name of a section or a setting of its own. An override
    of another group's preset is placed there, too."""
    group = preset.partition("/")[0]
    _, _, within = key.partition(".")
    known = settings(schema)
    sections = {name.partition(".")[0] for name in known}
    if not key:
        return f"@{group}." in said
    return key.partition(".")[0] == group and (
        group not in sections or (key not in known and (within.partition(".")[0] in sections or within in known))
    )


def hydra_sentence(error: BaseException, words: Sequence[str]) -> str:
    """A mistake in one of the few settings of Hydra's own that may be typed."""
    options = getattr(error, "options", None)
    remedy = f"choose {one_of(sorted(options))}" if options else "remove it"
    reason = re.sub(r"^In '[^']*': ", "", first_line(error))
    return f"{' '.join(words)} cannot be used ({reason}): {remedy}"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "manyheads" or module == "__main__"


def _file_sentence(error: OSError) -> str:
    reason = {FileNotFoundError: "does not exist", PermissionError: "may not be read or written"}.get(type(error))
    return f"{os.fspath(error.filename)} {reason or f'cannot be used: {os.strerror(error.errno or 0)}'}"


def refuse_unused(config: Config, typed: Mapping[str, Any], varied: Collection[str] = ()) -> None:
    """Refuse a typed setting that nothing would read.

    Args:
        varied: settings and groups of presets that a sweep or search varies: what one of its runs reads is not refused
            for another.

    Raises:
        ValueError: names the first such setting.
    """
    known = settings(type(config))
    for name, value in typed.items():
        if name not in known:
            continue
        why, default = _why_unread(config, known[name], value), known[name].default
        if not why and value not in (default, getattr(default, "name", default)):  # scripts may write all of them down
            why = next(filter(None, (unread(config, name) for unread in hooks(config, "unread"))), "")
            if not why and isinstance(config, RunConfig):
                why = _why_unread_here(config, known[name], varied)
        if why:
            raise ValueError(f"{name}={show(value)} does nothing {why}")


def _why_unread(config: Config, one: Setting, value: Any) -> str:
    """Why nothing would read a setting, and what to do; empty where something does."""
    facts, data = one.facts, getattr(config, "data", None)
    reads_own = isinstance(data, DataConfig) and data.source == "run" and not data.path
    if reads_own and one.name.startswith("data.") and one.name != "data.source":
        return (
            "here, where evaluate reads the run's own data as training read it: name other data by data.path=, "
            "data.hub= or data=<preset>, or remove it"
        )
    if isinstance(data, DataConfig):
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
    if one.name not in READ_WHERE:
        return ""
    other, is_read, wanted = READ_WHERE[one.name]
    found = attrgetter(other)(run)
    if is_read(found) or not {other, other.partition(".")[0], "experiment"}.isdisjoint(varied):
        return ""
    remedy = f"add {other}={wanted}, or remove it" if wanted else "remove one of them"
    return f"with {other}={show(found)}: {remedy}"


def refuse_secrets(values: Any) -> None:
    """Refuse a text that holds what a variable such as $HF_TOKEN holds, or an address with a name or password in it:
    settings are written into the folder of the run.

    Raises:
        ValueError: names the setting, never its value.
    """
    known = {word: value for word, value in os.environ.items() if NAMED.search(word) and len(value) >= SHORTEST}
    for name, text in leaves(values):
        if not isinstance(text, str):
            continue
        if name != QUESTION and IN_ADDRESS.search(text):
            raise ValueError(f"{name} holds an address with a name or a password in it, and {REMEDY}")
        for word, secret in known.items():
            if secret in text:
                raise ValueError(f"{name} holds what ${word} holds, and {REMEDY}")
