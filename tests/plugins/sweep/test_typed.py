"""Words of tune, ablate and curve: several values, ranges, and what is said of them."""

import subprocess
import sys

import pytest
import yaml

from manyheads.cli.compose import compose, shown
from manyheads.cli.main import main
from manyheads.cli.overrides import read_overrides
from manyheads.cli.presets import composed_by_hydra, merge_presets
from tests.core.data.test_checks import check_refused_unwritten
from tests.registry import SWEEPS

WITH, OR = "does nothing with", "or remove it"
SEVERAL = [
    ("tune", "seeds=1,2", "give one"),
    ("ablate", "values=a,b", "write values=[a,b]"),
    ("ablate", "sets=demo,b", "write sets=[demo,b]"),
]


@pytest.mark.parametrize(("verb", "word", "remedy"), SEVERAL)
def test_what_helps_where_one_value_is_taken(verb, word, remedy):
    with pytest.raises(ValueError, match="holds several") as error:
        read_overrides(verb, [word])
    assert str(error.value) == f"{word} holds several values: {remedy}"


def test_tune_is_not_told_to_add_what_it_refuses():
    with pytest.raises(ValueError, match=r"count only with -m: remove it$"):
        read_overrides("tune", ["hydra.run.dir=x"])


def test_values_of_a_comparison_keep_names_too():
    config = compose("ablate", ["vary=optim.class_weights", "values=[none,{no: 2, 010: 1}]"])
    assert config.values == ["none", {"no": 2, "010": 1}]
    tuned = compose("tune", ["optim.class_weights=none,{no: 2, 010: 1}"])
    assert tuned.search == {"optim.class_weights": ["none", {"no": 2, "010": 1}]}


def test_what_tune_searches_is_shown(tmp_path, monkeypatch):
    (tmp_path / "experiment").mkdir()
    search = "{optim.lr: 'log:1e-4..1e-2', model.dropout: [0, 0.1]}"
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\nsearch: {search}\n")
    monkeypatch.chdir(tmp_path)
    typed = ["model.n_layers=1..4", "batch.tokens=auto,512", "optim.lr=0.003"]
    for words, config_dir in ((["optim.lr=1e-4,1e-3"], None), ([*typed, "experiment=mine"], str(tmp_path))):
        said = yaml.safe_load(shown("tune", ["--cfg", "job"], words, config_dir))
        assert said["search"] == compose("tune", words, config_dir=config_dir).search
    assert said["optim"]["lr"] == 0.003


def test_what_tune_searches_is_a_part_of_its_info(tmp_path):
    words = [sys.executable, "-m", "manyheads", "tune", "--info", "config", "optim.lr=1e-3,1e-4"]
    assert "search:" in subprocess.run(words, capture_output=True, text=True, cwd=tmp_path).stdout


def test_presets_of_a_comparison_are_laid_over_one_another_as_hydra_composes_them():
    groups = {"experiment": "ablate_heads"}
    assert merge_presets("ablate", groups) == composed_by_hydra("ablate", groups)


def test_tokens_of_a_batch_are_the_same_in_all_rows_of_a_table():
    with pytest.raises(ValueError, match=r"^batch\.tokens=auto depends on the model, but all rows of a table see the"):
        compose("ablate", ["experiment=ablate_scores", "batch.tokens=auto"])


@pytest.mark.parametrize("words", ["tune optim.lr=1e-3..1e-2", "curve"])
def test_every_verb_that_trains_says_so_before_it_writes(words, tmp_path, monkeypatch, capsys):
    check_refused_unwritten(words, tmp_path, monkeypatch, capsys)


MISTAKES = [
    (
        "tune optim.decay_share=0.1,0.5",
        f"optim.decay_share=[0.1, 0.5] {WITH} optim.schedule=linear: add optim.schedule=wsd, {OR}",
    ),
    ("tune optim.schedule=linear,wsd optim.decay_share=0.1,0.5 data.path=no.csv", "no.csv does not exist"),
]


@SWEEPS
def test_a_sweep_on_many_devices_is_one_of_this_plugin(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "-m", "seed=1,2", "hardware.devices=4"]) == 2
    assert capsys.readouterr().err == (
        "hardware.devices=4 is refused under -m, which runs on one device: use `manyheads tune model.n_heads=2,4 "
        "hardware.devices=4`\n"
    )


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
