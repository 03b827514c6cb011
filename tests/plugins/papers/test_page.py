"""What docs/papers.md tells a reader to type is understood."""

import re
import shlex
from pathlib import Path

import pytest

import manyheads.plugin as plugin
from manyheads.cli.compose import compose
from manyheads.cli.verbs import VERBS
from manyheads.runs.result_table import is_table_file

PAGE = (Path(__file__).parents[3] / "docs" / "papers.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?m)^    manyheads (.*)$", PAGE)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_page(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_text("text,label\ngood,a\nbad,b\n", encoding="utf-8")
    verb, *words = shlex.split(command)
    if verb not in VERBS:
        pytest.skip(f"no plugin adds the verb {verb}")
    config = compose(verb, words)
    assert config.output == "-" or is_table_file(config.output)


def test_the_page_names_all_kinds_of_files():
    assert {*re.findall(r"`x(\.\w+)`", PAGE)} == {*plugin.names("writer")}
