"""Searches of stand-ins from end to end: what is run, what counts, what a second start does, what is left behind."""

import csv
import json
import os
import shlex
import shutil
import signal
from dataclasses import asdict
from importlib import metadata
from types import SimpleNamespace

import pytest
from scipy import stats

from manyheads import plugin
from manyheads.cli.compose import compose
from manyheads.cli.main import main
from manyheads.config import RunConfig
from manyheads.config.conversion import plain_settings
from manyheads.data.sources import read_splits
from manyheads.evaluation.intervals import fold_interval
from manyheads.plugins.sweep import same_search, scheduler
from manyheads.plugins.sweep.config import USUAL
from manyheads.plugins.sweep.journal import open_journal
from manyheads.plugins.sweep.outcomes import Outcome, RunState, trial_folder
from manyheads.plugins.sweep.ranking import search_tables
from manyheads.plugins.sweep.tune import final_command
from manyheads.runs.config_file import read_run
from manyheads.runs.many import settings_file

RATES = "optim.lr=1e-3,3e-3,1e-2"
OF_TRIALS = {"output", "resume", "test", "linear", "hardware.threads", "checkpoint.metric"}  # auto, of the command


def test_a_grid_runs_each_setting_once_and_ranks_them(place, capsys):
    ranked = place.tune(RATES, "model.n_layers=1,2")
    assert [(one.setting["optim.lr"], one.setting["model.n_layers"]) for one in ranked] == [
        (0.003, 1), (0.003, 2), (0.001, 1), (0.001, 2), (0.01, 1), (0.01, 2),
    ]  # fmt: skip
    assert [one.shown for one in ranked[:3]] == pytest.approx([0.9, 0.9, 0.8])
    assert ranked[0].interval == pytest.approx((0.8, 1.0))
    calls = place.calls()
    assert len(calls) == 6
    assert len({one["output"] for one in calls}) == 6
    assert all(one["test"] is False for one in calls)
    said = capsys.readouterr()
    assert "6 settings by validation accuracy" in said.out
    assert said.err.count("trial ") == 6
    assert sorted(path.name for path in place.output.iterdir()) == [
        "journal.jsonl", "report.html", "search.json", "trials", "trials.csv",
    ]  # fmt: skip
    with (place.output / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["trial"], row["optim.lr"], row["accuracy"]) for row in rows[:2]] == [
        ("1", "0.001", "0.8"), ("2", "0.001", "0.8"),
    ]  # fmt: skip
    assert not list(place.output.rglob("checkpoints"))


@pytest.mark.skipif(".csv" not in plugin.names("writer"), reason="no plugin writes such files")
def test_a_search_is_a_table_of_its_document(place, capsys, monkeypatch):
    """Typed with a table as output, it works in its usual folder."""
    file, words = place.folder / "rates.csv", [one for one in place.words(RATES) if not one.startswith("output=")]
    monkeypatch.chdir(place.folder)
    assert main(["tune", *words, f"output={file}"]) == 0
    folder = place.folder / "outputs" / "tune-lr"
    document = json.loads((folder / "search.json").read_text())
    with file.open() as table:
        rows = list(csv.DictReader(table))
    assert [row["lr"] for row in rows] == ["0.003", "0.001", "0.01"]
    for row, cells in zip(rows, document["rows"], strict=True):
        one = dict(zip(document["columns"], cells, strict=True))["accuracy"]
        assert [float(row[f"accuracy{end}"]) for end in ("", ".low", ".high")] == [
            one["value"],
            one["low"],
            one["high"],
        ]
        assert int(row["steps"]) == 20
    assert "sd" not in rows[0]
    assert asdict(search_tables(document)[0]) == document
    capsys.readouterr()
    assert main(["report", f"run={folder}"]) == 0
    assert capsys.readouterr().out.startswith("## 3 settings by validation accuracy of the network\n")


def test_seeds_have_a_deviation_and_what_failed_a_remark(place):
    place.behave({1e-2: "diverge"})
    place.tune(RATES, "seeds=2")
    (table,) = search_tables(json.loads((place.output / "search.json").read_text()))
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert rows[0]["sd"] == pytest.approx(0.01 / 2**0.5)
    assert (rows[-1]["accuracy"], rows[-1]["remarks"]) == (None, "failed")
    assert table.bars == "95 % intervals of the mean over 2 seeds"


def read_command(capsys):
    """The run of the command that the table ends with."""
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("train trial")]
    verb, name, *words = shlex.split(line.partition(": ")[2])
    assert (verb, name) == ("manyheads", "train")
    return compose("train", words)


def test_the_command_at_the_end_is_the_best_setting_and_reads_the_test_split(place, capsys):
    place.tune(RATES, "model.dropout=0.3")
    run = read_command(capsys)
    asked = ["optim.lr=3e-3", "model.dropout=0.3", f"data.path={place.folder / 'rows.csv'}", "hardware=cpu"]
    assert run == compose("train", asked)
    assert run.test


def test_folds_take_the_place_of_seeds_and_their_mean_decides(place, capsys):
    ranked = place.tune(RATES, "data.folds=3")
    assert [one.setting["optim.lr"] for one in ranked] == [0.003, 0.001, 0.01]
    assert ranked[0].values == pytest.approx([0.9 - 0.05, 0.9 + 0.01 - 0.1, 0.9 + 0.02 - 0.15])  # of the folds
    found = fold_interval(ranked[0].values, 0.5)
    assert ranked[0].interval == (found.low, found.high)
    calls = place.calls()
    assert sorted((one["optim.lr"], one["data.fold"], one["seed"]) for one in calls) == [
        (rate, fold, fold - 1) for rate in (0.001, 0.003, 0.01) for fold in (1, 2, 3)
    ]
    assert {one["data.split_seed"] for one in calls if one["seed"]} == {0}
    said = capsys.readouterr().out
    assert "over 3 folds" in said
    assert "data.folds" not in said.partition("manyheads train")[2]
    with pytest.raises(ValueError, match=r"seeds=2 does nothing with data\.folds=3"):
        place.tune(RATES, "data.folds=3", "seeds=2")


@pytest.mark.parametrize(("limit", "values"), [("max_epochs", [8, 16]), ("max_steps", [1500, 300])])
def test_a_limit_that_equals_the_presets_is_a_limit_like_the_others(place, capsys, model_folder, limit, values):
    """Where rows are few, a limit that is not typed would give way to optim.few_epochs."""
    place.tune(f"trainer.{limit}={','.join(map(str, values))}", f"init_from={model_folder}")
    calls = place.calls()
    assert [one[f"trainer.{limit}"] for one in calls] == values
    assert [one["optim.few_epochs"] for one in calls] == [0, 0]
    found = plain_settings(read_command(capsys))
    differ = {name for name in found if found[name] != calls[0][name]}
    assert differ <= OF_TRIALS


@pytest.mark.parametrize(
    "words",
    [
        ["model.dropout=0.1,0.3"],
        ["optim.lr=1e-3,3e-3", "trainer.max_epochs=3", "optim.few_epochs=5"],
        ["optim.warmup=0.1,0.3", "budget=2min", "seeds=2"],
        ["optim.freeze=0,1", "optim=scratch", "data.split_seed=4"],
    ],
    ids=str,
)
def test_the_command_at_the_end_trains_what_the_trial_trained(place, capsys, model_folder, words):
    best = place.tune(*words, f"init_from={model_folder}")[0]
    trial = read_run(settings_file(trial_folder(place.output, best.trial, 0)))
    found, known = (plain_settings(one) for one in (read_command(capsys), trial))
    differ = {name for name in found if found[name] != known[name]}
    limits = {"trainer.max_epochs", "trainer.max_steps"} if trial.budget else set()  # which it stands for
    assert differ <= OF_TRIALS | limits


@pytest.mark.skipif("seq2seq" not in plugin.names("task"), reason="needs task=seq2seq")
def test_the_command_sets_what_a_preset_of_its_task_would_change(place):
    """What is best may be the usual value of a setting, which is not that of task=seq2seq."""
    config = compose("tune", ["task=seq2seq", "data=dates", "model.dropout=0.2,0.0", "tokenizer.kind=wordpiece"])
    setting = {"model.dropout": RunConfig().model.dropout}
    run = SimpleNamespace(state=RunState.done, steps=20)
    splits = read_splits(config.data, config.seed, answer="target", with_test=False)
    words = shlex.split(final_command(config, SimpleNamespace(setting=setting, runs=[run]), splits))[2:]
    found, known = (plain_settings(one) for one in (compose("train", words), config.run(setting)))
    assert {name for name in found if found[name] != known[name]} <= OF_TRIALS


def test_a_late_run_of_a_budget_and_of_weights_is_trained_for_as_many_steps(place, capsys, model_folder):
    """No limit by rows or classes may end it earlier, and it begins as the trials did, which had a budget."""
    place.behave({3e-3: "late"})
    place.tune(RATES, "minutes=5", "budget=100min", f"init_from={model_folder}")
    run = read_command(capsys)
    assert (run.budget, run.trainer["max_steps"], run.trainer["max_epochs"]) == ("", 20, -1)
    assert not run.optim.limits_by_data
    assert run.optim.contrast == 0


def test_what_is_searched_must_go_with_the_weights(place, model_folder):
    with pytest.raises(ValueError, match=r"model\.n_heads=4, but the weights of init_from=.* have 2: remove it"):
        place.tune("model.n_heads=2,4", f"init_from={model_folder}")
    place.tune("model.dropout=0.1,0.3", f"init_from={model_folder}")
    assert {one["model.dropout_residual"] for one in place.calls()} == {None}, "which would hide what is searched"


def test_a_run_that_its_minutes_ended_is_trained_for_as_many_steps(place, capsys):
    place.behave({3e-3: "late"})
    place.tune(RATES, "minutes=5")
    run = read_command(capsys)
    assert (run.optim.lr, run.trainer["max_steps"]) == (0.003, 20)


REFUSED = [
    (["trainer.max_epochs=2,8", "budget=1min"], "trainer.max_epochs=2,8 does nothing with budget=1min"),
    (["trainer.max_steps=2..8", "budget=1min"], r"trainer.max_steps=2\.\.8 does nothing with budget=1min"),
    (["optim.beta2=0.999..0.9999"], r"optim\.beta2=0\.999\.\.0\.9999: only 10 different settings"),
    ([RATES, "data.label=colour"], "has no column"),
]


@pytest.mark.parametrize(("words", "sentence"), REFUSED, ids=str)
def test_a_mistake_is_found_before_anything_is_written(place, words, sentence):
    with pytest.raises(ValueError, match=sentence):
        place.tune(*words)
    assert not place.output.exists()


def test_seeds_are_an_axis_and_the_mean_decides(place, capsys):
    ranked = place.tune(RATES, "seeds=3", "seed=2")
    best = ranked[0]
    assert best.values == pytest.approx([0.92, 0.93, 0.94])
    assert best.shown == pytest.approx(0.93)
    assert best.deviation == pytest.approx(0.01)
    reference = stats.t.interval(0.95, 2, loc=0.93, scale=0.01 / 3**0.5)
    assert best.interval == pytest.approx(reference)
    calls = place.calls()
    assert [one["seed"] for one in calls] == [2] * 3 + [3] * 3 + [4] * 3
    assert [one["data.split_seed"] for one in calls] == [None] * 3 + [2] * 6, "all see the same validation rows"
    out = capsys.readouterr().out
    assert "sd" in out
    assert "0.9300 (0.905 to 0.955)" in out
    place.tune(RATES, "seeds=4", "seed=2")
    assert [one["seed"] for one in place.calls()] == [5] * 3


def test_runs_that_fail_are_shown_with_their_sentence(place, capsys):
    place.behave({1e-3: "diverge", 1e-2: "late"})
    ranked = place.tune(RATES)
    assert [one.setting["optim.lr"] for one in ranked] == [0.003, 0.01, 0.001]
    out = capsys.readouterr().out
    assert "training diverged in epoch 1" in out
    assert "stopped by minutes" in out
    assert ranked[1].shown == pytest.approx(0.9 - 0.007 * 50)
    place.calls()
    place.tune(RATES)
    assert place.calls() == [], "what a setting itself came to is not run again"


def test_a_killed_run_is_run_again_by_the_second_start_alone(place):
    place.behave({3e-3: "kill", 1e-2: "sentence"})
    ranked = place.tune(RATES)
    assert [one.shown for one in ranked] == [pytest.approx(0.8), None, None]
    assert [line["state"] for line in place.lines()] == ["done", "broken", "broken"]
    assert [line["why"] for line in place.lines()][1:] == ["killed by SIGKILL", "the disk is full"]
    place.calls()
    place.behave({})
    assert place.tune(RATES)[0].setting == {"optim.lr": 0.003}
    assert [one["optim.lr"] for one in place.calls()] == [0.003, 0.01]
    place.tune(RATES)
    assert place.calls() == []


def test_first_runs_that_all_end_alike_end_the_search_and_nothing_is_held_against_them(place):
    rates = "optim.lr=1e-3,2e-3,3e-3,4e-3,5e-3"
    place.behave(dict.fromkeys((0.001, 0.002, 0.003, 0.004, 0.005), "sentence"))
    with pytest.raises(ValueError, match="the first 3 runs all ended alike: the disk is full"):
        place.tune(rates)
    assert len(place.calls()) == 3
    place.behave({})
    assert len([one for one in place.tune(rates) if one.values]) == 5


def test_first_runs_that_are_given_up_do_not_end_the_search(place):
    """While the run that is better than they are goes on beside them."""
    config = compose("tune", place.words("optim.lr=1e-3,2e-3,3e-3,4e-3", "prune=halving", "jobs=2"))
    with open_journal(place.output, {}) as journal:
        search = scheduler.Search(config, journal, splits=None)
        for number in (2, 3, 4):
            search.record(Outcome(number, 0, {"optim.lr": 0.001 * number}, RunState.pruned, 0.5))
        assert len(journal.outcomes) == 3


def test_where_no_run_comes_to_a_figure_it_is_said(place):
    place.behave({1e-3: "diverge", 2e-3: "diverge"})
    with pytest.raises(ValueError, match=r"no run came to a figure: .*trials\.csv says of each why"):
        place.tune("optim.lr=1e-3,2e-3")


def test_settings_that_do_not_go_together_fail_without_a_process(place):
    ranked = place.tune("model.d_k=7,8", "model.positions=rotary,sinusoidal")
    assert len(place.calls()) == 3
    assert ranked[-1].setting == {"model.d_k": 7, "model.positions": "rotary"}
    assert "model.d_k=7 is odd" in ranked[-1].runs[0].why


def test_jobs_run_at_once_and_share_the_machine(place, monkeypatch):
    monkeypatch.setattr(scheduler, "n_cores", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    place.tune(RATES, "jobs=2", "hardware.accelerator=auto")
    calls = place.calls()
    assert {one["hardware.threads"] for one in calls} == {4}
    assert {one["gpu"] for one in calls} == {"3", "5"}


def test_random_draws_go_on_with_more_trials(place):
    """The first line of the journal is what was asked."""
    space = ["optim.lr=log:1e-4..1e-2", "model.n_layers=1..3"]
    first = {one.trial: one.setting for one in place.tune(*space, "trials=4")}
    assert len(place.calls()) == 4
    asked = json.loads((place.output / "journal.jsonl").read_text().splitlines()[0])
    assert asked["search"] == {"optim.lr": "log:1e-4..1e-2", "model.n_layers": "1..3"}
    assert asked["method"] == "random"
    more = {one.trial: one.setting for one in place.tune(*space, "trials=6")}
    assert len(place.calls()) == 2
    assert {number: more[number] for number in first} == first
    assert compose("tune", place.words(*space)).n_trials == USUAL


ANOTHER = [
    (["optim.lr=1e-3,3e-3"], r"a search with search=.*"),
    ([RATES, "optim.warmup=0.5"], r"a search with optim\.warmup=0\.06, not optim\.warmup=0\.5"),
    ([RATES, "minutes=3"], r"a search with minutes=0\.0, not minutes=3\.0"),
]


def test_another_search_in_the_same_folder_is_refused_and_what_changes_no_figure_goes_on(place, monkeypatch):
    place.tune(RATES)
    place.calls()
    before = (place.output / "journal.jsonl").read_bytes()
    for words, what in ANOTHER:
        with pytest.raises(ValueError, match=rf"output=.*search holds {what}: name another folder"):
            place.tune(*words)
    with monkeypatch.context() as patched:
        patched.setattr(same_search, "version", lambda name: {"torch": "9.9"}.get(name, metadata.version(name)))
        with pytest.raises(ValueError, match=r"holds runs of torch 2\.\S+, not 9\.9: name another folder"):
            place.tune(RATES)
    place.tune(RATES, "jobs=3", "hardware.threads=1", "checkpoint.every=7")
    assert place.calls() == []
    with (place.folder / "rows.csv").open("a") as file:
        file.write("number 80 purrs,cat\n")
    with pytest.raises(ValueError, match=r"holds other data \(train, validation\): name another folder"):
        place.tune(RATES)
    assert (place.output / "journal.jsonl").read_bytes() == before


@pytest.mark.skipif("pretrain" not in plugin.names("task"), reason="needs task=pretrain")
def test_other_texts_of_pretraining_are_refused(place):
    also = place.folder / "more.txt"
    also.write_text("a cat purrs\n")
    words = [RATES, "task=pretrain", f"pretrain.also=[{also}]"]
    place.tune(*words)
    also.write_text("a dog barks\n")
    with pytest.raises(ValueError, match=r"holds other texts of pretrain\.also: name another folder"):
        place.tune(*words)


@pytest.mark.parametrize("shared", [pytest.param(False, marks=pytest.mark.slow), True])
def test_other_content_of_the_same_files_is_refused(place, model_folder, shared):
    """Runs by another tokenizer, or from other weights, would stand in one table."""
    copy, tokenizer = place.folder / "weights", place.folder / "tokenizer.json"
    shutil.copytree(model_folder / "model", copy)
    shutil.copy(copy / "tokenizer.json", tokenizer)
    words = ["model.dropout=0.1,0.3", *[f"storage={place.folder}/journal"] * shared]
    for setting, path, changed in (
        ("tokenizer.path", tokenizer, tokenizer),
        ("init_from", copy, copy / "model.safetensors"),
        ("init_from", copy, copy / "tokenizer.json"),
    ):
        place.output = place.folder / f"search-{changed.parent.name}-{changed.name}"
        place.tune(*words, f"{setting}={path}")
        whole = changed.read_bytes()
        content = whole.replace(b"[UNK]", b"[unk]", 1) if changed.suffix == ".json" else whole[:-1] + b"\1"
        changed.write_bytes(content)
        with pytest.raises(ValueError, match=rf"holds runs of other content of {setting}: name another folder"):
            place.tune(*words, f"{setting}={path}")
        changed.write_bytes(whole)
        place.calls()
        place.tune(*words, f"{setting}={path}")
        assert place.calls() == []


def test_a_grid_that_was_cut_short_goes_on_by_its_method(place):
    place.tune(RATES, "trials=1")
    with pytest.raises(
        ValueError, match=r"with method=random, not method=grid: type method=random to continue it, or name"
    ):
        place.tune(RATES, "trials=3")
    place.calls()
    place.tune(RATES, "trials=3", "method=random")
    assert len(place.calls()) == 2


def is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_lets_the_runs_save_and_leaves_none_behind(place, number, code):
    place.behave({3e-3: "wait", 1e-2: "wait"})
    process = place.start(RATES, "jobs=2")
    try:
        waiting = [place.output / "trials" / f"00{n}-seed-0" / "waits" for n in (2, 3)]
        place.wait_for(lambda: all(path.exists() and path.read_text() for path in waiting))
        children = [int(path.read_text()) for path in waiting]
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code, err
    assert not any(map(is_alive, children))
    assert all((path.parent / "saved").exists() for path in waiting)
    assert [line["state"] for line in place.lines()] == ["done"]
    place.behave({})
    place.calls()
    assert len([one for one in place.tune(RATES) if one.values]) == 3
    assert [one["optim.lr"] for one in place.calls()] == [0.003, 0.01]


def test_a_search_is_not_started_twice_in_one_folder(place):
    place.behave({1e-3: "wait"})
    process = place.start(RATES)
    try:
        place.wait_for(lambda: (place.output / "trials" / "001-seed-0" / "waits").exists())
        with pytest.raises(ValueError, match="is in use by another search"):
            place.tune(RATES)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=120)


def test_several_processes_of_a_launcher_are_refused(place, monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="tune starts its own processes"):
        place.tune(RATES)


def test_the_report_shows_every_setting_and_escapes_what_is_data(place):
    (place.folder / "rows.csv").rename(place.folder / "<b>.csv")
    place.tune(RATES, f"data.path={place.folder / '<b>.csv'}")
    page = (place.output / "report.html").read_text()
    assert page.count("<tr") == 4
    assert "&lt;b&gt;" in page
    assert "<b>" not in page.partition("</style>")[2]
    assert "<pre>manyheads train" in page
    assert "pre { white-space: pre-wrap; overflow-wrap: anywhere;" in page, "the command stays within its box"
