"""A run's config.yaml, written and read."""

from pathlib import Path
from typing import Any

import yaml

from manyheads.config import RunConfig
from manyheads.config.facts import having
from manyheads.config.fields import check_flags, first_line, from_plain, refuse_code, show, to_plain
from manyheads.runs.folder import put

LARGEST_FILE = 1_000_000  # bytes of a config.yaml
REMOVED = {  # settings of earlier versions, and the value at which a run is what it would be today
    "teacher": "",
    "optim.kind": "adamw",
    "optim.muon_lr": None,
    "optim.head_lr": None,
    "optim.thaw": 0.0,
    "optim.teacher_weight": 0.5,
    "optim.teacher_temperature": 2.0,
    "pretrain.before": "",
    "logger.kind": "csv",
    "pretrain.hide": "mask",
    "pretrain.whole_words": False,
}


def save_run(run: Any, path: str | Path) -> None:
    """Write the settings as YAML that `read_run` reads back equal; the file appears whole or not at all."""
    put(Path(path), as_yaml(to_plain(run)))


def read_run(path: str | Path, *, goes_on: bool = False) -> RunConfig:
    """The settings of a run from its config.yaml, or from the folder that holds it.

    Removed settings are left out; a run that `goes_on` training may not have changed them. The file
    may be anybody's: it is read as plain YAML without aliases, every key and type is checked, and nothing in it is
    imported, called or interpolated. A `ValueError` names the file and what is wrong in it.
    """
    path = Path(path, "config.yaml") if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name a run folder with its config.yaml")
    if path.is_symlink():  # what is wrong in the file of somebody else would be shown
        raise ValueError(f"{path} is a link, which may lead to any file: put the file itself there")
    try:
        values = read_yaml(path)
        refuse_code(values, verbatim=having(RunConfig, verbatim=True))
        for name in REMOVED if isinstance(values, dict) else ():
            _leave_out(values, name, goes_on=goes_on)
        run = from_plain(RunConfig, values)
        check_flags(run)
        return run
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _leave_out(values: dict[str, Any], name: str, *, goes_on: bool) -> None:
    """Take the removed setting `name` out of `values`; of a run that `goes_on` only where it had its default."""
    where, _, key = name.rpartition(".")
    section = values.get(where) if where else values
    if not isinstance(section, dict) or key not in section:
        return
    value = section.pop(key)
    if goes_on and value != REMOVED[name]:
        raise ValueError(
            f"{name}={show(value)} was removed, so this run cannot go on: start a new run in another folder"
        )


def read_yaml(path: Path) -> Any:
    """The content of a config.yaml, which may be anybody's; a `ValueError` says that it is too large, not UTF-8, not
    YAML, names a key twice, or holds aliases or tags of code."""
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError("is larger than any configuration: give the config.yaml of a run")
    try:
        return plain_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, a number of 5000 digits
        why = first_line(error)
        raise ValueError(f"cannot be read as plain YAML ({why}): give the config.yaml of a run") from error


def read_mapping(text: str) -> dict[Any, Any] | None:
    """A typed `{key: value}`, None where it is none."""
    if not text.strip().startswith("{"):
        return None
    try:
        return plain_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def plain_yaml(text: str) -> Any:
    """What a text says, as `_PlainLoader` reads it."""
    return yaml.load(text, Loader=_PlainLoader)  # noqa: S506  a safe loader


def as_yaml(plain: dict[str, Any]) -> str:
    """Text that `read_yaml` reads back equal."""
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000)
    # PyYAML writes some line ends of Unicode as they are and reads them as others
    if not text.isascii() and yaml.safe_load(text) != plain:
        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=False, width=1000)
    return text


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, which would let a small file stand for an endless one, and without a key that is named
    twice, of which one would be lost."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it holds an alias (*name)")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        made = super().construct_mapping(node, deep)
        if len(made) < len(node.value):
            raise yaml.YAMLError("a key is named twice")
        return made
