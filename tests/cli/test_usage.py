"""Help is made from the fields: nothing that can be typed is left out, nothing that cannot is named."""

import pytest

from manyheads.cli import main as cli
from manyheads.cli.verbs import VERBS, top_help, verb_help


def test_help_names_every_verb_and_exit_code(capsys):
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert said == top_help() + "\n"
    assert all(f"  {verb} " in said for verb in VERBS)
    assert all(f"{code} " in said for code in (0, 1, 2, 130, 141))


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_lists_every_setting_group_and_choice(verb, capsys):
    assert cli.main([verb, "--help"]) == 0
    said = capsys.readouterr().out
    assert said == verb_help(verb) + "\n"
    for name, one in VERBS[verb].settings().items():
        assert f"  {name}{'.' if one.default and isinstance(one.default, dict) else '='}" in said
    for name in VERBS[verb].unread:
        assert f"  {name}=" not in said
    for group in VERBS[verb].groups:
        assert f"  {group}=" in said
    assert ("(mean, first, max, attention" in said) == (verb in ("train", "ablate", "tune"))
    assert max(map(len, said.splitlines())) < 160


def test_limits_are_told():
    lines = {line.split("=")[0].strip(): line for line in verb_help("train").splitlines() if "=" in line}
    assert lines["seed"].endswith("(at least 0 and below 4294967296)")
    assert lines["model.bias"].endswith("(true or false)")
    assert "or null" in lines["model.dropout_residual"]
