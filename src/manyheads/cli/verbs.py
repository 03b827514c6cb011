"""The verbs of the command line, as plugins add them: the settings of each, and the presets that it reads."""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.facts import Setting, nearest, settings, with_plugins
from manyheads.config.sentences import one_of
from manyheads.errors import UserError
from manyheads.plugin import Verb

Config = Any  # the settings of a verb: a section
Choices = Mapping[str, str | None]  # of groups of presets: the preset that was chosen, or none


class _Verbs(Mapping[str, Verb]):
    """Those that are registered when they are asked for."""

    def __getitem__(self, name: str) -> Verb:
        return plugin.verbs()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(plugin.verbs())

    def __len__(self) -> int:
        return len(plugin.verbs())


VERBS = _Verbs()


def require_verb(name: str) -> None:
    """Raise UserError if there is no such verb."""
    if name not in VERBS:
        near = nearest(name, VERBS, at_least=0.7)
        remedy = f"did you mean {near}?" if near else f"choose {one_of([*VERBS])}"
        raise UserError(f"{name} is not a verb: {remedy}")


def schema_of(verb: str) -> type:
    """The section that holds all settings of a verb."""
    return with_plugins(plugin.resolve(VERBS[verb].config))


def settings_of(verb: str) -> dict[str, Setting]:
    """The settings that a verb reads, by dotted name."""
    its, known = VERBS[verb], settings(schema_of(verb))
    unread = {*its.unread, *its.groups}
    unread |= {name for name, one in known.items() if one.facts.only_with and one.facts.only_with not in known}
    return {
        name: one for name, one in known.items() if name not in unread and (not its.task or one.is_read_in(its.task))
    }


def why_unread(verb: str, name: str) -> str:
    """Why a verb never reads a setting of its schema; empty where it does."""
    its, one = VERBS[verb], settings(schema_of(verb)).get(name)
    if one is not None and its.task and not one.is_read_in(its.task):
        return its.why_task
    return its.unread.get(name, "")


EXAMPLE = "name one that holds presets, such as mine/model/wide.yaml"


@cache
def conf_folder() -> Path:
    """The folder of presets: next to the package's modules when installed, otherwise the repository's."""
    inside = Path(__file__).resolve().parents[1] / "conf"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[3] / "conf"


def preset_folders() -> list[Path]:
    """All folders of presets: that of core, then those of plugins."""
    return [conf_folder(), *_folders_of_plugins(plugin.changes())]


@cache
def _folders_of_plugins(changes: int) -> list[Path]:
    """`changes` of the registry are the key of the cache: to make paths takes a third of a composition."""
    return [Path(one.presets) for one in plugin.plugins().values() if one.presets]


def preset_file(group: str, name: str, more: str | Path | None = None) -> Path | None:
    """The file of a preset, or of a verb's own defaults where `group` is empty; None where there is none.

    Args:
        more: the user's own folder of presets (`--config-dir`), searched too.
    """
    for folder in _searched_folders(more):
        file = folder.joinpath(group, f"{name}.yaml")
        if file.is_file():
            return file
    return None


def _searched_folders(more: str | Path | None) -> list[Path]:
    if more is None or more == "":
        return preset_folders()
    return [*preset_folders(), Path(os.path.expanduser(more))]


def presets_folder(config_dir: str) -> Path:
    """The user's own folder of presets.

    Raises:
        UserError: it is no folder, or a preset in it chooses others by an interpolation, which Hydra would look up: in
            the environment, for one.
    """
    folder = Path(os.path.expanduser(config_dir)).resolve()
    if not folder.is_dir():
        raise UserError(f"--config-dir {config_dir} is not a folder: {EXAMPLE}")
    groups = {group for verb in VERBS.values() for group in verb.groups} | {"hydra"}  # the last is refused in them
    if not any(file for group in groups for file in (folder / group).rglob("*.yaml")):
        given = f"--config-dir {config_dir}"
        if (folder / "config.yaml").is_file():
            raise UserError(f"{given} is a run and holds no presets: to train it once more write again={config_dir}")
        if folder.name in groups and any(folder.glob("*.yaml")):
            raise UserError(f"{given} holds no presets: name the folder above it, {folder.parent}")
        raise UserError(f"{given} holds no presets: {EXAMPLE}")
    for file in sorted(folder.rglob("*.yaml")):
        if "${" in str(_content(file).get("defaults")):
            raise UserError(
                f"{file}: its defaults hold an interpolation, but a preset names others plainly: write a name"
            )
    return folder


def own_settings(group: str, name: str, more: str | Path | None) -> dict[str, Any]:
    """What the file of a preset itself sets, by dotted name, without what it builds on."""
    file = preset_file(group, name, more)
    found: dict[str, Any] = {}
    if file is None:
        return found
    for section, value in _content(file).items():
        if isinstance(value, dict):
            found |= {f"{section}.{key}": one for key, one in value.items()}
        else:
            found[section] = value
    return found


def _content(file: Path) -> dict[str, Any]:
    """What a preset says; nothing where the file is none, which is said when it is composed."""
    import yaml

    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def choices(verb: str, group: str, more: str | Path | None = None) -> list[str]:
    """Names of the presets of one group that the verb may read, sorted.

    Args:
        more: the user's own folder of presets (`--config-dir`), searched too.
    """
    names = set[str]()
    for folder in _searched_folders(more):
        names |= {file.stem for file in (folder / group).glob("*.yaml")}
    names -= barred(verb).keys()
    return sorted(name for name in names if reads(verb, group, name) and not why_unfit(verb, group, name))


def barred(verb: str) -> dict[str, str]:
    """Presets that make no sense in a verb, each with the reason."""
    its_sections = {name.partition(".")[0] for name in settings(schema_of(verb))}
    found: dict[str, str] = {}
    for section in plugin.sections():
        if section.name not in its_sections:
            found |= section.barred
    return found | dict(VERBS[verb].barred)


def why_unfit(verb: str, group: str, name: str) -> str:
    """Why a preset of the package does not fit a verb: it sets what the verb does not have, such as the checkpoints of
    a training; empty where it fits."""
    file = preset_file(group, name)
    text = file.read_text(encoding="utf-8") if file else ""
    if not text.startswith("# @package _global_"):  # what it sets is in the section of its group
        return ""
    known = {"defaults", *VERBS[verb].groups, *(one.partition(".")[0] for one in settings(schema_of(verb)))}
    others = [key for key in re.findall(r"(?m)^(\w+):", text) if key not in known]
    return f"for other verbs, as it sets {others[0]}" if others else ""


def reads(verb: str, group: str, name: str) -> bool:
    """Whether the preset, by its prefix, is the verb's own, or that of no verb where the verb has no prefix."""
    own = VERBS[verb].prefix.get(group)
    prefixes = tuple(other.prefix[group] for other in VERBS.values() if group in other.prefix)
    return name.startswith(own) if own else not name.startswith(prefixes)
