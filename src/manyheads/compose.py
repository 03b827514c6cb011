"""The one door between Hydra and the rest: presets and typed words in, a checked dataclass out.

The only file that imports hydra or omegaconf. Past `compose` no DictConfig exists.
"""

import copy
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, overload

import hydra
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Quote, QuotedString, RangeSweep, ValueType
from hydra.errors import HydraException
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from manyheads.config import EvaluateConfig, PredictConfig, RunConfig
from manyheads.config.plain import from_plain, refuse_code, to_plain
from manyheads.config.run import default_trainer
from manyheads.door.lightning_flags import checked_flag
from manyheads.door.mistakes import composition_sentence
from manyheads.door.overrides import PATHS, VERBATIM, Grammar, Parsed, Typed, read_overrides
from manyheads.door.presets import conf_folder
from manyheads.door.verbs import VERBS, Config
from manyheads.whole import replace_file

_LARGEST_FILE = 1_000_000  # bytes of a config.yaml


@overload
def compose(verb: Literal["train"], overrides: Sequence[str] = ..., *, config_dir: str | None = ...) -> RunConfig: ...
@overload
def compose(
    verb: Literal["evaluate"], overrides: Sequence[str] = ..., *, config_dir: str | None = ...
) -> EvaluateConfig: ...
@overload
def compose(
    verb: Literal["predict"], overrides: Sequence[str] = ..., *, config_dir: str | None = ...
) -> PredictConfig: ...
@overload
def compose(verb: str, overrides: Sequence[str] = ..., *, config_dir: str | None = ...) -> Config: ...
def compose(verb: str, overrides: Sequence[str] = (), *, config_dir: str | None = None) -> Config:
    """The settings of a verb: its presets, then the typed `key=value` words, checked.

    Works in a notebook, any number of times, also inside a running Hydra application.

    Args:
        config_dir: a folder of your own presets, searched after conf/.

    Raises:
        ValueError: one sentence on the first mistake.
    """
    typed = read_overrides(verb, overrides, GRAMMAR, more=config_dir)
    _imply_data(verb, typed, config_dir)
    return _build(verb, _preset_values(verb, typed, config_dir), typed.values)


def save_run(run: Config, path: str | Path) -> None:
    """Write the settings as YAML that `read_run` reads back equal; the file appears whole or not at all."""
    plain = to_plain(run)
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000)
    if yaml.safe_load(text) != plain:  # PyYAML writes some line ends of Unicode as they are and reads them as others
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False, width=1000)
    with replace_file(Path(path)) as part:
        part.write_text(text, encoding="utf-8")


def read_run(path: str | Path) -> RunConfig:
    """The settings of a run from its config.yaml, or from the folder that holds it.

    The file may be anybody's: it is read as plain YAML without aliases, every key and type is checked,
    and nothing in it is imported, called or interpolated.

    Raises:
        ValueError: one sentence naming the file and what is wrong in it.
    """
    path = Path(path)
    path = path / "config.yaml" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name a run folder with its config.yaml")
    try:
        values = _read_yaml(path)
        refuse_code(values, verbatim=VERBATIM)
        run = from_plain(RunConfig, values)
        _check_trainer(run)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return run


def run_hydra(
    verb: str,
    flags: Sequence[str],
    overrides: Sequence[str],
    task: Callable[[Callable[[], Config]], Any],
    config_dir: str | None = None,
) -> None:
    """Hand the command line to `hydra.main` over the same task: `-m`, `--cfg`, `--info`, completion.

    `task` gets a function that makes the settings of its job. Everything typed is checked first by the rules
    of a plain run, except that `-m` takes several values.

    Raises:
        ValueError: one sentence on the first mistake.
    """
    sweep = "-m" in flags
    typed = read_overrides(verb, overrides, GRAMMAR, more=config_dir, sweep=sweep)
    _imply_data(verb, typed, config_dir)
    values = _preset_values(verb, typed, config_dir)
    if sweep:
        for one in ({}, *typed.later):
            refuse_many_devices(_build(verb, copy.deepcopy(values), typed.values | one))
        typed.words += _sweep_settings(typed.words)

    def run_one(config: DictConfig) -> Any:
        return task(lambda: _build(verb, _values(config), {}))

    _register_schema(verb)
    more = ["--config-dir", config_dir] if config_dir else []
    before, sys.argv = sys.argv, [sys.argv[0], *flags, *more, *typed.words]
    try:
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=verb)(run_one)()
    finally:
        sys.argv = before


def refuse_many_devices(config: Config) -> None:
    """Refuse a sweep over several devices: their processes would each start the whole sweep again."""
    if not isinstance(config, RunConfig):
        return
    for name, count in (("devices", config.hardware.devices), ("nodes", config.hardware.nodes)):
        if count != 1:
            raise ValueError(
                f"hardware.{name}={count} is refused under -m, which runs on one device: start each run alone, "
                f"for example `for heads in 2 4; do manyheads train model.n_heads=$heads hardware.{name}={count}; done`"
            )


def _parse(text: str) -> Parsed:
    """A value in Hydra's grammar; a mapping Hydra cannot read, for example with quoted keys, as YAML."""
    try:
        override = OverridesParser.create().parse_override(f"value={text}")
        value = override._value
    except (HydraException, ValueError, RecursionError) as error:
        mapping = _yaml_mapping(text)
        if mapping is None:
            raise ValueError(f"{text} cannot be read") from error
        return Parsed([mapping])
    if isinstance(value, ChoiceSweep | RangeSweep):
        return Parsed([_unquoted(one) for one in override.sweep_iterator()], sweep=True)
    if isinstance(value, IntervalSweep) or override.value_type is ValueType.GLOB_CHOICE_SWEEP:
        return Parsed([], sweep=True)
    return Parsed([override.value()])


def _unquoted(value: Any) -> Any:
    return value.text if isinstance(value, QuotedString) else value


def _yaml_mapping(text: str) -> dict[Any, Any] | None:
    if not text.strip().startswith("{"):
        return None
    try:
        return yaml.load(text, Loader=_PlainLoader)  # noqa: S506  a safe loader
    except (yaml.YAMLError, RecursionError):
        return None


GRAMMAR = Grammar(_parse, lambda text: QuotedString(text, Quote.single).with_quotes())


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, which would let a small file stand for an endless one."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it holds an alias (*name)")
        return super().compose_node(parent, index)


def _read_yaml(path: Path) -> Any:
    if path.stat().st_size > _LARGEST_FILE:
        raise ValueError("is larger than any configuration: give the config.yaml of a run")
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_PlainLoader)  # noqa: S506  a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, a number of 5000 digits
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"it cannot be read as plain YAML ({first}): give the config.yaml of a run") from error


def _imply_data(verb: str, typed: Typed, config_dir: str | None) -> None:
    """`data.path=` or `data.hub=` alone mean data=files or data=hub, unless an experiment chose a preset."""
    wanted = "files" if typed.values.get("data.path") else "hub" if typed.values.get("data.hub") else None
    if wanted is None or "data" in typed.groups:
        return
    if typed.groups.get("experiment"):
        source = _preset_values(verb, typed, config_dir)["data"]["source"]
        if source not in ("demo", "run"):
            return
    typed.groups["data"] = wanted
    typed.words.append(f"data={wanted}")


def _build(verb: str, values: dict[str, Any], typed: dict[str, Any]) -> Config:
    """The dataclass of a verb from preset values and the typed ones over them; paths become absolute."""
    refuse_code(values, verbatim=VERBATIM)
    for name, value in typed.items():
        section, _, key = name.rpartition(".")
        (values[section] if section else values)[key] = value
    for name in PATHS:
        section, _, key = name.rpartition(".")
        holder = values.get(section, {}) if section else values
        if holder.get(key) not in (None, "", "-"):
            holder[key] = os.path.abspath(os.path.expanduser(holder[key]))
    config = from_plain(VERBS[verb].config, values)
    _check_trainer(config)
    return config


def _check_trainer(config: Config) -> None:
    if isinstance(config, RunConfig) and config.trainer != default_trainer():
        for name, value in config.trainer.items():
            config.trainer[name] = checked_flag(name, value)


def _preset_values(verb: str, typed: Typed, config_dir: str | None) -> dict[str, Any]:
    """What the presets say, composed by Hydra: about 30 ms."""
    chosen = [f"{group}={name or 'null'}" for group, name in typed.groups.items()]
    if config_dir:
        folder = Path(config_dir).expanduser().resolve()
        if not folder.is_dir():
            raise ValueError(
                f"--config-dir {config_dir} is not a folder: name one that holds presets, such as mine/model/wide.yaml"
            )
        chosen.append(f"hydra.searchpath=[{GRAMMAR.quote(f'file://{folder}')}]")
    _register_schema(verb)
    with _own_hydra():
        try:
            return _values(hydra.compose(verb, chosen))
        except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
            raise ValueError(composition_sentence(error, chosen[: len(typed.groups)], VERBS[verb].config)) from error


def _values(config: DictConfig) -> dict[str, Any]:
    values = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


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
        with hydra.initialize_config_dir(str(conf_folder()), job_name="manyheads", version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = running
        VersionBase.instance().version_base = its_version


def _sweep_settings(words: Sequence[str]) -> list[str]:
    """Hydra's files of a sweep go under outputs/ and stay few, unless typed otherwise."""
    quiet = [
        "hydra.sweep.dir=outputs/multirun/${now:%Y-%m-%d_%H-%M-%S}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
    ]
    typed = {word.partition("=")[0] for word in words}
    return [word for word in quiet if word.partition("=")[0] not in typed]
