"""Faults on purpose, so that tests can see what a run survives. Standard library only.

`MANYHEADS_FAULT=point`, `point:nth` or `point:nth:action`: when the process comes to that point for the nth time (the
first unless told) it is killed at once (`kill`), told to end (`term`), or finds the disk full (`full`). Without the
variable a point costs one look into the environment.
"""

import errno
import os
import signal

VARIABLE = "MANYHEADS_FAULT"
POINTS = (  # in the order in which a run comes to them
    "step",  # between two optimiser steps
    "validation",  # in the midst of one
    "begin",  # of a save: nothing is written
    "within",  # a file is begun
    "between",  # one file is written, the next is not
    "manifest",  # all files are written, the manifest is not
    "rename",  # all is written under a passing name
    "renamed",  # all is written under its final name
    "delete",  # the new one is verified, the old one is still there
    "deleting",  # the old one has lost its name and is half gone
    "trained",  # the last step is done and saved, nothing is judged
)
ACTIONS = ("kill", "term", "full")
_passed: dict[str, int] = {}


def fault(point: str) -> None:
    """Do here what the environment says, if it names this point.

    Raises:
        OSError: the disk is said to be full.
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    name, _, rest = wanted.partition(":")
    nth, _, action = rest.partition(":")
    assert name in POINTS, f"{VARIABLE}={wanted}: there is no such point"
    assert action in ("", *ACTIONS), f"{VARIABLE}={wanted}: there is no such action"
    if name != point:
        return
    _passed[wanted] = _passed.get(wanted, 0) + 1
    if _passed[wanted] != int(nth or 1):
        return
    if action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.kill(os.getpid(), signal.SIGTERM if action == "term" else signal.SIGKILL)


def forget() -> None:
    """Count the points from the start again."""
    _passed.clear()
