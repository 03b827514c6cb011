"""Where presets lie and which a verb may choose."""

import pytest

from manyheads.cli import verbs as presets
from manyheads.cli.compose import compose
from manyheads.cli.verbs import VERBS, choices, conf_folder, folder_url


def test_the_folder_is_beside_the_modules_when_installed(tmp_path, monkeypatch):
    assert (conf_folder() / "train.yaml").is_file()
    monkeypatch.setattr(presets, "__file__", str(tmp_path / "src" / "manyheads" / "cli" / "verbs.py"))
    assert conf_folder() == tmp_path / "conf"
    (tmp_path / "src" / "manyheads" / "conf").mkdir(parents=True)
    assert conf_folder() == tmp_path / "src" / "manyheads" / "conf"


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
    assert folder_url("~") == f"file://{tmp_path.resolve()}"
    assert choices("train", "optim", tmp_path) == choices("train", "optim")


@pytest.mark.parametrize(
    ("preset", "content", "group"),
    [
        ("experiment/x", "model:\n  n_heads: 8\n", "experiment"),
        ("experiment/x", "seed: 8\n", "experiment"),
        ("model/x", "model:\n  n_heads: 8\n", "model"),
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
