"""Which settings are tried, where no result of one decides about the next: a grid, or draws. No two of them may train
the same run, which would be ranked against itself.
"""

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

from manyheads.config import Method, RunConfig, TuneConfig
from manyheads.config.model import Norm, Positions
from manyheads.config.optim import Schedule
from manyheads.config.plain import show
from manyheads.door.ends import BY_DATA, LIMITS
from manyheads.door.search import searched_settings
from manyheads.door.words import read_settings

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


def check_distinct(config: TuneConfig, planned: Sequence[dict[str, Any]] | None) -> None:
    """Every two settings of a search must train different runs.

    Args:
        planned: those that are tried; None: they are drawn later, and each value is looked at beside the first others.

    Raises:
        ValueError: two of them come to the same run, as one setting makes another irrelevant.
    """
    seen: dict[str, dict[str, Any]] = {}
    for setting in planned if planned is not None else searched_settings({"search": config.search}):
        try:
            run = config.run(setting)
        except ValueError:
            continue  # this trial fails with its sentence
        same = seen.setdefault(repr(resolved(run)), setting)
        if same != setting:
            raise ValueError(_same_run(config, same, setting))


def resolved(run: RunConfig) -> dict[str, Any]:
    """The settings that a run reads, in one spelling of each: two runs that differ in none of them are the same."""
    found, model, optim = read_settings(run), run.model, run.optim
    idle = [*LIMITS, *(f"optim.{name}" for name in BY_DATA)] if run.budget else []
    idle += [f"tokenizer.{name}" for name in ("kind", "vocab_size", "lowercase")] if run.tokenizer.path else []
    idle += ["model.norm_bias"] if model.norm is not Norm.layer else []
    idle += ["optim.decay_share"] if optim.schedule is not Schedule.wsd else []
    idle += ["model.rotary_base", "model.rotary_base_window"] if model.positions is not Positions.rotary else []
    idle += ["model.rotary_base_window"] if not any(map(model.window_of, range(model.n_layers))) else []
    idle += [f"model.{one}" for one, each in (("score", model.scores), ("window", model.windows)) if each]
    places = ("embedding", "residual", "classifier")
    said = {f"model.dropout_{place}": model.dropout_at(place) for place in places}
    said |= {"model.n_kv_heads": model.kv_heads, "optim.head_lr": optim.head_lr or optim.lr}
    said |= {"optim.muon_lr": optim.muon_lr or optim.lr}
    idle.append("model.dropout")  # which those of the three places stand for
    return {name: said.get(name, value) for name, value in found.items() if name not in idle}


def _same_run(config: TuneConfig, one: dict[str, Any], other: dict[str, Any]) -> str:
    differ = [name for name in one if one[name] != other[name]]
    first, second = (" ".join(f"{name}={show(setting[name])}" for name in differ) for setting in (one, other))
    shared = "".join(f" {name}={show(value)}" for name, value in one.items() if name not in differ)
    beside = f" with{shared}" if shared else f" beside budget={config.budget}" if config.budget else ""
    return (
        f"{first} and {second} train the same run{beside}, which would be ranked against itself: search values that "
        "change the run"
    )


def _too_narrow(config: TuneConfig, n_found: int) -> str:
    ranges = " ".join(f"{axis.name}={config.search[axis.name]}" for axis in config.axes() if axis.listed is None)
    return (
        f"{ranges}: only {n_found} different settings were found for {config.n_trials} trials, as numbers are drawn "
        f"with few digits: add trials={n_found}, or search a wider range"
    )
