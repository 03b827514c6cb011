"""Faults on purpose, so that tests can see what a run survives. Standard library only.

`MANYHEADS_FAULT=point[:nth[:action[:rank]]]` names one of `POINTS` and what happens there the nth time (default: the
first) that a process, of this rank or of any, comes by:

    kill    the process is killed (the default)             hang    it does nothing for ever
    term    it gets SIGTERM                                 full    its disk is full
    stop    it is suspended by SIGSTOP                      nan     its loss is not finite
    fail    it raises a RuntimeError                        oom     torch runs out of memory
    leave   it exits as if all were well

Some points pass a number of their own, which is compared in place of the count. `oom` happens wherever this number is
above n. Without the variable a point costs one look into the environment.
"""

import errno
import os
import signal
import time

from manyheads.distributed.ranks import this_process

VARIABLE = "MANYHEADS_FAULT"
POINTS = (  # in the order in which a run comes to them
    "step",  # between two optimiser steps
    "loss",  # of a micro-batch; its number is that of the optimiser step, from 1
    "memory",  # for a micro-batch; its number is that of the tokens
    "validation",  # during a validation
    "begin",  # of a save: nothing is written
    "within",  # a file is begun
    "between",  # one file is written, the next is not
    "manifest",  # all files are written, the manifest is not
    "rename",  # all is written under a temporary name
    "renamed",  # all is written under its final name
    "delete",  # the new one is verified, the old one is still there
    "deleting",  # the old one has lost its name and is half gone
    "chunk",  # of answers is written, the count of written rows is not
    "trained",  # the last step is done and saved, nothing is judged
)
FATAL = {"": signal.SIGKILL, "kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}
ACTIONS = (*FATAL, "fail", "leave", "hang", "full", "nan", "oom")
_counts: dict[str, int] = {}


def inject_fault(point: str, number: int | None = None) -> bool:
    """Do what the environment asks for at this point.

    Args:
        number: is compared with n, in place of the count of visits.

    Returns:
        Whether the caller is to make the loss NaN.
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
        _counts[wanted] = _counts.get(wanted, 0) + 1
        number = _counts[wanted]
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


def reset_counts() -> None:
    """Count visits from zero again."""
    _counts.clear()
