"""Several runs from one line (`-m`): where each goes, what the jobs must not share, and which of Hydra's own settings
are taken. A run goes to `<hydra.sweep.dir>/<what varies>`, such as model.n_heads=2,seed=1. Where the jobs run is up to
Hydra: here, or where its `hydra/launcher` puts them, which may be other processes.

Hydra imports and calls what its own settings name. They come from Hydra alone; a person may type those below.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.cli.overrides import Typed, hydra_value
from manyheads.cli.verbs import VERBS, Config
from manyheads.config import RunConfig
from manyheads.config.conversion import Values, convert_named, plain_settings
from manyheads.config.facts import Setting, hooks, settings_where
from manyheads.config.sentences import format_value
from manyheads.errors import UserError
from manyheads.runs.listing import differing_settings
from manyheads.runs.summary import BOTH, NETWORK, models_of
from manyheads.terminal import Sheet, print_sheet, typed_path

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
        models: dict[str, Any] = models_of(summary, "validation")
        score = JobScore(models.get(NETWORK, summary.validation)[chosen_metric(summary)].value)
        score.summary, score.run = summary, config
    elif not missed:
        return None
    score.missed = missed
    return score


def chosen_metric(summary: Any) -> str:
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
    one_by_one = "start each run alone, such as `for n in 2 4; do manyheads train model.n_heads=$n"
    if config.hardware.nodes != 1:
        raise UserError(f"{nodes} is refused under -m, which runs on one device: {one_by_one} {nodes}; done`")
    if config.hardware.devices != 1:
        remedy = f"{one_by_one} {devices}; done`"
        for name, verb in VERBS.items():
            if verb.takes_several and "hardware.devices" not in verb.unread:  # a search, which may use several
                remedy = f"use `manyheads {name} model.n_heads=2,4 {devices}`"
                break
        raise UserError(f"{devices} is refused under -m, which runs on one device: {remedy}")


def check_jobs(configs: Sequence[Config], typed: Typed) -> None:
    """Refuse what a job of a sweep cannot have, before the first is done: what would fail the second once the first has
    trained, such as the same value twice, or an output that several would write to."""
    swept = {**typed.swept_groups, **{name: _values(typed, name) for name in typed.swept}}
    for name, values in swept.items():
        for at, value in enumerate(values):
            if any((type(one), one) == (type(value), value) for one in values[:at]):
                raise UserError(f"{name} is given {format_value(value)} twice: name each value once")
    for config in configs:
        refuse_many_devices(config)
        output = getattr(config, "output", "")  # which `runs` has not
        if output not in ("", "-") and {*typed.varied} - {"output"}:
            raise UserError(
                f"output={output} would be shared by the jobs of -m, but each needs its own: remove it, and name "
                "the folder of them all by hydra.sweep.dir=FOLDER"
            )
    refuse_ranges(typed)


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
    if name in settings_where(RunConfig, verbatim=True):
        return False
    return not any(isinstance(value, dict) or "/" in str(value) for value in _values(typed, name))


def refuse_ranges(typed: Typed) -> None:
    """Refuse `interval(...)` and the like, whose values only an optimising sweeper can choose."""
    if any(word.startswith("hydra/sweeper=") for word in typed.words):
        return
    for key, value in typed.swept.items():
        if value is not None:
            raise UserError(f"{key}={value} names no values one by one: list them, such as {key}=1,2,3")


def of_one_job(composed: Mapping[str, Any], typed: Typed, known: Mapping[str, Setting]) -> Values:
    """The settings of a job that were typed: of several values the one that Hydra has `composed` for it."""
    values = dict(typed.values)
    for name in typed.swept:
        listed = {repr(hydra_value(one)): one for one in _values(typed, name)}
        if repr(composed[name]) in listed:
            values[name] = listed[repr(composed[name])]
        else:  # which a sweeper chose
            values[name] = convert_named(known, name, composed[name])
    return values


def keep_split(values: Values, typed: Typed) -> None:
    """Rows that are carved out stay those of the first seed where seeds vary, which is put into a job's `values`."""
    if _keeps_split(values, typed):
        values["data.split_seed"] = typed.values["seed"]


def say_split(values: Values, typed: Typed) -> None:
    """Say that the jobs of several seeds share their rows."""
    if _keeps_split(values, typed):
        seed = typed.values["seed"]
        print(
            f"seeds vary: rows held out for validation and test are those of seed {seed} in every job, by "
            f"data.split_seed={seed}; type data.split_seed to choose others",
            file=sys.stderr,
        )


def _keeps_split(values: Values, typed: Typed) -> bool:
    of_a_run = "resume" in values and values["data.split_seed"] is None
    seeds_vary = "seed" in typed.swept and "seed" in typed.values
    return of_a_run and seeds_vary and "data.split_seed" not in typed.values


def hydra_words(typed: Typed) -> list[str]:
    """Hydra's own settings of a sweep: its files go under outputs/ and stay few, and what was typed."""
    quiet = [
        "hydra.sweep.dir=outputs/multirun/${now:%Y-%m-%d_%H-%M-%S}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
    ]
    own = [word for word in typed.words if word.startswith(("hydra.", "hydra/"))]
    if typed.varied and all(_fits(typed, name) for name in typed.swept):  # else folders are named by their number
        shared = []  # keys that are no part of a folder's name
        for word in typed.words:
            key = word.partition("=")[0]
            if key not in typed.varied and word not in own and key not in shared:
                shared.append(key)
        quiet.append(f"hydra.job.config.override_dirname.exclude_keys=[{','.join(shared)}]")
        quiet.append("hydra.sweep.subdir=${hydra.job.override_dirname}")
    typed_keys = {word.partition("=")[0] for word in own}
    return own + [word for word in quiet if word.partition("=")[0] not in typed_keys]


def show_jobs(jobs: Sequence[JobScore]) -> None:
    """One table of the runs that were trained, in their order; nothing of fewer than two. Where settings of the network
    vary its own figures are shown, else those of the answers."""
    if len(jobs) < 2:
        return
    summaries = [job.summary for job in jobs]
    folders = [Path(summary.output).absolute() for summary in summaries]
    above = Path(os.path.commonpath([folder.parent for folder in folders]))
    metric = chosen_metric(summaries[0])
    splits = [split for split in ("validation", "test") if all(metric in getattr(one, split) for one in summaries)]
    settings = {str(at): {"settings": plain_settings(job.run)} for at, job in enumerate(jobs)}
    of_network = any(name.startswith(OF_NETWORK) for name in differing_settings(settings))
    weights = [summary.linear for summary in summaries if of_network or summary.linear]  # of the linear model
    has_linear = any(weights)

    columns = ["run"]
    if has_linear:
        columns.append("figures of")
    for split in splits:
        columns += [f"{split} {metric.replace('_', ' ')}", "95 %"]
    lines = []
    for folder, summary in zip(folders, summaries, strict=True):
        line = [str(folder.relative_to(above))]
        model = NETWORK if of_network else next(iter(models_of(summary, "validation")))
        if has_linear:
            line.append(model)
        for split in splits:
            figure = models_of(summary, split)[model][metric]
            line += [f"{figure.value:.4f}", f"{figure.low:.3f}-{figure.high:.3f}"]
        lines.append([*line, f"{summary.steps:,}", f"{summary.wall_seconds / 60:.1f}"])

    notes = []
    if has_linear:
        between = " to ".join(dict.fromkeys([f"{min(weights):.0%}", f"{max(weights):.0%}"]))
        part = f"the linear model has a weight of {between} in each answer"
        if of_network:
            notes = [f"Figures of the network alone, whose settings vary; {part} (linear=false: none)."]
        else:
            notes = [f"{BOTH}: {part}, the network the rest."]
    print_sheet(Sheet(f"{len(lines)} runs in {typed_path(above)}", [*columns, "steps", "minutes"], lines, notes))
