"""The processes of a run, started, signalled and ended together. Standard library only.

Each is in a session of its own. The one resolved config goes to it through a pipe that stays open: when it closes the
supervisor is gone, and the process leaves at once, so nothing outlives it (`launched.py`). A user's mistake comes back
through a second pipe and is said once.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

from manyheads.config.plain import to_plain
from manyheads.fit.again import EXIT_CODE as AGAIN
from manyheads.fit.alive import LOST, last_seen
from manyheads.fit.stop import OUT_OF_TIME, SIGNALS

PROGRAM = ("-m", "manyheads.launched")
GRACE = 10.0  # seconds in which the others leave by themselves once one has failed
MISTAKE = 2  # exit code of a user's mistake
TAIL = 30  # last lines shown of a process that failed
LOOK = 0.05  # seconds
ENDS_TOGETHER = (AGAIN, OUT_OF_TIME, *(128 + one for one in SIGNALS))  # exit codes that all processes agree on
QUIET = (*ENDS_TOGETHER, 141)  # of which nothing is said; 141: who read the output has gone


@dataclass(slots=True)
class _Child:
    """A process; `lines` is what it says, unless it is the first, `config` and `report` our ends of its pipes."""

    rank: int
    process: subprocess.Popen[bytes]
    lines: IO[bytes] | None
    config: int
    report: int

    @property
    def code(self) -> int | None:
        """None while it runs; below 0 where a signal ended it."""
        return self.process.poll()

    def send(self, number: int) -> None:
        """A signal for this process alone."""
        if self.code is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End it and whatever it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def mistake(self) -> str:
        """What it reports, once it has ended."""
        found = b""
        while part := os.read(self.report, 65536):
            found += part
        return found.decode()


class Crew:
    """The processes of one start; leaving the block ends those that are left."""

    def __init__(self, verb: str, config: Any, environments: Sequence[Mapping[str, str]], folder: Path | None) -> None:
        self.folder = folder
        self.asked: list[int] = []  # signals that came
        self.children: list[_Child] = []
        self._words = verb, json.dumps(to_plain(config)).encode() + b"\n"
        self._environments = environments
        self._undo = ExitStack()

    def __enter__(self) -> "Crew":
        self._undo.enter_context(_forwarded(self))
        try:
            for environment in self._environments:
                self.children.append(_start(*self._words, environment))
            for number in self.asked[:1]:  # it came while they were started
                for child in self.children:
                    child.send(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()
            child.process.wait()
            for end in (child.config, child.report):
                os.close(end)
            if child.lines:
                child.lines.close()
        self._undo.close()

    def wait(self, timeout: float) -> int:
        """Wait for all; once one has failed the others have a while to leave by themselves. Returns its exit code.

        Raises:
            ValueError: it was a user's mistake.
        """
        first, until = None, float("inf")
        while first is None or any(child.code is None for child in self.children):
            codes = [child.code for child in self.children]
            if first is None and any(codes):
                first = min((child for child in self.children if child.code), key=_blame)
                until = time.monotonic() + _grace(first, timeout)
            elif not any(code is None for code in codes):
                break
            if len(self.asked) > 1:
                return 128 + self.asked[-1]
            if time.monotonic() > until:
                break
            time.sleep(LOOK)
        if first is None:
            return 0
        return self._said(first)

    def _said(self, first: _Child) -> int:
        for child in self.children:
            child.kill()
            child.process.wait()
        code = first.code or 0
        for child in (first, *self.children):
            if sentence := child.mistake():
                raise ValueError(sentence)
        n_ranks = int(self._environments[0]["WORLD_SIZE"])
        where = last_seen(self.folder, first.rank, n_ranks) if self.folder else ""
        if code not in QUIET and not (code == LOST and first.rank == 0) and not (code < 0 and self.asked):
            print("\n".join(_failure(first, code, where)), file=sys.stderr)
        return code if code > 0 else 128 - code


def _grace(first: _Child, timeout: float) -> float:
    """Seconds in which the others may leave by themselves: rank 0 may be saving what all have agreed on. To begin again
    is for one to decide: the others may never hear of it."""
    if first.code == AGAIN:
        return GRACE
    return max(timeout, GRACE) if first.code in ENDS_TOGETHER else 2.0 if first.code == MISTAKE else GRACE


def _blame(child: _Child) -> tuple[bool, bool, int]:
    """Of those that ended at the same moment: first who was killed, last who only lost the others."""
    return (child.code or 0) > 0, child.code == LOST, child.rank


def _failure(child: _Child, code: int, where: str) -> list[str]:
    """What to say of a process that failed: where it was, and its last words."""
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
    if child.lines is None:
        return [f"rank {child.rank} {how}{where}"]
    child.lines.seek(0)
    lines = child.lines.read().decode(errors="replace").splitlines()[-TAIL:]
    return [f"rank {child.rank} {how}{where}{': its last lines' if lines else ''}", *lines]


@contextmanager
def _forwarded(crew: Crew) -> Iterator[None]:
    """A signal goes to all processes, the second one ends them. A notebook's threads cannot be signalled."""

    def note(number: int, frame: FrameType | None) -> None:
        crew.asked.append(number)
        for child in crew.children:
            child.send(number) if len(crew.asked) == 1 else child.kill()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.getsignal(one) for one in SIGNALS}
    for one in SIGNALS:
        if before[one] is not signal.SIG_IGN:
            signal.signal(one, note)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _start(verb: str, config: bytes, environment: Mapping[str, str]) -> _Child:
    read_config, write_config = os.pipe()
    read_report, write_report = os.pipe()
    lines = None if environment["LOCAL_RANK"] == "0" else tempfile.TemporaryFile()  # noqa: SIM115 - closed by the crew
    words = [sys.executable, "-P", *PROGRAM, verb, str(read_config), str(write_report)]
    process = subprocess.Popen(  # noqa: S603 - our own words
        words,
        env=environment,
        stdin=None if lines is None else subprocess.DEVNULL,
        stdout=lines,
        stderr=lines,
        pass_fds=(read_config, write_report),
        start_new_session=True,
    )
    os.close(read_config)
    os.close(write_report)
    with suppress(BrokenPipeError):  # it has ended already, which is noticed elsewhere
        while config:
            config = config[os.write(write_config, config) :]
    return _Child(int(environment["RANK"]), process, lines, write_config, read_report)
