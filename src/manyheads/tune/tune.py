"""The verb `tune`: a process for each setting and seed, ranked by the validation split. It trains nothing itself."""

import logging
import re
import shlex
from dataclasses import replace
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from manyheads.compose import GRAMMAR
from manyheads.config import Method, TuneConfig
from manyheads.config.tune import OF_OPTUNA
from manyheads.data.rows import Splits
from manyheads.data.sources import read_splits
from manyheads.door.ends import BY_DATA
from manyheads.door.idle import refuse_idle
from manyheads.door.words import as_words, plain_settings
from manyheads.fit.checks import check_class_names, check_end, check_logger, check_long, check_pair
from manyheads.fit.resume import FREE
from manyheads.ranks import this_process
from manyheads.teacher import check_teacher
from manyheads.terminal import shown
from manyheads.tune.journal import Journal, open_journal
from manyheads.tune.outcome import Outcome, State
from manyheads.tune.plan import check_distinct, plan_settings
from manyheads.tune.queue import Asked, Listed
from manyheads.tune.ranking import Ranked, best_of, rank
from manyheads.tune.work import run_missing

log = logging.getLogger("manyheads.tune")


def tune(config: TuneConfig) -> list[Ranked]:
    """Make the runs that the journal lacks, then print and write what all of them came to.

    Returns:
        The settings, best first.

    Raises:
        Stopped: a signal ended the search; its runs have saved, and the same words go on.
        ValueError: a mistake in the settings or the data, found before anything is written; a folder that holds
            another search; no run that came to a figure.
    """
    check_search(config)
    planned = plan_settings(config) if config.chosen in (Method.grid, Method.random) else None
    check_distinct(config, planned)
    splits = read_splits(config.data, config.seed, task=config.task, with_test=False)
    asked, config = config, replace(config, checkpoint=config.checkpoint.settled(config.task, multi=splits.multi))
    check_class_names(config.optim.class_weights, splits.labels)
    check_pair(config.model, pairs=splits.train.pairs is not None)
    check_long(config.data, pairs=splits.train.pairs is not None)
    check_teacher(config.teacher, splits)
    folder = Path(config.output or f"outputs/{_folder_name(config)}").absolute()
    with open_journal(folder, question(config, splits)) as journal, shown(log):
        run_missing(config, make_queue(config, planned, folder, journal), journal)
        outcomes = journal.outcomes
    ranked = rank(outcomes, seeds_of(config), config.checkpoint.metric)
    best = best_of(ranked)
    show(config, folder, ranked, outcomes, "" if best is None else final_command(asked, best))
    return ranked


def check_search(config: TuneConfig) -> None:
    """What is refused before the data is read.

    Raises:
        ValueError: one sentence.
    """
    if config.needs_optuna and find_spec("optuna") is None:
        asked = f"method={config.method.name}" if config.method in OF_OPTUNA else f"prune={config.prune.name}"
        raise ValueError(f"{asked} needs a package that is not installed: pip install 'manyheads[tune]'")
    if config.jobs > 1 and config.hardware.devices != 1:
        raise ValueError(
            f"jobs={config.jobs} with hardware.devices={config.hardware.devices} would put several runs on the same "
            "devices: leave one of them at 1"
        )
    if this_process().started_by:
        raise ValueError(
            f"tune starts its own processes, but {this_process().started_by} started several of it: start it once, "
            "without"
        )
    check_end(config.trainer)
    check_logger(config.logger)
    run = config.run({})
    for axis in config.axes():
        refuse_idle(run, {axis.name: config.search[axis.name]})


def question(config: TuneConfig, splits: Splits) -> dict[str, Any]:
    """What a folder's search must have in common with the one that goes on in it, versions included."""
    free = FREE | {"hardware.threads", "seed"}
    run = {name: value for name, value in plain_settings(config.run({})).items() if name not in free}
    digest = blake2b(digest_size=16)
    for rows in (splits.train, splits.validation):
        for column in (rows.texts, rows.pairs, rows.targets, rows.sets or rows.labels):
            digest.update(repr(column).encode())
    also = blake2b(digest_size=16)
    for file in (file for path in config.pretrain.also for file in _files(Path(path).expanduser())):
        also.update(blake2b(file.read_bytes()).digest())
    asked = {"search": config.search, "method": config.chosen.name, "prune": config.prune.name}
    asked |= {name: version(name) for name in ("manyheads", "torch")}
    asked |= {"minutes": config.minutes, "seed": config.seed, "data": digest.hexdigest()}
    return {**asked, "pretrain.also": also.hexdigest() if config.pretrain.also else "", **run}


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def seeds_of(config: TuneConfig) -> range:
    return range(config.seed, config.seed + config.seeds)


def make_queue(
    config: TuneConfig, planned: list[dict[str, Any]] | None, folder: Path, journal: Journal
) -> Listed | Asked:
    """Who says which run is next."""
    if planned is not None and not config.needs_optuna:
        return Listed(planned, seeds_of(config), journal)
    from manyheads.tune.study import Study

    return Asked(Study(config, folder, planned), config.n_trials, seeds_of(config), journal)


def show(config: TuneConfig, folder: Path, ranked: list[Ranked], outcomes: list[Outcome], command: str) -> None:
    """Print the table, where its files lie, and the `command` that trains the best setting.

    Raises:
        ValueError: no run came to a figure.
    """
    from manyheads.sheet import print_sheet
    from manyheads.terminal import as_text, console, show_files
    from manyheads.tune.page import write_results
    from manyheads.tune.sheets import MOST_LINES, sheet_of

    best = best_of(ranked)
    files = write_results(folder, config, ranked, outcomes, command)
    print_sheet(sheet_of(config, ranked, MOST_LINES))
    show_files(folder, files)
    if best is None:
        raise ValueError(f"no run came to a figure: {folder / 'trials.csv'} says of each why")
    console().print(as_text(f"train trial {best.trial} and judge it on the test split: {command}"), soft_wrap=True)


def final_command(config: TuneConfig, best: Ranked) -> str:
    """What trains a setting with the first seed, as `train` does, and reads the test split. A run that its minutes
    ended is trained for as many steps, within which its rate comes down: a limit on time would leave it unjudged."""
    run = config.run(best.setting)
    run.test = run.linear = True
    first = best.runs[0]
    if first.state is State.late:
        run = replace(run, budget="", trainer={**run.trainer, "max_steps": first.steps})
        if config.budget:  # which no limit of epochs, rows or classes cut short
            run = replace(run, optim=replace(run.optim, **dict.fromkeys(BY_DATA, 0)))
            run.trainer["max_epochs"] = -1
    return shlex.join(["manyheads", "train", *as_words(run, GRAMMAR.quote)])


def _folder_name(config: TuneConfig) -> str:
    return re.sub(r"[^\w-]+", "-", "-".join(["tune", *(name.rpartition(".")[2] for name in config.search)]))
