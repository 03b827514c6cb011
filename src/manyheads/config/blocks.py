"""Options of blocks: the settings `model.<kind>_options`, which a part declares or the signature of its `make` has."""

from collections.abc import Collection, Mapping
from typing import Any

import manyheads.plugin as plugin
from manyheads.config.conversion import KIND_WORDS, convert
from manyheads.config.facts import Facts, Setting
from manyheads.config.sentences import format_value, one_of
from manyheads.errors import UserError

NUMBERS = {  # what a block of each kind may ask for by name; all else in its signature are options
    "score": {"n_heads", "n_kv_heads", "d_k", "scale"},
    "normaliser": set(),
    "positions": {"max_length", "d_model", "n_heads", "d_k", "base"},
    "pooling": {"d_model"},
    "activation": {"d_ff"},
    "norm": {"d_model", "eps", "bias"},
    "encoder": {"model", "max_length", "d_model", "n_layers", "n_heads", "d_k", "d_v", "d_ff", "bias", "dropout"},
}
FUNCTIONS = ("score", "normaliser", "pooling", "activation")  # of these kinds a function is the block itself
NEEDED = object()  # the default of an option that has none


def is_block(kind: str, make: Any) -> bool:
    """Whether `make` is the block itself, a function of tensors, and makes none."""
    return kind in FUNCTIONS and not isinstance(make, type)


def numbers_of(kind: str, name: str) -> Collection[str]:
    """Which numbers of the model a user's part asks for; of the package's own its fact `reads` says so."""
    part = plugin.find(kind, name)
    if part.options is not None:
        return part.facts.get("reads", ())
    from inspect import signature  # which takes long to import

    return signature(plugin.resolve(part.make)).parameters.keys() & NUMBERS[kind]


def options_of(kind: str, name: str) -> Mapping[str, Any]:
    """The options of a part, with their defaults."""
    part = plugin.find(kind, name)
    if part.options is not None:
        return part.options
    from inspect import Parameter, signature  # which takes long to import

    make = plugin.resolve(part.make)
    try:
        asked = signature(make).parameters.values()
    except ValueError:  # a function written in C
        return {}
    if is_block(kind, make):
        options = [one for one in asked if one.kind is Parameter.KEYWORD_ONLY]
    else:
        by_name = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        options = [one for one in asked if one.kind in by_name and one.name not in NUMBERS[kind]]
    return {one.name: NEEDED if one.default is Parameter.empty else one.default for one in options}


def checked_options(kind: str, names: Collection[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the parts that a model has of one kind, each in its own type.

    Raises:
        UserError: none of them has such an option, its value is of another type, or one that is needed is missing.
    """
    known: dict[str, Any] = {}
    for name in names:
        known |= options_of(kind, name)
    setting, of = f"model.{kind}_options", f"model.{kind}={one_of([*names])}"
    made = {}
    for option, value in given.items():
        if option not in known:
            remedy = f"choose {one_of([*known])}" if known else "remove it"
            raise UserError(f"{setting}.{option}={format_value(value)} is not an option of {of}: {remedy}")
        one = Setting(f"{setting}.{option}", type(known[option]), known[option], Facts(""))
        made[option] = convert(one, value) if one.kind in KIND_WORDS else value
    for option, default in known.items():
        if default is NEEDED and option not in made:
            raise UserError(f"{setting}.{option} is not given, which {of} needs: add {setting}.{option}=VALUE")
    return made
