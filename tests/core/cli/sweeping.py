"""What tests of `-m` share: the calls of verbs in their place, and that its jobs read what plain runs read."""

from dataclasses import replace

import pytest
import yaml

from manyheads.cli import main as cli
from manyheads.cli.compose import compose, shown
from manyheads.config.conversion import to_plain


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """What the verbs were called with, in place of the verbs; the working folder is empty."""
    seen = []
    monkeypatch.setattr(cli, "call", lambda verb, config: seen.append(config))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return seen


def check_sweep(words, calls):
    assert cli.main(["train", "-m", *words, "model.d_ff=64,96"]) == 0
    plain = [compose("train", [*words, f"model.d_ff={width}"]) for width in (64, 96)]
    assert [replace(one, output="") for one in calls] == plain
    assert yaml.safe_load(shown("train", ["--cfg", "job"], [*words, "model.d_ff=64"])) == to_plain(plain[0])
