"""Which settings are tried, where no result of one decides about the next: a grid, or draws."""

import random
from itertools import product
from typing import Any

from manyheads.config import Method, TuneConfig


def plan_settings(config: TuneConfig) -> list[dict[str, Any]]:
    """All settings of a grid, the last axis fastest, or draws of which none comes twice.

    More draws of the same search begin with the same ones.
    """
    axes = config.axes()
    if config.chosen is Method.grid:
        listed = [axis.listed for axis in axes]
        return [dict(zip(config.search, values, strict=True)) for values in product(*(one for one in listed if one))]
    draw = random.Random(f"tune {config.seed}")  # noqa: S311 - settings, not secrets
    made: list[dict[str, Any]] = []
    while len(made) < config.n_trials:  # ends, as there are so many settings
        setting = {axis.name: axis.draw(draw) for axis in axes}
        if setting not in made:
            made.append(setting)
    return made
