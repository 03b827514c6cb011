"""Pages and pictures of an evaluation, and the style of all pictures: one palette, quiet axes, labels with units.

A page is plain values: templates/page.html.j2 turns them into HTML, and jinja2 escapes each of them. It runs no script
and fetches nothing. Pictures are PNGs, drawn without pyplot, so that there is no window system and no global state.
Names are drawn as they are, never read as TeX.
"""

import warnings
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from itertools import cycle
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
from manyheads.errors import UserError
from manyheads.evaluation.metrics import Scores
from manyheads.runs.files import write_atomic
from manyheads.runs.metrics_csv import MetricsRow
from manyheads.runs.result_table import ResultTable
from manyheads.runs.summary import Figures, Interval, words_of
from manyheads.terminal import one_line

MOST_LETTERS = 600  # of a text on a page
MOST_SHOWN = 5  # examples of a section that are not folded
INVISIBLE = ("Cc", "Cs", "Cn")  # control characters, surrogates, unassigned characters
BIDI_CONTROLS = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}  # turn what follows
PACKAGES = ("manyheads", "torch", "lightning", "tokenizers", "safetensors", "datasets", "scikit-learn", "numpy")
SERIES = (  # told apart by colour-blind readers (Okabe and Ito, 2008, "Color Universal Design"), and without colours
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
)
MOST_OF_NAME = 40  # letters of a row's name in a figure
INK, GREY, BLUE, PALE, RED = "#1c2330", "#8a93a3", "#4a82e4", "#c9daf8", "#d1495b"
FEW_ROWS = 20  # a bin with fewer says little: it is drawn pale
SMALL = {"width": 2.6, "height": 2.2}  # inches of a picture of which four are in a line
THIN = {"linewidth": 1.2, "marker": ".", "markersize": 3}  # a line in it
PANELS = {"loss": ["loss"], "accuracy": ["accuracy", "token_accuracy"], "f1": ["micro_f1"]}  # figures in each picture
BELOW = {"accuracy": ["macro_f1", "exact_match"], "f1": ["macro_f1"]}  # dotted, where there are those of validation


@dataclass(slots=True)
class Link:
    """A cell of a table that shows examples when it is clicked.

    Attributes:
        to: the key of their group; empty: it shows none.
        title: what it is, for those who hear the page.
        share: how dark it is, 0 to 1.
    """

    text: str
    to: str = ""
    title: str = ""
    share: float = 0.0


@dataclass(slots=True)
class ReportTable:
    """Rows of cells.

    Attributes:
        kinds: a letter for each column: w word, n number, i figure with its interval, c change with its interval, b bar
            of a figure or share, l link, s link that is shaded.
        own: the row that is set in bold.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    kinds: str
    own: int = -1


@dataclass
class Picture:
    """A PNG in the page and in the file `name`.png, drawn when it is needed."""

    name: str
    figure: Figure
    caption: str

    @cached_property
    def png(self) -> bytes:
        """The picture as it is written."""
        return png(self.figure)


@dataclass(slots=True)
class Example:
    """A row that is shown.

    Attributes:
        place: such as `row 7`.
        texts: of the row; the first is the input.
        label, answer: what is true, and the wrong answer.
        wrong: the position of a text that is wrong.
        parts: pieces of each text as far as it is shown, each with what it adds to the answer, -1 to 1.
        note: says that in words.
    """

    place: str
    texts: list[str]
    label: str | None = None
    answer: str | None = None
    wrong: int = -1
    parts: list[list[tuple[str, float]]] = field(default_factory=list)
    note: str = ""


@dataclass(slots=True)
class Group:
    """Examples that are shown when a link to their `key` is followed."""

    key: str
    title: str
    examples: Sequence[Example]


@dataclass(slots=True)
class ReportSection:
    """A titled section of a page; what is empty is not shown. A `long` one may break across printed pages; a `folded`
    one shows its title alone until it is opened, and is not printed."""

    title: str
    table: ReportTable | None = None
    notes: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    examples: Sequence[Example] = ()
    command: str = ""
    items: Sequence[str] = ()
    values: Mapping[str, object] = field(default_factory=dict)
    long: bool = False
    folded: bool = False
    groups: Sequence[Group] = ()


@dataclass(slots=True)
class Advice:
    """What to do next, and the figures that say so; neither ends in a full stop."""

    step: str
    why: str


@dataclass(kw_only=True, slots=True)
class Page:
    """A page from top to bottom; `warnings` are sentences without a full stop, `verdict` is one with it."""

    title: str
    subtitle: str
    sections: Sequence[ReportSection]
    warnings: Sequence[str] = ()
    tiles: Figures = field(default_factory=dict)
    verdict: str = ""
    advice: Sequence[Advice] = ()


def write_page(path: Path, page: Page) -> None:
    """Write the page, whole or not at all."""
    write_atomic(path, render(page))


def render(page: Page) -> str:
    """The page as HTML."""
    return templates("manyheads.evaluation").get_template("page.html.j2").render(page=page)


@cache
def templates(package: str) -> Environment:
    """The templates of a package; every value in them is escaped, and invisible characters in it are replaced."""

    def percent(share: float) -> str:
        return f"{100 * min(max(share, 0.0), 1.0):.2f}%"

    def width_of(figure: Interval) -> str:
        return f"{100 * (min(max(figure.high, 0.0), 1.0) - min(max(figure.low, 0.0), 1.0)):.2f}%"

    def with_plain_breaks(text: str) -> str:  # before a text is cut between the two characters
        return text.replace("\r\n", "\n")

    def base64(data: bytes) -> str:
        return b64encode(data).decode("ascii")

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"most": MOST_LETTERS, "shown": MOST_SHOWN}
    environment.filters |= {
        "number": format,
        "percent": percent,
        "band": width_of,
        "lines": with_plain_breaks,
        "base64": base64,
    }
    return environment


def visible(value: object) -> str:
    """Replace control characters, which HTML forbids, and those that turn the direction of text by U+FFFD; our own
    markup is left alone."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    if text.isprintable():
        return text
    letters = []
    for letter in text.replace("\r\n", "\n"):
        is_safe = letter.isprintable() or letter in "\t\n"
        if not is_safe:
            is_safe = category(letter) not in INVISIBLE and ord(letter) not in BIDI_CONTROLS
        letters.append(letter if is_safe else "\ufffd")
    return "".join(letters)


def value_sections(values: Mapping[str, Mapping[str, object]]) -> list[ReportSection]:
    """Names and values under each title, folded; none where there are none."""
    return [ReportSection(title, values=pairs, long=True, folded=True) for title, pairs in values.items() if pairs]


def settings_sections(settings: dict[str, Any]) -> list[ReportSection]:
    """The settings of a verb, nested plain values, and the versions of packages."""
    return value_sections({"Settings": dict(dotted(settings)), "Versions": installed_versions()})


def dotted(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as (dotted key, value as it is typed)."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", format_value(value)


@cache
def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages a figure may depend on, from their metadata: nothing is imported."""
    versions = {"python": python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def draw_reliability(scores: Scores) -> Figure:
    """Accuracy by confidence, on the diagonal if the model knows itself."""
    bins = scores.reliability
    figure, ((axes,),) = draw(1, 1, **SMALL)
    middles = [(one.low + one.high) / 2 for one in bins]
    widths = [one.high - one.low for one in bins]
    colours = [BLUE if one.n_rows >= FEW_ROWS else PALE for one in bins]
    axes.bar(middles, [one.accuracy for one in bins], widths, color=colours, edgecolor="white")
    axes.vlines(middles, [one.least for one in bins], [one.most for one in bins], color=INK, linewidth=1)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")
    return figure


def draw_curves(curves: Sequence[MetricsRow]) -> dict[str, Figure]:
    """Figures over steps: a picture of the losses, and one of accuracy or micro F1 with macro F1 in it, as far as
    `curves` have them."""
    drawn = {}
    for panel, names in PANELS.items():
        lines = [(f"train_{name}", BLUE, "-") for name in names] + [(f"validation_{name}", RED, "-") for name in names]
        if not any(name in row for row in curves for name, *_ in lines):
            continue
        lines += [(f"validation_{name}", RED, ":") for name in BELOW.get(panel, [])]
        figure, ((axes,),) = draw(1, 1, **SMALL)
        for name, colour, style in lines:
            if points := [(row["step"], row[name]) for row in curves if name in row]:
                axes.plot(*zip(*points, strict=True), style, color=colour, label=words_of(name), **THIN)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes.legend(frameon=False, fontsize=6.5)
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
        figure.savefig(file, format="png", dpi=200, metadata={"Software": None})
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


def draw_table(table: ResultTable) -> Figure:
    """The figure of a table: its columns with intervals over a column of numbers, or the first of them row by row.

    Raises:
        UserError: it has no figures with intervals.
    """
    drawn = []
    for name in table.columns:
        if any(isinstance(cell, Interval) for cell in table.cells(name)):
            drawn.append(name)
    if not drawn:
        raise UserError(f"{table.name} has no figures with intervals to draw: write it as .tex, .csv or .md")
    figure = _draw_over(table, drawn) if table.over else _draw_rows(table, drawn[0])
    figure.supxlabel(f"bars: {table.bars}", fontsize=7, color=INK)
    return figure


def _draw_rows(table: ResultTable, drawn: str) -> Figure:
    """Each row by its texts, from top to bottom, with its value in the column `drawn`."""
    before = [name for name in list(table.columns)[: list(table.columns).index(drawn)] if table.is_text(name)]
    if table.named_by:
        before = [table.named_by]
    names = list[str]()
    figure, panels = draw(1, 1, width=4.5, height=0.8 + 0.25 * max(2, len(table.rows)))
    (axes,) = panels.flat
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        value = cells[drawn]
        if isinstance(value, Interval):
            axes.hlines(len(names), value.low, value.high, color=INK, linewidth=1)
            value = value.value
        if value is not None:
            axes.plot([value], [len(names)], "o", color=SERIES[0][0], markersize=5)
            name = one_line(", ".join(str(cells[one]) for one in before or list(table.columns)[:1]))
            names.append(name if len(name) <= MOST_OF_NAME else f"{name[: MOST_OF_NAME - 1]}…")
    axes.set_yticks(range(len(names)), names)
    axes.set(ylim=(len(names) - 0.5, -0.5), xlabel=drawn)
    axes.grid(visible=False, axis="y")
    return figure


def _draw_over(table: ResultTable, drawn: Sequence[str]) -> Figure:
    """The columns `drawn` over the numbers of another, and the lines that belong to them."""
    figure, panels = draw(1, 1, width=4.5, height=3.2)
    (axes,) = panels.flat
    colours = dict[str, str]()
    for name, (colour, marker, dashes) in zip(drawn, cycle(SERIES), strict=False):
        points = []
        for x, one in zip(table.cells(table.over), table.cells(name), strict=True):
            if isinstance(one, Interval) and not isinstance(x, str):
                points.append((x, one))
        ends = [[one.value - one.low for _, one in points], [one.high - one.value for _, one in points]]
        joined = "none" if table.lines else dashes
        look: dict[str, Any] = {"marker": marker, "linestyle": joined, "markersize": 4, "capsize": 2, "linewidth": 1}
        axes.errorbar([x for x, _ in points], [one.value for _, one in points], ends, color=colour, label=name, **look)
        colours[name] = colour
    for name, line in table.lines.items():
        x, y = zip(*line, strict=True)
        axes.plot(x, y, "--", color=colours.get(name, GREY), linewidth=1, label="" if name in colours else name)
    axes.set(xlabel=table.over, ylabel=table.figure)
    ticks = [x for x in table.cells(table.over) if isinstance(x, int)]
    if ticks:  # counts, of which each is a multiple of the one before
        ticks = sorted({*ticks, *(round(line[-1][0]) for line in table.lines.values())})
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{x:,}" for x in ticks])
    if len(drawn) + len(table.lines) > 1:
        axes.legend(frameon=False, fontsize=8)
    return figure
