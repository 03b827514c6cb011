"""One process a contestant, of which one trains while the others sleep."""

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from contestants.process import BEST, SEARCH, take_part

SECONDS, WARM_UP = 3.0, 4.0  # of a turn, and of the first one, which does not count
PATIENCE = 600  # seconds after which a contestant that says nothing is given up
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # unset, so that each has all cores


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Variables of the processes that are started within; None: it is unset."""
    before = dict(os.environ)
    for name, value in changes.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Contestant:
    """A process in which `part` trains when told to. One that fails says so and gets no more turns."""

    def __init__(self, name: str, setting: str, folder: Path, part: Callable[..., None] = take_part) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.name = name
        self._driver, theirs = spawn.Pipe()
        self._process = spawn.Process(target=part, args=(name, setting, folder, theirs), daemon=True)
        with environment(dict.fromkeys(THREADS)):
            self._process.start()
        theirs.close()
        self.threads: int | None = None
        self.failed = False

    def start(self) -> None:
        """Wait until it has started."""
        self.threads = self._hear()

    def warm_up(self) -> None:
        """Let it train for a while that does not count, once it has started."""
        self.start()
        self.turn(WARM_UP)

    def turn(self, seconds: float = SECONDS) -> Any:
        """Let it train; returns what it did, or nothing once it has failed."""
        return None if self.failed else self._hear(seconds)

    def _hear(self, order: float | None = None) -> Any:
        """What it says, after an order or unasked."""
        try:
            if order:
                self._driver.send(order)
            if self._driver.poll(PATIENCE):
                return self._driver.recv()
        except (EOFError, OSError):  # it has ended
            pass
        print(f"contestant {self.name} has failed: its error, if it had the time for one, stands above", flush=True)
        self._process.kill()
        self.failed = True

    def __enter__(self) -> "Contestant":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.is_alive():
            self._driver.close()  # which ends it: see `turns`
            self._process.join(5)
        self._process.kill()
        self._process.join()


def searched(setting: str, folder: Path, seconds: float, part: Callable[..., None] = take_part) -> list[dict[str, Any]]:
    """The Trainer's settings that were tried, with nothing else running, the fastest first."""
    with Contestant(SEARCH, setting, folder, part) as contestant:
        contestant.start()
        found = contestant.turn(seconds)
    if not found:
        sys.exit(f"{setting}: the search for the Trainer's fastest settings has failed")
    return found


def take(found: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The fastest of them, written for its contestant."""
    fastest = {name: value for name, value in found[0].items() if name != "tokens_per_s"}
    (folder / BEST).write_text(json.dumps(fastest))
    return fastest
