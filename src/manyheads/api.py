"""The names that users' plugins import: the hooks, and what their parts build on.

They and those of `manyheads` itself are stable from one version to the next; docs/extending.md shows how to use them.
Each is imported on first use.
"""

from typing import TYPE_CHECKING, Any

from manyheads.plugin import resolve

if TYPE_CHECKING:
    from manyheads.config.facts import section, setting
    from manyheads.data.rows import Rows
    from manyheads.errors import UserError
    from manyheads.evaluation.evaluation import Finding
    from manyheads.evaluation.statistics import bootstrap
    from manyheads.inference.rules import AnswerRule
    from manyheads.layout import Packed, Padded
    from manyheads.nn.attention import Score, attend
    from manyheads.plugin import Flag, Part, Plugin, Section, Verb, register

_HOME = {
    "AnswerRule": "manyheads.inference.rules",
    "Finding": "manyheads.evaluation.evaluation",
    "Flag": "manyheads.plugin",
    "Packed": "manyheads.layout",
    "Padded": "manyheads.layout",
    "Part": "manyheads.plugin",
    "Plugin": "manyheads.plugin",
    "Rows": "manyheads.data.rows",
    "Score": "manyheads.nn.attention",
    "Section": "manyheads.plugin",
    "UserError": "manyheads.errors",
    "Verb": "manyheads.plugin",
    "attend": "manyheads.nn.attention",
    "bootstrap": "manyheads.evaluation.statistics",
    "register": "manyheads.plugin",
    "section": "manyheads.config.facts",
    "setting": "manyheads.config.facts",
}
__all__ = [
    "AnswerRule",
    "Finding",
    "Flag",
    "Packed",
    "Padded",
    "Part",
    "Plugin",
    "Rows",
    "Score",
    "Section",
    "UserError",
    "Verb",
    "attend",
    "bootstrap",
    "register",
    "section",
    "setting",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'manyheads.api' has no attribute {name!r}")
    return resolve(f"{_HOME[name]}:{name}")


def __dir__() -> list[str]:
    return list(__all__)
