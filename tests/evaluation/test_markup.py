"""Small pieces of HTML: data stays text, whatever it holds."""

import re
from html import unescape
from html.parser import HTMLParser
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyheads.evaluation.page import (
    MOST_LETTERS,
    Html,
    excerpt,
    interval_bar,
    pairs_list,
    picture,
    section,
    share_bar,
    shown,
    table,
    two_lines,
)
from manyheads.evaluation.scores import Interval


class Reader(HTMLParser):
    """Tags and text of a piece."""

    def __init__(self, piece: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(piece)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_any_text_is_shown_as_itself(text: str) -> None:
    piece = shown(text)
    assert not {"<", ">", '"', "'"} & set(piece)
    hidden = "[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
    visible = re.sub(hidden, "\ufffd", text.replace("\r\n", "\n"))
    assert unescape(piece) == "".join("\ufffd" if category(one) == "Cn" else one for one in visible)
    assert Reader(piece).tags == []


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
    assert "\ufffd" not in excerpt("x" * (MOST_LETTERS - 1) + "\r\ny")


def test_markup_of_our_own_is_left_alone() -> None:
    assert shown(Html("<b>x</b>")) == "<b>x</b>"
    assert shown(3) == "3"


@given(st.text(max_size=30))
def test_no_piece_lets_a_text_open_a_tag(text: str) -> None:
    plain = "plain"
    for make in (
        lambda one: section(one, Html("x")),
        lambda one: table([one, "n"], [[one, 1]], "wn"),
        lambda one: pairs_list({one: one}),
        lambda one: picture(b"png", one),
    ):
        assert Reader(make(text)).tags == Reader(make(plain)).tags
    assert Reader(excerpt(text or "x")).tags == ["bdi"]


def test_a_long_text_is_cut_and_says_so() -> None:
    assert Reader(excerpt("x" * (MOST_LETTERS + 1234))).text == "x" * MOST_LETTERS + " and 1,234 more characters"
    assert Reader(excerpt("x" * MOST_LETTERS)).text == "x" * MOST_LETTERS
    assert Reader(excerpt("")).text == "empty"


def test_a_table_marks_its_own_row() -> None:
    made = table(["name", "n"], [["a", 1], ["b", 2]], "wn", own=1)
    assert made.count("<tr class=own>") == 1
    assert Reader(made).text == "namena1b2"
    with pytest.raises(ValueError, match="zip"):
        table(["name"], [["a", 1]], "w")


def test_bars_stay_on_their_track() -> None:
    assert interval_bar(Interval(0.5, 0.25, 0.75)) == (
        '<div class="track"><i style="left:25.00%;width:50.00%"></i><u style="left:50.00%"></u></div>'
    )
    assert 'left:0.00%;width:100.00%"' in interval_bar(Interval(0.5, -1.0, 2.0))
    assert 'left:50.00%"></u>' in interval_bar(Interval(0.75, 0.75, 0.75), low=0.5)
    assert "width:12.50%" in share_bar(0.125)
    assert Reader(two_lines(Interval(0.5, 0.25, 0.75))).text == "0.5000.250 to 0.750"
