"""The verb `tune`: settings tried, a process for each setting and seed, and ranked by the validation split.

The road of a search:

    config.py       the settings: what varies, how it is drawn, and sections of a run that all trials share
    axes.py         one setting that varies: its values, or its range
    tune.py         the trials: all settings of a grid, or random draws; of Optuna's they are drawn on the way
    journal.py      the queue of trials, and the file of what each came to; optuna.py and shared.py have other queues
    scheduler.py    a process for each trial: started, watched, resumed, its outcome (outcomes.py) written down
    ranking.py      settings from best to worst, report.html, search.json and trials.csv

A search that was stopped is continued by the same command (same_search.py). This process imports no torch.
"""

import logging
import random
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import manyheads.plugin as plugin
from manyheads.cli.grammar import write
from manyheads.cli.implied import BY_DATA, LIMITS, PRESETS
from manyheads.cli.presets import preset_values
from manyheads.cli.validation import refuse_unused
from manyheads.config import RunConfig
from manyheads.config.conversion import plain_settings, to_plain, with_flags
from manyheads.config.facts import hooks, replace_settings, settings, settings_where
from manyheads.config.plugins import plugin_words
from manyheads.config.sentences import install_extra
from manyheads.config.trainer_flags import check_training
from manyheads.data.checks import check_rows
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.distributed.ranks import this_process
from manyheads.errors import UserError
from manyheads.inference.origin import with_rows
from manyheads.plugins.sweep.config import OF_OPTUNA, CurveConfig, Method, TuneConfig
from manyheads.plugins.sweep.journal import Journal, open_journal
from manyheads.plugins.sweep.outcomes import RunState, Trial
from manyheads.plugins.sweep.same_search import search_settings
from manyheads.plugins.sweep.scheduler import Search
from manyheads.runs.folder import refuse_unwritable_output
from manyheads.terminal import log_to_screen, print_sheet, say, show_files

if TYPE_CHECKING:
    from manyheads.plugins.sweep.optuna import StudyQueue
    from manyheads.plugins.sweep.ranking import Ranked

QUOTED = re.compile(r"(['\"])(.*)\1", re.DOTALL)
PATIENCE = 10_000  # draws in a row of settings that are known, before a range is said to hold no more
log = logging.getLogger("manyheads.tune")


def tune_settings(config: TuneConfig) -> "list[Ranked]":
    """Search; returns the settings, best first."""
    return search(config)[0]


def tune_record(config: TuneConfig) -> dict[str, Any]:
    """Search; returns the content of search.json."""
    return search(config)[1]


def search(config: TuneConfig) -> "tuple[list[Ranked], dict[str, Any]]":
    """Make the runs that the journal lacks, then rank the settings, print them and write the report.

    Returns:
        The settings, best first, and the content of search.json.

    Raises:
        Stopped: a signal ended the search; its runs have saved, and the same command resumes it.
        UserError: a mistake in the settings or the data, found before anything is written; a folder that holds
            another search; no run that came to a figure.
    """
    check_search(config)
    last_parts = [name.rpartition(".")[2] for name in config.search]
    name = re.sub(r"[^\w-]+", "-", "-".join(["tune", *last_parts]))
    folder = Path(config.output or f"outputs/{name}").absolute()
    refuse_unwritable_output(str(folder))
    planned = plan_settings(config) if config.chosen in (Method.grid, Method.random) else None
    splits = read_splits(config.data, config.seed, answer=plugin.task(config.task).column, with_test=False)
    checkpoint = config.checkpoint.settled(config.task, multi=splits.multi)
    typed, config = config, replace(config, checkpoint=checkpoint)
    check_rows(config.run({}), splits)
    with open_queue(config, planned, folder, search_settings(config, splits)) as queue, log_to_screen(log):
        if queue.outcomes:
            log.info("%d runs are in the journal already", len(queue.outcomes))
        Search(config, queue, splits).run()
        outcomes = queue.outcomes

    from manyheads.plugins.sweep.ranking import MOST_LINES, rank, search_table, write_results

    ranked = rank(outcomes, seeds_of(config), config.checkpoint.metric, folds=config.data.folds > 0)
    best = ranked[0] if ranked and ranked[0].values else None
    command = "" if best is None else final_command(typed, best, splits)
    table = search_table(config, ranked)
    files = write_results(folder, config, table, outcomes, command)
    print_sheet(search_table(config, ranked, MOST_LINES).as_sheet())
    show_files(folder, files)
    if best is None:
        raise UserError(f"no run came to a figure: {folder / 'trials.csv'} says of each why")
    say(f"train trial {best.trial} and judge it on the test split: {command}")
    return ranked, asdict(table)


def check_search(config: TuneConfig) -> None:
    """What is refused before the data is read.

    Raises:
        UserError: one sentence.
    """
    for refuse in hooks(config, "refuse"):
        refuse(config, "here")
    if config.needs_optuna and find_spec("optuna") is None:
        if config.storage:
            typed = f"storage={config.storage}"
        elif config.method in OF_OPTUNA:
            typed = f"method={config.method.name}"
        else:
            typed = f"prune={config.prune.name}"
        raise UserError(f"{typed} needs a package that is not installed: {install_extra('tune')}")
    refuse_many_processes(config, "tune")
    check_training(config.trainer)
    run = config.run({})
    for axis in config.axes():
        refuse_unused(run, {axis.name: config.search[axis.name]}, config.search)


def refuse_many_processes(config: TuneConfig | CurveConfig, verb: str) -> None:
    """Refuse several processes of a search, or several runs on the devices of one."""
    if config.jobs > 1 and config.hardware.devices != 1:
        raise UserError(
            f"jobs={config.jobs} with hardware.devices={config.hardware.devices} would put several runs on the same "
            "devices: leave one of them at 1"
        )
    if this_process().started_by:
        raise UserError(
            f"{verb} starts its own processes, but {this_process().started_by} started several of it: start it once, "
            "without"
        )


def plan_settings(config: TuneConfig) -> list[dict[str, Any]]:
    """All settings of a grid, the last axis fastest, or draws of which none comes twice.

    More draws of the same search begin with the same ones.

    Raises:
        UserError: ranges so narrow that they hold fewer settings.
    """
    axes = config.axes()
    if config.chosen is Method.grid:
        listed = [axis.listed or () for axis in axes]
        return [dict(zip(config.search, values, strict=True)) for values in product(*listed)]
    generator = random.Random(f"tune {config.seed}")  # noqa: S311 - settings, not secrets
    found: dict[str, dict[str, Any]] = {}
    n_trials, is_finite, in_vain = config.n_trials, config.size is not None, 0
    while len(found) < n_trials:  # a finite space has at least as many settings: `TuneConfig` checks it
        setting = {axis.name: axis.draw(generator) for axis in axes}
        if repr(setting) not in found:
            found[repr(setting)] = setting
            in_vain = 0
            continue
        in_vain += 1
        if in_vain >= PATIENCE and not is_finite:
            ranges = " ".join(f"{axis.name}={config.search[axis.name]}" for axis in axes if axis.listed is None)
            raise UserError(
                f"{ranges}: only {len(found)} different settings were found for {n_trials} trials, as numbers are "
                f"drawn with few digits: add trials={len(found)}, or search a wider range"
            )
    return list(found.values())


def seeds_of(config: TuneConfig) -> range:
    """The seeds of the runs of each setting."""
    return range(config.seed, config.seed + config.n_runs)


@contextmanager
def open_queue(
    config: TuneConfig, planned: list[dict[str, Any]] | None, folder: Path, search: dict[str, Any]
) -> "Iterator[Journal | StudyQueue]":
    """The queue of a search: which run is next, and those that have ended. Settings known beforehand are all run with
    the first seed before any is with the next, so that a stop leaves whole tables."""
    seeds = seeds_of(config)
    if config.storage:
        from manyheads.plugins.sweep.shared import join_search

        with join_search(config, planned, seeds, folder, search) as shared:
            yield shared
        return
    with open_journal(folder, search) as journal:
        if planned is None or config.needs_optuna:
            from manyheads.plugins.sweep.optuna import LocalQueue

            yield LocalQueue(config, planned, seeds, journal)
        else:
            trials = []
            for seed in seeds:
                trials += [Trial(number, seed, setting) for number, setting in enumerate(planned, start=1)]
            journal.trials = iter(trials)
            yield journal


def final_command(config: TuneConfig, best: "Ranked", splits: Splits) -> str:
    """The command that trains a setting with the first seed, as the trial was resolved by its rows `splits`, and judges
    it on the test split. A run that its minutes ended is trained for as many steps, within which its rate comes down: a
    limit on time would leave it unjudged."""
    run = with_rows(config.run(best.setting), splits)
    run = replace_settings(run, {"test": True, "linear": True, "data.folds": 0})
    first = best.runs[0]
    if first.state is RunState.late:
        run = replace(run, budget="", trainer={**run.trainer, "max_steps": first.steps})
        if config.budget:  # which no limit of epochs, rows or classes cut short
            run = replace(run, optim=replace(run.optim, **dict.fromkeys(BY_DATA, 0)))
            run.trainer["max_epochs"] = -1
    return shlex.join(["manyheads", "train", *train_words(run)])


def train_words(run: RunConfig) -> list[str]:
    """`key=value` of every setting that is not the default and that something reads, in the order of declaration, as
    they are typed in Hydra's grammar."""
    plain, usual = plain_settings(run), _usual_settings(run)
    verbatim = settings_where(RunConfig, verbatim=True)
    if not run.budget and any(plain.get(name) != usual.get(name) for name in LIMITS):
        usual |= {f"optim.{name}": 0 for name in BY_DATA}  # a limit that is typed takes their place
    words = plugin_words()
    for name, value in plain.items():
        if name == "plugins" or value == usual.get(name, ...) or not _is_read(run, name, value):
            continue
        one = settings(RunConfig).get(name)  # none of a flag of `trainer`
        is_text = one is not None and one.is_text and isinstance(value, str)
        as_it_is = is_text and value != "null" and not QUOTED.fullmatch(value)
        words.append(f"{name}={value}" if name in verbatim or as_it_is else f"{name}={write(value)}")
    return words


def _usual_settings(run: RunConfig) -> dict[str, Any]:
    """What such a run has by default, by dotted name, presets included. What weights decide is left out."""
    presets = preset_values("train", {"task": run.task} | (PRESETS if run.init_from else {}))
    usual = to_plain(with_flags(presets)) | {"task": "classify"}  # another is typed, which chooses the preset
    if run.data.source == ("files" if run.data.path else "hub"):
        usual["data.source"] = run.data.source  # which data.path or data.hub implies
    if not run.init_from:
        return usual
    decided = {
        "data.max_length",
        *settings_where(RunConfig, weights="default"),
        *settings_where(RunConfig, weights="free"),
    }
    return {name: value for name, value in usual.items() if name not in decided}


def _is_read(run: RunConfig, name: str, value: Any) -> bool:
    if name in LIMITS and run.budget:
        return False
    try:
        refuse_unused(run, {name: value})
    except ValueError:
        return False
    return True
