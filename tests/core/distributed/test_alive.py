"""A process of several that is dead, stuck, silent or gone ends the run, which says which it was, where, and why."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict

import pytest
import torch.distributed as dist

from manyheads.distributed import heartbeat as alive
from manyheads.distributed.heartbeat import LOST, PeerLost, Record, beat, last_seen, monitor_peers, phase
from manyheads.distributed.signals import Stopped
from manyheads.errors import RunEnded

TIMEOUT = 6
TINY = [
    "train", "debug=fast", "hardware=cpu", f"hardware.timeout={TIMEOUT}", "batch.rows=8", "trainer.max_epochs=2",
    "output=run",
]  # fmt: skip
HERE = "at step 2 (training)"
GOES = {  # fault in rank 1 at the third step, what is said of it, and the exit code that comes of it
    "kill": (f"rank 1 was killed by SIGKILL {HERE}", 137),
    "stop": (f"rank 1 stopped answering {HERE}", LOST),
    "fail": (f"rank 1 failed with exit code 1 {HERE}: its last lines", 1),
    "leave": (f"rank 1 failed {HERE}: it left with exit code 0", LOST),
    "hang": (f"rank 1 got no further {HERE} for {TIMEOUT} seconds", LOST),
}


@pytest.mark.slow  # test_launch.py has the ends of processes without torch, tests/core/ranks a rank that is killed
@pytest.mark.parametrize("action", GOES)
def test_a_rank_that_goes_ends_the_run(action, ranks_run):
    job = ranks_run.manyheads(*TINY, "hardware.devices=2", MANYHEADS_FAULT=f"step:3:{action}:1")
    sentence, code = GOES[action]
    assert job.code() == code, job.err
    assert sentence in job.err
    assert not job.left()
    assert ("RuntimeError: failed on purpose" in job.err) == (action == "fail")
    log = (ranks_run.folder / "run" / "run.log").read_text()
    assert "rank 1" in log, "the run's own log says so, too"
    assert "Traceback" not in log


@pytest.mark.slow
def test_the_same_under_torchrun(ranks_run):
    job = ranks_run.torchrun(*TINY, MANYHEADS_FAULT="step:3:stop:1")
    assert job.code() != 0
    assert f"rank 1 stopped answering {HERE}" in job.err
    assert not job.left(within=60)


@pytest.fixture
def two(monkeypatch, tmp_path):
    """This process as rank 0 of two, of which `two(**facts)` writes what the other writes of itself."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(alive, "BEAT_SECONDS", 0.3)
    monkeypatch.setattr(alive, "QUIET", 0.2)
    (tmp_path / "ranks").mkdir()

    def write(**facts) -> None:
        other = Record(1, os.getpid(), "elsewhere", **{"time": time.time(), **facts})
        (tmp_path / "ranks" / "rank-1.json").write_text(json.dumps(asdict(other)))

    return write


def own_record(folder) -> Record:
    return Record(**json.loads((folder / "ranks" / "rank-0.json").read_text()))


def test_alone_nothing_happens(tmp_path):
    with monitor_peers(tmp_path / "nowhere", 1.0):
        beat(3, "training")
    assert not list(tmp_path.iterdir())


def test_a_process_says_what_it_is_at(two, tmp_path):
    with monitor_peers(tmp_path / "ranks", 60.0):
        beat(7, "training")
        with phase("saving"):
            beat()
            time.sleep(0.5)
            written = own_record(tmp_path)
    assert (written.rank, written.step, written.phase, written.marks, written.ended) == (0, 7, "saving", 3, "")
    assert own_record(tmp_path).ended == "done"
    assert own_record(tmp_path).phase == "training"


def broken(two, tmp_path, error: BaseException, **facts) -> BaseException:
    """What comes of an error here while the other writes `facts`."""
    try:
        with monitor_peers(tmp_path / "ranks", 60.0):
            beat(4, "training")
            two(**facts)
            raise error
    except BaseException as said:
        return said
    raise AssertionError("nothing came of it")


CLOSED = RuntimeError("[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4711")


@pytest.mark.parametrize("error", [CLOSED, dist.DistBackendError("ncclRemoteError")])
def test_a_connection_that_broke_is_told_by_who_broke_it(error, two, tmp_path):
    facts = {"ended": "failed", "why": "KeyError: 'x'", "step": 4, "phase": "validation"}
    said = broken(two, tmp_path, error, **facts)
    assert isinstance(said, PeerLost)
    assert said.exit_code == LOST
    assert said.why == "rank 1 failed at step 4 (validation): KeyError: 'x'"
    assert (own_record(tmp_path).ended, own_record(tmp_path).why) == ("lost", said.why)


def test_one_that_begins_again_takes_the_others_along(two, tmp_path):
    said = broken(two, tmp_path, CLOSED, ended="stopped", why="75")
    assert type(said) is RunEnded
    assert said.exit_code == 75
    assert (own_record(tmp_path).ended, own_record(tmp_path).why) == ("stopped", "75")


def test_of_three_the_one_that_began_it_is_named(two, tmp_path):
    why = "rank 2 died at step 4 (training)"
    assert getattr(broken(two, tmp_path, CLOSED, ended="lost", why=why), "why", "") == why


def test_a_silent_one_is_named_where_this_one_waits_for_it(two, tmp_path):
    said = broken(two, tmp_path, CLOSED, step=3, phase="training")
    assert isinstance(said, PeerLost)
    assert said.why.startswith("rank 1 stopped answering at step 4 (training), ")


def test_one_that_died_on_this_machine_is_known_at_once(two, tmp_path, monkeypatch):
    monkeypatch.setattr(alive, "QUIET", 1e6)
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    monkeypatch.setattr(os, "getpid", lambda: gone.pid)
    monkeypatch.setattr(alive.socket, "gethostname", lambda: "elsewhere")
    assert getattr(broken(two, tmp_path, CLOSED), "why", "") == "rank 1 died at step 4 (training)"


def test_what_an_earlier_start_left_says_nothing(two, tmp_path):
    two(ended="failed", why="long ago")
    with pytest.raises(PeerLost), monitor_peers(tmp_path / "ranks", 60.0):
        raise CLOSED
    assert "has not begun" in own_record(tmp_path).why


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (Stopped("SIGTERM", 143), "stopped"),
        (KeyError("x"), "failed"),
        (RuntimeError("shapes differ"), "failed"),
        (SystemExit(0), "failed"),
    ],
)
def test_what_went_wrong_here_stays_what_it_is(error, ended, two, tmp_path):
    assert broken(two, tmp_path, error, ended="failed", why="the same") is error
    assert own_record(tmp_path).ended == ended


def watch_of(tmp_path, timeout: float) -> "alive._Watch":
    files = [tmp_path / "ranks" / f"rank-{rank}.json" for rank in range(2)]
    return alive._Watch(Record(0, os.getpid(), "here", marks=5, step=2, phase="training"), files, timeout)


def test_the_one_that_came_by_the_fewest_places_is_stuck(two, tmp_path):
    watch = watch_of(tmp_path, 0.05)
    for marks, said in (4, "rank 1 got no further"), (6, "rank 0 got no further"), (5, "all processes are stuck"):
        two(marks=marks, step=2, phase="training")
        watch.look()
        time.sleep(0.1)
        two(marks=marks, step=2, phase="training")
        watch.look()
        assert watch.lost().startswith(said)
    assert "at step 2 (training)" in watch.lost()


def test_while_all_go_on_or_have_ended_well_nothing_is_lost(two, tmp_path):
    watch = watch_of(tmp_path, 0.05)
    for step in range(5):
        two(step=step)
        watch.own.marks += 1
        watch.look()
        assert watch.lost() == ""
        time.sleep(0.02)
    two(ended="done")
    watch.look()
    time.sleep(0.1)
    watch.own.marks += 1
    watch.look()
    assert watch.lost() == "", "it has ended, and is not expected to answer"


def test_one_that_ends_well_while_it_is_looked_at_is_not_lost(two, tmp_path, monkeypatch):
    """It says so and is gone between the two questions, as on a busy machine."""
    watch = watch_of(tmp_path, 60.0)
    watch.own.machine = "elsewhere"
    two(step=3)
    watch.look()
    monkeypatch.setattr(alive, "is_alive", lambda process: two(step=3, ended="done"))
    assert watch.lost() == ""


def test_where_a_process_was_is_told_by_those_who_waited_for_it(two, tmp_path):
    two(step=3, marks=9, phase="training")
    other = Record(0, 1, "here", "validation", 4, 12, "lost", "rank 1 died")
    (tmp_path / "ranks" / "rank-0.json").write_text(json.dumps(asdict(other)))
    assert last_seen(tmp_path, 1, 2) == " at step 4 (validation)"
    assert last_seen(tmp_path, 0, 2) == " at step 4 (validation)"
    assert last_seen(tmp_path / "nowhere", 1, 2) == ""
