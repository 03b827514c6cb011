"""Ending a run on request: a signal or the time limit sets a flag, which is looked at between optimiser steps.

Several processes tell each other of it by a vote, so that all of them end behind the same step. Lightning's handlers
are put aside: on SIGTERM they end the process with exit code 0, and on SIGUSR1 they save within the handler, wherever
the step may be. So is its own way to tell others of a SIGTERM, which waits for rank 0 in each batch. Standard library
only.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

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
