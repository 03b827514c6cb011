"""Optuna's part: draws, what is given up, and a study that is made again from the journal."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

optuna = pytest.importorskip("optuna")

from manyheads.cli.compose import compose  # noqa: E402
from manyheads.plugins.sweep.journal import open_journal  # noqa: E402
from manyheads.plugins.sweep.optuna import LocalQueue  # noqa: E402
from manyheads.plugins.sweep.outcomes import Outcome, RunState, Trial, trial_folder  # noqa: E402
from manyheads.plugins.sweep.scheduler import TrialRun  # noqa: E402
from manyheads.plugins.sweep.tune import plan_settings  # noqa: E402
from manyheads.runs.config_file import save_run  # noqa: E402
from manyheads.runs.many import settings_file  # noqa: E402

SPACE = ("optim.lr=log:1e-4..1e-1", "model.n_layers=1..4", "model.placement=pre,post")


@pytest.mark.parametrize("method", ["tpe", "cmaes"])
def test_draws_lie_in_the_space_and_learn_from_what_was_told(method, tmp_path):
    config = compose("tune", [*SPACE, f"method={method}", "trials=40"])
    found = []
    with open_journal(tmp_path / "search", {}) as journal:
        study = LocalQueue(config, None, range(1), journal)
        while (trial := study.take()) is not None:
            rate = trial.setting["optim.lr"]
            assert 1e-4 <= rate <= 1e-1
            assert trial.setting["model.n_layers"] in (1, 2, 3, 4)
            assert trial.setting["model.placement"] in ("pre", "post")
            found.append(abs(rate - 0.01))
            study.add(Outcome(*trial, RunState.done, -found[-1]))
    assert len(found) == 40
    assert sum(found[-10:]) < sum(found[:10]), "the last draws are nearer to the best than the first"


@pytest.mark.parametrize("method", ["tpe", "cmaes"])
def test_a_study_that_is_made_again_knows_what_the_journal_holds(method, tmp_path):
    """Trials that were interrupted keep their setting, and new draws are not those of the beginning."""
    config = compose("tune", [*SPACE, f"method={method}", "trials=12"])
    with open_journal(tmp_path / "search", {}) as journal:
        study = LocalQueue(config, None, range(1), journal)
        for _ in range(6):
            trial = study.take()
            study.add(Outcome(*trial, RunState.done, -abs(trial.setting["optim.lr"] - 0.01)))
        begun = study.take()
        folder = trial_folder(journal.folder, begun.number, begun.seed)
        folder.parent.mkdir()
        save_run(config.run(begun.setting, 0, str(folder)), settings_file(folder))
        again = LocalQueue(config, None, range(1), journal)
        kept, values = again._study.get_trials(), [one.value for one in journal.outcomes]
        assert [one.value for one in kept[:6]] == values
        assert again.take() == begun
        known = [one.setting for one in journal.outcomes] + [begun.setting]
        assert [again.take().setting in known for _ in range(5)] == [False] * 5
        assert again.take() is None
        assert list(journal.folder.rglob("*optuna*")) == []


@pytest.mark.parametrize("prune", ["median", "halving"])
def test_a_study_that_is_made_again_measures_by_the_figures_of_before(prune, place):
    rates = ",".join(f"{n}e-3" for n in range(1, 8))
    words = [f"optim.lr={rates}", f"prune={prune}", "method=random", "checkpoint.metric=accuracy"]
    place.tune(*words, "trials=6")
    config = compose("tune", place.words(*words, "trials=7"))
    question = json.loads((place.output / "journal.jsonl").read_text().splitlines()[0])
    with open_journal(place.output, question) as journal:
        study = LocalQueue(config, plan_settings(config), range(1), journal)
        last = study.take()
        assert last.number == 7
        assert study.gives_up(7, 1, 0.0), "worse than any before"


def test_a_search_by_tpe_is_ranked_and_goes_on(place):
    words = ["optim.lr=log:1e-4..1e-1", "method=tpe", "seeds=2"]
    assert len(place.tune(*words, "trials=3")) == 3
    assert len(place.calls()) == 6
    ranked = place.tune(*words, "trials=5")
    assert len(place.calls()) == 4
    assert sorted(one.trial for one in ranked) == [1, 2, 3, 4, 5]
    assert len({one.setting["optim.lr"] for one in ranked}) == 5, "a second start does not draw the same again"


def test_a_trial_that_was_killed_goes_on_with_its_setting(place):
    place.behave(dict.fromkeys((0.001, 0.003), "kill"))
    with pytest.raises(ValueError, match="no run came to a figure"):
        place.tune("optim.lr=1e-3,3e-3", "method=tpe")
    before = {line["trial"]: line["setting"] for line in place.lines()}
    assert [line["state"] for line in place.lines()] == ["broken", "broken"]
    place.behave({})
    ranked = place.tune("optim.lr=1e-3,3e-3", "method=tpe")
    assert {one.trial: one.setting for one in ranked if one.trial in before} == before
    assert all(one.values for one in ranked)


def test_a_trial_that_was_stopped_goes_on_with_its_setting(place):
    """No line of the journal knows of it."""
    place.behave(dict.fromkeys((0.001, 0.003), "wait"))
    words = ["optim.lr=1e-3,3e-3", "model.n_layers=1..4", "method=tpe", "trials=1"]
    process = place.start(*words)
    try:
        place.wait_for(lambda: (place.output / "trials" / "001-seed-0" / "waits").exists())
    finally:
        process.terminate()
        process.communicate(timeout=120)
    assert place.lines() == []
    (before,) = place.calls()
    place.behave({})
    assert len(place.tune(*words[:-1], "trials=3")) == 3
    after = place.calls()
    assert len(after) == 3
    assert after[0] == before
    assert sorted(path.name for path in place.output.iterdir()) == [
        "journal.jsonl", "report.html", "search.json", "trials", "trials.csv",
    ]  # fmt: skip


def test_a_grid_is_pruned_by_the_median_and_given_up_runs_never_win(place):
    rates = [1e-3 * n for n in range(1, 6)]
    place.behave({1e-2: "wait"})
    named = ",".join(f"{rate:g}" for rate in [*rates, 1e-2])
    ranked = place.tune(f"optim.lr={named}", "prune=median")
    assert next(one.setting["optim.lr"] for one in ranked) == 0.003
    states = {one.setting["optim.lr"]: one.runs[0].state.name for one in ranked}
    assert states == dict.fromkeys(rates, "done") | {0.01: "pruned"}
    assert ranked[-1].setting == {"optim.lr": 0.01}
    place.calls()
    place.tune(f"optim.lr={named}", "prune=median")
    assert place.calls() == []


@pytest.mark.parametrize("code", [None, 0])
def test_figures_count_of_a_run_that_ended_between_two_looks(code, tmp_path):
    """Later runs are given up by the median of its figures."""
    (tmp_path / "metrics.csv").write_text("step,epoch,validation_accuracy\n10,1,0.4\n20,2,0.8\n")
    (tmp_path / "summary.json").write_text(
        json.dumps({"best": {"value": 0.8}, "validation": {}, "epochs": 2, "steps": 20, "wall_seconds": 3.0})
    )
    told = []
    process = SimpleNamespace(code=code, has_ended=lambda: code is not None)
    run = TrialRun(Trial(7, 0, {}), tmp_path, process, "accuracy", lambda *figure: told.append(figure) or False)
    assert run.has_ended() is (code is not None)
    assert told == [(7, 1, 0.4), (7, 2, 0.8)]
    if run.has_ended():
        assert run.outcome().value == 0.8


def test_without_optuna_it_says_what_to_install_and_grids_still_work(tmp_path):
    script = (
        "import sys\n"
        "import manyheads.plugins.sweep.tune as room\n"
        "room.find_spec = lambda name: None\n"
        "assert 'optuna' not in sys.modules and 'torch' not in sys.modules\n"
        "from manyheads.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["tune", "optim.lr=1e-3..1e-2", "method=tpe"]
    done = subprocess.run([sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2, "method=tpe needs a package that is not installed: pip install -e '.[tune]' in the clone of manyheads\n",
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
