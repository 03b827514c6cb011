"""A run's config.yaml, written and read."""

import copy
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

import manyheads.plugin as plugin
from manyheads.config import RunConfig
from manyheads.config.conversion import from_plain, refuse_code, to_plain
from manyheads.config.facts import settings, settings_where, with_plugins
from manyheads.config.plugins import require_given
from manyheads.config.sentences import first_line
from manyheads.errors import UserError
from manyheads.runs.files import write_atomic

LARGEST_FILE = 1_000_000  # bytes of a config.yaml


def save_run(run: Any, path: str | Path) -> None:
    """Write the settings as YAML that `read_run` reads back equal; the file appears whole or not at all."""
    write_atomic(Path(path), as_yaml(to_plain(run)))


def read_run(path: str | Path) -> RunConfig:
    """The settings of a run from its config.yaml, or from the folder that holds it.

    The file may be anybody's: it is read as plain YAML without aliases, every key and type is checked, and nothing in
    it is imported, called or interpolated. A UserError names the file and what is wrong in it.
    """
    path = Path(path, "config.yaml") if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise UserError(f"{path} does not exist: name a run folder with its config.yaml")
    if path.is_symlink():  # what is wrong in the file of somebody else would be shown
        raise UserError(f"{path} is a link, which may lead to any file: put the file itself there")
    try:
        values = read_yaml(path, with_plugins(RunConfig))
        require_given(values.get("plugins") if isinstance(values, dict) else None, "the run in it")
        refuse_code(values, verbatim=settings_where(with_plugins(RunConfig), verbatim=True))
        return from_plain(with_plugins(RunConfig), values)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error


def read_yaml(path: Path, schema: type | None = None) -> Any:
    """The content of a config.yaml, which may be anybody's; a UserError says that it is too large, not UTF-8, not
    YAML, names a key twice, or holds aliases or tags of code."""
    if path.stat().st_size > LARGEST_FILE:
        raise UserError("is larger than any configuration: give the config.yaml of a run")
    try:
        return plain_yaml(path.read_text(encoding="utf-8"), schema)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, a number of 5000 digits
        why = first_line(error)
        raise UserError(f"cannot be read as plain YAML ({why}): give the config.yaml of a run") from error


def plain_yaml(text: str, schema: type | None = None, where: str = "") -> Any:
    """What a text says. Names are taken as they are written: keys, and where `schema` has texts or lists of texts.

    Args:
        where: dotted section in front of every name in it, for instance "model."
    """
    return copy.deepcopy(_parsed(text, schema, where, plugin.changes()))


@lru_cache(maxsize=8)
def _parsed(text: str, schema: type | None, where: str, changes: int) -> Any:
    """A verb reads the settings of its run several times. `changes` of the registry are a part of the key."""
    return _content(_PlainLoader(text), schema, where)


def preset_yaml(file: Path, schema: type, where: str) -> Any:
    """Likewise what a person's own preset says, which may hold aliases; an empty one is an empty mapping. A `YAMLError`
    says what cannot be read."""
    try:
        loader = _Loader(file.read_text(encoding="utf-8"))
        loader.name = str(file)
        return _content(loader, schema, where) or {}
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of 5000 digits
        raise yaml.YAMLError(first_line(error)) from error


def _content(loader: "_Loader", schema: type | None, where: str) -> Any:
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        known = settings(schema) if schema else {}
        texts = {name for name, one in known.items() if one.kind in (str, list[str]) or one.facts.several}
        _keep_names(node, where, texts, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _keep_names(node: yaml.Node, where: str, texts: set[str], seen: set[int]) -> None:
    """Make texts of keys, and of what is in `texts`, that YAML reads as something else; null alone is no text."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for one in node.value:
            _keep_names(one, where, texts, seen)
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        name = f"{where}{key.value}"
        elements = value.value if name in texts and isinstance(value, yaml.SequenceNode) else []
        alone = [value] if name in texts and value.tag != f"{TAG}null" else []
        for one in (key, *elements, *alone):
            if isinstance(one, yaml.ScalarNode) and one.tag in READ_ELSE:
                one.tag = f"{TAG}str"
        _keep_names(value, f"{name}.", texts, seen)


def as_yaml(plain: dict[str, Any], *, escaped: bool = False) -> str:
    """Text that `read_yaml` reads back equal, and so does any other reader of YAML; `escaped`: in ASCII."""
    text = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=not escaped, width=1000)
    # PyYAML writes some line ends of Unicode as they are and reads them as others
    if not text.isascii() and plain_yaml(text) != plain:
        text = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=1000)
    return text


TAG = "tag:yaml.org,2002:"
READ_ELSE = {f"{TAG}{kind}" for kind in ("bool", "int", "float", "null", "value")}
CORE = (  # what is no text of what is not in quotes: as in words that are typed, not the octal numbers of YAML 1.1, its
    # sexagesimal ones (12:30), its dates, and its further words for true and false (no, on, y)
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    ("float", r"[-+]?([0-9][0-9_]*(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
     "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
)  # fmt: skip


class _Loader(yaml.SafeLoader):
    """YAML without a key that is named twice, of which one would be lost."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as PyYAML has it

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        n_keys = len(node.value)
        made = super().construct_mapping(node, deep)
        if len(made) < max(n_keys, len(node.value)):
            raise yaml.YAMLError("a key is named twice")
        return made

    def construct_decimal(self, node: Any) -> int:
        return int(self.construct_scalar(node).replace("_", ""))


class _PlainLoader(_Loader):
    """Likewise without aliases, which would let a small file stand for an endless one."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it holds an alias (*name)")
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Texts that `_Loader` or a reader of YAML 1.1 takes for something else are put in quotes."""


for _kind, _pattern, _first in CORE:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"{TAG}{_kind}", re.compile(rf"({_pattern})\Z"), list(_first))
_Loader.add_constructor(f"{TAG}int", _Loader.construct_decimal)
