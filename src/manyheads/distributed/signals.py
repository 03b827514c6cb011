"""Ending a run on request: a signal or the time limit sets a flag, which is read between optimiser steps.

Several processes vote on it, so that all of them end after the same step. Lightning's own handlers are disabled: on
SIGTERM they end the process with exit code 0, and on SIGUSR1 they save within the handler, in the middle of a step. So
is its broadcast of a SIGTERM, which waits for rank 0 in each batch. Standard library only.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from manyheads.errors import RunEnded

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
OUT_OF_TIME = 124  # the exit code of timeout(1)
Handler = Callable[[int, FrameType | None], None]


class Stopped(RunEnded):
    """The run was asked to end and its state is saved. The exit code is 128 + the signal's number, or 124."""


def ending(outcome: Mapping[str, int]) -> Stopped | None:
    """What to raise where the votes say that the run is to end; None while it continues."""
    if outcome["signal"]:
        return Stopped(signal.Signals(outcome["signal"]).name, 128 + outcome["signal"])
    if outcome["late"]:
        return Stopped("trainer.max_time", OUT_OF_TIME)
    return None


def _install(handler: Handler) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # a notebook's other threads receive no signals
    for one in SIGNALS:
        if signal.getsignal(one) is not signal.SIG_IGN:  # as in a script that was put into the background by `&`
            signal.signal(one, handler)


@contextmanager
def handled_by(handler: Handler) -> Iterator[None]:
    """Signals call `handler` while the block lasts."""
    before = {one: signal.getsignal(one) for one in SIGNALS}
    _install(handler)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for one, found in before.items():
                signal.signal(one, found)


class Stop:
    """Whether this process was asked to end, and why.

    Args:
        seconds: the time limit, counted from now; None: none.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._signal: signal.Signals | None = None
        self._deadline = None if seconds is None else time.monotonic() + seconds

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Signals set the flag while the block lasts."""
        with handled_by(self._note):
            yield

    def votes(self) -> dict[str, int]:
        """What this process votes for: the signal that came, and whether its time is up."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return {"signal": self._signal or 0, "late": int(late)}

    def disable_lightning(self, trainer: Any) -> None:
        """Keep Lightning from taking the signals when training begins, and from asking rank 0 in each batch whether a
        SIGTERM came; called before the rows are loaded."""
        for owner, name in (
            (trainer._signal_connector, "register_signal_handlers"),
            (trainer.fit_loop.epoch_loop, "_broadcast_sigterm_tensor"),
        ):
            assert hasattr(owner, name), "Lightning has changed"
            setattr(owner, name, lambda: None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:  # the second signal ends the process at once
            os._exit(128 + number)
        self._signal = signal.Signals(number)


def die_with_parent(pipe: int, grace: float = 0.0) -> None:
    """Kill this process, which leads its group, and all that it has started, once nobody holds the other end of `pipe`.
    With a `grace` it gets SIGTERM that many seconds before."""

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        if grace:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
