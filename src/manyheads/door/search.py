"""What `manyheads tune` varies: settings that were typed with several values, or with two ends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manyheads.config import RunConfig
from manyheads.config.axis import is_range, make_axis
from manyheads.config.names import settings
from manyheads.door.origin import settled_origin
from manyheads.door.overrides import Parsed, Typed


def searched(
    verb: str, words: Sequence[str], parse: Callable[[str], Parsed]
) -> tuple[list[str], dict[str, list[Any] | str]]:
    """The words of a plain run, and what the others search: {"optim.lr": "log:1e-4..1e-2", "model.n_heads": [2, 4]}.

    Texts and presets are never searched: a comma in them is theirs.

    Raises:
        ValueError: a setting is typed twice, or its values cannot be listed.
    """
    if verb != "tune":
        return list(words), {}
    known, rest, search = settings(RunConfig), [], {}
    for word in words:
        key, _, value = word.partition("=")
        key, value = key.strip(), value.strip()
        is_number_or_choice = key.startswith("trainer.") or (key in known and known[key].kind is not str)
        several = _several(key, value, parse) if is_number_or_choice else None
        if several is None:
            rest.append(word)
        elif key in search:
            raise ValueError(f"{word}: {key} is searched already: type all its values once")
        else:
            search[key] = several
    return rest, search


def settle_search(values: dict[str, Any], search: dict[str, list[Any] | str], typed: Typed) -> None:
    """Put what was typed over what an experiment searches: a setting that is given one value is searched no more.

    Raises:
        ValueError: a setting is typed both with one value and with several.
    """
    for key in search:
        if key in typed.values:
            raise ValueError(f"{key} is typed twice, with one value and with several: leave one of them away")
    theirs = typed.values.pop("search", values.get("search"))
    if isinstance(theirs, dict):
        values["search"] = {key: given for key, given in theirs.items() if key not in typed.values} | search
    elif theirs is not None:
        values["search"] = theirs


def with_origin(values: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """`settled_origin`, to which each value of a search counts as typed."""
    for setting in searched_settings(values):
        both = settled_origin(values, typed | setting)
        typed = {name: value for name, value in both.items() if name not in setting}
    return typed


def searched_settings(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Settings of a search in which each of its values, or end of a range, occurs; of no search the empty one alone."""
    search = values.get("search")
    if not isinstance(search, dict) or not search:
        return [{}]
    axes = [make_axis(str(name), given) for name, given in search.items()]
    few = {axis.name: list(axis.values or (axis.low, axis.high)) for axis in axes}
    first = {name: of[0] for name, of in few.items()}
    return [first, *(first | {name: value} for name, of in few.items() for value in of[1:])]


def _several(key: str, value: str, parse: Callable[[str], Parsed]) -> list[Any] | str | None:
    """None for one value, and for what nobody can read, which is said elsewhere."""
    if is_range(value):
        return value
    try:
        parsed = parse(value)
    except ValueError:
        return None
    if parsed.sweep and not parsed.values:
        raise ValueError(
            f"{key}={value} names no values one by one: list them, such as {key}=1,2,3, or give a range, such as "
            f"{key}=1..3"
        )
    return parsed.values if parsed.sweep else None
