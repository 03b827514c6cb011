"""The registry: where core looks up what plugins add.

A plugin is a module with a `PLUGIN` (hooks.py). There are three sorts:

- core's own parts, in builtin.py;
- the plugins of the package, listed in `manyheads.plugins`, which core never imports or names;
- users' plugins, given by `plugins=` on the command line or by `register` in Python. Nothing else is ever imported: no
  file of a run or a model decides what code runs.

A plugin names its code as "module:name", which is imported on first use. So listing verbs and parts imports nothing
heavy. Standard library only.
"""

import importlib
from functools import lru_cache
from typing import Any, NamedTuple

from manyheads.errors import UserError
from manyheads.hooks import (  # noqa: F401 - a plugin imports all of them from here
    FINISHED,
    KINDS,
    LONG,
    NOTHING,
    OF_RUN,
    OF_TRAINING,
    ONE_DEVICE,
    TRAINING,
    UNREAD_IN_EVALUATE,
    UNREAD_IN_JUDGING,
    Code,
    Flag,
    Part,
    Plugin,
    Section,
    Shared,
    Task,
    Verb,
)
from manyheads.plugins import PLUGINS

VERSION = "0.1.0"  # of manyheads, core and the plugins that come with it


class _Registry:
    given: dict[str, Plugin]  # users' plugins by name
    changes: int = 0


_registry = _Registry()
_registry.given = {}


def register(plugin: Plugin) -> None:
    """Add a user's plugin to this process; one of the same name that was registered before is replaced.

    Raises:
        UserError: its name, or the name of one of its parts, verbs or flags, is taken.
    """
    if plugins().get(plugin.name, plugin) is not plugin and plugin.name not in _registry.given:
        raise UserError(f"plugin {plugin.name} has the name of one that comes with manyheads: choose another")
    for one in plugin.parts:
        if one.kind not in KINDS:
            raise UserError(f"{one.kind} {one.name} of plugin {plugin.name} is of no kind: choose {', '.join(KINDS)}")
        if one.kind == "figure":
            _check_figure(one, plugin.name)
    named = _named(plugin)
    for kind, name in named:
        if named.count((kind, name)) > 1:
            raise UserError(f"plugin {plugin.name} has {kind} {name} twice: rename one of them")
        for other in plugins().values():
            if other.name != plugin.name and (kind, name) in _named(other):
                raise UserError(f"{kind} {name} of plugin {plugin.name} is that of {other.name}: choose another name")
    _registry.given[plugin.name] = plugin
    _registry.changes += 1


def _named(plugin: Plugin) -> list[tuple[str, str]]:
    """Kind and name of each of its parts, verbs and flags."""
    named = [(part.kind, part.name) for part in plugin.parts] + [("verb", verb.name) for verb in plugin.verbs]
    return named + [("flag", name) for flag in plugin.flags for name in (flag.name, flag.long)]


def _check_figure(part: Part, owner: str) -> None:
    """Refuse facts of a user's figure by which it would be called with something else than it takes."""
    of, figure = part.facts.get("of"), f"figure {part.name} of plugin {owner}"
    if of not in (None, "counts", "rows"):
        raise UserError(f'{figure} has the fact of="{of}": use "counts" or "rows", or leave it out')
    if of is not None and part.facts.get("checkpoint"):
        raise UserError(
            f'{figure} has the facts of="{of}" and checkpoint, but validation calls the figures of plugins with labels '
            "and probabilities: remove one of them"
        )
    for name in ("rows", "main", "table", "checkpoint"):
        rows = part.facts.get(name, ())
        if not isinstance(rows, tuple | list) or not {*rows} <= {"classes", "labels"}:
            raise UserError(f'{figure} has the fact {name}={rows!r}: give ("classes",), ("labels",) or both')


def unregister(name: str) -> None:
    """Remove a plugin that `register` added."""
    _registry.given.pop(name, None)
    _registry.changes += 1


def changes() -> int:
    """How often the registry has changed: part of the key of every cache that depends on it."""
    return _registry.changes


def given() -> dict[str, Plugin]:
    """Users' plugins, by name."""
    return dict(_registry.given)


class _Found(NamedTuple):
    plugins: dict[str, Plugin]
    verbs: dict[str, Verb]
    sections: list[Section]
    parts: dict[str, dict[str, Part]]  # by kind, then by name


@lru_cache(maxsize=1)
def _found(changes: int) -> _Found:
    """`changes` of the registry are the key of the cache: it is never empty while another thread looks."""
    modules = ["manyheads.builtin", *PLUGINS.values()]
    own = [resolve(f"{module}:PLUGIN") for module in modules]
    plugins = {one.name: one for one in [*own, *_registry.given.values()]}
    parts: dict[str, dict[str, Part]] = {}
    for one in plugins.values():
        for part in one.parts:
            parts.setdefault(part.kind, {})[part.name] = part
    verbs = {verb.name: verb for one in plugins.values() for verb in one.verbs}
    sections = [section for one in plugins.values() for section in one.sections]
    return _Found(plugins, verbs, sections, parts)


def plugins() -> dict[str, Plugin]:
    """All plugins by name: core's own parts, then the plugins of the package, then users'."""
    return _found(_registry.changes).plugins


def verbs() -> dict[str, Verb]:
    """All verbs by name."""
    return _found(_registry.changes).verbs


def flags() -> list[Flag]:
    """The flags of plugins."""
    return [flag for one in plugins().values() for flag in one.flags]


def sections(opening: str | None = None) -> list[Section]:
    """The sections of settings that widen an opening, see `Section.into`; None: all sections."""
    return [one for one in _found(_registry.changes).sections if opening is None or opening in one.into]


def parts(kind: str) -> dict[str, Part]:
    """The parts of a kind by name, in the order in which they were registered."""
    return _found(_registry.changes).parts.get(kind, {})


def names(kind: str) -> list[str]:
    """The names of the parts of a kind."""
    return list(parts(kind))


def asked(kind: str, *of: Any) -> list[str]:
    """The names of the parts of a kind that the settings `of` use.

    The fact `check` of a part, called with `of`, says whether it is used, or raises UserError if that is impossible. A
    part without this fact is always used.
    """
    found = []
    for name, part in parts(kind).items():
        check = part.facts.get("check")
        if check is None or resolve(check)(*of):
            found.append(name)
    return found


def find(kind: str, name: str) -> Part:
    """The part of this kind and name.

    Raises:
        UserError: there is none.
    """
    known = parts(kind)
    if name not in known:
        raise UserError(f"{kind} {name} is not known: choose {', '.join(known)}, or name its plugin by plugins=")
    return known[name]


def make(kind: str, name: str) -> Any:
    """The class or function that makes the part of this kind and name."""
    return resolve(find(kind, name).make)


def task(name: str) -> Task:
    """The task of this name.

    Raises:
        UserError: there is none.
    """
    return make("task", name)


def owner(kind: str, name: str) -> Plugin:
    """The plugin that a part comes from."""
    for one in plugins().values():
        if (kind, name) in _named(one):
            return one
    raise LookupError(f"{kind} {name}")


def resolve(code: Any) -> Any:
    """Import the object of "module:name", or the module of "module:"; another object is returned as it is."""
    if not isinstance(code, str):
        return code
    module, _, name = code.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
