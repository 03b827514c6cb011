"""The verb `explain`: every experiment, its pictures, one JSON of all figures, and figures kept up to date in a page.

A figure in a Markdown page says where it comes from in a comment, `0.97<!--relations/train/weight-->`, so that a reader
sees the figure alone.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.config import Claim, ExplainConfig
from manyheads.runs.atomic import replace_file

JSON = "attention.json"


@dataclass(frozen=True, slots=True)
class Finding:
    """`says` is one line for the screen, `numbers` go to the JSON, `pictures` are PNGs by the rest of their name."""

    says: str
    numbers: dict[str, Any]
    pictures: dict[str, bytes]


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


def explain(config: ExplainConfig) -> dict[str, Any]:
    """Run the experiments, all or the one that is asked for; returns the content of attention.json.

    Writes attention.json and attention-*.png to `output`, file by file as they are ready; other files there stay.
    Figures in `page` that name their place in the JSON are brought up to date.

    Raises:
        ValueError: one sentence; the output is a file, the attention.json in it is not ours, or the page.
    """
    folder = Path(config.output or f"outputs/explain-{config.seed}")
    figures = _figures_there(folder, config)
    check_page(config.page)
    folder.mkdir(parents=True, exist_ok=True)
    for claim, experiment in _experiments().items():
        if config.only not in (Claim.all, claim):
            continue
        started = time.perf_counter()
        finding = experiment(config)
        seconds = time.perf_counter() - started
        figures[claim.name] = _rounded({"seed": config.seed, "seconds": seconds, **finding.numbers})
        _write(folder, figures, finding)
        print(f"{claim.name}: {finding.says} ({seconds:.0f} s)", flush=True)
    print(f"figures: {folder / JSON}")
    update_page(config.page, figures)
    return figures


def _experiments() -> dict[Claim, Callable[[ExplainConfig], Finding]]:
    # torch and matplotlib take seconds to import: only now are they needed
    from manyheads.explain.cost import heads, length
    from manyheads.explain.formula import formula, order
    from manyheads.explain.relations import relations
    from manyheads.explain.scores import retrieval, scale
    from manyheads.explain.senses import senses

    return {
        Claim.formula: formula,
        Claim.scale: scale,
        Claim.order: order,
        Claim.heads: heads,
        Claim.length: length,
        Claim.retrieval: retrieval,
        Claim.senses: senses,
        Claim.relations: relations,
    }


def _figures_there(folder: Path, config: ExplainConfig) -> dict[str, Any]:
    """What an earlier run left, for an experiment that is done alone; else nothing."""
    file = folder / JSON
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output={folder} is a file: name a folder")
    if config.only is Claim.all or not file.exists():
        return {}
    try:
        figures = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        figures = None
    if not isinstance(figures, dict) or not figures.keys() <= Claim.__members__.keys():
        raise ValueError(f"{file} is not what explain writes: name another folder, or delete the file")
    return figures


def _write(folder: Path, figures: dict[str, Any], finding: Finding) -> None:
    for name, png in finding.pictures.items():
        with replace_file(folder / f"attention-{name}.png") as part:
            part.write_bytes(png)
    ordered = {name: figures[name] for name in Claim.__members__ if name in figures}
    with replace_file(folder / JSON) as part:
        part.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Six digits of every figure: more would be noise."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
