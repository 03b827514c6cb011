"""report.html: one file that tells a reader how good a model is. No script, nothing fetched from anywhere."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any, NamedTuple

from manyheads.config.plain import show
from manyheads.judge.curves import Curve
from manyheads.judge.markup import Html, shown
from manyheads.judge.sections import data_notes, learning_curves, named_values, warnings_list
from manyheads.judge.style import CSS
from manyheads.whole import replace_file

PACKAGES = ("manyheads", "torch", "lightning", "tokenizers", "safetensors", "datasets", "scikit-learn", "numpy")
# No file or script may be loaded, whatever a text of the data contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Sections(NamedTuple):
    """What there is to say of one kind of answers: above the learning curves, and below them."""

    first: list[Html]
    rest: list[Html]


def installed_versions() -> dict[str, str]:
    """Python and the packages a figure may depend on, by their metadata: nothing is imported."""
    found = {"python": python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(kw_only=True, slots=True)
class Report:
    """Everything the page shows. What is empty is left out.

    Args:
        subtitle: one line, such as `emotion, test split, 2,000 rows`.
        curves: rows of metrics.csv, each with `step`; figures not logged at that step absent.
        facts: name and value, such as parameters or seconds.
        notes: warnings and facts of the data, a sentence each.
        config: nested plain values, shown as dotted keys.
        warnings: what the figures cannot say, a sentence each.
    """

    title: str
    subtitle: str
    sections: Sections
    curves: Sequence[Curve] = ()
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=installed_versions)


def write_report(path: Path, report: Report) -> None:
    """Write the page, whole or not at all."""
    with replace_file(path) as part:
        part.write_text(render(report), encoding="utf-8", errors="replace")


def render(report: Report) -> str:
    """The page as a string."""
    parts = [
        *warnings_list(report.warnings),
        *report.sections.first,
        *learning_curves(report.curves),
        *report.sections.rest,
        *data_notes(report.notes),
        *named_values("Run", dict(report.facts)),
        *named_values("Settings", dict(dotted(report.config))),
        *named_values("Versions", dict(report.versions)),
    ]
    return page(report.title, report.subtitle, parts)


def page(title: str, subtitle: str, parts: Iterable[Html]) -> str:
    """A whole page of sections under a heading."""
    head = f"<header><h1>{shown(title)}</h1><div class=soft>{shown(subtitle)}</div></header>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{shown(title)}</title><style>{CSS}</style></head>\n<body><main>\n"
        + "\n".join([head, *parts])
        + "\n</main></body></html>\n"
    )


def dotted(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as (dotted key, value as it is typed)."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", show(value)
