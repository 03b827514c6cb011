"""report.html: one file that tells a reader how good a classifier is. No script, nothing fetched from anywhere."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

from manyheads.config.plain import show
from manyheads.judge.baselines import TFIDF, Baseline
from manyheads.judge.curves import Curve
from manyheads.judge.markup import Html, shown
from manyheads.judge.predictions import Mistake
from manyheads.judge.scores import Scores
from manyheads.judge.sections import (
    all_figures,
    comparison,
    confusion,
    data_notes,
    learning_curves,
    named_values,
    per_class,
    tiles,
    worst,
)
from manyheads.judge.style import CSS
from manyheads.whole import replace_file

PACKAGES = ("manyheads", "torch", "lightning", "tokenizers", "safetensors", "datasets", "scikit-learn", "numpy")
# No file or script may be loaded, whatever a text of the data contains.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(kw_only=True, slots=True)
class ReportContent:
    """Everything the page shows. What is empty is left out.

    Args:
        subtitle: one line, such as `emotion, test split, 2,000 rows`.
        scores: of the split that the page is about.
        baselines: of the same split.
        curves: rows of metrics.csv, each with `step`; figures not logged at that step absent.
        facts: name and value, such as parameters or seconds.
        notes: warnings and facts of the data, a sentence each.
        config: nested plain values, shown as dotted keys.
    """

    title: str
    subtitle: str
    scores: Scores
    baselines: list[Baseline] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    curves: Sequence[Curve] = ()
    facts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def write_report(path: Path, content: ReportContent) -> None:
    """Write the page, whole or not at all."""
    with replace_file(path) as part:
        part.write_text(render(content), encoding="utf-8", errors="replace")


def render(content: ReportContent) -> str:
    """The page as a string."""
    parts = [
        tiles(content.scores),
        Html(f"<p class=verdict>{shown(verdict(content.scores, content.baselines))}</p>"),
        *comparison(content.scores, content.baselines),
        *learning_curves(content.curves),
        confusion(content.scores),
        per_class(content.scores),
        all_figures(content.scores),
        *worst(content.mistakes),
        *data_notes(content.notes),
        *named_values("Run", dict(content.facts)),
        *named_values("Settings", dict(dotted(content.config))),
        *named_values("Versions", dict(content.versions)),
    ]
    return page(content.title, content.subtitle, parts)


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


def installed_versions() -> dict[str, str]:
    """Python and the packages a figure may depend on, by their metadata: nothing is imported."""
    found = {"python": python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def verdict(scores: Scores, baselines: Sequence[Baseline]) -> str:
    """One sentence a hurried reader can repeat; it says so where a bag of words wins."""
    accuracy = scores.accuracy
    right = (
        f"{accuracy.value:.1%} of {scores.n_rows:,} rows are answered right "
        f"(95 % interval {accuracy.low:.1%} to {accuracy.high:.1%})"
    )
    rival = next((one for one in baselines if one.name == TFIDF), None) or next(iter(baselines), None)
    if rival is None:
        return f"{right}."
    points = 100 * (accuracy.value - rival.scores.accuracy.value)
    how = f"{abs(points):.1f} points {'more' if points >= 0 else 'fewer'} than {rival.name} reaches"
    other = rival.scores.accuracy
    apart = accuracy.low > other.high or accuracy.high < other.low
    return f"{right}, {how}{'' if apart else '; the two intervals overlap'}."


def dotted(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as (dotted key, value as it is typed)."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", show(value)
