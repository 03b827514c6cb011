"""Presets and typed words in, the checked settings of a verb out. The only file that imports hydra or omegaconf.

Past `compose` no DictConfig exists.
"""

import copy
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Literal, overload

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Quote, QuotedString, RangeSweep, ValueType
from hydra.errors import HydraException
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.cli.errors import composition_sentence, hydra_sentence, refuse_secrets, refuse_unused
from manyheads.cli.implied import (
    PRESETS,
    bring_weights,
    imply_finetuning,
    merge_search,
    resumed_folder,
    resumed_values,
    settle_limits,
    settle_paths,
)
from manyheads.cli.overrides import ASIDE, Grammar, Parsed, Typed, read_overrides, search_words
from manyheads.cli.sweeps import (
    check_jobs,
    every_choice,
    first_difference,
    hydra_words,
    of_one_job,
    placed,
    say_split,
    sentence_of_launcher,
)
from manyheads.cli.verbs import VERBS, Config, conf_folder, folder_url, own_settings
from manyheads.config import AblateConfig, EvaluateConfig, PredictConfig, RunConfig
from manyheads.config.facts import having
from manyheads.config.fields import check_flags, from_plain, held, refuse_code, to_plain
from manyheads.runs.config_file import read_mapping, read_run

Words = Sequence[str]
Training = Literal["train", "pretrain"]
Choices = Mapping[str, str | None]  # the preset of each group that was typed


@overload
def compose(verb: Training, overrides: Words = ..., *, config_dir: str | None = ...) -> RunConfig: ...
@overload
def compose(verb: Literal["evaluate"], overrides: Words = ..., *, config_dir: str | None = ...) -> EvaluateConfig: ...
@overload
def compose(verb: Literal["predict"], overrides: Words = ..., *, config_dir: str | None = ...) -> PredictConfig: ...
@overload
def compose(verb: Literal["ablate"], overrides: Words = ..., *, config_dir: str | None = ...) -> AblateConfig: ...
@overload
def compose(verb: str, overrides: Words = ..., *, config_dir: str | None = ...) -> Config: ...
def compose(verb: str, overrides: Words = (), *, config_dir: str | None = None) -> Config:
    """The settings of a verb: its presets, then the typed `key=value` words, checked.

    Works in a notebook, any number of times, also inside a running Hydra application.

    Args:
        config_dir: a folder of your own presets, searched after conf/.

    Raises:
        ValueError: one sentence on the first mistake.
    """
    words, folder = resumed_folder(verb, overrides)
    typed = read_overrides(verb, words, GRAMMAR, more=config_dir)
    if folder:
        return _resumed(verb, folder, typed)
    _imply_presets(verb, typed, config_dir)
    _refuse_hydra_settings(verb, typed, [], config_dir)
    values = preset_values(verb, typed.groups, config_dir)
    merge_search(values, typed)
    return _resolved(verb, values, typed.values, _of_experiment(typed.groups, config_dir))


def _resumed(verb: str, folder: str, typed: Typed) -> Config:
    """The settings of the run in `folder`, as those of going on with it."""
    run = read_run(folder)
    groups: Choices = {"optim": PRESETS["optim"]} if run.optim.limits_by_data else {}
    values = resumed_values(to_plain(run), folder, typed, usual=preset_values(verb, groups)["trainer"])
    return _resolved(verb, values, typed.values, {}, is_resumed=True)


def _resolved(
    verb: str, values: dict[str, Any], typed: dict[str, Any], own: Mapping[str, Any], *, is_resumed: bool = False
) -> Config:
    """The one way from `values`, what presets say, and `typed` words, by dotted name, to checked settings.

    Args:
        own: what the experiment itself sets.
        is_resumed: `values` are those of a run, of which its weights are a part by now.
    """
    schema = VERBS[verb].config
    refuse_code(values, verbatim=having(schema, verbatim=True))
    typed = typed if is_resumed else bring_weights(values, typed)  # what presets say gives way to trained weights,
    for name, value in typed.items():  # both to what is typed
        section, key = held(values, name)
        section[key] = value
    refuse_secrets(values)
    settle_limits(values, typed, own)  # of training: one takes the place of others
    settle_paths(verb, values)
    config = from_plain(schema, values)  # converts and checks each setting, and those that go together
    check_flags(config)
    refuse_unused(config, typed)
    return config


def run_hydra(
    verb: str,
    flags: Sequence[str],
    overrides: Sequence[str],
    task: Callable[[Callable[[], Config]], Any],
    config_dir: str | None = None,
) -> list[Any]:
    """Hand the command line to Hydra over the same task: `-m`, `--cfg`, `--info`, completion.

    `task` gets a function that makes the settings of its job. Everything typed is checked first by the rules
    of a plain run, except that `-m` takes several values.

    Returns:
        What the task returned for each job of `-m`, which another launcher ran elsewhere; nothing where a sweeper keeps
        it to itself.

    Raises:
        ValueError: one sentence on the first mistake.
    """
    sweep, (_, folder) = "-m" in flags, resumed_folder(verb, overrides)
    if folder:
        flag = next(one for one in flags if one in ("-m", "--cfg", "--info"))
        raise ValueError(
            f"resume={folder} does not go with {flag}, as its settings are those of the config.yaml in it: read them "
            f"there, or remove {flag}"
        )
    typed = read_overrides(verb, overrides, GRAMMAR, more=config_dir, sweep=sweep)
    _imply_presets(verb, typed, config_dir)
    values = preset_values(verb, typed.groups, config_dir)
    merge_search(values, typed)
    experiment = _of_experiment(typed.groups, config_dir)
    own = [*hydra_words(typed), *ASIDE] if sweep else []
    jobs = ({}, *typed.later) if sweep else ()
    check_jobs((_resolved(verb, copy.deepcopy(values), typed.values | one, experiment) for one in jobs), typed)
    _refuse_hydra_settings(verb, typed, own, config_dir)
    words = [word for word in typed.words if word not in own and not word.startswith("search=")]
    words += search_words(values) + own

    say_split(values, typed)
    run_one = partial(_one_job, verb=verb, typed=typed, config_dir=config_dir, task=task)
    if sweep:
        more = [_search_path(config_dir)] if config_dir else []
        with hydra.initialize_config_dir(str(conf_folder()), "manyheads", "1.3"), sentence_of_launcher(typed):
            jobs = GlobalHydra.instance().hydra.multirun(verb, run_one, [*words, *more])  # type: ignore[union-attr]
        return [job.return_value for batch in jobs or () for job in batch]
    more = ["--config-dir", config_dir] if config_dir else []
    before, sys.argv = sys.argv, [sys.argv[0], *flags, *more, *words]
    try:
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=verb)(run_one)()
    finally:
        sys.argv = before
    return []


def _one_job(
    config: DictConfig, verb: str, typed: Typed, config_dir: str | None, task: Callable[[Callable[[], Config]], Any]
) -> Any:
    """What the task makes of one job; all of it can be pickled for a launcher that runs it in another process."""
    job = HydraConfig.get().runtime
    values, own = of_one_job(VERBS[verb].config, _values(config), typed)
    experiment = _of_experiment(job.choices, config_dir)
    return task(lambda: placed(_resolved(verb, values, own, experiment), job.output_dir))


def _parse(text: str) -> Parsed:
    """A value in Hydra's grammar; a mapping Hydra cannot read, for example with quoted keys, as YAML."""
    try:
        override = OverridesParser.create().parse_override(f"value={text}")
    except (HydraException, ValueError, RecursionError) as error:
        mapping = read_mapping(text)
        if mapping is None:
            raise ValueError(f"{text} cannot be read") from error
        return Parsed([mapping])
    if isinstance(override._value, ChoiceSweep | RangeSweep):
        values = (one.text if isinstance(one, QuotedString) else one for one in override.sweep_iterator())
        return Parsed(list(values), sweep=True)
    if isinstance(override._value, IntervalSweep) or override.value_type is ValueType.GLOB_CHOICE_SWEEP:
        return Parsed([], sweep=True)
    return Parsed([override.value()])


GRAMMAR = Grammar(_parse, lambda text: QuotedString(text, Quote.single).with_quotes())


def _imply_presets(verb: str, typed: Typed, config_dir: str | None) -> None:
    """`init_from=` means presets, and so do `data.path=` and `data.hub=`, unless an experiment chose its data."""
    imply_finetuning(verb, typed)
    wanted = "files" if typed.values.get("data.path") else "hub" if typed.values.get("data.hub") else None
    if wanted is None or "data" in typed.groups:
        return
    composed = preset_values(verb, typed.groups, config_dir) if typed.groups.get("experiment") else {}
    if composed and composed["data"]["source"] not in ("demo", "dates", "run"):
        return
    typed.choose("data", wanted)


def preset_values(verb: str, groups: Choices, config_dir: str | None = None) -> dict[str, Any]:
    """What the presets say, composed by Hydra, which takes 30 ms: of the presets of the package once a process."""
    if config_dir:
        return _values(_composed(verb, groups, [], config_dir))
    return copy.deepcopy(_stock_values(verb, tuple(groups.items())))


def _of_experiment(groups: Mapping[str, Any], config_dir: str | None) -> dict[str, Any]:
    """What the chosen experiment sets itself, without the presets it builds on."""
    return own_settings("experiment", groups["experiment"], config_dir) if groups.get("experiment") else {}


@lru_cache(maxsize=64)
def _stock_values(verb: str, groups: tuple[tuple[str, str | None], ...]) -> dict[str, Any]:
    return _values(_composed(verb, dict(groups), [], None))


def _composed(verb: str, groups: Choices, own: Sequence[str], config_dir: str | None) -> DictConfig:
    """Presets, and in the node `hydra` Hydra's own settings with the words `own`."""
    chosen = _chosen(groups)
    search = [_search_path(config_dir)] if config_dir else []
    _register_schema(verb)
    with _own_hydra():
        try:
            return hydra.compose(verb, [*chosen, *own, *search], return_hydra_config=True)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
            raise ValueError(composition_sentence(error, chosen, VERBS[verb].config)) from error


def _search_path(config_dir: str) -> str:
    return f"hydra.searchpath=[{GRAMMAR.quote(folder_url(config_dir))}]"


def _chosen(groups: Choices) -> list[str]:
    return [f"{group}={name}" for group, name in groups.items() if name]  # Hydra takes no null for a group


def _refuse_hydra_settings(verb: str, typed: Typed, own: Sequence[str], config_dir: str | None) -> None:
    """Refuse words and presets that set Hydra itself, which imports and calls what its settings name.

    Hydra's settings must come out as they do without the user's folder, for every choice of presets: whatever the
    way to them, a difference is seen.
    """
    if not own and not config_dir:
        return
    _register_schema(verb)
    try:
        with _own_hydra():
            stock = _hydra_settings(hydra.compose(verb, list(own), return_hydra_config=True), own)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(hydra_sentence(error, [word for word in own if word in typed.words])) from error
    for groups in every_choice(verb, typed) if config_dir else ():
        theirs = _hydra_settings(_composed(verb, groups, own, config_dir), [*_chosen(groups), *own])
        if name := first_difference(stock, theirs, "hydra"):
            raise ValueError(
                f"--config-dir {config_dir}: a preset in it sets {name}, but presets set a run, never Hydra itself, "
                "which would call whatever they name: remove that"
            )


def _hydra_settings(config: DictConfig, words: Sequence[str]) -> dict[str, Any]:
    """Hydra's own settings, without what it notes down of the command line itself; of its words, those not typed."""
    settings: dict[str, Any] = OmegaConf.to_container(config.hydra, resolve=False, enum_to_str=True)  # type: ignore
    del settings["runtime"], settings["searchpath"], settings["job"]["override_dirname"]
    for kind, noted in settings["overrides"].items():
        unknown = [word for word in noted if word not in words and not str(word).startswith("hydra.searchpath=")]
        settings["overrides"][kind] = unknown
    return settings


def _values(config: DictConfig) -> dict[str, Any]:
    values = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items() if key != "hydra"}


def _register_schema(verb: str) -> None:
    store = ConfigStore.instance()
    if f"{verb}_schema.yaml" not in store.repo:
        store.store(name=f"{verb}_schema", node=VERBS[verb].config)


@contextmanager
def _own_hydra() -> Iterator[None]:
    """Hydra set to our presets; one that was already running is put aside and put back."""
    state, base = GlobalHydra.instance(), VersionBase.instance()
    running, its_version = state.hydra, base.getbase()
    state.hydra = None
    try:
        with warnings.catch_warnings(), hydra.initialize_config_dir(str(conf_folder()), "manyheads", "1.3"):
            warnings.simplefilter("ignore")  # of presets named like Hydra's own: what they set is refused or checked
            yield
    finally:
        GlobalHydra.instance().hydra = running
        VersionBase.instance().version_base = its_version
