"""Settings of a pretraining: its budget, its lists, and those of a training that it does not read."""

import os
from dataclasses import replace

import pytest

from manyheads.cli import main as cli
from manyheads.cli.compose import compose
from manyheads.config import EvaluateConfig, RunConfig
from manyheads.evaluation.evaluation_data import find_data
from manyheads.runs.config_file import plain_yaml, save_run
from tests.core.cli.sweeping import calls, check_sweep  # noqa: F401  a fixture
from tests.core.evaluation.test_task import digests_of, home, rows_of, settings, written  # noqa: F401  a fixture
from tests.core.runs.test_config_file import NAMES, yaml_plain
from tests.registry import SWEEPS


def test_a_typed_limit_takes_the_place_of_a_budget_that_was_not_typed():
    assert compose("pretrain").budget
    assert compose("pretrain", ["trainer.max_steps=5"]).budget == ""
    assert compose("pretrain", ["trainer.max_steps=5"]).trainer["max_steps"] == 5


def test_a_pretraining_reads_other_settings_than_a_training():
    with pytest.raises(ValueError, match=r"pretrain.mask_share=0.2 does nothing with task=classify: use manyheads pre"):
        compose("train", ["pretrain.mask_share=0.2"])
    with pytest.raises(ValueError, match=r"model.pooling=max does nothing in pretrain, where only hidden words"):
        compose("pretrain", ["model.pooling=max"])
    with pytest.raises(ValueError, match=r"model.pooling=max does nothing with task=pretrain: remove it"):
        compose("train", ["task=pretrain", "model.pooling=max"])


@SWEEPS
def test_a_limit_typed_in_a_sweep_takes_the_place_of_the_budget(calls):  # noqa: F811
    assert cli.main(["pretrain", "-m", "trainer.max_steps=3,4", "optim.lr=1e-3"]) == 0
    assert [(run.trainer["max_steps"], run.budget) for run in calls] == [(3, ""), (4, "")]


def test_what_cannot_be_trained_again_is_one_sentence(tmp_path):
    save_run(RunConfig(seed=7), tmp_path / "config.yaml")
    sentence = rf"^again={tmp_path} is a run of train: write manyheads train again={tmp_path}$"
    with pytest.raises(ValueError, match=sentence):
        compose("pretrain", [f"again={tmp_path}"])
    save_run(RunConfig(task="pretrain"), tmp_path / "config.yaml")
    assert compose("pretrain", [f"again={tmp_path}"]).task == "pretrain"


def test_a_pretraining_is_judged_on_the_texts_it_learnt_from(home):  # noqa: F811
    """Those of test are left out of train, whichever split is asked for."""
    written(home.parent / "data" / "test.csv", rows_of("train", 5))
    run = compose("pretrain", [f"data.path={home.parent / 'data'}"])
    save_run(run, home / "config.yaml")
    digests_of(home)
    for split, n_rows in (("train", 7), ("validation", 12)):
        config = EvaluateConfig(run=str(home), split=split)
        assert len(find_data(config, home, replace(settings(), task=run.task, n_classes=0), []).rows) == n_rows


@pytest.mark.slow  # tests/plugins/multirun/test_sweeps.py has it of train
@SWEEPS
def test_a_sweep_reads_what_a_plain_run_reads(calls):  # noqa: F811
    check_sweep(["pretrain.also=[010,no,'a,b',1e3]", "task=pretrain"], calls)


def test_lists_of_names_in_presets(tmp_path):
    """As columns are, one by one: tests/core/cli/test_compose.py."""
    names = ["no", "010", "1e3", "12:30", "2024-01-01", "y", "true", "~x", "0x1F"]
    (tmp_path / "experiment").mkdir()
    content = f"# @package _global_\ndata: {{text: 010}}\npretrain: {{also: [{', '.join(names)}]}}\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(content)
    run = compose("pretrain", ["experiment=mine"], config_dir=str(tmp_path))
    assert run.data.text == "010"
    assert [os.path.basename(name) for name in run.pretrain.also] == names


@pytest.mark.parametrize("name", [one for one in NAMES if one and one not in ("~", "null", "<<") and yaml_plain(one)])
def test_names_need_no_quotes(name):
    assert plain_yaml(f"pretrain:\n  also: [{name}]\n", RunConfig)["pretrain"]["also"] == [name]
