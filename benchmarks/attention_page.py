"""Bring the figures of docs/attention.md up to date with docs/pictures/attention.json:

    python examples/attention_explained.py docs/pictures
    python benchmarks/attention_page.py

A figure in the page says where it comes from in a comment, `0.97<!--relations/train/weight-->`, so that a reader sees
the figure alone.
"""

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
MARK = re.compile(
    r"(?P<shown>-?\d[\d,]*(?:\.(?P<decimals>\d+))?)(?P<power>e-?\d+)?(?P<percent> ?%)?<!--(?P<place>[^>]+)-->"
)


def with_figures(text: str, figures: dict[str, Any]) -> str:
    """The text with each marked figure replaced, in as many decimals as it was written with.

    A place is the keys, and positions in lists, that lead to the figure: `scale/widths/4/variance`. A `ValueError` says
    that a mark names no figure.
    """

    def replaced(mark: re.Match[str]) -> str:
        value, decimals = figure_at(mark["place"], figures), len(mark["decimals"] or "")
        shown = f"{value:,.{decimals}f}"
        if mark["power"]:
            digits, _, power = f"{value:.{decimals}e}".partition("e")
            shown = f"{digits}e{int(power)}"
        elif mark["percent"]:
            shown = f"{100 * value:.{decimals}f}{mark['percent']}"
        return f"{shown}<!--{mark['place']}-->"

    return MARK.sub(replaced, text)


def figure_at(place: str, figures: dict[str, Any]) -> float:
    """The number that a place names."""
    found: Any = figures
    for step in place.split("/"):
        key: Any = int(step) if isinstance(found, list) and step.isdecimal() else step
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            found = None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"the mark {place} of the page names no figure of attention.json: correct it in the page")
    return found


if __name__ == "__main__":
    page = DOCS / "attention.md"
    figures = json.loads((DOCS / "pictures" / "attention.json").read_text(encoding="utf-8"))
    page.write_text(with_figures(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
