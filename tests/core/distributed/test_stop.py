"""Signals and time limits set a flag; a second signal ends the process at once."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from manyheads.distributed.max_time import parse_max_time
from manyheads.distributed.signals import SIGNALS, Stop, ending


@pytest.mark.parametrize(("one", "code"), [("SIGTERM", 143), ("SIGUSR1", 138), ("SIGINT", 130)])
def test_a_signal_is_noted_and_named(one, code):
    found = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run behind a `&`
    stop = Stop()
    before = [signal.getsignal(each) for each in SIGNALS]
    with stop.listening():
        assert ending(stop.votes()) is None
        os.kill(os.getpid(), signal.Signals[one])
        stopped = ending(stop.votes())
    assert stopped is not None
    assert (stopped.why, stopped.exit_code) == (one, code)
    assert [signal.getsignal(each) for each in SIGNALS] == before
    signal.signal(signal.SIGINT, found)


def test_time_that_is_up(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stop = Stop(5.0)
    now = 104.9
    assert ending(stop.votes()) is None
    now = 105.0
    stopped = ending(stop.votes())
    assert stopped is not None
    assert (stopped.why, stopped.exit_code) == ("trainer.max_time", 124)


def test_the_second_signal_ends_at_once():
    body = (
        "import os, signal\nfrom manyheads.distributed.signals import Stop\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nwith Stop().listening():\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    print('still here', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    print('never')"
    )
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (130, "still here\n")


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (None, None),
        ("00:00:01:30", 90),
        ("1:02:00:00", 93600),
        ({"hours": 2}, 7200),
        ({"minutes": 1, "seconds": 1}, 61),
    ],
)
def test_time_limits(limit, seconds):
    assert parse_max_time(limit) == seconds


@pytest.mark.parametrize("limit", ["", "90", "1:30", "a:b:c:d", "00:00:00:00", {}, {"weeks": 1}, {"hours": -1}, 5])
def test_what_is_no_time(limit):
    with pytest.raises(
        ValueError, match=r"^trainer.max_time=.* is not a time: write days:hours:minutes:seconds, such "
    ):
        parse_max_time(limit)


def test_a_signal_that_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    stop = Stop()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert ending(stop.votes()) is None
    signal.signal(signal.SIGUSR1, before)


def test_lightning_takes_no_signal_once_it_is_told_not_to():
    from lightning.pytorch import Trainer

    trainer: Any = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    connector, loop = trainer._signal_connector, trainer.fit_loop.epoch_loop
    said = "if it does no more, remove it from Stop.disable_lightning"
    assert hasattr(type(connector), "register_signal_handlers"), said
    assert hasattr(type(loop), "_broadcast_sigterm_tensor"), said
    stop = Stop()
    stop.disable_lightning(trainer)
    with stop.listening():
        connector.register_signal_handlers()
        assert signal.getsignal(signal.SIGTERM) == stop._note
    assert loop._broadcast_sigterm_tensor() is None
