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
from manyheads.runs.folder import replace_file

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
    with_figures(text, {})


def with_figures(text: str, figures: dict[str, Any]) -> str:
    """The text with each marked figure replaced, in as many decimals as it was written with; those of experiments that
    are not among `figures` stay.

    A place is the keys, and positions in lists, that lead to the figure: `scale/widths/4/variance`.

    Raises:
        ValueError: a mark names no figure.
    """

    def replaced(mark: re.Match[str]) -> str:
        claim = mark["place"].partition("/")[0]
        if claim in CLAIMS and claim not in figures:
            return mark[0]
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
        raise ValueError(f"the mark {place} of the page names no figure of attention.json: correct it in the page")
    return found


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
    # torch and matplotlib take seconds to import: only now are they needed
    from manyheads.explain import cost, formula, models, words

    experiments: dict[Claim, Callable[[ExplainConfig], Finding]] = {
        Claim.formula: formula.formula,
        Claim.scale: formula.scale,
        Claim.order: models.order,
        Claim.heads: cost.heads,
        Claim.length: cost.length,
        Claim.retrieval: formula.retrieval,
        Claim.senses: words.senses,
        Claim.relations: words.relations,
    }
    for claim, experiment in experiments.items():
        if config.only not in (Claim.all, claim):
            continue
        started = time.perf_counter()
        finding = experiment(config)
        seconds = time.perf_counter() - started
        found = json.dumps({"seed": config.seed, "seconds": seconds, **finding.numbers})
        figures[claim.name] = json.loads(found, parse_float=lambda one: float(f"{float(one):.6g}"))  # more is noise
        for name, png in finding.pictures.items():
            with replace_file(folder / f"attention-{name}.png") as part:
                part.write_bytes(png)
        ordered = {name: figures[name] for name in Claim.__members__ if name in figures}
        with replace_file(folder / JSON) as part:
            part.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{claim.name}: {finding.says} ({seconds:.0f} s)", flush=True)
    print(f"figures: {folder / JSON}")
    if config.page:
        page, text = Path(config.page), Path(config.page).read_text(encoding="utf-8")
        updated = with_figures(text, figures)
        if updated != text:
            with replace_file(page) as part:
                part.write_text(updated, encoding="utf-8")
        how = "updated" if updated != text else "all as they were"
        print(f"page: {page}, {len(MARK.findall(text))} figures, {how}")
    return figures


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
