"""The command line handed over to Hydra: the jobs of `-m`, `--info`, and completion.

Everything typed is checked first, by the rules of a plain run, except that `-m` takes several values.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from manyheads.cli.compose import base_settings, resolve_settings
from manyheads.cli.hydra import plain_config, refuse_settings, run_app, run_jobs, this_job
from manyheads.cli.implied import imply_presets, resumed_folder
from manyheads.cli.overrides import LOGGING_OVERRIDES, Typed, hydra_word, read_overrides
from manyheads.cli.sweeps import check_jobs, hydra_words, keep_split, of_one_job, say_split, show_jobs, with_output
from manyheads.cli.verbs import Config, schema_of
from manyheads.config.conversion import section_and_key
from manyheads.config.facts import settings
from manyheads.config.plugins import use_of_parent
from manyheads.errors import UserError
from manyheads.runs.folder import refuse_unwritable_output

Task = Callable[[Callable[[], Config]], Any]  # what to do with a function that makes the settings of a job


def run_hydra(
    verb: str, flags: Sequence[str], overrides: Sequence[str], task: Task, config_dir: str | None = None
) -> list[Any]:
    """Run `task` for each job of `-m`, or print what `--info` or completion asks for.

    Returns:
        What the task returned for each job of `-m`, which another launcher ran elsewhere; nothing where a sweeper keeps
        it to itself.
    """
    sweep, (_, folder) = "-m" in flags, resumed_folder(verb, overrides)
    if folder:
        flag = "-m" if sweep else "--info"
        raise UserError(
            f"resume={folder} does not go with {flag}, as its settings are those of the config.yaml in it: read them "
            f"there, or remove {flag}"
        )
    typed = read_overrides(verb, overrides, config_dir=config_dir, sweep=sweep)
    imply_presets(verb, typed, config_dir)
    base = base_settings(verb, typed, typed.groups, config_dir)
    if not sweep:
        refuse_settings(verb, typed, [], config_dir)
        values = dict(typed.values)
        if typed.search:
            values["search"] = base.values["search"]
        words = [f"++{name}={hydra_word(value)}" for name, value in values.items()]
        run_app(verb, flags, [*typed.words, *words], config_dir)
        return []

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
