"""Blocks by name: what the registry has of a kind, made with the numbers that its signature names."""

from collections.abc import Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

from torch import nn

import manyheads.plugin as plugin
from manyheads.config.blocks import is_block


def make_block(kind: str, name: str, options: Mapping[str, Any] = plugin.NOTHING, **numbers: Any) -> Any:
    """The block `name` of a kind; docs/extending.md has the signature of each kind.

    Args:
        options: the settings `model.<kind>_options`.
        numbers: sizes and the like, of which the block gets those that its signature names. One that is None is left to
            the default there.

    A module of a user's part has `own_part`: it begins as its own constructor made it.
    """
    make = plugin.make(kind, name)
    if is_block(kind, make):  # a function that is the block itself, such as `softmax`
        if options:
            return partial(make, **options)
        return make
    parameters = signature(make).parameters
    given: dict[str, Any] = {}
    for key, value in numbers.items():
        if key in parameters and (value is not None or parameters[key].default is Parameter.empty):
            given[key] = value
    block = make(**given, **options)
    if isinstance(block, nn.Module) and plugin.owner(kind, name).name in plugin.given():
        block.own_part = True  # type: ignore[assignment]
    return block
