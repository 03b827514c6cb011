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
from collections.abc import Iterator
from typing import Any

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
    UNREAD_IN_JUDGING,
    Code,
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
    found: dict[str, Plugin] | None = None  # all plugins by name; a cache
    parts: dict[tuple[str, str], Part] | None = None  # all parts by kind and name; a cache
    changes: int = 0


_registry = _Registry()
_registry.given = {}


def register(plugin: Plugin) -> None:
    """Add a user's plugin to this process; one of the same name that was registered before is replaced.

    Raises:
        UserError: its name, or the name of one of its parts or verbs, is taken.
    """
    if plugins().get(plugin.name, plugin) is not plugin and plugin.name not in _registry.given:
        raise UserError(f"plugin {plugin.name} has the name of one that comes with manyheads: choose another")
    named = [(one.kind, one.name) for one in plugin.parts]
    for one in plugin.parts:
        if one.kind not in KINDS:
            raise UserError(f"{one.kind} {one.name} of plugin {plugin.name} is of no kind: choose {', '.join(KINDS)}")
        if one.kind == "figure":
            _check_figure(one, plugin.name)
        if named.count((one.kind, one.name)) > 1:
            raise UserError(f"plugin {plugin.name} has {one.kind} {one.name} twice: rename one of them")
        other = next((it for it, its in _owners(one.kind, one.name) if it != plugin.name), None)
        if other is not None:
            raise UserError(f"{one.kind} {one.name} of plugin {plugin.name} is that of {other}: choose another name")
    taken = {verb.name: name for name, other in plugins().items() for verb in other.verbs if name != plugin.name}
    for verb in plugin.verbs:
        if verb.name in taken:
            raise UserError(f"verb {verb.name} of plugin {plugin.name} is that of {taken[verb.name]}: rename it")
    _registry.given[plugin.name] = plugin
    _forget()


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
    _forget()


def _forget() -> None:
    _registry.found = _registry.parts = None
    _registry.changes += 1


def changes() -> int:
    """How often the registry has changed: part of the key of every cache that depends on it."""
    return _registry.changes


def given() -> dict[str, Plugin]:
    """Users' plugins, by name."""
    return dict(_registry.given)


def plugins() -> dict[str, Plugin]:
    """All plugins by name: core's own parts, then the plugins of the package, then users'."""
    if _registry.found is None:
        modules = ["manyheads.builtin", *PLUGINS.values()]
        own = [resolve(f"{module}:PLUGIN") for module in modules]
        _registry.found = {one.name: one for one in [*own, *_registry.given.values()]}
    return _registry.found


def verbs() -> dict[str, Verb]:
    """All verbs by name."""
    return {verb.name: verb for one in plugins().values() for verb in one.verbs}


def sections(opening: str | None = None) -> list[Section]:
    """The sections of settings that widen an opening, see `Section.into`; None: all sections."""
    found = []
    for one in plugins().values():
        for section in one.sections:
            if opening is None or opening in section.into:
                found.append(section)
    return found


def _owners(kind: str, name: str) -> Iterator[tuple[str, Part]]:
    for owner, one in plugins().items():
        yield from ((owner, part) for part in one.parts if (part.kind, part.name) == (kind, name))


def parts(kind: str) -> dict[str, Part]:
    """The parts of a kind by name, in the order in which they were registered."""
    if _registry.parts is None:
        _registry.parts = {(part.kind, part.name): part for one in plugins().values() for part in one.parts}
    return {name: part for (its, name), part in _registry.parts.items() if its == kind}


def names(kind: str) -> list[str]:
    """The names of the parts of a kind."""
    return list(parts(kind))


def asked(kind: str, *of: Any) -> list[str]:
    """The names of the parts of a kind that the settings `of` use.

    The fact `check` of a part, called with `of`, says whether it is used, or raises UserError if that is impossible. A
    part without this fact is always used.
    """
    checks = {name: part.facts.get("check") for name, part in parts(kind).items()}
    return [name for name, check in checks.items() if check is None or resolve(check)(*of)]


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
    return plugins()[next(owner for owner, _ in _owners(kind, name))]


def resolve(code: Any) -> Any:
    """Import the object of "module:name", or the module of "module:"; another object is returned as it is."""
    if not isinstance(code, str):
        return code
    module, _, name = code.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
