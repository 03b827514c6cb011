"""Optuna's part: draws, what is given up, and a study that goes on where it was."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

optuna = pytest.importorskip("optuna")

from manyheads.cli.compose import compose  # noqa: E402
from manyheads.sweep import scheduler as work  # noqa: E402
from manyheads.sweep.optuna import Study  # noqa: E402

SPACE = ("optim.lr=log:1e-4..1e-1", "model.n_layers=1..4", "model.placement=pre,post")


@pytest.mark.parametrize("method", ["tpe", "cmaes"])
def test_draws_lie_in_the_space_and_learn_from_what_was_told(method, tmp_path):
    config = compose("tune", [*SPACE, f"method={method}", "trials=40"])
    study = Study(config, tmp_path, None)
    found = []
    for _ in range(40):
        number, setting = study.ask()
        rate = setting["optim.lr"]
        assert 1e-4 <= rate <= 1e-1
        assert setting["model.n_layers"] in (1, 2, 3, 4)
        assert setting["model.placement"] in ("pre", "post")
        found.append(abs(rate - 0.01))
        study.tell(number, -found[-1])
    assert sum(found[-10:]) < sum(found[:10]), "the last draws are nearer to the best than the first"


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


@pytest.mark.parametrize(("code", "ended"), [(None, []), (0, ["closed"])])
def test_figures_count_of_a_run_that_ended_between_two_looks(code, ended, tmp_path, monkeypatch):
    """Later runs are given up by the median of its figures."""
    (tmp_path / "metrics.csv").write_text("step,epoch,validation_accuracy\n10,1,0.4\n20,2,0.8\n")
    config, told, done = compose("tune", ["optim.lr=1e-3,3e-3", "checkpoint.metric=accuracy"]), [], []
    queue = SimpleNamespace(gives_up=lambda *figure: told.append(figure) or False)
    one = SimpleNamespace(
        process=SimpleNamespace(poll=lambda: code), pruned=False, seed=0, folder=tmp_path, n_reported=0, trial=7,
        so_far=dict, log=None,
    )  # fmt: skip
    monkeypatch.setattr(work, "sweep", lambda run: None)
    monkeypatch.setattr(work, "read_outcome", lambda *all_of_it: None)
    monkeypatch.setattr(work, "close", lambda *all_of_it: done.append("closed"))
    work.look_at(config, queue, None, one, [one])
    assert told == [(7, 1, 0.4), (7, 2, 0.8)]
    assert done == ended


def test_without_optuna_it_says_what_to_install_and_grids_still_work(tmp_path):
    script = (
        "import sys\n"
        "import manyheads.sweep.tune as room\n"
        "room.find_spec = lambda name: None\n"
        "assert 'optuna' not in sys.modules and 'torch' not in sys.modules\n"
        "from manyheads.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["tune", "optim.lr=1e-3..1e-2", "method=tpe"]
    done = subprocess.run([sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2, "method=tpe needs a package that is not installed: pip install 'manyheads[tune]'\n",
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
