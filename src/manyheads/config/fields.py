"""How a setting is declared, named and converted: its default, meaning, range, and the way to plain values and back.

How a setting is declared: its default, what it means, and the range it must lie in.

A section is a dataclass whose fields are made by `knob`; `check_ranges` turns a value outside
its range into one sentence. Rules that join two settings live in `RunConfig`.

The dotted name of every setting, and the one nearest to what somebody typed.

Settings to plain dicts and back. The way back trusts nothing: files of other people pass through it.

Every key must be declared, every value must be of the declared type, and nothing may name code to call.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from difflib import SequenceMatcher
from enum import Enum, EnumType
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints


def knob(
    default: Any,
    help: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """Declare one setting. `help` is what `manyheads VERB --help` prints beside it."""
    metadata = {"help": help, "at_least": at_least, "at_most": at_most, "above": above, "below": below}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def require(holds: bool, sentence: str) -> None:
    """Raise `ValueError(sentence)` unless the rule holds."""
    if not holds:
        raise ValueError(sentence)


def check_ranges(section: Any, name: str) -> None:
    """Check every field of `section` against the range its `knob` declares, and choices against their Enum.

    Raises:
        ValueError: names the setting, its value, the range and the default.
    """
    for one in fields(section):
        value = getattr(section, one.name)
        if isinstance(one.default, Enum):
            choices = type(one.default)
            require(
                isinstance(value, choices),
                f"{name}{one.name}={value} is not one of {choices.__name__}'s members: "
                f"choose {', '.join(f'{choices.__name__}.{each.name}' for each in choices)}",
            )
        bounds = _bounds(one.metadata)
        if value is None or not bounds:
            continue
        each = value if isinstance(value, list) else [value]
        default = "an empty list" if isinstance(value, list) else one.default
        require(
            all(holds(number) for number in each for _, holds in bounds),
            f"{name}{one.name}={value} is out of range: it must be {' and '.join(words for words, _ in bounds)}; "
            f"the default is {'null' if default is None else default}",
        )


def range_words(metadata: Any) -> list[str]:
    """The limits of a knob in words: ["at least 1", "below 10"]."""
    return [words for words, _ in _bounds(metadata)]


def within(value: Any, metadata: Any) -> bool:
    """Whether a number keeps the limits of a knob."""
    return all(holds(value) for _, holds in _bounds(metadata))


def _bounds(metadata: Any) -> list[tuple[str, Any]]:
    rules = [
        ("at_least", "at least", lambda limit: lambda value: value >= limit),
        ("above", "above", lambda limit: lambda value: value > limit),
        ("at_most", "at most", lambda limit: lambda value: value <= limit),
        ("below", "below", lambda limit: lambda value: value < limit),
    ]
    return [
        (f"{words} {metadata[key]}", make(metadata[key])) for key, words, make in rules if metadata.get(key) is not None
    ]


ELSEWHERE = {  # what other programs call them
    "epochs": "trainer.max_epochs",
    "num_epochs": "trainer.max_epochs",
    "num_train_epochs": "trainer.max_epochs",
    "learning_rate": "optim.lr",
    "batch_size": "batch.rows",
    "num_heads": "model.n_heads",
    "num_layers": "model.n_layers",
    "hidden_size": "model.d_model",
    "max_seq_length": "data.max_length",
    "num_beams": "generate.n_beams",
    "beam_size": "generate.n_beams",
    "max_new_tokens": "generate.max_length",
    "gpus": "hardware.devices",
    "dataset": "data",
    "checkpoint_path": "run",
    "ckpt_path": "run",
    "model_path": "run",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of a verb's settings: `model.n_heads`, its type, default, and the knob's metadata."""

    name: str
    kind: Any
    default: Any
    metadata: Any


def settings(schema: type, where: str = "", made: Any = None) -> dict[str, Setting]:
    """Every setting of a dataclass by dotted name, depth first in the order of declaration."""
    types = get_type_hints(schema)
    found: dict[str, Setting] = {}
    for one in fields(schema):
        name = f"{where}{one.name}"
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        default = default if made is None else getattr(made, one.name)
        if is_dataclass(types[one.name]):
            found |= settings(types[one.name], f"{name}.", default)  # type: ignore[arg-type]
        else:
            found[name] = Setting(name, types[one.name], default, one.metadata)
    return found


def nearest_setting(name: str, schema: type, where: str = "") -> str | None:
    """The setting of `schema` that `name` was probably meant to be, or None.

    Args:
        where: dotted section in front of every name of `schema`, for instance "model."
    """
    known = [one for found in settings(schema, where).values() for one in _spread(found)]
    usual = ELSEWHERE.get(name.rsplit(".", 1)[-1].lower())
    return usual if usual in known else nearest(name, known)


LONGEST = 200  # characters of what a person may have mistyped; to compare more takes seconds


def nearest(name: str, known: Iterable[str], at_least: float = 0.6) -> str | None:
    """The most similar of the dotted names, whole or by their last part; None where nothing is near."""
    best, winner = at_least, None
    for candidate in known if len(name) <= LONGEST else ():
        score = _similarity(name.lower().replace("-", "_"), candidate.replace("-", "_"))
        if score > best:
            best, winner = score, candidate
    return winner


def _similarity(name: str, candidate: str) -> float:
    section, _, last = name.rpartition(".")
    its_section, _, its_last = candidate.rpartition(".")
    tail = SequenceMatcher(None, last, its_last).ratio() * (1.0 if section in ("", its_section) else 0.9)
    return max(SequenceMatcher(None, name, candidate).ratio(), tail)


def _spread(one: Setting) -> list[str]:
    """`trainer` as `trainer.max_epochs` and so on: its flags are what people type."""
    return [f"{one.name}.{key}" for key in one.default] if isinstance(one.default, dict) else [one.name]


Section = TypeVar("Section")
_DEEPEST = 8  # levels of nesting, far more than any setting has


def to_plain(config: Any) -> dict[str, Any]:
    """A settings dataclass as dicts, lists and scalars alone; choices become their names."""
    return {one.name: _plain(getattr(config, one.name)) for one in fields(config)}


def from_plain(schema: type[Section], values: Any, where: str = "") -> Section:
    """Build `schema` from a mapping as `to_plain` makes it; absent keys keep their defaults.

    Args:
        where: dotted section in front of every name, for instance "model."

    Raises:
        ValueError: an unknown key, a value of the wrong type, or a rule of the section is broken.
    """
    if not isinstance(values, Mapping):
        name = where.rstrip(".") or "the configuration"
        raise ValueError(f"{name}={show(values)} is not a section: it must hold keys and values")
    types = get_type_hints(schema)
    known = {one.name: one for one in fields(schema)}  # type: ignore[arg-type]
    made = {}
    for key, value in values.items():
        if key not in known:
            raise ValueError(unknown_sentence(f"{where}{key}", value, schema, where))
        kind = types[key]
        if is_dataclass(kind):
            made[key] = from_plain(kind, value, f"{where}{key}.")  # type: ignore[arg-type]
        else:
            made[key] = convert(f"{where}{key}", kind, value, default_of(known[key]))
    return schema(**made)


def convert(name: str, kind: Any, value: Any, default: Any) -> Any:
    """`value` as the declared type `kind`, or a `ValueError` naming the setting, the rule and the default."""
    inner, optional = unwrap(kind)
    if value is None and optional:
        return None
    if inner is Any:
        number = _scalar(int, value) if isinstance(default, int) else None
        return flat(name, value) if number is None else number
    if get_origin(inner) is dict:
        return _flags(name, value)
    if get_origin(inner) is list:
        return _list(name, get_args(inner)[0], value)
    if isinstance(inner, EnumType):
        return _member(name, inner, value)
    made = _scalar(inner, value)
    if isinstance(made, str) and "\0" in made:
        raise ValueError(f"{name}={show(value)} holds a NUL, which no name and no file may: remove it")
    if made is None:
        words = KIND_WORDS[inner] + (" or null" if optional else "")
        raise ValueError(f"{name}={show(value)} has the wrong type: it must be {words}; the default is {show(default)}")
    return made


KIND_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def unwrap(kind: Any) -> tuple[Any, bool]:
    """`float | None` as (float, True); any other type as (type, False)."""
    if isinstance(kind, UnionType):
        (inner,) = (one for one in get_args(kind) if one is not NoneType)
        return inner, True
    return kind, False


def default_of(one: Field) -> Any:
    """The default of a dataclass field, made anew where it is a section."""
    return one.default_factory() if one.default_factory is not MISSING else one.default


def unknown_sentence(name: str, value: Any, schema: type, where: str = "") -> str:
    """The sentence for a key that `schema` does not declare."""
    if name.split(".")[-1] == "_target_":
        return _code_sentence(name, value)
    near = nearest_setting(name, schema, where)
    remedy = f"did you mean {near}?" if near else "none has a name like it, remove it"
    return f"{show(name)}={show(value)} is not a setting: {remedy}"


def _code_sentence(name: str, value: Any) -> str:
    return f"{show(name)}={show(value)} names code to call, which a setting never may: remove it"


def interpolation_sentence(typed: str) -> str:
    """The sentence for a value that holds `${...}`."""
    return f"{typed} holds an interpolation, but settings are plain values: write the value itself"


def refuse_code(values: Any, name: str = "", verbatim: frozenset[str] = frozenset()) -> None:
    """Refuse `_target_` keys, and `${...}` in any text but that of the settings named in `verbatim`."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            inner = f"{name}.{key}" if name else str(key)
            if key == "_target_":
                raise ValueError(_code_sentence(inner, value))
            refuse_code(value, inner, verbatim)
    elif isinstance(values, list):
        for value in values:
            refuse_code(value, name, verbatim)
    elif isinstance(values, str) and "${" in values and name not in verbatim:
        raise ValueError(interpolation_sentence(f"{show(name)}={show(values)}"))


def show(value: Any) -> str:
    """A value as a sentence quotes it: as typed, on one line, shortened."""
    if isinstance(value, Enum):
        return value.name
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list) and len(value) > 8:
        return f"{len(value)} values"
    text = value if isinstance(value, str) else _digits(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= 80 else f"{text[:77]}..."


def flat(name: str, value: Any, depth: int = 0) -> Any:
    """A plain value: scalars, and lists and dicts of them, with text as keys."""
    if depth > _DEEPEST:
        raise ValueError(f"{name} is nested too deeply: give a plain value")
    if isinstance(value, Mapping):
        if "_target_" in value:
            raise ValueError(_code_sentence(f"{name}._target_", value["_target_"]))
        return {
            key if isinstance(key, str) else show(key): flat(name, inner, depth + 1) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [flat(name, inner, depth + 1) for inner in value]
    if isinstance(value, None | bool | int | float | str):
        return value
    raise ValueError(f"{name} holds a {type(value).__name__}: give a number, text, true, false or null")


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        return to_plain(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _flags(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}={show(value)} is not a section: set one flag at a time, such as {name}.max_epochs=3")
    return {str(key): flat(f"{name}.{key}", inner) for key, inner in value.items()}


def _list(name: str, kind: Any, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name}={show(value)} is not a list: write it in brackets, such as {name}=[{show(value)}]")
    return [convert(name, kind, each, "an empty list") for each in value]


def _member(name: str, choices: EnumType, value: Any) -> Any:
    if isinstance(value, choices):
        return value
    if isinstance(value, str) and value in choices.__members__:
        return choices.__members__[value]
    raise ValueError(f"{name}={show(value)} is not a choice: choose {one_of(list(choices.__members__))}")


def one_of(names: list[str]) -> str:
    """`a, b or c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def listed(names: list[str], most: int = 12) -> str:
    """Names as a sentence lists them: of many the first, each shortened."""
    shown = ", ".join(map(show, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def _scalar(kind: type, value: Any) -> Any:
    """The value as `kind`, or None where it is of another type. 1e4 is a whole number, 3 a number."""
    if kind is bool:
        return value if isinstance(value, bool) else None
    if kind is str:
        return value if isinstance(value, str) else None
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as text
        value = _read_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if kind is float:
        return _float(value)
    return int(value) if value == int(value) else None


def _read_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _float(value: int | float) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _digits(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # Python prints no int of more than 4300 digits
        return "a very long number"
