"""Faults on purpose, so that tests can see what a run survives. Standard library only.

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
import time

from manyheads.distributed.ranks import this_process

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
SIGNALS = {"": signal.SIGKILL, "kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
ACTIONS = (*SIGNALS, "fail", "leave", "hang", "full", "nan", "oom")
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
    if action in SIGNALS:
        os.kill(os.getpid(), SIGNALS[action])
    return action == "nan"


def forget() -> None:
    """Count the points from the start again."""
    _passed.clear()
