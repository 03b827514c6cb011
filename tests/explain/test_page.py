"""Marked figures of a page."""

import pytest

from manyheads.explain.explain import check_page, with_figures

FIGURES = {"a": {"b c": 0.1234, "list": [{"d": 1234.5}, 7]}, "tiny": 2.345e-15, "name": "x", "yes": True}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.9<!--a/b c-->", "0.1<!--a/b c-->"),
        ("0.900<!--a/b c-->, then", "0.123<!--a/b c-->, then"),
        ("5%<!--a/b c-->", "12%<!--a/b c-->"),
        ("5.0 %<!--a/b c-->", "12.3 %<!--a/b c-->"),
        ("1<!--a/list/0/d-->", "1,234<!--a/list/0/d-->"),
        ("1,111.1<!--a/list/0/d--> ms", "1,234.5<!--a/list/0/d--> ms"),
        ("9<!--a/list/1-->", "7<!--a/list/1-->"),
        ("1e-3<!--tiny-->", "2e-15<!--tiny-->"),
        ("1.1e-3<!--tiny-->", "2.3e-15<!--tiny-->"),
        ("12 apples and <!-- a comment -->", "12 apples and <!-- a comment -->"),
    ],
)
def test_a_marked_figure_is_written_in_its_own_decimals(text, expected):
    assert with_figures(text, FIGURES) == expected


@pytest.mark.parametrize("place", ["b", "a/x", "a/list/9", "name", "a", "yes", "a/list/x"])
def test_a_mark_that_names_no_figure_is_one_sentence(place):
    with pytest.raises(ValueError, match="names no figure"):
        with_figures(f"1<!--{place}-->", FIGURES)


def test_marks_of_experiments_left_out_stay():
    text = "0.5<!--scale/widths/4/variance-->, 0.9<!--formula/a-->"
    assert with_figures(text, {"formula": {"a": 0.123}}) == text.replace("0.9", "0.1")
    with pytest.raises(ValueError, match="the mark formula/b of the page names no figure"):
        with_figures("0.9<!--formula/b-->", {"formula": {"a": 0.123}})


def test_a_page_of_another_encoding_or_with_a_mark_of_nothing_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("0.5<!--scale/widths/4/variance-->", encoding="utf-16")
    with pytest.raises(ValueError, match=r"page.md is not UTF-8: save it as UTF-8$"):
        check_page(str(page))
    page.write_text("0.5<!--scale/widths/4/variance--> 1<!--scales/a-->", encoding="utf-8")
    with pytest.raises(ValueError, match="the mark scales/a of the page names no figure"):
        check_page(str(page))


def test_a_page_that_is_not_there_is_refused(tmp_path):
    check_page("")
    with pytest.raises(ValueError, match="does not exist"):
        check_page(str(tmp_path / "no.md"))
