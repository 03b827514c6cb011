"""Blocks by name: what the registry has of a kind, made with the numbers that its signature names."""

from collections.abc import Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

import manyheads.plugin as plugin

FUNCTIONS = ("score", "normaliser", "pooling", "activation")  # a function of these kinds is the block itself


def make_block(kind: str, name: str, options: Mapping[str, Any] = plugin.NOTHING, **numbers: Any) -> Any:
    """The block `name` of a kind; docs/extending.md has the signature of each kind.

    Args:
        options: the settings `model.<kind>_options`.
        numbers: sizes and the like, of which the block gets those that its signature names. One that is None is left to
            the default there.
    """
    make = plugin.make(kind, name)
    if kind in FUNCTIONS and not isinstance(make, type):
        return partial(make, **options) if options else make
    asked = signature(make).parameters
    given = {
        key: value
        for key, value in numbers.items()
        if key in asked and (value is not None or asked[key].default is Parameter.empty)
    }
    return make(**given, **options)
