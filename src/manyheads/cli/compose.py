"""Presets and typed words in, the checked settings of a verb out.

The presets of the package are read here, as values that lie over one another: Hydra, which composes the same, takes
twice as long as all else before an error is reported. It is asked for a person's own presets, for the jobs of a sweep,
and about a file that is mistaken. What is typed never passes through it but for what a sweep varies.
"""

import copy
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, overload

from yaml import YAMLError

import manyheads.plugin as plugin
from manyheads.cli.implied import (
    PRESETS,
    apply_other_pretrained,
    apply_pretrained,
    imply_finetuning,
    merge_search,
    repeated_values,
    resumed_folder,
    resumed_values,
    settle_limits,
    settle_paths,
)
from manyheads.cli.overrides import LOGGING_OVERRIDES, Typed, hydra_word, read_overrides
from manyheads.cli.sweeps import (
    check_jobs,
    hydra_words,
    keep_split,
    of_one_job,
    say_split,
    with_output,
)
from manyheads.cli.validation import refuse_secrets, refuse_unused
from manyheads.cli.verbs import VERBS, Config, own_settings, preset_file, schema_of
from manyheads.config.conversion import by_dotted_name, convert, from_plain, refuse_code, section_and_key, to_plain
from manyheads.config.facts import settings, settings_where
from manyheads.config.plugins import recorded, take_plugins, use, use_of_parent
from manyheads.errors import UserError
from manyheads.runs.config_file import as_yaml, plain_yaml, read_run
from manyheads.terminal import writes_unicode

if TYPE_CHECKING:
    from manyheads.config import EvaluateConfig, PredictConfig, RunConfig

PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
OVERRIDE = "override /"  # of a group by a preset of another
Words = Sequence[str]
Choices = Mapping[str, str | None]  # the preset of each group that was typed
Bring = Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]  # trained weights into settings: see `_resolved`


@overload
def compose(
    verb: Literal["train"], overrides: Words = ..., *, config_dir: str | None = ..., plugins: Words = ...
) -> "RunConfig": ...
@overload
def compose(
    verb: Literal["evaluate"], overrides: Words = ..., *, config_dir: str | None = ..., plugins: Words = ...
) -> "EvaluateConfig": ...
@overload
def compose(
    verb: Literal["predict"], overrides: Words = ..., *, config_dir: str | None = ..., plugins: Words = ...
) -> "PredictConfig": ...
@overload
def compose(verb: str, overrides: Words = ..., *, config_dir: str | None = ..., plugins: Words = ...) -> Config: ...
def compose(verb: str, overrides: Words = (), *, config_dir: str | None = None, plugins: Words = ()) -> Config:
    """The settings of a verb: its presets, then the typed `key=value` words, checked.

    Works in a notebook, any number of times, also inside a running Hydra application.

    Args:
        config_dir: a folder of your own presets, searched after conf/.
        plugins: your own: installed modules, or files such as `./my_parts.py`. They stay registered.

    Raises:
        UserError: one sentence on the first mistake.
    """
    use(plugins)
    words, folder = resumed_folder(verb, take_plugins(overrides))
    typed = read_overrides(verb, words, more=config_dir)
    if folder:
        return _resumed(verb, folder, typed)
    _imply_presets(verb, typed, config_dir)
    if config_dir:
        from manyheads.cli.hydra import refuse_settings

        refuse_settings(verb, typed, [], config_dir)
    values, own, bring = _base(verb, typed, typed.groups, config_dir)
    return _resolved(verb, values, own, bring, typed.values)


def _base(
    verb: str, typed: Typed, groups: Choices, config_dir: str | None
) -> tuple[dict[str, Any], Mapping[str, Any], Bring]:
    """What settings are before words are put over them: those of presets, or of the run that is trained `again`; what
    the experiment itself sets of them; and what brings trained weights into them."""
    if folder := typed.values.get("again"):
        return _run_again(verb, folder, typed, groups, config_dir), {}, apply_other_pretrained
    values = preset_values(verb, groups, config_dir)
    use(values.get("plugins", ()))  # of a person's own preset
    merge_search(values, typed)
    name = groups.get("experiment")
    own = own_settings("experiment", name, config_dir) if name else {}
    tried = plugin.resolve(VERBS[verb].takes_several)
    return values, own, partial(apply_pretrained, own=own, tried=tried)


def _run_again(verb: str, folder: str, typed: Typed, groups: Choices, config_dir: str | None) -> dict[str, Any]:
    """The settings of the run in `folder`, which is trained once more, under the presets that were typed with it."""
    if not os.path.isfile(os.path.join(os.path.expanduser(folder), "config.yaml")):
        raise UserError(f"again={folder} is not the folder of a run with its config.yaml")
    run, schema = read_run(os.path.expanduser(folder)), schema_of(verb)
    if VERBS[verb].task not in ("", run.task):
        raise UserError(f"again={folder} is a run of train: write manyheads train again={folder}")
    usual = preset_values(verb, {"optim": PRESETS["optim"]} if run.optim.limits_by_data else {})
    values, plain = repeated_values(run, typed, usual["trainer"]), by_dotted_name(schema, preset_values(verb, {}))
    for group, name in groups.items():
        chosen = by_dotted_name(schema, preset_values(verb, {group: name}, config_dir)) if name else {}
        own = own_settings(group, name, config_dir) if name else {}
        for one, value in chosen.items():
            if one.startswith(f"{group}.") or one in own or value != plain.get(one, value):
                section, key = section_and_key(values, one)
                section[key] = value
    return values


def _resumed(verb: str, folder: str, typed: Typed) -> Config:
    """The settings of the run in `folder`, with which it is resumed."""
    run = read_run(folder)
    groups: Choices = {"optim": PRESETS["optim"]} if run.optim.limits_by_data else {}
    values = resumed_values(to_plain(run), folder, typed, usual=preset_values(verb, groups)["trainer"])
    return _resolved(verb, values, {}, lambda values, typed: typed, typed.values)


def _resolved(
    verb: str,
    values: dict[str, Any],
    own: Mapping[str, Any],
    bring: Bring,
    typed: dict[str, Any],
    varied: Collection[str] = (),
) -> Config:
    """The one way from `values`, what presets or a run say, and `typed` words, by dotted name, to checked settings.

    Args:
        own: what the experiment itself sets.
        bring: puts what trained weights fix into the values, and returns what was typed, with their place.
        varied: settings and groups of presets that differ among the jobs of `-m`.
    """
    schema = schema_of(verb)
    refuse_code(values, verbatim=settings_where(schema, verbatim=True))
    typed = bring(values, typed)  # what presets say gives way to trained weights,
    for name, value in typed.items():  # both to what is typed
        section, key = section_and_key(values, name)
        section[key] = value
    if "plugins" in values:
        values["plugins"] = recorded()
    refuse_secrets(values)
    settle_limits(values, typed, own)  # of training: one takes the place of others
    settle_paths(verb, values)
    config = from_plain(schema, values)  # converts and checks each setting, and those that go together
    refuse_unused(config, typed, varied)
    return config


def shown(verb: str, flags: Sequence[str], overrides: Sequence[str], config_dir: str | None = None) -> str:
    """What `--cfg` prints: the checked settings as YAML (job), Hydra's own (hydra), or both (all), or a part of them.

    Raises:
        UserError: one sentence on the first mistake.
    """
    given = dict(pairwise(flags))
    plain: dict[str, Any] = {}
    if given["--cfg"] != "hydra":
        plain = to_plain(compose(verb, overrides, config_dir=config_dir))
    if given["--cfg"] != "job":
        from manyheads.cli.hydra import composed, settings_of_hydra

        words, _ = resumed_folder(verb, overrides)
        typed = read_overrides(verb, words, more=config_dir)
        plain["hydra"] = settings_of_hydra(composed(verb, typed.groups, [], config_dir), resolve="--resolve" in flags)
    package = given.get("--package", "_global_")
    for key in package.split(".") if package != "_global_" else ():
        if not isinstance(plain, dict) or key not in plain:
            raise UserError(f"--package {package} is no part of the settings: name a section, such as --package model")
        plain = plain[key]
    return as_yaml(plain, escaped=not writes_unicode()).removesuffix("...\n")  # after a single value


def run_hydra(
    verb: str,
    flags: Sequence[str],
    overrides: Sequence[str],
    task: Callable[[Callable[[], Config]], Any],
    config_dir: str | None = None,
) -> list[Any]:
    """Hand the command line to Hydra over the same task: `-m`, `--info`, completion.

    `task` gets a function that makes the settings of its job. Everything typed is checked first by the rules
    of a plain run, except that `-m` takes several values.

    Returns:
        What the task returned for each job of `-m`, which another launcher ran elsewhere; nothing where a sweeper keeps
        it to itself.

    Raises:
        UserError: one sentence on the first mistake.
    """
    from manyheads.cli.hydra import refuse_settings, run_app, run_jobs

    sweep, (_, folder) = "-m" in flags, resumed_folder(verb, overrides)
    if folder:
        flag = next(one for one in flags if one in ("-m", "--info"))
        raise UserError(
            f"resume={folder} does not go with {flag}, as its settings are those of the config.yaml in it: read them "
            f"there, or remove {flag}"
        )
    typed = read_overrides(verb, overrides, more=config_dir, sweep=sweep)
    _imply_presets(verb, typed, config_dir)
    values, of_experiment, bring = _base(verb, typed, typed.groups, config_dir)
    own = [*hydra_words(typed), *LOGGING_OVERRIDES] if sweep else []

    def resolved(further: dict[str, Any]) -> Config:
        job, base = replace(typed, values=typed.values | further), copy.deepcopy(values)
        if "again" in further:  # another run
            base, _, _ = _base(verb, job, typed.groups, config_dir)
        return _resolved(verb, base, of_experiment, bring, job.values, _varied(typed))

    check_jobs(map(resolved, ({}, *typed.later) if sweep else ()), typed)
    refuse_settings(verb, typed, own, config_dir)
    words = [word for word in typed.words if word not in own]
    if sweep:
        say_split(values, typed)
        run_one = partial(_one_job, verb=verb, typed=typed, config_dir=config_dir, task=task)
        open_keys = [name for name in typed.swept if name not in settings(schema_of(verb))]
        return run_jobs(verb, words + own, config_dir, run_one, open_keys)
    further = typed.values | ({"search": values["search"]} if typed.search else {})
    run_app(verb, flags, words + [f"++{name}={hydra_word(one)}" for name, one in further.items()], config_dir)
    return []


def _one_job(
    config: Any, verb: str, typed: Typed, config_dir: str | None, task: Callable[[Callable[[], Config]], Any]
) -> Any:
    """What the task makes of one job; all of it can be pickled for a launcher that runs it in another process."""
    from manyheads.cli.hydra import plain_values, this_job

    use_of_parent()  # in the process of a launcher
    chosen, folder = this_job()
    groups = typed.groups | {group: chosen[group] for group in typed.swept_groups}
    composed = {name: section_and_key(plain_values(config), name) for name in typed.swept}
    own = of_one_job({name: section[key] for name, (section, key) in composed.items()}, typed)
    values, of_experiment, bring = _base(verb, replace(typed, values=own), groups, config_dir)
    keep_split(values, typed)
    return task(lambda: with_output(_resolved(verb, values, of_experiment, bring, own, _varied(typed)), folder))


def _varied(typed: Typed) -> set[str]:
    return {*typed.swept, *typed.swept_groups}


def _imply_presets(verb: str, typed: Typed, config_dir: str | None) -> None:
    """`init_from=` means presets, and so do `data.path=` and `data.hub=`, unless an experiment chose its data."""
    if typed.values.get("again"):
        return  # the settings of the run are all there
    imply_finetuning(verb, typed)
    wanted = "files" if typed.values.get("data.path") else "hub" if typed.values.get("data.hub") else None
    if wanted is None or "data" in typed.groups:
        return
    composed = preset_values(verb, typed.groups, config_dir) if typed.groups.get("experiment") else {}
    if composed and composed["data"]["source"] in ("files", "hub"):
        return
    typed.choose("data", wanted)


def preset_values(verb: str, groups: Choices, config_dir: str | None = None) -> dict[str, Any]:
    """What the presets say, as Hydra composes them."""
    if config_dir:
        from manyheads.cli.hydra import composed, plain_values

        return plain_values(composed(verb, groups, [], config_dir))
    return copy.deepcopy(_stock_values(verb, tuple(groups.items()), plugin.changes()))


@lru_cache(maxsize=64)
def _stock_values(verb: str, groups: tuple[tuple[str, str | None], ...], changes: int) -> dict[str, Any]:
    """What the presets of the package say: those of `groups`, and of all others the usual ones."""
    try:
        return merge_presets(verb, dict(groups))
    except (ValueError, LookupError, OSError, YAMLError):  # which Hydra says by file and key
        from manyheads.cli.hydra import composed, plain_values

        return plain_values(composed(verb, dict(groups), [], None))


def merge_presets(verb: str, groups: Choices) -> dict[str, Any]:
    """The values of the package's presets over the defaults, each over those before it.

    Raises:
        ValueError, LookupError, OSError, YAMLError: a file holds more than that, or what a setting cannot be.
    """
    schema, root = schema_of(verb), {"defaults": [VERBS[verb].groups]}
    if preset_file("", verb) is not None:
        (root,) = _read_preset(verb, "", verb)
    if [*root] != ["defaults"]:
        raise LookupError(verb)
    fixed = {group: name for group, name in groups.items() if name}
    chosen = dict(pair for entry in root["defaults"] if isinstance(entry, dict) for pair in entry.items()) | fixed
    said: dict[str, list[dict[str, Any]]] = {}
    for group in reversed(chosen):  # the last may choose for those before it, but not what was typed
        said[group] = _read_preset(verb, group, chosen[group] or "")
        for entry in [entry for one in said[group] for entry in one.pop("defaults", ())]:
            key, name = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else ("", "")
            other = key.removeprefix(OVERRIDE)
            if other == key or other not in chosen or other in said:
                raise LookupError(key)
            chosen[other] = fixed.setdefault(other, name)
    values: dict[str, Any] = {}
    for name, one in settings(schema).items():
        section, _, key = name.rpartition(".")
        (values.setdefault(section, {}) if section else values)[key] = to_plain(one.default)
    for group in chosen:
        for one in said[group]:
            _merge(schema, values, one)
    return values


def _read_preset(verb: str, group: str, names: str) -> list[dict[str, Any]]:
    """What files of a group say, by section."""
    found = []
    for name in filter(None, names.strip("[]").split(",")):
        if (file := preset_file(group, name)) is None:
            raise LookupError(name)
        text = file.read_text(encoding="utf-8")
        package = PACKAGE.search(text)
        content = plain_yaml(text, schema_of(verb), "" if package or not group else f"{group}.") or {}
        if not isinstance(content, dict) or (package and package[1] != "_global_"):
            raise LookupError(name)
        defaults = {"defaults": content.pop("defaults")} if "defaults" in content else {}
        found.append(defaults | (content if package or not group else {group: content} if content else {}))
    return found


def _merge(schema: type, values: dict[str, Any], said: Mapping[str, Any], where: str = "") -> None:
    known = settings(schema)
    for name, value in ((f"{where}{key}", value) for key, value in said.items()):
        section, key = section_and_key(values, name) if name in known else (values, name)
        if name in known and isinstance(section[key], dict) and isinstance(value, dict):
            section[key] |= value
        elif name in known:
            section[key] = to_plain(convert(known[name], value))
        elif not where and isinstance(value, dict) and name in values:
            _merge(schema, values, value, f"{name}.")
        else:
            raise LookupError(name)
