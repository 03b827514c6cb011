"""Pages and pictures of an evaluation, and how all pictures look: one palette, quiet axes, labels with units.

A page is plain values: templates/page.html.j2 turns them into HTML, and jinja2 escapes each of them. It runs no script
and fetches nothing. Pictures are PNGs, drawn without pyplot: no window system is asked for and nothing is global. Names
are drawn as they are, never read as TeX.
"""

import warnings
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from platform import python_version
from typing import Any
from unicodedata import category

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from manyheads.config.sentences import format_value
from manyheads.evaluation.metrics import Scores
from manyheads.runs.files import write_atomic
from manyheads.runs.metrics_csv import MetricsRow
from manyheads.runs.summary import Figures, words_of

MOST_LETTERS = 600  # of a text on a page
UNSEEN = ("Cc", "Cs", "Cn")  # control characters, surrogates, unassigned characters
TURNING = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}  # the direction of what follows
PACKAGES = ("manyheads", "torch", "lightning", "tokenizers", "safetensors", "datasets", "scikit-learn", "numpy")
INK, GREY, BLUE, PALE, RED = "#1c2330", "#8a93a3", "#4a82e4", "#c9daf8", "#d1495b"
FEW_ROWS = 20  # a bin with fewer says little: it is drawn pale
PANELS = {
    "loss": [("train_loss", BLUE, "-"), ("validation_loss", RED, "-")],
    "accuracy": [
        ("train_accuracy", BLUE, "-"),
        ("validation_accuracy", RED, "-"),
        ("validation_macro_f1", RED, ":"),
        ("train_token_accuracy", BLUE, "-"),
        ("validation_token_accuracy", RED, "-"),
        ("validation_exact_match", RED, ":"),
    ],
    "f1": [("train_micro_f1", BLUE, "-"), ("validation_micro_f1", RED, "-"), ("validation_macro_f1", RED, ":")],
}
SECONDARY = "validation_macro_f1"  # not drawn without other figures


@dataclass(slots=True)
class Link:
    """A cell that shows the examples of the group `to`, none of them if it is empty; `title` says what it is to those
    who hear the page, `share` how dark it is."""

    text: str
    to: str = ""
    title: str = ""
    share: float = 0.0


@dataclass(slots=True)
class ReportTable:
    """Rows of cells. `kinds` has a letter for each column: w name, n number, i figure with its interval, b bar of a
    figure or share, l link, s link that is shaded; row `own` is set in bold."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    kinds: str
    own: int = -1


@dataclass
class Picture:
    """A PNG inside the page, and as the file `name`.png, made of the `figure` once it is needed; `width`:
    "wide", "full" as the page, or as usual."""

    name: str
    figure: Figure
    caption: str
    width: str = ""

    @cached_property
    def png(self) -> bytes:
        """The picture as it is written."""
        return png(self.figure)


@dataclass(slots=True)
class Example:
    """Texts of one row, the first of them the input, at a `place` such as `row 7`; `label` and the wrong `answer`, or
    the position of a `wrong` text. `parts` are pieces of each text as far as it is shown, each with what it adds to the
    answer, -1 to 1, and `note` says that in words."""

    place: str
    texts: list[str]
    label: str | None = None
    answer: str | None = None
    wrong: int = -1
    parts: list[list[tuple[str, float]]] = field(default_factory=list)
    note: str = ""


@dataclass(slots=True)
class Group:
    """Examples that are seen once a link has been followed `to` their `key`."""

    key: str
    title: str
    examples: Sequence[Example]


@dataclass(slots=True)
class ReportSection:
    """A titled card of a page; what is empty is left out, and a `long` one may break across printed pages."""

    title: str
    table: ReportTable | None = None
    notes: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    examples: Sequence[Example] = ()
    command: str = ""
    items: Sequence[str] = ()
    values: Mapping[str, object] = field(default_factory=dict)
    long: bool = False
    groups: Sequence[Group] = ()


@dataclass(kw_only=True, slots=True)
class Page:
    """A page from top to bottom; `warnings` are sentences without a full stop, `verdict` is one with it."""

    title: str
    subtitle: str
    sections: Sequence[ReportSection]
    warnings: Sequence[str] = ()
    tiles: Figures = field(default_factory=dict)
    verdict: str = ""


def write_page(path: Path, page: Page) -> None:
    """Write the page, whole or not at all."""
    write_atomic(path, render(page))


def render(page: Page) -> str:
    """The page as HTML."""
    return templates("manyheads.evaluation").get_template("page.html.j2").render(page=page)


@cache
def templates(package: str) -> Environment:
    """The templates of a package; every value in them is escaped, and its unseen characters are made visible."""

    def on_track(value: float) -> float:
        return min(max(value, 0.0), 1.0)

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["most"] = MOST_LETTERS
    environment.filters |= {
        "number": format,
        "percent": lambda share: f"{100 * on_track(share):.2f}%",
        "band": lambda figure: f"{100 * (on_track(figure.high) - on_track(figure.low)):.2f}%",
        "lines": lambda text: text.replace("\r\n", "\n"),  # before it is cut between the two
        "base64": lambda data: b64encode(data).decode("ascii"),
    }
    return environment


def visible(value: object) -> str:
    """Control characters, which HTML forbids, and those that turn the direction of what follows become a visible
    replacement; markup of our own is left alone."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    if text.isprintable():
        return text

    def is_seen(letter: str) -> bool:
        return letter in "\t\n" or (category(letter) not in UNSEEN and ord(letter) not in TURNING)

    return "".join(one if one.isprintable() or is_seen(one) else "\ufffd" for one in text.replace("\r\n", "\n"))


def value_sections(values: Mapping[str, Mapping[str, object]]) -> list[ReportSection]:
    """Names and values under each title; none where there are none."""
    return [ReportSection(title, values=pairs, long=True) for title, pairs in values.items() if pairs]


def dotted(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as (dotted key, value as it is typed)."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", format_value(value)


@cache
def installed_versions() -> dict[str, str]:
    """Python and the packages a figure may depend on, by their metadata: nothing is imported."""
    found = {"python": python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def draw_reliability(scores: Scores) -> Figure:
    """Above: accuracy by confidence, on the diagonal if the model knows itself. Below: rows by confidence."""
    bins = scores.reliability
    figure = Figure(figsize=(5.2, 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, height_ratios=(4, 1), sharex=True)
    middles = [(one.low + one.high) / 2 for one in bins]
    widths = [one.high - one.low for one in bins]
    colours = [BLUE if one.n_rows >= FEW_ROWS else PALE for one in bins]
    upper.bar(middles, [one.accuracy for one in bins], widths, color=colours, edgecolor="white")
    upper.vlines(middles, [one.least for one in bins], [one.most for one in bins], color=INK, linewidth=1)
    upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    upper.plot([one.confidence for one in bins], [one.accuracy for one in bins], "o", color=INK, markersize=3)
    upper.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    lower.bar(middles, [one.n_rows for one in bins], widths, color=GREY, edgecolor="white")
    lower.set(xlabel="confidence", ylabel="rows")
    lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    for axes in (upper, lower):
        quiet(axes)
    return figure


def draw_curves(curves: Sequence[MetricsRow]) -> dict[str, Figure]:
    """Figures over steps, a picture for the losses and one for accuracy or micro F1, macro F1 in it, as far as `curves`
    hold them."""
    drawn = {}
    for panel, lines in PANELS.items():
        found = [line for line in lines if any(line[0] in row for row in curves)]
        if all(key == SECONDARY for key, _, _ in found):
            continue
        figure = Figure(figsize=(5.0, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for key, colour, style in found:
            steps, figures = zip(*((row["step"], row[key]) for row in curves if key in row), strict=True)
            axes.plot(steps, figures, style, color=colour, label=words_of(key), marker=".", markersize=4)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.legend(frameon=False, fontsize=8)
        quiet(axes)
        drawn[panel] = figure
    return drawn


def quiet(axes: Axes) -> None:
    """Two spines, small ticks, faint grid lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=8, length=3)
    axes.grid(axis="y", color="#e6e9ef", linewidth=0.8)
    axes.set_axisbelow(True)


def png(figure: Figure) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes."""
    file = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a class name in a script the font lacks
        figure.savefig(file, format="png", dpi=170, metadata={"Software": None})
    return file.getvalue()


def draw(n_rows: int, n_columns: int, *, width: float, height: float, **grid: Any) -> tuple[Figure, np.ndarray]:
    """A figure of `width` x `height` inches and its panels `(n_rows, n_columns)`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False, gridspec_kw=grid or None)
    for panel in panels.flat:
        quiet(panel)
        panel.xaxis.label.set(fontsize=9, color=INK)
        panel.yaxis.label.set(fontsize=9, color=INK)
    return figure, panels
