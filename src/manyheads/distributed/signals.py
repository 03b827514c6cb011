"""Ending a run on request: a signal or the time limit sets a flag, which is looked at between optimiser steps.

Several processes tell each other of it by a vote, so that all of them end behind the same step. Lightning's handlers
are put aside: on SIGTERM they end the process with exit code 0, and on SIGUSR1 they save within the handler, wherever
the step may be. So is its own way to tell others of a SIGTERM, which waits for rank 0 in each batch. Standard library
only.

`fault` makes faults on purpose, so that tests can see what a run survives:
`MANYHEADS_FAULT=point`, `point:nth`, `point:nth:action` or `point:nth:action:rank`: when the process, that of one rank
or any, comes to that point for the nth time (the first unless told) it is killed at once (`kill`), told to end
(`term`), stops for ever (`stop`), fails (`fail`), leaves as if all were well (`leave`), does nothing for ever (`hang`),
finds the disk full (`full`), or has a loss that is not a number (`nan`). Some points have a number of their own
in the place of that count, and `oom` raises as torch does wherever this number is above n. Without the variable a point
costs one look into the environment.
"""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from manyheads.distributed.ranks import this_process

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
OUT_OF_TIME = 124  # the exit code of timeout(1)
ASKS_IN_EACH_BATCH = "_broadcast_sigterm_tensor"
Handler = Callable[[int, FrameType | None], None]


class Stopped(SystemExit):
    """The run was asked to end and its state is saved. The exit code is 128 + the signal's number, or 124."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(code)
        self.why = why


def ending(outcome: Mapping[str, int]) -> Stopped | None:
    """What to raise where the votes say that the run shall end, or None while it may go on."""
    if outcome["signal"]:
        return Stopped(signal.Signals(outcome["signal"]).name, 128 + outcome["signal"])
    return Stopped("trainer.max_time", OUT_OF_TIME) if outcome["late"] else None


def _handle(handler: Handler) -> None:
    if threading.current_thread() is threading.main_thread():  # a notebook's threads cannot be signalled
        for one in SIGNALS:
            if signal.getsignal(one) is not signal.SIG_IGN:  # as in a script that goes on behind a `&`
                signal.signal(one, handler)


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Signals call `handler` for a while."""
    before = {one: signal.getsignal(one) for one in SIGNALS}
    _handle(handler)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for one, found in before.items():
                signal.signal(one, found)


class Stop:
    """Whether this process was asked to end, and why.

    Args:
        seconds: the time limit, counted from here; None: none.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._signal: signal.Signals | None = None
        self._until = None if seconds is None else time.monotonic() + seconds

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals set the flag for a while."""
        with handled_by(self._note):
            yield

    def listen(self) -> None:
        """Take the signals over from Lightning, which takes SIGTERM when training begins."""
        _handle(self._note)

    def votes(self) -> dict[str, int]:
        """What this process puts to the vote: the signal that came, and whether its time is up."""
        late = self._until is not None and time.monotonic() >= self._until
        return {"signal": self._signal or 0, "late": int(late)}

    def quieten(self, epoch_loop: object) -> None:
        """Let Lightning's loop over the batches no longer ask rank 0 in each of them whether a SIGTERM came."""
        assert hasattr(epoch_loop, ASKS_IN_EACH_BATCH), "Lightning has changed"
        setattr(epoch_loop, ASKS_IN_EACH_BATCH, lambda: None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            os._exit(128 + number)
        self._signal = signal.Signals(number)


def leave_with(pipe: int, grace: float = 0.0) -> None:
    """Once nobody holds the other end of `pipe`, kill this process, which leads its group, with all that it has
    started. With a `grace`, it is told to end by SIGTERM that many seconds before."""

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        if grace:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def seconds_of(limit: Any) -> float | None:
    """The seconds of `trainer.max_time`: "days:hours:minutes:seconds" or {hours: 1, minutes: 30}; None stays None,
    anything else is refused."""
    units = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
    if limit is None:
        return None
    counts = limit if isinstance(limit, dict) else {}
    if isinstance(limit, str) and limit.count(":") == 3:
        counts = dict(zip(units, limit.split(":"), strict=True))
    try:
        seconds = sum(units[unit] * float(count) for unit, count in counts.items())
    except (KeyError, TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(
            f"trainer.max_time={limit} is not a time: write days:hours:minutes:seconds, such as 00:01:30:00"
        )
    return seconds


VARIABLE = "MANYHEADS_FAULT"
POINTS = (  # in the order in which a run comes to them
    "step",  # between two optimiser steps
    "loss",  # of a micro-batch, told by the number of its optimiser step, from 1
    "memory",  # for a micro-batch, told by its tokens
    "validation",  # in the midst of one
    "begin",  # of a save: nothing is written
    "within",  # a file is begun
    "between",  # one file is written, the next is not
    "manifest",  # all files are written, the manifest is not
    "rename",  # all is written under a passing name
    "renamed",  # all is written under its final name
    "delete",  # the new one is verified, the old one is still there
    "deleting",  # the old one has lost its name and is half gone
    "chunk",  # of answers is written, how far they are is not recorded
    "trained",  # the last step is done and saved, nothing is judged
)
FATAL = {"": signal.SIGKILL, "kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
ACTIONS = (*FATAL, "fail", "leave", "hang", "full", "nan", "oom")
_passed: dict[str, int] = {}


def fault(point: str, number: int | None = None) -> bool:
    """Do here what the environment says, if it names this point; whether the loss is to be none is for the caller.

    Args:
        number: counts here, instead of how often the process came by.
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return False
    name, nth, action, rank = (*wanted.split(":"), "", "", "")[:4]
    assert name in POINTS, f"{VARIABLE}={wanted}: there is no such point"
    assert action in ACTIONS, f"{VARIABLE}={wanted}: there is no such action"
    if name != point or rank not in ("", str(this_process().rank)):
        return False
    if number is None:
        number = _passed[wanted] = _passed.get(wanted, 0) + 1
    if action == "oom" and number > int(nth):
        from torch import OutOfMemoryError

        raise OutOfMemoryError(f"out of memory on purpose: {number} above {nth}")
    if action == "oom" or number != int(nth or 1):
        return False
    if action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if action == "fail":
        raise RuntimeError("failed on purpose")
    if action == "leave":
        raise SystemExit(0)
    while action == "hang":
        time.sleep(1)
    if action in FATAL:
        os.kill(os.getpid(), FATAL[action])
    return action == "nan"


def forget() -> None:
    """Count the points from the start again."""
    _passed.clear()
