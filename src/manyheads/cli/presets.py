"""What presets say: the settings of a verb before anything is typed.

The presets of the package are composed here as Hydra composes them, since to import Hydra takes longer than all else
before a mistake is reported; a test compares the two for every preset. Hydra itself is asked for a person's own folder
of presets, and where a file is mistaken: it knows the file and the key.
"""

import copy
import re
from functools import lru_cache

from yaml import YAMLError

import manyheads.plugin as plugin
from manyheads.cli.verbs import VERBS, Choices, preset_file, schema_of
from manyheads.config.conversion import Values, read_values, refuse_code
from manyheads.config.facts import settings, settings_where
from manyheads.config.plugins import use
from manyheads.runs.config_file import plain_yaml

PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
OVERRIDE = "override /"  # of a group by a preset of another


def preset_values(verb: str, groups: Choices, config_dir: str | None = None) -> Values:
    """All settings of a verb as presets have them: those of `groups`, and of other groups the default ones.

    Args:
        config_dir: a person's own folder of presets.
    """
    if config_dir:
        return composed_by_hydra(verb, groups, config_dir)
    return copy.deepcopy(_package_values(verb, tuple(groups.items()), plugin.changes()))


@lru_cache(maxsize=64)
def _package_values(verb: str, groups: tuple[tuple[str, str | None], ...], changes: int) -> Values:
    """`changes` of the registry are a part of the key of the cache."""
    try:
        return merge_presets(verb, dict(groups))
    except (ValueError, LookupError, OSError, YAMLError):
        return composed_by_hydra(verb, dict(groups))


def composed_by_hydra(verb: str, groups: Choices, config_dir: str | None = None) -> Values:
    """The same, but composed by Hydra."""
    from manyheads.cli.hydra import composed, plain_config

    plain = plain_config(composed(verb, groups, [], config_dir))
    refuse_code(plain, verbatim=settings_where(schema_of(verb), verbatim=True))
    use(plain.get("plugins", ()))  # whose settings it may have
    return read_values(schema_of(verb), plain)


def merge_presets(verb: str, groups: Choices) -> Values:
    """The values of the package's presets over the defaults, each over those before it.

    Raises:
        ValueError, LookupError, OSError, YAMLError: a file holds more than that, or what a setting cannot be.
    """
    fixed = {group: name for group, name in groups.items() if name}
    chosen = _default_groups(verb) | fixed
    presets: dict[str, list[Values]] = {}
    for group in reversed(chosen):  # the last may choose for those before it, but not what was typed
        presets[group] = []
        for name in filter(None, (chosen[group] or "").strip("[]").split(",")):
            values, others = _read_preset(verb, group, name)
            presets[group].append(values)
            for other, preset in others.items():
                if other not in chosen or other in presets:
                    raise LookupError(other)
                chosen[other] = fixed.setdefault(other, preset)

    merged = {name: one.default for name, one in settings(schema_of(verb)).items()}
    for group in chosen:
        for values in presets[group]:
            for name, value in values.items():
                before = merged[name]
                if isinstance(before, dict) and isinstance(value, dict):
                    merged[name] = before | value
                else:
                    merged[name] = value
    return merged


def _default_groups(verb: str) -> dict[str, str | None]:
    """The groups of presets that a verb reads, with their defaults, in the order in which they are merged."""
    file = preset_file("", verb)
    if file is None:
        return dict(VERBS[verb].groups)
    content = plain_yaml(file.read_text(encoding="utf-8"))
    if [*content] != ["defaults"]:
        raise LookupError(verb)
    groups: dict[str, str | None] = {}
    for entry in content["defaults"]:
        if isinstance(entry, dict):  # the others are texts: the schema, and _self_
            groups |= entry
    return groups


def _read_preset(verb: str, group: str, name: str) -> tuple[Values, dict[str, str]]:
    """What the file of a preset sets, and the presets that it chooses of other groups."""
    file = preset_file(group, name)
    if file is None:
        raise LookupError(name)
    text = file.read_text(encoding="utf-8")
    package = PACKAGE.search(text)
    if package and package[1] != "_global_":
        raise LookupError(name)
    content = plain_yaml(text, schema_of(verb), "" if package else f"{group}.") or {}
    if not isinstance(content, dict):
        raise LookupError(name)
    others: dict[str, str] = {}
    for entry in content.pop("defaults", ()):
        if not isinstance(entry, dict) or len(entry) != 1:
            raise LookupError(name)
        ((key, preset),) = entry.items()
        if not key.startswith(OVERRIDE):
            raise LookupError(key)
        others[key.removeprefix(OVERRIDE)] = preset
    if not package and content:
        content = {group: content}
    refuse_code(content, verbatim=settings_where(schema_of(verb), verbatim=True))
    return read_values(schema_of(verb), content), others
