"""One search by several machines, of which each is a process here: joined, divided, given back, refused."""

import csv
import os
import signal
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

optuna = pytest.importorskip("optuna")

from manyheads.cli.compose import compose  # noqa: E402
from manyheads.plugins.sweep import shared  # noqa: E402
from manyheads.plugins.sweep.outcomes import Outcome, RunState  # noqa: E402
from manyheads.plugins.sweep.shared import join_search  # noqa: E402
from manyheads.plugins.sweep.tune import plan_settings  # noqa: E402

RATES = "optim.lr=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3"
QUICK = "from manyheads.plugins.sweep import shared as s; s.BEAT, s.LOST, s.LOOK = 0.1, {lost}, 0.1"
KINDS = [
    "search.journal",
    pytest.param("sqlite:///{folder}/search.db", marks=pytest.mark.slow),
    pytest.param("postgresql", marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(shared, "BEAT", 0.1)
    monkeypatch.setattr(shared, "LOOK", 0.1)


def storage(place, kind=KINDS[0]):
    if kind == "postgresql":  # such as postgresql://localhost/tests, with PGUSER and PGPASSWORD
        server = os.environ.get("MANYHEADS_POSTGRES")
        if not server:
            pytest.skip("MANYHEADS_POSTGRES names no database")
        schema = f"search_{zlib.crc32(str(place.folder).encode())}"
        with pytest.importorskip("psycopg").connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        return f"storage={server}?options=-csearch_path%3D{schema}"
    address = kind.format(folder=place.folder)
    return f"storage={address if '://' in address else place.folder / address}"


def read_table(folder):
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{name: one for name, one in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_three_machines_divide_a_search_and_take_over_what_a_killed_one_had(place, kind):
    place.behave({1e-3: "wait"})
    words = [RATES, storage(place, kind)]
    killed = place.start(*words, first=QUICK.format(lost=3.0))
    waits = place.output / "trials" / "001-seed-0" / "waits"
    others = []
    try:
        place.wait_for(lambda: waits.exists() and waits.read_text())
        place.behave({})
        others = [place.start(*words, first=QUICK.format(lost=3.0)) for _ in range(2)]
        place.wait_for(lambda: len(list(place.output.glob("trials/*/summary.json"))) == 5)
        killed.kill()
        os.kill(int(waits.read_text()), signal.SIGKILL)  # which a real run does itself
        said = [one.communicate(timeout=120) for one in others]
    finally:
        for one in (killed, *others):
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.communicate()
    assert [one.returncode for one in others] == [0, 0], said
    assert sum("is given back: its machine gave no heartbeat" in err for _, err in said) == 1, said
    assert all("6 settings by validation accuracy" in out for out, _ in said)
    rates = sorted(one["optim.lr"] for one in place.calls())
    assert rates == [0.001, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006], "each once, but for the one that was lost"
    made = read_table(place.output)
    place.output = place.folder / "alone"
    place.tune(RATES)
    assert made == read_table(place.output), "as of one machine"


def test_a_machine_that_is_stopped_gives_its_trial_back_at_once(place):
    place.behave({1e-3: "wait"})
    process = place.start(RATES, storage(place), first=QUICK.format(lost=1e9))
    try:
        place.wait_for(lambda: (place.output / "trials" / "001-seed-0" / "waits").exists())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    place.behave({})
    place.calls()
    assert {one.trial for one in place.tune(RATES, storage(place)) if one.values} == {1, 2, 3, 4, 5, 6}
    assert len(place.calls()) == 6
    place.tune(RATES, storage(place))
    assert place.calls() == [], "nothing is left of it"


@pytest.mark.parametrize("kind", KINDS)
def test_draws_seeds_and_pruning_are_as_on_one_machine(place, kind):
    ranked = place.tune(
        "optim.lr=log:1e-4..1e-1", "method=tpe", "trials=4", "seeds=2", "prune=median", storage(place, kind)
    )
    assert sorted(one.trial for one in ranked) == [1, 2, 3, 4]
    assert [one.seed for one in ranked[0].runs] == [0, 1]
    assert len({one.setting["optim.lr"] for one in ranked}) == 4


def test_a_run_that_breaks_off_is_tried_again_and_then_shown(place):
    place.behave({2e-3: "kill"})
    ranked = place.tune("optim.lr=1e-3,2e-3", storage(place))
    assert [one["optim.lr"] for one in place.calls()].count(0.002) == shared.MOST_TRIES
    assert [one.runs[0].state for one in ranked] == [RunState.done, RunState.broken]
    assert ranked[1].runs[0].why == "killed by SIGKILL"


def test_seeds_of_a_trial_that_is_given_back_do_not_meet_those_of_its_next_try(place):
    """The second seed breaks off once, while the third goes on in a folder that nobody else may write to."""
    place.behave({1e-3: "seeds"})
    ranked = place.tune("optim.lr=1e-3,2e-3", "seeds=3", "jobs=2", storage(place))
    assert {run.state for one in ranked for run in one.runs} == {RunState.done}
    assert sorted(one["seed"] for one in place.calls() if one["optim.lr"] == 1e-3) == [0, 1, 1, 2, 2]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_values_drawn_again_count_as_before(place, monkeypatch):
    samplers = optuna.samplers
    same = samplers.PartialFixedSampler({"optim.lr": "0.003"}, samplers.RandomSampler())
    monkeypatch.setattr(shared, "make_sampler", lambda config, start: same)
    ranked = place.tune("optim.lr=1e-3,3e-3", "method=tpe", "trials=2", storage(place))
    assert [one.setting for one in ranked] == [{"optim.lr": 0.003}]
    assert len(place.calls()) == 1
    assert [(row["state"], row["accuracy"]) for row in read_table(place.output)] == [("done", "0.9"), ("again", "0.9")]


@pytest.mark.parametrize("kind", KINDS)
def test_no_trial_is_taken_or_given_back_twice(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(shared, "LOOK", -1.0)
    rates = ",".join(f"{n}e-4" for n in range(1, 7))
    config = compose("tune", [f"optim.lr={rates}", f"storage={kind.format(folder=tmp_path)}"])
    monkeypatch.chdir(tmp_path)
    barrier, planned = threading.Barrier(3), plan_settings(config)

    def work(_):
        with join_search(config, planned, range(1), tmp_path / "search", {}) as one:
            barrier.wait(60)
            taken = [trial.number for trial in iter(one.take, None)]
            barrier.wait(60)
            latest = one._latest()
            barrier.wait(60)
            back = [number for number, trial in latest.items() if one._give_back(trial, 1)]
            one._own.clear()
            return taken, back

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(work, range(3)))
    for each in zip(*found, strict=True):
        assert sorted(number for numbers in each for number in numbers) == list(range(1, 7))


def test_who_was_given_up_for_lost_leaves_its_trial(tmp_path, monkeypatch):
    config = compose("tune", [RATES, f"storage={tmp_path / 'search.journal'}"])
    joined = [config, plan_settings(config), range(1), tmp_path / "search", {}]
    monkeypatch.setattr(shared, "BEAT", 0.0)
    with join_search(*joined) as slow, join_search(*joined) as other:
        mine, theirs = slow.take(), other.take()
        assert (mine.number, theirs.number) == (1, 2)
        assert other.tend() == set()
        monkeypatch.setattr(shared, "LOST", -1.0)
        assert other.tend() == set()
        assert slow.add(Outcome(*mine, RunState.done, 0.5)) is False
        assert slow.tend() == {1}, "another run of it may go on"
        assert slow.tend() == set()
        again = next(one for one in iter(other.take, None) if one.number == 1)
        assert again == mine
        assert other.add(Outcome(*again, RunState.done, 0.5))
        assert [one.trial for one in other.outcomes] == [1]


def test_a_machine_that_has_slept_looks_at_once_whether_its_trial_is_still_its_own(tmp_path, monkeypatch):
    config = compose("tune", ["optim.lr=1e-3,3e-3", f"storage={tmp_path / 'search.journal'}"])
    joined = [config, plan_settings(config), range(1), tmp_path / "search", {}]
    monkeypatch.setattr(shared, "BEAT", 1e9)
    with join_search(*joined) as slow, join_search(*joined) as other:
        slow._beaten, slow._clock = time.monotonic(), time.time()
        slow.take()
        assert other._give_back(slow._frozen(1), 1)
        assert slow.tend() == set()
        monkeypatch.setattr(shared, "LOST", -1.0)  # as if longer had passed by the clock of the wall
        assert slow.tend() == {1}


@pytest.mark.slow
def test_a_machine_that_was_frozen_kills_what_others_have_taken_over(place):
    place.behave({1e-3: "wait"})
    words = ["optim.lr=1e-3,2e-3", storage(place)]
    frozen = place.start(*words, first=QUICK.format(lost=2.0))
    waits = place.output / "trials" / "001-seed-0" / "waits"
    try:
        place.wait_for(lambda: waits.exists() and waits.read_text())
        run = psutil.Process(int(waits.read_text()))
        for one in (psutil.Process(frozen.pid), run):
            one.suspend()
        place.behave({})
        other = place.start(*words, first=QUICK.format(lost=2.0))
        _, err = other.communicate(timeout=240)
        assert other.returncode == 0, err
        assert "trial 1 is given back" in err
        assert run.is_running()
        for one in (run, psutil.Process(frozen.pid)):
            one.resume()
        _, err = frozen.communicate(timeout=60)
        assert "trial 1 was given back to other machines" in err
        assert not run.is_running()
    finally:
        if frozen.poll() is None:
            os.killpg(frozen.pid, signal.SIGKILL)
    assert frozen.returncode == 0


@pytest.mark.parametrize("drawn_again", [True, False])
def test_a_trial_that_is_given_back_while_it_is_taken_is_taken_again(tmp_path, monkeypatch, drawn_again):
    """As where its machine sleeps between the two; it was a KeyError, which ended the search."""
    config = compose("tune", ["optim.lr=1e-3,3e-3", f"storage={tmp_path / 'search.journal'}"])
    joined = [config, plan_settings(config), range(1), tmp_path / "search", {}]
    with join_search(*joined) as slow, join_search(*joined) as other:
        done, drop = Outcome(*slow.take(), RunState.done, 0.5), slow._drop
        assert slow.add(done)

        def sleeps(setting):
            assert other._give_back(slow._frozen(2), 1)
            if drawn_again:
                return [done]
            monkeypatch.setattr(shared, "MOST_TRIES", 0)  # the trial is to be shown as broken
            return []

        def drops(number):
            monkeypatch.undo()
            drop(number)

        monkeypatch.setattr(slow, "_drawn_before", sleeps)
        monkeypatch.setattr(slow, "_drop", drops)
        assert slow.take().number == 2


def test_a_trial_that_brings_its_machines_down_is_shown_as_broken(tmp_path, monkeypatch):
    config = compose("tune", ["optim.lr=1e-3,3e-3", f"storage={tmp_path / 'search.journal'}"])
    joined = [config, plan_settings(config), range(1), tmp_path / "search", {}]
    for name, value in (("BEAT", 0.0), ("LOST", -1.0), ("LOOK", -1.0), ("MOST_TRIES", 1)):
        monkeypatch.setattr(shared, name, value)
    with join_search(*joined) as down, join_search(*joined) as other:
        assert (down.take().number, other.take().number) == (1, 2)
        other.tend(), other.tend()
        assert other.take() is None
        assert [(one.trial, one.state, one.why) for one in other.outcomes] == [
            (1, RunState.broken, "its machine was lost 1 times")
        ]
        assert other.add(Outcome(2, 0, {"optim.lr": 0.003}, RunState.done, 0.5))
        assert not other.waits()


def test_another_search_in_the_storage_or_the_folder_is_refused(place):
    place.tune("optim.lr=1e-3,3e-3", storage(place))
    with pytest.raises(ValueError, match=r"^storage=\S+ holds a search with search=.* name another folder by output="):
        place.tune("optim.lr=1e-3,2e-3", storage(place))
    with pytest.raises(ValueError, match=r"holds a search with seeds=1, not seeds=2"):
        place.tune("optim.lr=1e-3,3e-3", "seeds=2", storage(place))
    place.output = place.folder / "alone"
    place.tune("optim.lr=1e-3,3e-3")
    with pytest.raises(ValueError, match="holds something else than a shared search"):
        place.tune("optim.lr=1e-3,3e-3", storage(place))


def test_the_folder_of_a_search_whose_storage_is_gone_is_refused(place):
    """Its trials have the same numbers, so that new ones would go on from theirs."""
    place.tune("optim.lr=1e-3,3e-3", storage(place))
    assert len(place.tune("optim.lr=1e-3,3e-3", storage(place))) == 2
    (place.folder / "search.journal").unlink()
    with pytest.raises(ValueError, match="holds something else than this search: name another by output="):
        place.tune("optim.lr=1e-3,2e-3", storage(place))
    place.output = place.folder / "run"
    place.output.mkdir()
    (place.output / "report.html").write_text("of a run")
    with pytest.raises(ValueError, match="holds something else than this search"):
        place.tune("optim.lr=1e-3,2e-3", storage(place))
    assert (place.output / "report.html").read_text() == "of a run"


@pytest.mark.parametrize("address", ["sqlite:////no/where.db", "nosuch://host/name", "/proc/no/search.journal"])
def test_a_storage_that_cannot_be_used_is_one_sentence(place, address, monkeypatch):
    monkeypatch.setattr(shared.time, "sleep", lambda seconds: None)
    with pytest.raises(ValueError, match=r"^storage=\S+ cannot be used \(.+\): see that it can be reached") as caught:
        place.tune("optim.lr=1e-3,3e-3", f"storage={address}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["hello\n", '{"text": "a", "label": "b"}\n', "text,label\na,b\n"])
def test_a_file_that_is_no_journal_is_left_as_it_is(place, content, monkeypatch):
    monkeypatch.setattr(shared.time, "sleep", lambda seconds: None)
    path = place.folder / "search.journal"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"cannot be used \(it holds something else than a journal of Optuna\)"):
        place.tune("optim.lr=1e-3,3e-3", storage(place))
    assert path.read_text() == content


@pytest.mark.parametrize(("module", "package"), [("psycopg", "'psycopg[binary]'"), ("psycopg2", "psycopg2-binary")])
def test_a_database_without_its_driver_names_the_package(monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"the module {module}, which is not installed: pip install (.+)$") as caught:
        shared.open_storage(f"postgresql+{module}://localhost/searches")
    assert str(caught.value).endswith(package)
