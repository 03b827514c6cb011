"""What tests ask the registry for: none lists blocks, sources or verbs of its own, so that adding one touches its file
and its test alone."""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from manyheads import plugin
from manyheads.cli.compose import compose
from manyheads.cli.verbs import VERBS
from manyheads.plugins import PLUGINS

SWEEPS = pytest.mark.skipif(not plugin.flags(), reason="no plugin adds -m")


def of_plugin(name: str, kind: str) -> list[str]:
    """The names of a plugin's parts of a kind; none if the plugin is not there."""
    owner = plugin.plugins().get(name)
    return [part.name for part in owner.parts if part.kind == kind] if owner else []


def of_core(kind: str) -> list[str]:
    """The names of core's parts of a kind; those of plugins have tests of their own."""
    return of_plugin("core", kind)


def reference(kind: str, name: str, known: dict[str, Any]) -> Any:
    """The formula that a test has for a part."""
    if name not in known:
        pytest.fail(f"{kind} {name} has no reference to be compared with: write its formula in this file")
    return known[name]


@cache
def needed(verb: str) -> tuple[str, ...]:
    """Settings without which a verb is refused, such as run=FOLDER: what cannot be left out of its first example
    without a preset."""
    for example in VERBS[verb].examples:
        words = [word for word in shlex.split(example)[2:] if "=" in word]
        if VERBS[verb].groups.keys() & {name_of(word) for word in words}:
            continue
        for word in [*words]:
            others = [one for one in words if one != word]
            if composes(verb, others):
                words = others
        return tuple(words)
    return ()


def name_of(word: str) -> str:
    return word.partition("=")[0]


def composes(verb: str, words: list[str]) -> bool:
    try:
        compose(verb, words)
    except ValueError:
        return False
    return True


def missing_plugins() -> set[str]:
    """Plugins of docs/architecture.md that are not there, as someone has deleted their folders: what the docs say of
    them is skipped."""
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    return {*re.findall(r"(?m)^\| `(\w+)` \|", page.partition("## Plugins")[2])} - PLUGINS.keys()
