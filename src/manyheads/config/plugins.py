"""Users' own plugins: which modules are imported, and what a run and a model record of them. Standard library only.

What is imported is what a person typed, `plugins=[my_parts]`, or gave in Python; never what a file names. A run and a
model record the plugins they were made with, and are refused where these were not given.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from traceback import FrameSummary, extract_tb, format_exception_only
from typing import Any, NamedTuple

import manyheads.plugin as plugin
from manyheads.errors import UserError
from manyheads.plugin import Plugin

VARIABLE = "MANYHEADS_PLUGINS"  # what a process hands on to those that it starts: their list is that of the parent
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
SHOWN = 12  # hexadecimal digits of a digest


class _Source(NamedTuple):
    """Where a plugin comes from: what was typed, absolute, and the digest of its source; both empty in Python."""

    typed: str
    digest: str


_sources: dict[str, _Source] = {}


def use(names: Sequence[str]) -> None:
    """Import the modules that were typed and register their plugins; those that are registered already stay.

    Args:
        names: of installed modules, or files such as `./my_parts.py`.

    Raises:
        UserError: there is no such module or file, its name hides another module, or it holds no plugin.
    """
    for name in names:
        found = _import(name)
        if plugin.given().get(found.name) is not found:
            plugin.register(found)
        module = sys.modules[_module(name)]
        typed = str(Path(name).absolute()) if name.endswith(".py") else name
        _sources[found.name] = _Source(typed, _digest(Path(str(module.__file__))))
    if names:
        os.environ[VARIABLE] = json.dumps([one.typed for one in _sources.values() if one.typed])


def use_of_parent() -> None:
    """`use` what the process was given that started this one."""
    use(json.loads(os.environ.get(VARIABLE, "[]")))


def take_plugins(words: Iterable[str]) -> list[str]:
    """`use` what the words `plugins=[...]` name; returns the other words."""
    rest = []
    for word in words:
        key, equals, value = word.partition("=")
        if key != "plugins" or not equals:  # such as that of `--info plugins`
            rest.append(word)
            continue
        names = [one.strip().strip("'\"") for one in value.strip().removeprefix("[").removesuffix("]").split(",")]
        if not all(names):
            raise UserError(f"{word} names no plugin: write plugins=[NAME] or plugins=[./FILE.py], without spaces")
        use(names)
    return rest


def plugin_words(*, here: bool = False) -> list[str]:
    """What gives the plugins of this process to another command, which is typed `here`, or anywhere."""
    typed = [one.typed for one in _sources.values() if one.typed]
    if here:
        typed = [f"./{os.path.relpath(one)}" if Path(one).is_relative_to(Path.cwd()) else one for one in typed]
    return [f"plugins=[{','.join(typed)}]"] * bool(typed)


def recorded() -> list[str]:
    """The plugins that were given to this process, as runs and models record them: name, version and digest."""
    found = []
    for name, one in plugin.given().items():
        record = f"{name} {one.version}" if one.version else name
        if name in _sources:
            record = f"{record} {_sources[name].digest[:SHOWN]}"
        found.append(record)
    return found


def plugin_of(module: str) -> str:
    """The plugin of a user whose code is in a module of this name; empty: none."""
    for name, one in plugin.given().items():
        if name in _sources and _sources[name].typed:
            typed = _module(_sources[name].typed)
            if f"{module}.".startswith(f"{typed}."):  # it, or a module in it
                return name
        for code in [*(part.make for part in one.parts), *(verb.run for verb in one.verbs)]:
            home = code.partition(":")[0] if isinstance(code, str) else getattr(code, "__module__", "")
            if home == module:
                return name
    return ""


def require_given(records: Any, owner: object) -> None:
    """Refuse what was made with a plugin that this process was not given.

    Args:
        records: see `recorded`; they come from a file that may be anybody's.
        owner: whose they are, to begin the sentence.
    """
    if not isinstance(records, list):
        return
    for record in records:
        name, _, rest = str(record).partition(" ")
        version = rest.partition(" ")[0]
        if name not in plugin.plugins():
            shown = name if NAME.fullmatch(name) and len(name) <= 80 else "another program"
            of = f" {version}" if NAME.fullmatch(f"v{version}".replace(".", "_")) else ""
            raise UserError(
                f"{owner} was made with the plugin {shown}{of}, which was not given: add plugins=[{shown}], or "
                "plugins=[./FILE.py] for a file"
            )


def changed_since(records: Sequence[str]) -> list[str]:
    """A sentence for each plugin that has changed since it was recorded."""
    now = {record.partition(" ")[0]: record for record in recorded()}
    found = []
    for record in records:
        name = record.partition(" ")[0]
        if name in now and now[name] != record:
            found.append(f"the plugin {now[name]} has changed since ({record})")
    return found


def refuse_unnamed(n_local: int) -> None:
    """Refuse to start processes where a plugin was registered in Python, which they do not have."""
    for name in plugin.given():
        if not (name in _sources and _sources[name].typed):
            raise UserError(
                f"the plugin {name} was registered in Python, which the {n_local} processes that are started do not "
                "have: put it into a module and name that by plugins="
            )


def _module(name: str) -> str:
    return Path(name).stem if name.endswith(".py") else name


def _import(name: str) -> Plugin:
    typed, module = f"plugins={name}", _module(name)
    if not NAME.fullmatch(module) or (name.endswith(".py") and "." in module):
        raise UserError(f"{typed} is not a name of a module: name an installed one, or a file such as ./my_parts.py")
    if name.endswith(".py"):
        file = Path(name).absolute()
        if not file.is_file():
            raise UserError(f"{typed}: there is no such file")
        found = None if module in sys.stdlib_module_names else find_spec(module)
        if module in sys.stdlib_module_names or (found is not None and not _is_file(found.origin, file)):
            raise UserError(f"{typed} has the name of a module that is installed: rename the file")
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))  # last: it hides nothing that is installed
    elif not _is_installed(module):
        here = f"{module}.py"
        remedy = f"write plugins=[./{here}] for the file here" if Path(here).is_file() else "install it, or name a file"
        raise UserError(f"{typed} is not an installed module: {remedy}")
    try:
        found = getattr(plugin.resolve(f"{module}:"), "PLUGIN", None)
    except SyntaxError as error:
        raise UserError(f"{typed}: {error.filename or name} line {error.lineno or 1}: {error.msg}") from error
    except Exception as error:  # whatever the person's own code raises
        where = _line_of(error, module)
        is_sentence = isinstance(error, ImportError | UserError)
        said = str(error) if is_sentence else format_exception_only(error)[0].strip()
        raise UserError(f"{typed}: {where.filename} line {where.lineno}: {said}") from error
    if not isinstance(found, Plugin):
        raise UserError(f"{typed} has no PLUGIN: it must hold `PLUGIN = manyheads.api.Plugin(...)`")
    return found


def _line_of(error: Exception, module: str) -> FrameSummary:
    """The line of a module, or of a package that it is in, that raised the error, or called what did."""
    frames = extract_tb(error.__traceback__)
    package = module.partition(".")[0]
    found = find_spec(package)  # which imports nothing, unlike that of a module in a package
    home = os.path.dirname(str(found.origin)) if found else ""
    for frame in reversed(frames):
        folder = os.path.dirname(frame.filename)
        if home and (folder == home or (module != package and folder.startswith(f"{home}{os.sep}"))):
            return frame
    return frames[-1]


def _is_installed(module: str) -> bool:
    if module in sys.modules:
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError as error:  # of it, of a package that it is in, or of what that imports
        return not f"{module}.".startswith(f"{error.name}.")
    except Exception:  # a package that it is in raises: importing it says where
        return True


def _is_file(origin: str | None, file: Path) -> bool:
    return origin is not None and os.path.exists(origin) and os.path.samefile(origin, file)


def _digest(file: Path) -> str:
    """Of a module's source, or of all modules of a package."""
    import hashlib  # which takes long to import

    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    found = hashlib.sha256()
    for one in files:
        found.update(one.read_bytes())
    return found.hexdigest()
