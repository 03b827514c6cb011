"""JSON schemas (draft 2020-12) of the settings of a verb, and of presets."""

import json
import sys
from pathlib import Path
from typing import Any, get_args, get_origin

from manyheads.cli.verbs import VERBS, schema_of, settings_of
from manyheads.config.conversion import choices_of, split_optional, to_plain
from manyheads.config.facts import Setting, section, setting, settings
from manyheads.config.sentences import one_of
from manyheads.errors import UserError

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


@section()
class SchemaConfig:
    """All settings of `manyheads schema`."""

    of: str = setting("train", "a verb: all its settings; or a group of presets, such as model")
    output: str = setting("-", "file; -: standard output", path=True)


def write_schema(config: SchemaConfig) -> dict[str, Any]:
    """Print the schema, or write it to a file; returns it."""
    found = schema_record(config)
    if config.output == "-":
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return found


def schema_record(config: SchemaConfig) -> dict[str, Any]:
    """The schema, also written to the file if one is named.

    Raises:
        UserError: `of` is neither a verb nor a group of presets, or `output` is no place for a schema.
    """
    file = Path(config.output)
    if config.output != "-":
        if not file.parent.is_dir():
            raise UserError(f"output={file} lies in {file.parent}, which does not exist: name a file in a folder")
        if file.exists() and not (file.is_file() and DRAFT.encode() in file.read_bytes()):
            raise UserError(f"output={file} holds something else: name a new file")

    sections = _nested(settings_of("train"))["properties"]
    presets = [name for name in VERBS["train"].groups if name in sections]
    if config.of in VERBS:
        found = schema_of_verb(config.of)
    elif config.of in presets:
        found = schema_of_group(config.of)
    else:
        choices = one_of([*VERBS, *presets])
        raise UserError(f"of={config.of} is neither a verb nor a group of presets: choose {choices}")
    if config.output != "-":
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def schema_of_verb(verb: str) -> dict[str, Any]:
    """Every setting of a verb, nested as in its config.yaml and in presets that begin with `# @package _global_`. Each
    may be left out."""
    known, found = settings(schema_of(verb)), settings_of(verb)
    found |= {name: known[name] for name in VERBS[verb].groups if name in known}  # such as task
    return _titled(f"settings of manyheads {verb}", _nested(found)["properties"])


def schema_of_group(group: str) -> dict[str, Any]:
    """What a preset of a group holds: settings of the section of that name."""
    properties = _nested(settings_of("train"))["properties"][group]["properties"]
    return _titled(f"a preset {group}/NAME.yaml of manyheads", properties)


def _titled(title: str, properties: dict[str, Any]) -> dict[str, Any]:
    defaults = {"type": "array", "description": "presets that it builds on; of two values the later one holds"}
    return {"$schema": DRAFT, "title": title} | _section({"defaults": defaults} | properties)


def _section(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _nested(found: dict[str, Setting]) -> dict[str, Any]:
    """The schema of settings with dotted names."""
    root = _section({})
    for name, one in found.items():
        *sections, last = name.split(".")
        at = root
        for word in sections:
            at = at["properties"].setdefault(word, _section({}))
        at["properties"][last] = _of_setting(one)
    return root


def _of_setting(one: Setting) -> dict[str, Any]:
    """The schema of one value: its type or choices, range, default and meaning."""
    said = {"description": one.facts.help, "default": to_plain(one.default)}
    kind, is_optional = split_optional(one.kind)
    is_list = get_origin(kind) is list
    if is_list:
        (kind,) = get_args(kind)
    if one.facts.several:
        text = {"type": "string"}
        value: dict[str, Any] = {"anyOf": [text, {"type": "array", "items": text}]}
    elif choices := choices_of(one):
        value = {"enum": choices}
    elif kind in TYPES:
        value = {"type": TYPES[kind]}
        value |= {BOUNDS[key]: bound for key in BOUNDS if (bound := getattr(one.facts, key)) is not None}
    elif get_origin(kind) is dict:
        value = {"type": "object"}
    else:  # a number or a word, such as batch.tokens=auto
        value = {}
    if is_list:
        value = {"type": "array", "items": value}
    if is_optional:
        value = {"anyOf": [value, {"type": "null"}]}
    return value | said
