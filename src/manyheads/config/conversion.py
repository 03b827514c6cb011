"""Settings to plain values and back.

There are three forms: plain values, nested as in YAML or JSON; `Values`, one dictionary with each setting by its dotted
name, converted; and the frozen sections. `read_values` converts and `build` makes the sections; `from_plain` is one
after the other, for settings that come from a file or another process.

`read_values` trusts nothing, since files of other people pass through it: every key must be declared, every value be of
the declared type, and nothing may name code to call. Standard library only.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum, EnumType
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

from manyheads.config.facts import Setting, choices_by, default_of, nearest_setting, why_needless
from manyheads.config.sentences import format_value, one_of
from manyheads.errors import UserError

Section = TypeVar("Section")
KIND_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
DEEPEST = 8  # levels of nesting, far more than any setting has
Values = dict[str, Any]  # {"model.d_k": 16, "optim.schedule": Schedule.wsd, "trainer": {"max_epochs": 3}}


def to_plain(value: Any) -> Any:
    """A settings dataclass, or a value of one, as dicts, lists and scalars alone; choices become their names."""
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        return {one.name: to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    return value


def from_plain(schema: type[Section], plain: Any, where: str = "") -> Section:
    """Build `schema` from a mapping as `to_plain` makes it; absent keys keep their defaults.

    Args:
        where: dotted section in front of every name in a sentence, for instance "model."

    Raises:
        UserError: an unknown key, a value of the wrong type, or a rule of the section is broken.
    """
    return build(schema, read_values(schema, plain, where))


def read_values(schema: type, plain: Any, where: str = "") -> Values:
    """The settings in a mapping as `to_plain` makes it, each converted to its type.

    Raises:
        UserError: an unknown key, or a value of the wrong type.
    """
    if not isinstance(plain, Mapping):
        name = where.rstrip(".") or "the configuration"
        raise UserError(f"{name}={format_value(plain)} is not a section: it must hold keys and values")
    known = {one.name: one for one in fields(schema)}
    values: Values = {}
    for key, value in plain.items():
        if key not in known:
            raise UserError(unknown_sentence(f"{where}{key}", value, schema, where))
        one = known[key]
        kind: Any = one.type
        if is_dataclass(kind):
            inner = read_values(kind, value, f"{where}{key}.")  # type: ignore[arg-type]
            values |= {f"{key}.{name}": made for name, made in inner.items()}
        else:
            values[key] = convert(Setting(f"{where}{key}", kind, default_of(one), one.metadata["facts"]), value)
    return values


def build(schema: type[Section], values: Values) -> Section:
    """The section with these settings; others keep their defaults.

    Raises:
        UserError: a value is out of its range, or a rule of the section is broken.
    """
    made: dict[str, Any] = {}
    inner: dict[str, Values] = {}
    for name, value in values.items():
        section, _, rest = name.partition(".")
        if rest:
            inner.setdefault(section, {})[rest] = value
        else:
            made[name] = value
    for one in fields(schema):  # type: ignore[arg-type]
        if one.name in inner:
            kind: Any = one.type
            made[one.name] = build(kind, inner[one.name])
    return schema(**made)


def named_values(config: Any) -> Values:
    """The settings of a section by dotted name, as `build` takes them."""
    values: Values = {}
    for one in fields(config):
        value = getattr(config, one.name)
        if is_dataclass(value):
            values |= {f"{one.name}.{name}": inner for name, inner in named_values(value).items()}
        else:
            values[one.name] = value
    return values


def set_value(known: Mapping[str, Setting], values: Values, name: str, value: Any) -> None:
    """Give a setting, or a key of one that is a mapping, such as `trainer.max_epochs`, another value."""
    mapping = mapping_of(name, known)
    if mapping:
        values[mapping] = {**values[mapping], name.removeprefix(f"{mapping}."): value}
    else:
        values[name] = value


def convert_named(known: Mapping[str, Setting], name: str, value: Any) -> Any:
    """The value of a setting, or of a key of one that is a mapping, as it is declared.

    Raises:
        UserError: it is of another type.
    """
    mapping = mapping_of(name, known)
    if mapping:
        return convert_item(known[mapping], name.removeprefix(f"{mapping}."), value)
    return convert(known[name], value)


def convert(one: Setting, value: Any) -> Any:
    """`value` as the setting is declared, or a `UserError` naming the setting, the rule and the default."""
    name, default, (inner, optional) = one.name, one.default, split_optional(one.kind)
    if one.facts.several and inner is Any:
        inner = list[str] if isinstance(value, list | tuple) else str
    if value is None and optional:
        return None
    if inner is Any:
        number = _scalar(int, value) if isinstance(default, int) else None
        return require_plain(name, value) if number is None else number
    if get_origin(inner) is dict:
        if not isinstance(value, Mapping):
            remedy = f"set one option at a time, such as {name}.NAME=VALUE"
            if name == "trainer":
                remedy = "set one flag at a time, such as trainer.max_epochs=3"
            raise UserError(f"{name}={format_value(value)} is not a section: {remedy}")
        return {str(key): convert_item(one, str(key), each) for key, each in value.items()}
    if get_origin(inner) is list:
        each = replace(one, kind=get_args(inner)[0], default="an empty list")
        if not isinstance(value, list | tuple):
            convert(each, value)  # what no list can hold either is said first
            raise UserError(
                f"{name}={format_value(value)} is not a list: write it in brackets, such as "
                f"{name}=[{format_value(value)}]"
            )
        return [convert(each, inner_value) for inner_value in value]
    if choices := choices_of(one):
        if isinstance(inner, EnumType) and isinstance(value, inner):
            return value
        if not isinstance(value, str) or value not in choices:
            raise UserError(f"{name}={format_value(value)} is not a choice: choose {one_of(choices)}")
        return inner[value] if isinstance(inner, EnumType) else value
    made = _scalar(inner, value)
    if isinstance(made, str) and "\0" in made:
        raise UserError(f"{name}={format_value(value)} holds a NUL, which no name and no file may: remove it")
    if made is None:
        words = KIND_WORDS[inner] + (" or null" if optional else "")
        raise UserError(
            f"{name}={format_value(value)} has the wrong type: it must be {words}; the default is "
            f"{format_value(default)}"
        )
    return made


def convert_item(one: Setting, key: str, value: Any) -> Any:
    """One value of a setting that is a mapping, such as the flag `max_epochs` of `trainer`."""
    if one.facts.item is not None:
        return one.facts.item(key, value)
    return require_plain(f"{one.name}.{key}", value)


def mapping_of(name: str, known: Mapping[str, Setting]) -> str:
    """The setting that holds `name` as one of its keys, such as `trainer`; empty: none does."""
    if name not in known:
        for one in known.values():
            if get_origin(one.kind) is dict and name.startswith(f"{one.name}."):
                return one.name
    return ""


def choices_of(one: Setting) -> list[str]:
    """The names of which a setting, or each value of a list, is one; none where it is no choice."""
    if callable(one.facts.among) or one.facts.part:
        return choices_by(one.facts)
    kind, _ = split_optional(one.kind)
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    return list(kind.__members__) if isinstance(kind, EnumType) else []


def split_optional(kind: Any) -> tuple[Any, bool]:
    """`float | None` as (float, True); any other type as (type, False)."""
    if isinstance(kind, UnionType):
        (inner,) = (one for one in get_args(kind) if one is not NoneType)
        return inner, True
    return kind, False


def _scalar(kind: type, value: Any) -> Any:
    """The value as `kind`, or None where it is of another type. 1e4 is a whole number, 3 a number."""
    if kind in (bool, str):
        return value if isinstance(value, kind) else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)  # of a text, too: YAML 1.1 reads 1e-3 as one
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    if kind is float:
        return number
    if isinstance(value, int):
        return value  # the number itself, which float may have rounded
    return int(number) if number.is_integer() else None


def require_plain(name: str, value: Any, depth: int = 0) -> Any:
    """A plain value: scalars, and lists and dicts of them, with text as keys."""
    if depth > DEEPEST:
        raise UserError(f"{name} is nested too deeply: give a plain value")
    if isinstance(value, Mapping):
        if "_target_" in value:
            raise UserError(_code_sentence(f"{name}._target_", value["_target_"]))
        made = {}
        for key, inner in value.items():
            text = key if isinstance(key, str) else format_value(key)
            made[text] = require_plain(name, inner, depth + 1)
        return made
    if isinstance(value, list | tuple):
        return [require_plain(name, inner, depth + 1) for inner in value]
    if isinstance(value, None | bool | int | float | str):
        return value
    raise UserError(f"{name} holds a {type(value).__name__}: give a number, text, true, false or null")


def refuse_code(values: Any, verbatim: Collection[str]) -> None:
    """Refuse `_target_` keys, and `${...}` in any text but that of the settings named in `verbatim`."""
    for name, value in leaves(values):
        if "_target_" in name.split("."):
            raise UserError(_code_sentence(name, value))
        if isinstance(value, str) and "${" in value and name not in verbatim:
            raise UserError(interpolation_sentence(f"{format_value(name)}={format_value(value)}"))


def unknown_sentence(name: str, value: Any, schema: type, where: str = "") -> str:
    """The sentence for a key that `schema` does not declare."""
    if name.split(".")[-1] == "_target_":
        return _code_sentence(name, value)
    near = nearest_setting(name, schema, where)
    remedy = f"did you mean {near}?" if near else f"{why_needless(name) or 'none has a name like it'}, remove it"
    return f"{format_value(name)}={format_value(value)} is not a setting: {remedy}"


def _code_sentence(name: str, value: Any) -> str:
    return (
        f"{format_value(name)}={format_value(value)} names code to call, which a setting never may: "
        "remove it, and give parts of your own by plugins="
    )


def interpolation_sentence(typed: str) -> str:
    """The sentence for a value that holds `${...}`."""
    return f"{typed} holds an interpolation, but settings are plain values: write the value itself"


def section_and_key(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The section of nested `values` that holds the setting `name`, and its key there."""
    *sections, key = name.split(".")
    for section in sections:
        values = values[section]
    return values, key


def with_flags(values: Values) -> Values:
    """The same, but in place of `trainer` each of its flags: `trainer.max_epochs`."""
    found: Values = {}
    for name, value in values.items():
        if name == "trainer":
            found |= {f"trainer.{flag}": one for flag, one in value.items()}
        else:
            found[name] = value
    return found


def plain_settings(config: Any) -> dict[str, Any]:
    """Every setting of a section by its dotted name, in the order of declaration, and each flag of the Trainer; plain
    values."""
    return {name: to_plain(value) for name, value in with_flags(named_values(config)).items()}


def leaves(values: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of what is neither a mapping nor a list; what is in a list has the name of the list."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(values, list):
        for value in values:
            yield from leaves(value, name)
    else:
        yield name, values
