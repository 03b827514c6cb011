"""Hydra: presets as it composes them, and its own ways to run a task. Of hydra and omegaconf all but the grammar, which
grammar.py asks, is imported here alone; no DictConfig leaves this file but for `plain_config`.

Hydra imports and calls what its own settings name, so that those come from Hydra alone: see `refuse_settings`.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import manyheads.plugin as plugin
from manyheads.cli.errors import composition_sentence, hydra_sentence
from manyheads.cli.grammar import quote
from manyheads.cli.overrides import Typed
from manyheads.cli.verbs import VERBS, Choices, conf_folder, preset_file, preset_folders, presets_folder, schema_of
from manyheads.config.conversion import choices_of, leaves
from manyheads.config.facts import settings
from manyheads.config.plugins import use
from manyheads.config.sentences import format_value, one_of
from manyheads.errors import UserError
from manyheads.runs.config_file import preset_yaml

SCHEME = "presets"  # of the address of a person's own folder of presets
_registered: dict[str, tuple[tuple[str, ...], int]] = {}  # verb -> its keys, and the state of the registry


class OwnPresets(FileConfigSource):
    """A person's own presets at `presets://VERB:FOLDER`, in which names stay as they are written."""

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        self.verb, _, self.path = self.path.partition(":")

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        file, group = Path(self.path, self._normalize_file_name(config_path)), config_path.rpartition("/")[0]
        header = self._get_header_dict(file.read_text(encoding="utf-8", errors="replace"))
        package = (header.get("package") or "_group_").replace("_group_", group.replace("/", "."))
        where, known = "" if package == "_global_" else f"{package}.", settings(schema_of(self.verb))
        content = preset_yaml(file, schema_of(self.verb), where)
        if not where and isinstance(named := content.get("plugins"), list):
            use(named)  # whose blocks it may choose
        for name, value in leaves(content):  # which OmegaConf takes for any text
            one = known.get(f"{where}{name}")
            if one is not None and one.facts.part and isinstance(value, str) and value not in choices_of(one):
                choices = one_of(choices_of(one))
                raise UserError(
                    f"preset {config_path}: {one.name}={format_value(value)} is not a choice: choose {choices}"
                )
        return ConfigResult(self.provider, self.full_path(), OmegaConf.create(content), header)


class PluginPresets(SearchPathPlugin):
    """The folders of plugins' presets, after that of the package."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in preset_folders()[1:]:
            search_path.append("manyheads", str(folder))


def composed(verb: str, groups: Choices, own: Sequence[str], config_dir: str | None) -> DictConfig:
    """Presets, and in the node `hydra` Hydra's own settings with the words `own`."""
    chosen = _chosen(groups)
    _register_schema(verb)
    with _own_hydra():
        try:
            return hydra.compose(verb, [*chosen, *own, *_search(verb, config_dir)], return_hydra_config=True)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
            raise UserError(composition_sentence(error, chosen, schema_of(verb))) from error


def plain_config(config: DictConfig) -> dict[str, Any]:
    """Plain settings, choices by their names, without the node `hydra`."""
    values = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items() if key != "hydra"}


def settings_of_hydra(config: DictConfig, *, resolve: bool) -> dict[str, Any]:
    """Hydra's own settings of what it composed, as plain values."""
    if resolve:
        with suppress(OmegaConfBaseException):  # what only a job has
            return OmegaConf.to_container(config, resolve=True)["hydra"]  # type: ignore[index, return-value]
    return OmegaConf.to_container(config.hydra, resolve=False, enum_to_str=True)  # type: ignore[return-value]


def refuse_settings(verb: str, typed: Typed, own: Sequence[str], config_dir: str | None) -> None:
    """Refuse words and presets that set Hydra itself, which imports and calls what its settings name.

    Hydra's settings must come out as they do without the user's folder, for every choice of presets: whatever the
    way to them, a difference is seen.
    """
    if not own and not config_dir:
        return
    try:
        stock = _stock_settings(verb, tuple(own), plugin.changes())
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(hydra_sentence(error, [word for word in own if word in typed.words])) from error
    if not config_dir:
        return
    for groups in every_choice(verb, typed):
        theirs = _hydra_settings(composed(verb, groups, own, config_dir), [*_chosen(groups), *own])
        if name := first_difference(stock, theirs, "hydra"):
            raise UserError(
                f"--config-dir {config_dir}: a preset in it sets {name}, but presets set a run, never Hydra itself, "
                "which would call whatever they name: remove that"
            )


def every_choice(verb: str, typed: Typed) -> list[dict[str, str | None]]:
    """The presets of each job, and those Hydra composes the sweep itself with: the usual one of a swept group."""
    swept = {
        group: [*dict.fromkeys([*names, VERBS[verb].groups[group]])] for group, names in typed.swept_groups.items()
    }
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


@lru_cache(maxsize=16)
def _stock_settings(verb: str, own: tuple[str, ...], changes: int) -> dict[str, Any]:
    """Hydra's settings without a person's presets, not to be changed. `changes` of the registry are a part of the key
    of the cache."""
    _register_schema(verb)
    with _own_hydra():
        return _hydra_settings(hydra.compose(verb, [*own], return_hydra_config=True), own)


def run_jobs(
    verb: str, words: Sequence[str], config_dir: str | None, run_one: Callable[[DictConfig], Any], keys: Sequence[str]
) -> list[Any]:
    """What `run_one` returned for each job of `-m`, which varies these `keys` of settings that hold any."""
    _register_schema(verb, keys)
    with hydra.initialize_config_dir(str(conf_folder()), "manyheads", "1.3"):
        jobs = GlobalHydra.instance().hydra.multirun(verb, run_one, [*words, *_search(verb, config_dir)])  # type: ignore[union-attr]
    return [job.return_value for batch in jobs or () for job in batch]


def run_app(verb: str, flags: Sequence[str], words: Sequence[str], config_dir: str | None) -> None:
    """Hydra's own command line: `--info`, completion."""
    _register_schema(verb)
    before, sys.argv = sys.argv, [sys.argv[0], *flags, *words, *_search(verb, config_dir)]
    try:
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=verb)(lambda config: None)()
    finally:
        sys.argv = before


def this_job() -> tuple[Choices, str]:
    """The presets of the job that Hydra runs here, and its folder."""
    job = HydraConfig.get().runtime
    return job.choices, job.output_dir


def _search(verb: str, config_dir: str | None) -> list[str]:
    if not config_dir:
        return []
    Plugins.instance().register(OwnPresets)
    return [f"hydra.searchpath=[{quote(f'{SCHEME}://{verb}:{presets_folder(config_dir)}')}]"]


def _chosen(groups: Choices) -> list[str]:
    return [f"{group}={name}" for group, name in groups.items() if name]  # Hydra takes no null for a group


def _hydra_settings(config: DictConfig, words: Sequence[str]) -> dict[str, Any]:
    """Hydra's own settings, without what it notes down of the command line itself; of its words, those not typed."""
    settings: dict[str, Any] = OmegaConf.to_container(config.hydra, resolve=False, enum_to_str=True)  # type: ignore
    del settings["runtime"], settings["searchpath"], settings["job"]["override_dirname"]
    for kind, noted in settings["overrides"].items():
        unknown = [word for word in noted if word not in words and not str(word).startswith("hydra.searchpath=")]
        settings["overrides"][kind] = unknown
    return settings


def _register_schema(verb: str, keys: Sequence[str] = ()) -> None:
    """Make the settings of a verb known to Hydra, with these `keys` of settings that hold any, such as flags of the
    Trainer; and the presets of plugins."""
    if PluginPresets not in Plugins.instance().discover(SearchPathPlugin):
        Plugins.instance().register(PluginPresets)
    state = tuple(keys), plugin.changes()
    if _registered.get(verb) == state:  # to make it takes a quarter of a composition
        return
    _registered[verb] = state
    schema = OmegaConf.structured(schema_of(verb))
    _make_writable(schema)
    for name in keys:
        OmegaConf.update(schema, name, None, force_add=True)
    ConfigStore.instance().store(name=f"{verb}_schema", node=schema)
    if preset_file("", verb) is None:  # a plugin's verb without a file of its own
        groups = [{group: name} for group, name in VERBS[verb].groups.items()]
        ConfigStore.instance().store(name=verb, node={"defaults": [f"{verb}_schema", *groups, "_self_"]})


def _make_writable(node: DictConfig) -> None:
    """Hydra lays presets over it, but of a frozen dataclass OmegaConf makes a node that is read only."""
    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)
        if isinstance(child, DictConfig):
            _make_writable(child)


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
