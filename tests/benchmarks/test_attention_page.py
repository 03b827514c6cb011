"""Figures in the page on attention are those of the committed JSON, in the decimals of the page."""

import json

import pytest
from attention_page import DOCS, MARK, with_figures

FIGURES = {"a": {"b c": 0.1234, "list": [{"d": 1234.5}, 7]}, "tiny": 2.345e-15, "name": "x", "yes": True}


def test_the_page_quotes_the_committed_figures():
    text = (DOCS / "attention.md").read_text(encoding="utf-8")
    figures = json.loads((DOCS / "pictures/attention.json").read_text(encoding="utf-8"))
    assert len(MARK.findall(text)) == text.count("<!--") > 40
    assert with_figures(text, figures) == text, "python benchmarks/attention_page.py"


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
