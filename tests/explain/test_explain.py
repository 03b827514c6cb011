"""The verb: what it writes, keeps and refuses; and the committed page, figures and pictures agree."""

import json
import re
from pathlib import Path

import pytest

from manyheads.cli import main as cli
from manyheads.config import Claim
from manyheads.explain.explain import MARK, check_page, with_figures

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIGURES = {"a": {"b c": 0.1234, "list": [{"d": 1234.5}, 7]}, "tiny": 2.345e-15, "name": "x", "yes": True}
SMALL = ["samples=500", "repeats=1", "longest=128", "steps=2"]


def test_one_experiment_writes_its_figures_and_picture_and_leaves_the_others(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("off by 1e-3<!--order/cases/no positions/token_vectors-->, of 1<!--retrieval/records-->\n")
    assert cli.main(["explain", f"output={tmp_path}/out", "only=retrieval", *SMALL]) == 0
    assert cli.main(["explain", f"output={tmp_path}/out", "only=order", f"page={page}", *SMALL]) == 0
    figures = json.loads((tmp_path / "out/attention.json").read_text())
    assert list(figures) == ["order", "retrieval"]
    assert figures["order"]["seed"] == 0
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"attention.json", "attention-order.png", "attention-retrieval.png"}
    assert (tmp_path / "out/attention-order.png").read_bytes().startswith(b"\x89PNG")
    assert "of 8<!--retrieval/records-->" in page.read_text()
    assert "order: " in capsys.readouterr().out


@pytest.mark.parametrize("claim", ["scale", "length"])
def test_small_settings_take_seconds(claim, tmp_path):
    assert cli.main(["explain", f"output={tmp_path}", f"only={claim}", *SMALL]) == 0
    assert json.loads((tmp_path / "attention.json").read_text()).keys() == {claim}


@pytest.mark.slow
def test_all_experiments_in_their_order(tmp_path):
    assert cli.main(["explain", f"output={tmp_path}", *SMALL]) == 0
    figures = json.loads((tmp_path / "attention.json").read_text())
    assert list(figures) == [one.name for one in Claim if one is not Claim.all]
    assert {file.name for file in tmp_path.glob("*.png")} == {
        file.name for file in (DOCS / "pictures").glob("attention-*.png")
    }


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("output=taken", "is a file: name a folder"),
        ("page=missing.md", "missing.md does not exist"),
        ("output=other", "is not what explain writes"),
        ("longest=3", "longest=3 is out of range"),
        ("only=everything", "only=everything"),
    ],
)
def test_mistakes_are_one_sentence_and_nothing_is_written(word, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/attention.json").write_text('{"mine": 1}')
    words = ["only=order", word] if not word.startswith("only=") else [word]
    assert cli.main(["explain", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "outputs").exists()
    assert (tmp_path / "other/attention.json").read_text() == '{"mine": 1}'


def test_the_page_quotes_the_committed_figures():
    text = (DOCS / "attention.md").read_text(encoding="utf-8")
    figures = json.loads((DOCS / "pictures/attention.json").read_text(encoding="utf-8"))
    assert len(MARK.findall(text)) == text.count("<!--") > 40
    assert with_figures(text, figures) == text, "manyheads explain output=docs/pictures page=docs/attention.md"


def test_the_page_shows_every_picture_and_links_to_what_exists():
    text = (DOCS / "attention.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"!\[[^\]]+\]\((pictures/[^)]+)\)", text))
    assert shown == {f"pictures/{file.name}" for file in (DOCS / "pictures").glob("attention-*.png")}
    for link in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (DOCS / link).exists(), link
    for path, function in re.findall(r"\[`(?:[\w.]+\.)?(\w+)`\]\((?!http)([^)]+\.py)\)", text):
        assert re.search(rf"(def|class) {path}\b|^{path} = |self\.{path} = ", (DOCS / function).read_text(), re.M), (
            path,
            function,
        )


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


def test_a_page_that_is_not_there_or_cannot_be_read_or_has_a_mark_of_nothing_is_refused(tmp_path):
    page = tmp_path / "page.md"
    with pytest.raises(ValueError, match="does not exist"):
        check_page(str(page))
    page.write_text("0.5<!--scale/widths/4/variance-->", encoding="utf-16")
    with pytest.raises(ValueError, match=r"page.md is not UTF-8: save it as UTF-8$"):
        check_page(str(page))
    page.write_text("0.5<!--scale/widths/4/variance--> 1<!--scales/a-->", encoding="utf-8")
    with pytest.raises(ValueError, match="the mark scales/a of the page names no figure"):
        check_page(str(page))
