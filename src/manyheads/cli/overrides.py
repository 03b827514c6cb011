"""What was typed after the verb: `key=value` words, each checked alone against the verb's settings.

A key is a preset group (`model=mini`), a setting (`model.n_heads=4`), or a flag of Lightning's Trainer
(`trainer.max_epochs=3`). Paths and texts are taken as they are; every other value follows grammar.py.
"""

import json
import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import manyheads.plugin as plugin
from manyheads.cli import grammar
from manyheads.cli.grammar import Parsed, is_range
from manyheads.cli.verbs import (
    VERBS,
    barred,
    choices,
    own_settings,
    reads,
    schema_of,
    settings_of,
    why_unfit,
    why_unread,
)
from manyheads.config import RunConfig
from manyheads.config.conversion import choices_of, convert_named, interpolation_sentence, mapping_of, require_plain
from manyheads.config.data import KINDS
from manyheads.config.facts import Setting, called_elsewhere, nearest, settings, settings_where, why_needless
from manyheads.config.plugins import use
from manyheads.config.sentences import format_value, one_of
from manyheads.errors import UserError

LOGGING_OVERRIDES = (  # the log of the jobs: stdout is theirs, and what libraries note by the way is not shown
    "hydra.hydra_logging.handlers.console.stream=ext://sys.stderr",
    "~hydra.hydra_logging.root.level",
    "~hydra.hydra_logging.root.handlers",
    *(f"+hydra.hydra_logging.loggers.{one}={{level:INFO,handlers:[console]}}" for one in ("hydra", "hydra_plugins")),
)
MULTI_GROUP = "logger"  # the group of which several presets may be read at once: logger=[NAME,NAME]
HYDRAS_OWN = ("hydra/launcher", "hydra/sweeper", "hydra.sweep.dir")  # and hydra.launcher.KEY; all else may run code
PLAIN_PATH = re.compile(r"[\w./~-]+")  # needs no quotes in a list


@dataclass(slots=True)
class Typed:
    """Checked words: presets by group, values by dotted name, and the words that Hydra is given: presets, its own
    settings, and settings that are swept.

    `later` are the further values of a sweep, one dict each: [{"model.n_heads": 4}, {"model.n_heads": 8}].
    `search` is what a search varies: {"optim.lr": "log:1e-4..1e-2", "model.n_heads": [2, 4]}.
    `swept_groups` are all presets of a swept group; `swept` are the swept settings, with what was typed where it does
    not list its values.
    """

    groups: dict[str, str | None] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    later: list[dict[str, Any]] = field(default_factory=list)
    search: dict[str, list[Any] | str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    swept_groups: dict[str, list[str | None]] = field(default_factory=dict)
    swept: dict[str, str | None] = field(default_factory=dict)

    @property
    def varied(self) -> list[str]:
        """The settings and groups that differ among the jobs of a sweep."""
        return [*self.swept, *self.swept_groups]

    def forget(self, name: str) -> None:
        """Drop what was typed of a setting before."""
        for known in (self.values, self.swept):
            known.pop(name, None)
        self.later = [one for one in self.later if name not in one]
        self.words = [word for word in self.words if word.partition("=")[0] != name]

    def choose(self, group: str, preset: str) -> None:
        """Take a preset as if it was typed."""
        self.groups[group] = preset
        self.words.append(f"{group}={preset}")


def read_overrides(
    verb: str, words: Sequence[str], *, config_dir: str | Path | None = None, sweep: bool = False
) -> Typed:
    """Check the words and sort them into presets and values.

    Args:
        config_dir: the user's own folder of presets.
        sweep: several values for one key are allowed (`-m`), and so are some of Hydra's own settings;
            `values` then holds the first of several.
    """
    if config_dir:
        _use_plugins_of_presets(verb, words, config_dir)
    typed, known = Typed(), settings_of(verb)
    for word in _named_runs(verb, words):
        key, value = _split(verb, word, words)
        if key.startswith(("hydra.", "hydra/")):
            typed.words.append(_hydras_own(verb, word, key, value, sweep))
        elif key in VERBS[verb].groups:
            _take_group(typed, verb, key, value.strip(), choices(verb, key, config_dir), sweep)
        elif key not in known and not mapping_of(key, known):
            if word in words and _is_path(word):  # such as a job of -m, whose folder has the settings that vary
                raise UserError(f"{word} is not a setting: {_for_word(verb, word, words)}")
            raise UserError(_unknown(verb, key, value, list(known), _cut_text(verb, word, words, path=False)))
        elif sweep or not (VERBS[verb].takes_several and _take_search(typed, key, value)):
            _take_setting(typed, verb, key, value, sweep)
    for key in typed.search:
        if key in typed.values:
            raise UserError(f"{key} is typed twice, with one value and with several: remove one of them")
    return typed


def _use_plugins_of_presets(verb: str, words: Sequence[str], more: str | Path) -> None:
    """Import the plugins that chosen presets of the user's own folder name: words may choose their blocks."""
    for word in words:
        group, _, name = word.partition("=")
        if group not in VERBS[verb].groups or name not in choices(verb, group, more):
            continue
        named = own_settings(group, name, more).get("plugins")
        if isinstance(named, list):
            use([str(one) for one in named])


def _named_runs(verb: str, words: Sequence[str]) -> list[str]:
    """`runs compare A B` as `runs runs=[A,B]`."""
    if verb != "runs" or list(words[:1]) != ["compare"]:
        return list(words)
    known = settings(schema_of(verb))
    named = [word for word in words[1:] if word.partition("=")[0] not in known]
    if len(named) < 2:
        raise UserError("runs compare is of two runs or more: write manyheads runs compare outputs/a outputs/b")
    return [f"runs=[{','.join(map(grammar.quote, named))}]", *(word for word in words[1:] if word not in named)]


def _hydras_own(verb: str, word: str, key: str, value: str, sweep: bool) -> str:
    if not sweep:
        remedy = "remove it, or add -m" if _runs_several(verb) else "remove it"
        raise UserError(f"{word}: Hydra's own settings count only with -m: {remedy}")
    if key not in HYDRAS_OWN and not key.startswith("hydra.launcher."):
        raise UserError(
            f"{word} is not taken: of Hydra's own settings only {', '.join(HYDRAS_OWN)} and hydra.launcher.KEY are"
        )
    if not value.strip() or ("/" in key and not value.isidentifier()):
        raise UserError(f"{word} is not understood: give one name, such as {key}=basic")
    return word


def _split(verb: str, word: str, words: Sequence[str]) -> tuple[str, str]:
    """`key=value`, one of the `words`, as its two parts, or the sentence for what a plain run does not take."""
    bare = word.lstrip("+~")
    key, equals, value = bare.partition("=")
    key = key.strip()
    as_typed = key in settings_where(schema_of(verb), verbatim=True)
    if "_target_" in key or ("_target_" in value and not as_typed):
        raise UserError(
            f"{word} names code to call, which a setting never may: remove it, and give parts of your own by plugins="
        )
    if bare != word:
        raise UserError(f"{word}: settings are set, never added or deleted{_instead(verb, key, value)}")
    if not equals:
        raise UserError(f"{word} has no value: {_for_word(verb, word, words)}")
    if "@" in key:
        raise UserError(f"{word}: settings keep their place, @ moves none: write {key.partition('@')[0]}={value}")
    if "${" in word and not as_typed:
        raise UserError(interpolation_sentence(word))
    return key, value


def _instead(verb: str, key: str, value: str) -> str:
    """What there is instead of a setting that is added or deleted."""
    known, groups = settings_of(verb), VERBS[verb].groups
    if key not in known and key not in groups and not mapping_of(key, known):
        return f", and {_unknown(verb, key, value, list(known))}".replace(f"{key}= ", f"{key} ", 1)
    if value:
        return f": write {key}={value}"
    if key in groups:
        return f": write {key}=NAME, and choose {one_of(choices(verb, key))}"
    if key in known:
        return f": leave {key} out, and its default of {format_value(known[key].default)} counts"
    return f": leave {key} out, and its default counts"


def _for_word(verb: str, word: str, words: Sequence[str]) -> str:
    """What to type in place of a word without a value, one of the `words`."""
    known = settings_of(verb)
    is_there = os.path.exists(word)
    if word in VERBS[verb].groups and not is_there:
        return f"write {word}=NAME, and choose {one_of(choices(verb, word))}"
    if word in known and not is_there and known[word].kind is bool:
        return f"write {word}=true"
    if (word in known and not is_there) or (word.startswith("trainer.") and "trainer" in known):
        return f"write {word}=VALUE"
    if cut := _cut_text(verb, word, words, path=False):
        return cut
    alone = [one for one in words if "=" not in one or _is_path(one)]
    is_run = any(os.path.isfile(os.path.join(word, name)) for name in ("config.yaml", "config.json"))
    is_data = os.path.isfile(word) or os.path.splitext(word)[1] in KINDS
    is_path = is_there or is_data or "/" in word
    near = _nearest_key(verb, word)
    if "runs" in known and (is_path or not near) and (verb != "runs" or len(alone) > 1):
        named = alone if len(alone) > 1 else [word, "..."]
        if all(PLAIN_PATH.fullmatch(one) for one in named):
            return f"for these runs write runs=[{','.join(named)}]"
        quoted = ",".join(f'"{one}"' for one in named)
        return f"for these runs write {shlex.quote(f'runs=[{quoted}]')}"
    if "run" in known and (is_run or (is_path and not is_there and not is_data)):
        return f"for a run write run={word}"
    for folder in (word, os.path.dirname(word.rstrip("/"))):  # a run, or the model in it
        if "again" in known and is_run and os.path.isfile(os.path.join(folder, "config.yaml")):
            return f"to train this run once more write again={folder}, to continue it resume={folder}"
    if "folder" in known and is_path:
        return f"for the runs in a folder write folder={word}"
    if "input" in known and is_data:
        return f"for a file of texts write input={word}"
    if "data.path" in known and is_path:
        return f"for local files write data.path={word}"
    if not near and (cut := _cut_text(verb, word, words, path=True)):
        return cut
    if "text" in known and not near and not is_path:
        return f"for a text write {shlex.quote('text=' + ' '.join(alone))}"
    key = near if near and not is_path else "KEY"
    return f"write {key}=VALUE; `manyheads {verb} --help` lists every setting"


def _is_path(word: str) -> bool:
    """Whether it is a file or folder, or lies in one; its name may hold a `=`."""
    return os.path.exists(word) or os.path.exists(os.path.dirname(word))


def _cut_text(verb: str, word: str, words: Sequence[str], *, path: bool) -> str:
    """The remedy where `word` is a part of a text, or path, before it that the shell has cut at a space."""
    if " " in word:
        return ""  # it was quoted
    known = settings_of(verb)
    begins = [i for i, one in enumerate(words) if one.partition("=")[0] in known]  # of settings
    at = words.index(word) if word in words else 0
    start = max([i for i in begins if i <= at], default=at)
    end = min([i for i in begins if i >= at], default=len(words))
    one = known.get(words[start].partition("=")[0])
    if one is None or not one.is_text or one.facts.among or one.facts.path is not path:
        return ""
    return f"for a text with spaces write {shlex.quote(' '.join(words[start:end]))}"


def _take_group(typed: Typed, verb: str, group: str, value: str, names: list[str], sweep: bool) -> None:
    """Take a preset out of `names`: with `sweep` one for each job, and of loggers several at once."""
    if VERBS[verb].groups[group] is None and value in ("", "null"):
        typed.groups[group] = None
        return
    is_together = group == MULTI_GROUP and value.startswith("[")
    picked = [value]
    if is_together:
        picked = [name.strip() for name in value.strip("[]").split(",")]
    elif sweep and value:
        parsed = _read(group, value, names=True)
        if parsed.sweep:
            picked = ["null" if one is None else str(one) for one in parsed.values]
            picked = picked or names  # all of them, where Hydra lists none: glob(*)
    for name in picked:
        if name not in names:
            raise UserError(_no_choice(verb, group, name, names))
    if is_together:
        typed.choose(group, f"[{','.join(picked)}]")
        return
    typed.choose(group, picked[0])
    typed.words[-1] = f"{group}={value}"  # which Hydra varies
    if len(picked) > 1:
        typed.swept_groups[group] = list(picked)


def _no_choice(verb: str, group: str, name: str, names: list[str]) -> str:
    if why := barred(verb).get(name):
        return f"{group}={name} is {why}: choose {one_of(names)}"
    if not reads(verb, group, name):
        for other in VERBS:
            if name in choices(other, group):
                return f"{group}={name} is of {other}, not of {verb}: write manyheads {other} {group}={name}"
    if why := why_unfit(verb, group, name):
        return f"{group}={name} is {why}: choose {one_of(names)}"
    if group == "data" and ("/" in name or "." in name):
        return f"data={name} is not a choice: for local files write data.path={name}, else choose {one_of(names)}"
    if name[:1] in ("{", "["):
        return f"{group}={format_value(name)} is not a choice: choose {one_of(names)}, or set its keys one by one"
    return f"{group}={format_value(name)} is not a choice: choose {one_of(names)}"


def _runs_several(verb: str) -> bool:
    """Whether there is a flag `-m`, and it runs the verb once for each of several values."""
    no_flag = VERBS[verb].takes_several or VERBS[verb].no_multirun
    return not no_flag and "-m" in [flag.name for flag in plugin.flags()]


def _take_setting(typed: Typed, verb: str, key: str, value: str, sweep: bool) -> None:
    """Take the value of a setting or of a flag of Lightning, or each of several."""
    known = settings(schema_of(verb))
    one = known.get(key)
    if one is not None and not one.facts.may_be_empty and not value:
        raise UserError(f"{key}= is empty: write {key}=VALUE, or remove it")
    if one is not None and one.is_text:
        parsed = _read_text(one, value, sweep=sweep)
    else:
        parsed = _read(key, value, names=_holds_names(one))
    if parsed.sweep and not sweep:
        if one is not None and isinstance(one.default, list):
            remedy = f"write {key}=[{value}]"
        elif _runs_several(verb):
            remedy = "give one, or add -m to run one after another"
        else:
            remedy = "give one"
        raise UserError(f"{key}={value} holds several values: {remedy}")
    checked = [convert_named(known, key, element) for element in parsed.values]
    typed.forget(key)
    if checked:
        typed.values[key] = checked[0]
        typed.later += [{key: element} for element in checked[1:]]
    if parsed.sweep and checked:
        typed.swept[key] = None
        typed.words.append(f"{key}={','.join(map(hydra_word, checked))}")
    elif parsed.sweep:  # a range, of which Hydra lists no values
        typed.swept[key] = value
        typed.words.append(f"{key}={value}")


def _read(key: str, value: str, *, names: bool = False) -> Parsed:
    """The value of a setting or a group."""
    try:
        return grammar.read(value, names=names)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{key}={format_value(value)} cannot be read: close its quotes and brackets, or quote special signs"
        ) from error


def _read_text(one: Setting, value: str, *, sweep: bool) -> Parsed:
    """A text as it was typed, without the quotes that Hydra's users put around it. With `sweep` it is several where
    the grammar sees several."""
    if sweep:
        with suppress(ValueError, RecursionError):
            if (parsed := grammar.read(value, names=True)).sweep:
                return parsed
    if one.facts.several and value.startswith("["):
        return _read(one.name, value, names=True)
    if not one.facts.verbatim and value == "null":
        raise UserError(f"{one.name}=null is not text: for none write {one.name}=")
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    if one.facts.verbatim or not is_quoted:
        return Parsed([value])
    return Parsed([str(_read(one.name, value).values[0])])


def _holds_names(one: Setting | None) -> bool:
    """Whether a value is a text or a list of texts: a choice, or names."""
    return one is not None and (bool(choices_of(one)) or get_args(one.kind) == (str,))


def hydra_word(value: Any) -> str:
    """A value as Hydra reads it, as `hydra_value`."""
    return grammar.write(hydra_value(value))


def hydra_value(value: Any) -> Any:
    """What Hydra may hold in place of a value: a choice by its name, and what it cannot read as it is, a mapping with
    names as its keys or a text that looks like an interpolation, as JSON in a text."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict) or (isinstance(value, str) and "${" in value):
        return json.dumps(value).replace("${", "$\\u007b")
    return [hydra_value(one) for one in value] if isinstance(value, list) else value


def _take_search(typed: Typed, key: str, value: str) -> bool:
    """Take what a search tries: several values, or two ends. False where it is one value, or no setting of a run."""
    known = settings(RunConfig)
    if not mapping_of(key, known) and (key not in known or known[key].is_text):
        return False
    several: list[Any] | str = value.strip()
    if not is_range(value):
        parsed = _read(key, value)
        several = parsed.values
        if not parsed.sweep:
            return False
    if not several:
        raise UserError(
            f"{key}={value} names no values one by one: list them, such as {key}=1,2,3, or give a range, such as "
            f"{key}=1..3"
        )
    if key in typed.search:
        raise UserError(f"{key}={value}: {key} is searched already: type all its values once")
    typed.search[key] = require_plain(key, several)
    return True


def _unknown(verb: str, key: str, value: str, known: list[str], cut: str = "") -> str:
    typed = f"{key}={format_value(value)}"
    inside = [name for name in known if name.startswith(f"{key}.")]
    if key == "trainer" and key in known:
        inside = ["trainer.max_epochs"]
    if inside:
        return f"{typed}: {key} is a section: set its keys, such as {inside[0]}=VALUE"
    if why := why_unread(verb, key):
        return f"{typed} does nothing in {verb}, where {why}: remove it"
    lacks_section = any(name.endswith(f".{key}") for name in known)  # such as text= for data.text=
    usual = called_elsewhere(key, _names(verb))
    others = {other: [*settings(schema_of(other)), *its.groups] for other, its in VERBS.items() if other != verb}
    if not lacks_section and not usual:
        for other, names in others.items():
            if key in names or key.startswith("trainer."):
                return (
                    f"{typed} is a setting of {other}, not of {verb}: `manyheads {verb} --help` lists those of {verb}"
                )
        for other, names in others.items():
            of_section = (name for name in names if name.endswith(f".{key}"))
            if meant := called_elsewhere(key, names) or next(of_section, None):
                return f"{typed} is not a setting: {meant} is one of {other}, not of {verb}, remove it"
    if why := why_needless(key):
        return f"{typed} is not a setting: {why}, remove it"
    near = usual or _nearest_key(verb, key)
    if cut and not near:
        return f"{typed} is not a setting: {cut}"
    remedy = f"did you mean {near}?" if near else f"`manyheads {verb} --help` lists every setting"
    return f"{typed} is not a setting: {remedy}"


def _names(verb: str) -> list[str]:
    """Of its settings, groups, and flags of Lightning."""
    known = settings_of(verb)
    names = [*known, *VERBS[verb].groups]
    if "trainer" in known:
        names.remove("trainer")
        names += [f"trainer.{flag}" for flag in known["trainer"].default]
    return names


def _nearest_key(verb: str, key: str) -> str | None:
    """The setting, flag or group that `key` was probably meant to be."""
    names = _names(verb)
    return called_elsewhere(key, names) or nearest(key, names)
