"""The results file: read back as it was, refused when it is another, and what of it still fits."""

import copy
import json

import pytest

from manyheads.config import RunConfig
from manyheads.plugins.sweep.config import AblateConfig, Equal
from manyheads.plugins.sweep.results_file import check_same_comparison, decisive, merge_earlier, read_results


def test_it_is_read_back_as_it_was(record, tmp_path):
    record.write(tmp_path / "results.json")
    assert read_results(tmp_path / "results.json") == record


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"measured": [{"runs": {}}]}', '{"measured": 3}', "\x00"])
def test_another_file_is_refused(text, tmp_path):
    path = tmp_path / "notes.json"
    path.write_text(text)
    with pytest.raises(ValueError) as said:  # noqa: PT011 - the whole sentence is compared
        read_results(path)
    assert str(said.value) == (
        f"output={path} is not a results file of ablate: name another file, or move this one away"
    )


def test_another_comparison_is_refused(record, tmp_path):
    path = tmp_path / "results.json"
    check_same_comparison(record, path, AblateConfig(vary="model.score", values=["dot", "cosine"]))
    with pytest.raises(ValueError, match=r"holds a comparison with vary=model\.score, not vary=model\.d_k: name anot"):
        check_same_comparison(record, path, AblateConfig(vary="model.d_k", values=[1, 2]))
    with pytest.raises(ValueError, match=r"holds a comparison with equal=parameters, not equal=flops: name another"):
        check_same_comparison(
            record, path, AblateConfig(vary="model.score", values=["dot", "cosine"], equal=Equal.flops)
        )


def emptied(record):
    fresh = copy.deepcopy(record)
    for one in fresh.measured:
        one.runs.clear()
    return fresh


def test_all_finished_runs_are_taken_over(record):
    fresh = emptied(record)
    assert merge_earlier(fresh, record) == 0
    assert fresh == record, "and both now say what each was made on"


def test_a_changed_setting_drops_its_own_runs_alone(record):
    fresh = emptied(record)
    fresh.at("cats", "cosine").settings["model.scale"] = 3.0
    assert merge_earlier(fresh, record) == 2
    assert fresh.at("cats", "cosine").runs == {}
    assert fresh.at("cats", "dot").runs == record.at("cats", "dot").runs


@pytest.mark.parametrize(("name", "value"), [("data", "other"), ("parameters", 1)])
def test_other_data_and_a_model_of_another_size_drop_the_runs(record, name, value):
    """Of another size as by a tokenizer at the same path with further entries, which no text holds."""
    fresh = emptied(record)
    setattr(fresh.at("cats", "dot"), name, value)
    assert merge_earlier(fresh, record) == 2
    assert fresh.at("cats", "dot").runs == {}


def test_a_setting_that_was_born_later_counts_as_its_default(record):
    fresh = emptied(record)
    name, default = next((name, value) for name, value in decisive(RunConfig()).items() if name == "model.dropout")
    fresh.at("cats", "dot").settings[name] = default
    fresh.at("cats", "cosine").settings[name] = default + 0.1
    assert merge_earlier(fresh, record) == 2
    assert fresh.at("cats", "dot").runs == record.at("cats", "dot").runs
    assert fresh.at("cats", "cosine").runs == {}


def test_runs_cut_by_another_limit_are_made_again(record, make_figures):
    record.at("cats", "dot").runs["0"] = make_figures("1" * 10, stopped=True)
    fresh = emptied(record)
    fresh.seconds = 60.0
    assert merge_earlier(fresh, record) == 1
    assert list(fresh.at("cats", "dot").runs) == ["1"]
    later = emptied(record)  # that compares other rows, whose limit the file then names
    later.seconds, later.rows, later.measured = 60.0, ["cosine"], later.measured[1:]
    assert merge_earlier(later, record) == 1
    assert list(later.at("cats", "dot").runs) == ["1"]


def test_runs_that_took_longer_than_a_new_limit_are_made_again(record):
    fresh = emptied(record)
    fresh.seconds = 3.0  # of the runs one took 4
    assert merge_earlier(fresh, record) == 1
    assert list(fresh.at("cats", "dot").runs) == ["0"]


def elsewhere(record):
    """The record as another machine begins it."""
    fresh = emptied(record)
    fresh.machine["processor"] = "another chip"
    return fresh


def test_a_run_keeps_the_machine_it_was_made_on(record):
    fresh = elsewhere(record)
    merge_earlier(fresh, record)
    assert {run.machine for run in fresh.at("cats", "dot").runs.values()} == {"a chip, 1 thread, cpu, torch 2.13"}
    assert fresh.machine["processor"] == "another chip"


def test_rows_that_are_not_asked_for_stay_in_the_file(record):
    fresh = emptied(record)
    fresh.rows, fresh.measured = ["dot"], fresh.measured[:1]
    assert merge_earlier(fresh, record) == 0
    assert fresh.at("cats", "cosine").runs == record.at("cats", "cosine").runs


def test_seed_paths_and_threads_decide_nothing():
    settings = decisive(RunConfig())
    assert {"model.d_ff", "optim.lr", "trainer.max_steps", "batch.rows", "tokenizer.kind"} <= settings.keys()
    assert not {"seed", "output", "data.path", "data.cache", "hardware.threads", "test"} & settings.keys()
    assert json.loads(json.dumps(settings)) == settings
