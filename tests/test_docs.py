"""The pages of docs/: how each begins, what they quote of messages, and the settings that they name in tables."""

import importlib.util
import re
from pathlib import Path

import pytest

from manyheads.cli.verbs import VERBS, settings_of
from tests.registry import missing_plugins

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def hooks():
    """docs/hooks.py, by which mkdocs makes the site."""
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_a_page_begins_with_what_it_gives(page, hooks):
    """llms.txt and a reader who skims have this sentence alone."""
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# \S", text)
    assert 20 <= len(hooks.first_sentence(text)) <= 300


@pytest.mark.parametrize("page", sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")]), ids=lambda page: page.name)
def test_commands_are_shown_as_code(page):
    """Those below a list are not, as four spaces continue its last point."""
    markdown = pytest.importorskip("markdown")
    shown = markdown.markdown(page.read_text(encoding="utf-8"), extensions=["fenced_code", "tables"])
    prose = re.sub(r"(?s)<code.*?</code>", "", shown)
    assert re.findall(r"manyheads [a-z]+ [a-z_.]+=\S*", prose) == []


def test_the_first_sentence_of_a_page(hooks):
    page = "# Title\n\n    a command\n\n| a | table |\n\nSee [this\npage](page.md) on **v1.5**: fine. More.\n"
    assert hooks.first_sentence(page) == "See this page on v1.5: fine."
    assert hooks.first_sentence("# Title\n\nOf one kind:\n\n- a list\n") == "Of one kind"


def test_the_files_of_the_navigation(hooks):
    nav = [{"Home": "index.md"}, {"Data": ["data.md", {"Large": "large-data.md"}]}]
    assert list(hooks.sources(nav)) == ["index.md", "data.md", "large-data.md"]


def rows_of(page: str) -> list[list[str]]:
    """The cells of all tables."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("| ")]


def test_symptoms_quote_real_sentences():
    said = (ROOT / "tests" / "golden_sentences.txt").read_text(encoding="utf-8")
    quoted = [quote for first, *_ in rows_of("troubleshooting.md") for quote in re.findall(r'"([^"]+)"', first)]
    assert len(quoted) > 10
    assert [quote for quote in quoted if quote not in said] == []


@pytest.mark.skipif(bool(missing_plugins()), reason="a plugin that the page names was deleted")
def test_words_of_other_libraries_are_translated_to_settings_that_exist():
    known = {name for verb, about in VERBS.items() for name in (*settings_of(verb), *about.groups)}
    named = [re.findall(r"`([a-z_]+(?:\.[a-z_0-9]+)*)=", ours) for _, ours, *_ in rows_of("coming-from.md")]
    named = [name for names in named for name in names]
    assert len(named) > 80
    assert [name for name in named if name not in known and not name.startswith("trainer.")] == []
