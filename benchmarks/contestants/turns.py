"""The clock of a contestant, which trains for one turn at a time and sleeps between turns."""

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

LEAST_STEPS = 2  # of a turn, however slow a step


class Turns:
    """Told of every training step, it ends the turn when its seconds are over, says what was done in it, and waits.

    So all that belongs to a step counts: loader, loss, clip, optimiser, logging. While it waits the process blocks in
    the middle of its loop, whoever owns that loop, and its threads sleep. The first turn begins after the first step.
    """

    def __init__(self, driver: Connection) -> None:
        self._driver = driver
        self._length: float | None = None

    def step(self, tokens: int, cells: int, rows: int) -> None:
        """A step has ended that trained on `tokens` real tokens, [CLS] and [SEP] among them, in a grid of `cells`."""
        if self._length is None:
            return self._wait()
        for name, count in (("tokens", tokens), ("cells", cells), ("rows", rows), ("steps", 1)):
            self._counts[name] += count
        seconds = perf_counter() - self._since
        if seconds < self._length or self._counts["steps"] < LEAST_STEPS:
            return
        self._driver.send({**self._counts, "seconds": round(seconds, 4), "peak_memory_mib": peak_memory_mib()})
        self._wait()

    def _wait(self) -> None:
        """Until the driver says how many seconds the next turn has, or that there is none."""
        self._length = next_turn(self._driver)
        self._counts = {"tokens": 0, "cells": 0, "rows": 0, "steps": 0}
        self._since = perf_counter()


def next_turn(driver: Connection) -> float:
    """Wait for the driver; returns the seconds of the next turn, or ends the process where there is none."""
    try:
        seconds = driver.recv()
    except EOFError:  # the driver was stopped
        seconds = None
    if seconds is None:
        sys.stdout.flush()
        os._exit(0)  # out of the midst of a Trainer's loop, which would only tidy up
    return seconds


def peak_memory_mib() -> int | None:
    """The most memory this process ever held, libraries included, as Linux counts it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return found[0] // 1024 if found else None
