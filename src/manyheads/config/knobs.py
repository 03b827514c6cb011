"""How a setting is declared: its default, what it means, and the range it must lie in.

A section is a dataclass whose fields are made by `knob`; `check_ranges` turns a value outside
its range into one sentence. Rules that join two settings live in `RunConfig`.
"""

from dataclasses import field, fields
from enum import Enum
from typing import Any


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
