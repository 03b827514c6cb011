"""Which settings are tried, where no result of one decides about the next: a grid, or draws."""

import random
from itertools import product
from typing import Any

from manyheads.config import Method, TuneConfig

PATIENCE = 10_000  # draws in a row of settings that are known, before a range is said to hold no more


def plan_settings(config: TuneConfig) -> list[dict[str, Any]]:
    """All settings of a grid, the last axis fastest, or draws of which none comes twice.

    More draws of the same search begin with the same ones.

    Raises:
        ValueError: ranges so narrow that they hold fewer settings.
    """
    axes = config.axes()
    if config.chosen is Method.grid:
        listed = [axis.listed for axis in axes]
        return [dict(zip(config.search, values, strict=True)) for values in product(*(one for one in listed if one))]
    draw = random.Random(f"tune {config.seed}")  # noqa: S311 - settings, not secrets
    made: dict[str, dict[str, Any]] = {}
    n_trials, finite, in_vain = config.n_trials, config.size is not None, 0
    while len(made) < n_trials:  # of a finite space no more are asked than there are
        setting = {axis.name: axis.draw(draw) for axis in axes}
        in_vain = 0 if repr(setting) not in made else in_vain + 1
        made.setdefault(repr(setting), setting)
        if in_vain >= PATIENCE and not finite:
            raise ValueError(_too_narrow(config, len(made)))
    return list(made.values())


def _too_narrow(config: TuneConfig, n_found: int) -> str:
    ranges = " ".join(f"{axis.name}={config.search[axis.name]}" for axis in config.axes() if axis.listed is None)
    return (
        f"{ranges}: only {n_found} different settings were found for {config.n_trials} trials, as numbers are drawn "
        f"with few digits: add trials={n_found}, or search a wider range"
    )
