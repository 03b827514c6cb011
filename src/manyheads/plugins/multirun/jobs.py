"""The jobs of `-m`, which Hydra runs. Everything typed is checked first, by the rules of a plain run, except that a
setting may have several values.
"""

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import manyheads.cli.main as cli
from manyheads.cli.compose import base_settings, refuse_resumed, resolve_settings
from manyheads.cli.errors import user_sentence
from manyheads.cli.hydra import plain_config, refuse_settings, run_jobs, this_job
from manyheads.cli.implied import imply_presets
from manyheads.cli.overrides import LOGGING_OVERRIDES, Typed, read_overrides
from manyheads.cli.verbs import VERBS, Config, schema_of
from manyheads.config.conversion import section_and_key
from manyheads.config.facts import settings
from manyheads.config.plugins import use_of_parent
from manyheads.config.required import RequirementError
from manyheads.errors import RunEnded, UserError
from manyheads.plugins.multirun.sweeps import (
    check_jobs,
    hydra_words,
    keep_split,
    of_one_job,
    refuse_many_devices,
    say_split,
    score_of,
    show_jobs,
    with_output,
)
from manyheads.runs.folder import refuse_unwritable_output
from manyheads.terminal import escape_unwritable

Task = Callable[[Callable[[], Config]], Any]  # what to do with a function that makes the settings of a job


def run_sweep(verb: str, overrides: Sequence[str], config_dir: str | None) -> int:
    """Run the jobs; returns the exit code."""
    if VERBS[verb].no_multirun:
        raise UserError(f"-m does nothing in {verb}, which {VERBS[verb].no_multirun}: remove it")
    code = 0
    for score in sweep(verb, overrides, partial(one_of_many, verb, os.getpid()), config_dir):
        if score is not None and score.missed:
            code = cli.say_sentence(score.missed, RequirementError.exit_code)
    return code


def sweep(verb: str, overrides: Sequence[str], task: Task, config_dir: str | None = None) -> list[Any]:
    """Run `task` for each job.

    Returns:
        What the task returned for each job, which another launcher ran elsewhere; nothing where a sweeper keeps it to
        itself.
    """
    refuse_resumed(verb, overrides, "-m")
    typed = read_overrides(verb, overrides, config_dir=config_dir, sweep=True)
    imply_presets(verb, typed, config_dir)
    base = base_settings(verb, typed, typed.groups, config_dir)
    configs = []
    for varied in ({}, *typed.later):
        job = replace(typed, values=typed.values | varied)
        its_base = base_settings(verb, job, typed.groups, config_dir) if "again" in varied else base
        configs.append(resolve_settings(its_base, job.values, typed.varied))
    check_jobs(configs, typed)
    own = [*hydra_words(typed), *LOGGING_OVERRIDES]
    refuse_settings(verb, typed, own, config_dir)
    for word in own:
        if word.startswith("hydra.sweep.dir="):
            refuse_unwritable_output(word.partition("=")[2].partition("/${")[0], setting="hydra.sweep.dir")
    say_split(base.values, typed)
    run_one = partial(_run_job, verb=verb, typed=typed, config_dir=config_dir, task=task)
    open_keys = [name for name in typed.swept if name not in settings(schema_of(verb))]
    words = [word for word in typed.words if word not in own]
    scores = run_jobs(verb, words + own, config_dir, run_one, open_keys)
    show_jobs([score for score in scores if score is not None and score.summary])
    return scores


def _run_job(config: Any, verb: str, typed: Typed, config_dir: str | None, task: Task) -> Any:
    """What the task makes of one job, for which Hydra has composed `config`: of that only what varies is read. All
    arguments can be pickled for a launcher that runs the job in another process."""
    use_of_parent()  # in the process of a launcher
    chosen, folder = this_job()
    groups = typed.groups | {group: chosen[group] for group in typed.swept_groups}
    plain = plain_config(config)
    composed = {}
    for name in typed.swept:
        section, key = section_and_key(plain, name)
        composed[name] = section[key]
    values = of_one_job(composed, typed, settings(schema_of(verb)))
    base = base_settings(verb, replace(typed, values=values), groups, config_dir)
    keep_split(base.values, typed)
    return task(lambda: with_output(resolve_settings(base, values, typed.varied), folder))


def one_of_many(verb: str, sweeper: int, make: Callable[[], Config]) -> Any:
    """One job of a sweep; returns its `JobScore`. A figure that is missed ends no sweep.

    A mistake ends the whole sweep with its sentence, not with Hydra's traceback. In another process than `sweeper` it
    becomes a `UserError`: Hydra hands exceptions to the sweep, but none that ends the process, such as SystemExit.
    """
    is_here = os.getpid() == sweeper
    escape_unwritable()
    try:
        config = make()
        refuse_many_devices(config)
        try:
            summary, missed = cli.call(verb, config), ""
        except RequirementError as error:
            summary, missed = error.summary, str(error)
        return score_of(config, summary, missed)
    except BrokenPipeError as error:
        raise SystemExit(cli.reader_left()) from error
    except (SystemExit, RunEnded) as stop:
        code = stop.exit_code if isinstance(stop, RunEnded) else stop.code
        if is_here:
            raise SystemExit(code) from stop
        raise UserError(f"a job of the sweep ended with exit code {code}") from stop
    except Exception as error:
        sentence = user_sentence(error)
        if sentence is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
            if not is_here:
                traceback.print_exc()  # which is lost on the way to the sweep
            raise
        if is_here:
            raise SystemExit(cli.say_sentence(sentence, cli.code_of(error))) from error
        raise UserError(sentence) from error
