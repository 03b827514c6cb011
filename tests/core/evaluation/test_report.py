"""Pages: data stays text whatever it holds, nothing is fetched, nothing runs. Pictures are PNGs of a readable size."""

import re
import subprocess
import sys
import warnings
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from unicodedata import category

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from matplotlib.figure import Figure

from manyheads.evaluation.metrics import Scores, score
from manyheads.evaluation.report import (
    MOST_LETTERS,
    Example,
    Group,
    Link,
    Page,
    Picture,
    ReportSection,
    ReportTable,
    dotted,
    draw_curves,
    draw_reliability,
    installed_versions,
    render,
    templates,
    value_sections,
    write_page,
)
from manyheads.runs.summary import Interval

pytestmark = pytest.mark.drawn
EVIL = (
    "<script>alert(1)</script> \"on\" & 'x' <img src=http://evil.example/x onerror=alert(1)> {{ 7 * 7 }} \x00\x1b\u202e"
)
VOID = {"meta", "img", "br"}
HALF = Interval(0.5, 0.25, 0.75)


class Reader(HTMLParser):
    """Collects tags, attributes and text; checks that every tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text, self.open = "", []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(*sections: ReportSection, **more) -> Page:
    return Page(**({"title": "t", "subtitle": "s"} | more), sections=sections)


def full(text: str) -> Page:
    """A page on which every value that may come from data is the text."""
    return page(
        ReportSection(
            text,
            table=ReportTable([text, text, text], [[text, HALF, 0.5], [text, HALF, HALF]], "wib", own=1),
            notes=[text],
            pictures=[Picture("x", Figure((1, 1)), text)],
            examples=[
                Example(
                    text, [text, text], text, text, parts=[[(text, 1.0)], [(text, -0.01), (text, -1.0)]], note=text
                ),
                Example(text, [text, text, text], wrong=1),
            ],
            command=text,
            items=[text],
            values={text: text},
        ),
        title=text,
        subtitle=text,
        warnings=[text],
        tiles={text: HALF},
        verdict=text,
    )


def shown(text: str) -> str:
    """A value as it stands in a page."""
    return templates("manyheads.evaluation").from_string("{{ text }}").render(text=text)


def section(page: Page, title: str) -> str:
    """What a reader sees of one section of a page."""
    (piece,) = re.findall(rf"<section[^>]*><h2>{re.escape(title)}</h2>(.*?)</section>", render(page), re.DOTALL)
    return piece


@given(st.text())
def test_any_text_is_shown_as_itself(text: str) -> None:
    piece = shown(text)
    assert not {"<", ">", '"', "'"} & set(piece)
    hidden = "[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
    visible = re.sub(hidden, "\ufffd", text.replace("\r\n", "\n"))
    assert unescape(piece) == "".join("\ufffd" if category(one) == "Cn" else one for one in visible)


def test_spaces_and_joiners_are_letters_and_what_turns_the_text_is_none() -> None:
    for text in (
        "10\u00a0km",
        "\u6771\u3000\u4eac",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\U0001f469\u200d\U0001f52c",
    ):
        assert shown(text) == text
    assert shown("a\r\nb\rc") == "a\nb\ufffdc"
    assert shown("a\u202eb\u2066c\u200ed\u061ce\0\ud800\uffff") == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffd\ufffd\ufffd"


@given(st.text(min_size=1, max_size=30))
def test_no_text_opens_a_tag(text: str) -> None:
    assert Reader(render(full(text))).tags == Reader(render(full("plain"))).tags


def test_texts_stay_texts() -> None:
    read = Reader(render(full(EVIL)))
    assert "script" not in read.tags
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert read.text.count("<script>alert(1)</script>") >= 20
    assert "{{ 7 * 7 }}" in read.text
    assert not re.search("[\x00\x1b\u202e]", read.text)


def test_nothing_is_fetched() -> None:
    html = render(full(EVIL))
    read = Reader(html)
    assert {"link", "iframe", "object", "base", "form"}.isdisjoint(read.tags)
    sources = [value or "" for name, value in read.attributes if name in ("src", "href", "srcset", "data", "action")]
    (source,) = [one for one in sources if not one.startswith("#")]
    assert source.startswith("data:image/png;base64,")
    assert "url(" not in html
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("content", policy) in read.attributes[:5]


def test_what_is_empty_is_left_out() -> None:
    read = Reader(render(page(ReportSection("x"))))
    assert {"table", "figure", "ol", "ul", "dl", "pre", "p"}.isdisjoint(read.tags)
    assert value_sections({"Run": {}, "Settings": {"lr": 0.1}}) == [
        ReportSection("Settings", values={"lr": 0.1}, long=True, folded=True)
    ]


def test_a_long_text_is_cut_and_says_so() -> None:
    def text_of(text: str) -> str:
        return Reader(section(page(ReportSection("x", examples=[Example("row 1", [text])])), "x")).text.replace(
            "\n", ""
        )

    assert text_of("x" * (MOST_LETTERS + 1234)) == "row 1" + "x" * MOST_LETTERS + " and 1,234 more characters"
    assert text_of("x" * MOST_LETTERS) == "row 1" + "x" * MOST_LETTERS
    assert text_of("") == "row 1empty"
    assert "\ufffd" not in text_of("x" * (MOST_LETTERS - 1) + "\r\ny")


def test_examples_keep_their_texts_apart() -> None:
    examples = [
        Example("98.7% sure, row 7", ["<first>", "second & last"], "a", "b"),
        Example("row 1", ["x", "y"], wrong=1),
    ]
    piece = section(page(ReportSection("x", examples=examples)), "x")
    assert "&lt;first&gt;" in piece
    assert "second &amp; last" in piece
    assert piece.count('class="text second"') == 1
    assert piece.count('class="text second wrong"') == 1
    assert Reader(piece).text.split("\n")[2] == "a answered as b98.7% sure, row 7"


def test_a_table_marks_its_own_row() -> None:
    made = section(page(ReportSection("x", ReportTable(["name", "n"], [["a", 1], ["b", 2]], "wn", own=1))), "x")
    assert made.count('<tr class="own">') == 1
    assert Reader(made).text.replace("\n", "") == "namena1b2"
    with pytest.raises(UndefinedError):
        render(page(ReportSection("x", ReportTable(["name", "n"], [["a", 1]], "w"))))


def test_figures_have_intervals_and_bars_stay_on_their_track() -> None:
    rows = [[HALF, HALF], [HALF, Interval(0.5, -1.0, 2.0)], [HALF, 0.125], [HALF, ""]]
    first, second, third, last = re.findall(
        "<tr.*?</tr>", section(page(ReportSection("x", ReportTable(["i", "b"], rows, "ib"))), "x"), re.DOTALL
    )[1:]
    assert '0.500<br><span class="between">0.250 to 0.750</span>' in first
    assert '<i style="left:25.00%;width:50.00%"></i><u style="left:50.00%"></u>' in first
    assert 'left:0.00%;width:100.00%"' in second
    assert '<div class="fill" style="width:12.50%">' in third
    assert "width" not in last


CELLS = ReportTable(
    ["true class", "a", "b"],
    [["a", Link("7", title="7 rows of a", share=1.0), Link("3", "ab", "3 rows of a answered as b", 0.3)]],
    "wss",
)


def test_a_link_shows_its_examples(chromium, tmp_path: Path) -> None:
    group = Group("ab", "a answered as b", [Example("row 9", ["a text"], "a", "b")])
    write_page(tmp_path / "report.html", page(ReportSection("x", CELLS, groups=[group])))
    chromium.open(tmp_path / "report.html")
    shown = "getComputedStyle(document.getElementById('ab')).display"
    assert chromium.value(shown) == "none"
    chromium.point("td.shade a", click=True)
    chromium.wait(f"{shown} === 'block'")
    assert chromium.complaints == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_report_is_read_by_everyone(chromium, tmp_path: Path, dark: bool) -> None:
    whole = full("a text")
    whole.sections = [
        *whole.sections,
        ReportSection("x", CELLS, groups=[Group("ab", "y", [Example("row 9", ["a text"], "a", "b")])]),
    ]
    write_page(tmp_path / "report.html", whole)
    chromium.open(tmp_path / "report.html", "#ab", wide=390, high=844, dark=dark)
    assert chromium.findings() == []
    chromium.value("document.body.style.setProperty('--soft', '#7f7f7f')")  # too pale on any card
    assert {rule for _, rule, _ in chromium.findings()} == {"color-contrast"}
    assert chromium.value("document.documentElement.scrollWidth") <= 390
    white = chromium.value("getComputedStyle(document.body).backgroundColor")
    assert (white == "rgb(18, 22, 29)") is dark


def test_the_page_appears_whole(tmp_path: Path) -> None:
    write_page(tmp_path / "report.html", full(EVIL))
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(full(EVIL))
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_warnings_stand_above_the_figures() -> None:
    html = render(page(warnings=["few <rows>"], tiles={"accuracy": HALF}))
    assert html.index("Few &lt;rows&gt;.") < html.index('class="tiles"')
    assert "<b>0.500</b><span>95 %: 0.250 to 0.750</span>" in html


def test_settings_are_shown_as_they_are_typed() -> None:
    assert dict(dotted({"a": {"b": True, "c": None}, "d": {}, "e": [1]})) == {
        "a.b": "true",
        "a.c": "null",
        "d": "{}",
        "e": "[1]",
    }


def test_versions_name_what_is_installed() -> None:
    assert {"python", "torch", "manyheads"} <= set(installed_versions())


PNG = b"\x89PNG\r\n\x1a\n"


def scored(names: list[str]) -> Scores:
    random = np.random.default_rng(0)
    return score(random.integers(len(names), size=200), random.dirichlet(np.ones(len(names)), 200), names)


@pytest.mark.parametrize(
    "names", [["a", "b"], ["$x$", "\\frac{", "爱", "a_b^c", "x" * 500], [str(at) for at in range(77)]]
)
def test_any_class_names_can_be_drawn(names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png = Picture("reliability", draw_reliability(scored(names)), "").png
    width, height = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    assert png.startswith(PNG)
    assert 300 < width < 2500
    assert 300 < height < 2500


def test_curves_are_drawn_as_far_as_they_were_logged() -> None:
    rows = [{"step": 1.0, "train_loss": 2.0}, {"step": 2.0, "validation_accuracy": 0.5, "validation_macro_f1": 0.4}]
    assert list(draw_curves(rows)) == ["loss", "accuracy"]
    assert list(draw_curves(rows[:1])) == ["loss"]
    assert draw_curves([{"step": 1.0, "lr": 0.1}]) == {}


def test_nothing_global_is_touched() -> None:
    program = "import sys, manyheads.evaluation.report; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
