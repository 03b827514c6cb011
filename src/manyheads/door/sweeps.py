"""Several runs from one line (`-m`): what the jobs must not share, and which of Hydra's own settings are taken.

Hydra imports and calls what its own settings name. They come from Hydra alone; a person may type those below.
"""

from itertools import product
from typing import Any

from manyheads.config import EvaluateConfig, PredictConfig, RunConfig
from manyheads.door.overrides import Typed
from manyheads.door.verbs import VERBS, Config


def refuse_many_devices(config: Config) -> None:
    """Refuse a sweep over several devices, whose processes would each start the whole sweep again, and over scripts."""
    if isinstance(config, EvaluateConfig | PredictConfig) and config.hardware.devices != 1:
        devices = f"hardware.devices={config.hardware.devices}"
        raise ValueError(f"{devices} is refused under -m, which runs on one device: start each alone, or leave it away")
    if not isinstance(config, RunConfig):
        return
    devices, nodes = f"hardware.devices={config.hardware.devices}", f"hardware.nodes={config.hardware.nodes}"
    refused = [
        ("hardware=slurm", config.slurm.script, "which writes no script"),
        (nodes, config.hardware.nodes != 1, "which runs on one device"),
        (devices, config.hardware.devices != 1, "which runs on one device"),
    ]
    for word, holds, why in refused:
        if holds:
            alone = f"start each run alone, such as `for n in 2 4; do manyheads train model.n_heads=$n {word}; done`"
            remedy = f"use `manyheads tune model.n_heads=2,4 {word}`" if word == devices else alone
            raise ValueError(f"{word} is refused under -m, {why}: {remedy}")


def refuse_shared_output(config: Config, typed: Typed) -> None:
    """Refuse an output that several jobs would write to: the second would fail once the first has trained."""
    swept = {*typed.swept_groups, *typed.swept}
    if config.output not in ("", "-") and swept - {"output"}:
        raise ValueError(
            f"output={config.output} would be shared by the jobs of -m, but each needs its own: leave output away, or "
            "start each run alone"
        )


def refuse_ranges(typed: Typed) -> None:
    """Refuse `interval(...)` and the like, whose values only an optimising sweeper can choose."""
    if any(word.startswith("hydra/sweeper=") for word in typed.words):
        return
    for key, value in typed.swept.items():
        if value is not None:
            raise ValueError(f"{key}={value} names no values one by one: list them, such as {key}=1,2,3")


def of_one_job(values: dict[str, Any], typed: Typed) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of a job, and those of them that were typed, by dotted name: one of several values is its own."""
    own = {}
    for name in {**typed.values, **typed.swept}:
        section, _, key = name.rpartition(".")
        own[name] = (values[section] if section else values)[key]
    return values, own


def hydra_words(typed: Typed) -> list[str]:
    """Hydra's own settings of a sweep: its files go under outputs/ and stay few, and what was typed."""
    quiet = [
        "hydra.sweep.dir=outputs/multirun/${now:%Y-%m-%d_%H-%M-%S}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
    ]
    own = [word for word in typed.words if word.startswith(("hydra.", "hydra/"))]
    keys = {word.partition("=")[0] for word in own}
    return own + [word for word in quiet if word.partition("=")[0] not in keys]


def every_choice(verb: str, typed: Typed) -> list[dict[str, str | None]]:
    """The presets of each job, and those Hydra composes the sweep itself with: the usual one of a swept group."""
    swept = {group: [*names, VERBS[verb].groups[group]] for group, names in typed.swept_groups.items()}
    groups = {group: [name] for group, name in typed.groups.items()} | swept
    return [dict(zip(groups, names, strict=True)) for names in product(*groups.values())]


def first_difference(ours: Any, theirs: Any, name: str) -> str | None:
    """Dotted name of the first value in which two nested settings differ."""
    if ours == theirs:
        return None
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in (*ours, *theirs):
            if key not in ours or key not in theirs:
                return f"{name}.{key}"
            if inner := first_difference(ours[key], theirs[key], f"{name}.{key}"):
                return inner
    return name
