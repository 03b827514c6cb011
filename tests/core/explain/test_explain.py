"""The verb: what it writes, keeps and refuses; and the page links to what exists."""

import json
import re
from pathlib import Path

import pytest

from manyheads.cli import main as cli
from manyheads.config import Claim

pytestmark = pytest.mark.drawn
ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
SMALL = ["samples=500", "repeats=1", "longest=128", "steps=2"]


def test_one_experiment_writes_its_figures_and_picture_and_leaves_the_others(tmp_path, capsys):
    assert cli.main(["explain", f"output={tmp_path}/out", "only=retrieval", *SMALL]) == 0
    assert cli.main(["explain", f"output={tmp_path}/out", "only=order", *SMALL]) == 0
    figures = json.loads((tmp_path / "out/attention.json").read_text())
    assert list(figures) == ["order", "retrieval"]
    assert figures["order"]["seed"] == 0
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"attention.json", "attention-retrieval.png"}
    assert (tmp_path / "out/attention-retrieval.png").read_bytes().startswith(b"\x89PNG")
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
