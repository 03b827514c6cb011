"""The table of verbs: its settings, presets and functions; where presets lie; and the help, made from the fields."""

from dataclasses import is_dataclass

import pytest

from manyheads import plugin
from manyheads.cli import main as cli
from manyheads.cli import verbs as presets
from manyheads.cli.compose import compose
from manyheads.cli.main import top_help, verb_help
from manyheads.cli.verbs import VERBS, choices, conf_folder, preset_folders, presets_folder, schema_of, settings_of
from manyheads.config.conversion import choices_of
from manyheads.config.facts import settings


def test_entries_are_modules_of_the_package():
    for verb in VERBS.values():
        module, _, function = verb.run.partition(":")
        assert module.startswith("manyheads.")
        assert function.isidentifier()


@pytest.mark.parametrize("name", VERBS)
def test_what_a_verb_names_exists(name):
    verb = VERBS[name]
    assert is_dataclass(schema_of(name))
    assert all(any((folder / group).is_dir() for folder in preset_folders()) for group in verb.groups)
    assert verb.unread.keys() <= settings(schema_of(name)).keys()
    known = settings(schema_of(name))
    unread = {one for one, its in known.items() if verb.task and not its.is_read_in(verb.task)}
    unread |= {one for one, its in known.items() if its.facts.only_with not in ("", *known)}
    read = settings(schema_of(name)).keys() - verb.unread.keys() - verb.groups.keys() - unread
    assert settings_of(name).keys() == read
    assert all(example.startswith(f"manyheads {name}") for example in verb.examples)


def test_the_folder_is_beside_the_modules_when_installed(tmp_path, monkeypatch):
    assert (conf_folder() / "train.yaml").is_file()
    monkeypatch.setattr(presets, "__file__", str(tmp_path / "src" / "manyheads" / "cli" / "verbs.py"))
    assert conf_folder.__wrapped__() == tmp_path / "conf"
    (tmp_path / "src" / "manyheads" / "conf").mkdir(parents=True)
    assert conf_folder.__wrapped__() == tmp_path / "src" / "manyheads" / "conf"


@pytest.mark.parametrize("verb", VERBS)
def test_what_makes_no_sense_is_no_choice(verb):
    for group, default in VERBS[verb].groups.items():
        names = choices(verb, group)
        assert names == sorted(set(names))
        assert default is None or default in names
        assert not VERBS[verb].barred.keys() & set(names)


def test_own_presets_join_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "model").mkdir()
    for name in ("mini.yaml", "wide.yaml", "notes.txt"):
        (tmp_path / "model" / name).write_text("")
    assert choices("train", "model", tmp_path) == sorted([*choices("train", "model"), "wide"])
    assert choices("train", "model", "~") == choices("train", "model", tmp_path)
    assert presets_folder("~") == tmp_path.resolve()
    assert choices("train", "optim", tmp_path) == choices("train", "optim")


@pytest.mark.parametrize(
    ("preset", "content", "group"),
    [
        ("experiment/x", "model:\n  n_heads: 8\n", "experiment"),
        pytest.param("experiment/x", "seed: 8\n", "experiment", marks=pytest.mark.slow),
        ("model/x", "model:\n  n_heads: 8\n", "model"),
        ("experiment/x", "defaults:\n  - override /optim: wsd\nseed: 8\n", "experiment"),
        pytest.param("data/x", "seed: 8\n", "data", marks=pytest.mark.slow),
        pytest.param("debug/x", "data:\n  rows: 8\n", "debug", marks=pytest.mark.slow),
    ],
)
def test_a_preset_without_its_header_is_told_of_the_header(preset, content, group, tmp_path):
    file = (tmp_path / preset).with_suffix(".yaml")
    file.parent.mkdir()
    file.write_text(content)
    words = [f"{group}=x"]
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - compared whole
        compose("train", words, config_dir=str(tmp_path))
    assert str(refused.value) == (
        f"preset {preset} lacks the first line `# @package _global_`, without which what it sets counts as settings of "
        f"{group}: add that line"
    )
    file.write_text(f"# @package _global_\n{content}")
    assert compose("train", words, config_dir=str(tmp_path))


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
    for name, one in settings_of(verb).items():
        assert f"  {name}{'.' if one.default and isinstance(one.default, dict) else '='}" in said
    for name in VERBS[verb].unread:
        assert f"  {name}=" not in said
    for group in VERBS[verb].groups:
        assert f"  {group}=" in said
    assert (f"({', '.join(plugin.names('pooling'))}" in said) == ("model.pooling" in settings_of(verb))
    several = tuple(f"  {name}=" for name, one in settings_of(verb).items() if choices_of(one))  # as many as there are
    assert all(len(line) < 160 for line in said.splitlines() if not line.startswith(several))


def test_limits_are_told():
    lines = {line.split("=")[0].strip(): line for line in verb_help("train").splitlines() if "=" in line}
    assert lines["seed"].endswith("(at least 0 and below 4294967296)")
    assert lines["model.bias"].endswith("(true or false)")
    assert lines["model.dropout_residual"].endswith("(at least 0.0 and below 1.0 or null)")
    assert lines["optim.lr"].endswith("(above 0.0)")
