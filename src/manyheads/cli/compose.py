"""The road of every setting: from what is typed to one frozen object with all settings of a verb.

1. `plugins=[...]` comes first: plugins add settings, presets and choices.
2. Every other word is `key=value`: overrides.py finds the key among the presets and settings of the verb, grammar.py
   reads the value, and `convert` makes it the declared type, or says in one sentence why it cannot.
3. `init_from=` and `data.path=` imply presets, as if these had been typed (implied.py).
4. Presets are files whose values are converted in the same way and merged over the defaults (presets.py); the settings
   of a run that is resumed, or trained once more, take their place.
5. From then on all settings are in one dictionary by their dotted names (`Values` in config/conversion.py), and nothing
   is converted again.
6. Weights that training starts from fix some of them, and what was typed comes last.
7. `build` makes the frozen sections of this dictionary, once; they check ranges, and rules that join settings.
8. What was typed although nothing would read it is refused (validation.py).
9. A job of `-m` takes this road with its own value of each setting that varies, and `--cfg job` prints where the road
   ends, so both read the grammar of a plain run.
10. Ranks, trials and workers get the finished object as JSON through a pipe: `to_plain` writes it, `from_plain` builds
    it, as it does from config.yaml.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, overload

import manyheads.plugin as plugin
from manyheads.cli.implied import (
    apply_other_pretrained,
    apply_pretrained,
    imply_presets,
    merge_search,
    repeated_values,
    resumed_folder,
    resumed_values,
    settle_limits,
    settle_paths,
)
from manyheads.cli.overrides import Typed, hydra_word, read_overrides
from manyheads.cli.presets import preset_values
from manyheads.cli.validation import refuse_secrets, refuse_unused
from manyheads.cli.verbs import VERBS, Choices, Config, own_settings, require_verb, schema_of
from manyheads.config.conversion import Values, build, set_value, to_plain, with_flags
from manyheads.config.facts import settings
from manyheads.config.plugins import recorded, take_plugins, use
from manyheads.errors import UserError
from manyheads.runs.config_file import as_yaml, read_run
from manyheads.terminal import writes_unicode

if TYPE_CHECKING:
    from manyheads.config import EvaluateConfig, PredictConfig, RunConfig

Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class Base:
    """Settings before what was typed is put over them.

    `of` says whose they are: those of presets, of a run that is trained once more ("again"), or of one that is resumed.
    `own` are those that the experiment itself sets.
    """

    verb: str
    of: Literal["presets", "again", "resume"]
    values: Values
    own: Values


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
    if isinstance(overrides, str):
        raise UserError(f"overrides is a single str: put it in a list, [{overrides!r}]")
    if isinstance(overrides, Mapping) or not all(isinstance(word, str) for word in overrides):
        raise UserError(f"overrides={overrides!r} must be a list of texts: write each setting as 'model.n_heads=8'")
    use(plugins)
    words = take_plugins(overrides)
    require_verb(verb)  # which a plugin may add
    words, folder = resumed_folder(verb, words)
    typed = read_overrides(verb, words, config_dir=config_dir)
    if folder:
        values = resumed_values(verb, read_run(folder), folder, typed)
        return resolve_settings(Base(verb, "resume", values, {}), typed.values)
    imply_presets(verb, typed, config_dir)
    if config_dir:
        from manyheads.cli.hydra import refuse_settings

        refuse_settings(verb, typed, [], config_dir)
    return resolve_settings(base_settings(verb, typed, typed.groups, config_dir), typed.values)


def base_settings(verb: str, typed: Typed, groups: Choices, config_dir: str | None) -> Base:
    """The settings over which `typed` words are put: those of presets, or of the run that is trained `again`."""
    if folder := typed.values.get("again"):
        return Base(verb, "again", _settings_of_run(verb, folder, typed, groups, config_dir), {})
    values = preset_values(verb, groups, config_dir)
    merge_search(values, typed)
    experiment = groups.get("experiment")
    own = own_settings("experiment", experiment, config_dir) if experiment else {}
    return Base(verb, "presets", values, own)


def _settings_of_run(verb: str, folder: str, typed: Typed, groups: Choices, config_dir: str | None) -> Values:
    """The settings of the run in `folder`, which is trained once more, under the presets that were typed with it."""
    home = os.path.expanduser(folder)
    if not os.path.isfile(os.path.join(home, "config.yaml")):
        raise UserError(f"again={folder} is not the folder of a run with its config.yaml")
    run = read_run(home)
    if VERBS[verb].task not in ("", run.task):
        raise UserError(f"again={folder} is a run of train: write manyheads train again={folder}")
    values, known = repeated_values(verb, run, typed), settings(schema_of(verb))
    usual = with_flags(preset_values(verb, {}))
    for group, name in groups.items():
        if not name:
            continue
        own = own_settings(group, name, config_dir)
        for one, value in with_flags(preset_values(verb, {group: name}, config_dir)).items():
            if one.startswith(f"{group}.") or one in own or value != usual.get(one, value):
                set_value(known, values, one, value)
    return values


def resolve_settings(base: Base, typed: Values, varied: Sequence[str] = ()) -> Config:
    """The one way from settings and what was typed, by dotted name, to a checked and frozen object.

    Args:
        varied: settings and groups of presets that differ among the jobs of `-m`.

    Raises:
        UserError: a value is out of its range, does not go with others, or nothing would read it.
    """
    schema = schema_of(base.verb)
    known, values = settings(schema), dict(base.values)
    if base.of == "presets":
        typed = apply_pretrained(values, typed, base.own, plugin.resolve(VERBS[base.verb].takes_several))
    elif base.of == "again":
        typed = apply_other_pretrained(values, typed)
    for name, value in typed.items():
        set_value(known, values, name, value)
    for one in known.values():
        other, implied = one.facts.implies or ("", "")
        if other in values and values[one.name] != one.default and values[other] == known[other].default:
            values[other] = implied
    if "plugins" in values:
        values["plugins"] = recorded()
    refuse_secrets(values)
    settle_limits(values, typed, base.own)
    settle_paths(base.verb, values)
    config = build(schema, values)
    refuse_unused(config, typed, varied)
    return config


def shown(verb: str, flags: Words, overrides: Words, config_dir: str | None = None) -> str:
    """What `--cfg` prints: the checked settings as YAML (job), Hydra's own (hydra), both (all), or a part of them."""
    given = dict(pairwise(flags))
    plain: dict[str, Any] = {}
    if given["--cfg"] != "hydra":
        plain = to_plain(compose(verb, overrides, config_dir=config_dir))
    if given["--cfg"] != "job":
        from manyheads.cli.hydra import composed, settings_of_hydra

        words, _ = resumed_folder(verb, overrides)
        typed = read_overrides(verb, words, config_dir=config_dir)
        plain["hydra"] = settings_of_hydra(composed(verb, typed.groups, [], config_dir), resolve="--resolve" in flags)
    package = given.get("--package", "_global_")
    if package != "_global_":
        for key in package.split("."):
            if not isinstance(plain, dict) or key not in plain:
                raise UserError(
                    f"--package {package} is no part of the settings: name a section, such as --package model"
                )
            plain = plain[key]
    return as_yaml(plain, escaped=not writes_unicode()).removesuffix("...\n")  # after a single value


def refuse_resumed(verb: str, overrides: Words, flag: str) -> None:
    """Raise UserError if the words name a run to resume, whose settings a flag would not read."""
    _, folder = resumed_folder(verb, overrides)
    if folder:
        raise UserError(
            f"resume={folder} does not go with {flag}, as its settings are those of the config.yaml in it: read them "
            f"there, or remove {flag}"
        )


def show_by_hydra(verb: str, flags: Words, overrides: Words, config_dir: str | None = None) -> None:
    """Print what `--info` or completion asks for, once what was typed is checked."""
    from manyheads.cli.hydra import refuse_settings, run_app

    refuse_resumed(verb, overrides, "--info")
    typed = read_overrides(verb, overrides, config_dir=config_dir)
    imply_presets(verb, typed, config_dir)
    values, base = dict(typed.values), base_settings(verb, typed, typed.groups, config_dir)
    refuse_settings(verb, typed, [], config_dir)
    if typed.search:
        values["search"] = base.values["search"]
    words = [f"++{name}={hydra_word(value)}" for name, value in values.items()]
    run_app(verb, flags, [*typed.words, *words], config_dir)
