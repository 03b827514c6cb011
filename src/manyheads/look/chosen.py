"""Which layers and heads are shown. Standard library and settings only, so that a mistake is found at once."""

import re
from dataclasses import dataclass

from manyheads.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Chosen:
    """Layers and heads to show, from 0."""

    layers: list[int]
    heads: list[int]


def choose(model: ModelConfig, layers: str, heads: str) -> Chosen:
    """The layers and heads that were typed, counted from 1; empty: all.

    Layers in which two texts look at each other count on behind those of the encoder.

    Raises:
        ValueError: the model has no attention maps, or has not those.
    """
    if model.is_recurrent:
        raise ValueError(
            f"look shows heads of self-attention, and the run has model.encoder={model.encoder.name}, which has none: "
            "train one with model.encoder=transformer, such as model=tiny, and look at that"
        )
    return Chosen(
        _numbers("layers", layers, model.n_layers + model.n_cross_layers), _numbers("heads", heads, model.n_heads)
    )


def _numbers(setting: str, typed: str, most: int) -> list[int]:
    """`1,3-5` as [0, 2, 3, 4]."""
    numbers: set[int] = set()
    for part in typed.strip().removeprefix("[").removesuffix("]").split(",") if typed.strip() else ():
        match = re.fullmatch(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?", part, re.ASCII)
        if match is None:
            raise ValueError(
                f"{setting}={typed} is not understood: count from 1, such as {setting}=2 or {setting}=1,3-4"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= most:
            there = f"{setting[:-1]} 1 alone" if most == 1 else f"{setting} 1 to {most}"
            raise ValueError(f"{setting}={typed} is out of range: the model has {there}")
        numbers |= set(range(first - 1, last))
    return sorted(numbers) or list(range(most))
