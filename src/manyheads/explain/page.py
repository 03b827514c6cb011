"""Figures in a Markdown page that say where they come from, `0.97<!--relations/train/weight-->`, kept up to date.

The mark is a comment, so that a reader sees the figure alone. Standard library only.
"""

import re
from pathlib import Path
from typing import Any

from manyheads.config.explain import Claim
from manyheads.whole import replace_file

MARK = re.compile(
    r"(?P<shown>-?\d[\d,]*(?:\.(?P<decimals>\d+))?)(?P<power>e-?\d+)?(?P<percent> ?%)?<!--(?P<place>[^>]+)-->"
)
CLAIMS = [claim.name for claim in Claim if claim is not Claim.all]


def check_page(page: str) -> None:
    """Refuse a page that is not there or cannot be read, or has a mark of no experiment, before any work is done.

    Raises:
        ValueError: names it.
    """
    if not page:
        return
    if not Path(page).is_file():
        raise ValueError(f"page={page} does not exist: name a Markdown page with marked figures, or leave it empty")
    try:
        text = Path(page).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"page={page} is not UTF-8: save it as UTF-8") from error
    except OSError as error:
        raise ValueError(f"page={page} cannot be read ({error.strerror}): check its permissions") from error
    for mark in MARK.finditer(text):
        if _claim_of(mark) not in CLAIMS:
            raise ValueError(_no_figure(mark["place"]))


def update_page(page: str, figures: dict[str, Any]) -> None:
    """Rewrite the marked figures of the page; an empty name is no page. Those of experiments left out stay.

    Raises:
        ValueError: a mark names no figure.
    """
    if not page:
        return
    path = Path(page)
    text = path.read_text(encoding="utf-8")
    updated = with_figures(text, figures)
    if updated != text:
        with replace_file(path) as part:
            part.write_text(updated, encoding="utf-8")
    print(f"page: {path}, {len(MARK.findall(text))} figures, {'updated' if updated != text else 'all as they were'}")


def with_figures(text: str, figures: dict[str, Any]) -> str:
    """The text with each marked figure replaced, in as many decimals as it was written with.

    A place is the keys, and positions in lists, that lead to the figure: `scale/widths/4/variance`.
    """

    def replaced(mark: re.Match[str]) -> str:
        claim = _claim_of(mark)
        if claim in CLAIMS and claim not in figures:
            return mark[0]
        return f"{_shown(mark, figures)}<!--{mark['place']}-->"

    return MARK.sub(replaced, text)


def _claim_of(mark: re.Match[str]) -> str:
    return mark["place"].partition("/")[0]


def _shown(mark: re.Match[str], figures: dict[str, Any]) -> str:
    value = figure_at(mark["place"], figures)
    decimals = len(mark["decimals"] or "")
    if mark["power"]:
        digits, _, power = f"{value:.{decimals}e}".partition("e")
        return f"{digits}e{int(power)}"
    if mark["percent"]:
        return f"{100 * value:.{decimals}f}{mark['percent']}"
    return f"{value:,.{decimals}f}"


def figure_at(place: str, figures: dict[str, Any]) -> float:
    """The number that a place names.

    Raises:
        ValueError: there is none.
    """
    found: Any = figures
    for step in place.split("/"):
        key: Any = int(step) if isinstance(found, list) and step.isdecimal() else step
        try:
            found = found[key]
        except (KeyError, IndexError, TypeError):
            found = None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(_no_figure(place))
    return found


def _no_figure(place: str) -> str:
    return f"the mark {place} of the page names no figure of attention.json: correct it in the page"
