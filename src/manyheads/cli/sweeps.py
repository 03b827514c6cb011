"""Several runs from one line (`-m`): where each goes, what the jobs must not share, and which of Hydra's own settings
are taken. A run goes to `<hydra.sweep.dir>/<what varies>`, such as model.n_heads=2,seed=1. Where the jobs run is up to
Hydra: here, or where its `hydra/launcher` puts them, which may be other processes.

Hydra imports and calls what its own settings name. They come from Hydra alone; a person may type those below.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from manyheads.cli.overrides import Typed, hydra_value
from manyheads.cli.verbs import VERBS, Config
from manyheads.config import RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.config.facts import hooks, settings_where
from manyheads.config.sentences import format_value
from manyheads.errors import UserError

OF_NETWORK = (  # settings that the linear model does not read, or not alone
    *("model.", "optim.", "batch.", "tokenizer.", "trainer.", "checkpoint.", "guard.", "hardware."),
    *("budget", "init_from", "data.max_length", "data.long", "data.stride", "data.windows"),
)


class JobScore(float):
    """The network's validation figure of a job, the one of `checkpoint.metric`, as Hydra's sweepers read it: a linear
    model that answers with it may hide what varies. And its summary and settings, and which figure was `missed`."""

    summary: Any = None
    run: Any = None
    missed: str = ""


def score_of(config: Config, summary: Any, missed: str) -> JobScore | None:
    """What a job came to: None where it trained nothing, and missed no figure that `require` asks for."""
    score = JobScore("nan")
    if isinstance(config, RunConfig) and summary is not None:
        from manyheads.runs.summary import NETWORK, models_of

        models: dict[str, Any] = models_of(summary, "validation")
        score = JobScore(models.get(NETWORK, summary.validation)[metric_of(summary)].value)
        score.summary, score.run = summary, config
    elif not missed:
        return None
    score.missed = missed
    return score


def metric_of(summary: Any) -> str:
    """The metric that chose the weights of a run."""
    return summary.best.get("metric") or next(iter(summary.validation))


def refuse_many_devices(config: Config) -> None:
    """Refuse a sweep over several devices, whose processes would each start the whole sweep again, and over what would
    be launched."""
    for refuse in hooks(config, "refuse"):
        refuse(config, "-m")
    if not isinstance(config, RunConfig):
        n_devices = getattr(getattr(config, "hardware", None), "devices", 1)
        if n_devices != 1:
            devices = f"hardware.devices={n_devices}"
            raise UserError(f"{devices} is refused under -m, which runs on one device: start each alone, or remove it")
        return
    devices, nodes = f"hardware.devices={config.hardware.devices}", f"hardware.nodes={config.hardware.nodes}"
    search = next((name for name, one in VERBS.items() if one.takes_several), None)
    for word, count in ((nodes, config.hardware.nodes), (devices, config.hardware.devices)):
        remedy = f"start each run alone, such as `for n in 2 4; do manyheads train model.n_heads=$n {word}; done`"
        if search and word == devices:
            remedy = f"use `manyheads {search} model.n_heads=2,4 {word}`"
        if count != 1:
            raise UserError(f"{word} is refused under -m, which runs on one device: {remedy}")


def check_jobs(jobs: Iterable[Any], typed: Typed) -> None:
    """Refuse what a job of a sweep cannot have, before the first is done."""
    refuse_twice(typed)
    for config in jobs:
        refuse_many_devices(config)
        refuse_shared_output(config, typed)
    refuse_ranges(typed)


def refuse_twice(typed: Typed) -> None:
    """Refuse the same value twice: the second job would go where the first went, and fail once that has trained."""
    swept = {**typed.swept_groups, **{name: _values(typed, name) for name in typed.swept}}
    for name, values in swept.items():
        for at, value in enumerate(values):
            if any((type(one), one) == (type(value), value) for one in values[:at]):
                raise UserError(f"{name} is given {format_value(value)} twice: name each value once")


def refuse_shared_output(config: Any, typed: Typed) -> None:
    """Refuse an output that several jobs would write to: the second would fail once the first has trained."""
    shared = {*typed.swept_groups, *typed.swept} - {"output"}
    if config.output not in ("", "-") and shared:
        raise UserError(
            f"output={config.output} would be shared by the jobs of -m, but each needs its own: remove it, and name "
            "the folder of them all by hydra.sweep.dir=FOLDER"
        )


def with_output(config: Any, folder: str) -> Config:
    """A job with its output: of a run without one the `folder` that Hydra has made, which is removed here while it is
    empty: a run makes its own."""
    with suppress(OSError):
        os.rmdir(folder)
    return replace(config, output=folder) if isinstance(config, RunConfig) and not config.output else config


def _values(typed: Typed, name: str) -> list[Any]:
    """The listed values of a swept setting."""
    return [one[name] for one in (typed.values, *typed.later) if name in one]


def _fits(typed: Typed, name: str) -> bool:
    """Whether each value of a swept setting can be a part of a file name."""
    values = _values(typed, name)
    return name not in settings_where(RunConfig, verbatim=True) and not any(
        isinstance(one, dict) or "/" in str(one) for one in values
    )


def refuse_ranges(typed: Typed) -> None:
    """Refuse `interval(...)` and the like, whose values only an optimising sweeper can choose."""
    if any(word.startswith("hydra/sweeper=") for word in typed.words):
        return
    for key, value in typed.swept.items():
        if value is not None:
            raise UserError(f"{key}={value} names no values one by one: list them, such as {key}=1,2,3")


def of_one_job(composed: dict[str, Any], typed: Typed) -> dict[str, Any]:
    """The settings of a job that were typed, by dotted name: of several values the one that Hydra has `composed` for
    it."""
    own = dict(typed.values)
    for name in typed.swept:
        listed = {repr(hydra_value(one)): one for one in _values(typed, name)}
        own[name] = listed.get(repr(composed[name]), composed[name])
    return own


def keep_split(values: dict[str, Any], typed: Typed) -> None:
    """Rows that are carved out stay those of the first seed where seeds vary, which is put into a job's `values`."""
    if _keeps_split(values, typed):
        values["data"]["split_seed"] = typed.values["seed"]


def say_split(values: dict[str, Any], typed: Typed) -> None:
    """Say that the jobs of several seeds share their rows."""
    if _keeps_split(values, typed):
        seed = typed.values["seed"]
        print(
            f"seeds vary: rows carved out for validation and test are those of seed {seed} in every job, by "
            f"data.split_seed={seed}; type data.split_seed to choose others",
            file=sys.stderr,
        )


def _keeps_split(values: dict[str, Any], typed: Typed) -> bool:
    of_a_run = "resume" in values and values["data"]["split_seed"] is None
    return of_a_run and {"seed"} <= typed.swept.keys() & typed.values.keys() and "data.split_seed" not in typed.values


def hydra_words(typed: Typed) -> list[str]:
    """Hydra's own settings of a sweep: its files go under outputs/ and stay few, and what was typed."""
    quiet = [
        "hydra.sweep.dir=outputs/multirun/${now:%Y-%m-%d_%H-%M-%S}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
    ]
    own = [word for word in typed.words if word.startswith(("hydra.", "hydra/"))]
    keys, swept = {word.partition("=")[0] for word in own}, {*typed.swept_groups, *typed.swept}
    if swept and all(_fits(typed, name) for name in typed.swept):  # else by their number
        shared = [key for word in typed.words if (key := word.partition("=")[0]) not in swept and word not in own]
        quiet.append(f"hydra.job.config.override_dirname.exclude_keys=[{','.join(dict.fromkeys(shared))}]")
        quiet.append("hydra.sweep.subdir=${hydra.job.override_dirname}")
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


def show_jobs(jobs: Sequence[JobScore]) -> None:
    """One table of the runs that were trained, in their order; nothing of fewer than two. Where settings of the network
    vary its own figures are shown, else those of the answers."""
    if len(jobs) < 2:
        return
    from manyheads.runs.summary import BOTH, NETWORK, models_of
    from manyheads.terminal import Sheet, print_sheet

    summaries, every = [one.summary for one in jobs], [plain_settings(one.run) for one in jobs]
    folders = [Path(one.output).absolute() for one in summaries]
    above = Path(os.path.commonpath([folder.parent for folder in folders]))
    metric = metric_of(summaries[0])
    splits = [name for name in ("validation", "test") if all(metric in getattr(one, name) for one in summaries)]
    varied = {name for of in every for name in of if any(of[name] != one.get(name) for one in every)}
    alone = any(name.startswith(OF_NETWORK) for name in varied)
    shares, lines = [one.linear for one in summaries if alone or one.linear], []
    for folder, one in zip(folders, summaries, strict=True):
        whose = NETWORK if alone else next(iter(models_of(one, "validation")))
        figures = [models_of(one, split)[whose][metric] for split in splits]
        judged = [cell for found in figures for cell in (f"{found.value:.4f}", f"{found.low:.3f}-{found.high:.3f}")]
        named = [str(folder.relative_to(above)), *[whose] * any(shares)]
        lines.append([*named, *judged, f"{one.steps:,}", f"{one.wall_seconds / 60:.1f}"])
    notes = []
    if any(shares):
        between = " to ".join(dict.fromkeys(f"{end:.0%}" for end in (min(shares), max(shares))))
        part = f"the linear model has a weight of {between} in each answer"
        own = f"Figures of the network alone, whose settings vary; {part} (linear=false: none)."
        notes.append(own if alone else f"{BOTH}: {part}, the network the rest.")
    columns = [column for split in splits for column in (f"{split} {metric.replace('_', ' ')}", "95 %")]
    title = f"{len(lines)} runs in {above}"
    print_sheet(Sheet(title, ["run", *["figures of"] * any(shares), *columns, "steps", "minutes"], lines, notes))
