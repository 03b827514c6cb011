"""A heartbeat for each process of a run, and the end of the run where one of them is dead, stuck or gone.

A thread of each process writes `ranks/rank-N.json` once a second and reads the others'. Where another process is
silent, or this one makes no progress for `hardware.timeout` seconds, it logs which rank it was, at which step and in
which phase, and exits with code 69. It does not use torch, so it also notices a collective that waits for ever.
Standard library only.
"""

import json
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from manyheads.distributed.machine import is_alive
from manyheads.distributed.ranks import this_process
from manyheads.distributed.signals import Stopped
from manyheads.errors import RunEnded
from manyheads.runs.folder import RANKS
from manyheads.runs.restart import RestartRequested

LOST = 69  # EX_UNAVAILABLE of sysexits.h: another process is gone
BEAT_SECONDS = 1.0  # between two heartbeats
QUIET = 5.0  # seconds of silence after which a process is suspected, once one is known to be gone
_TRANSPORT = re.compile(r"gloo|nccl|c10d|TCPStore|Connection closed|Socket Timeout", re.IGNORECASE)
log = logging.getLogger("manyheads")


@dataclass(slots=True)
class Record:
    """What a process writes of itself.

    Attributes:
        marks: how many beats it has made: of several processes the one that is stuck has the fewest.
        ended: empty while it runs, then "done", "stopped" on request, "failed", or "lost" where it left because of
            another process.
        why: more on how it ended.
    """

    rank: int
    process: int
    machine: str
    phase: str = "starting"
    step: int = 0
    marks: int = 0
    ended: str = ""
    why: str = ""
    time: float = 0.0

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"at step {self.step} ({self.phase})"


class PeerLost(RunEnded):
    """Another process of the run is gone or stuck; `why` says which, and where it was."""

    def __init__(self, why: str) -> None:
        super().__init__(why, LOST)


_own: Record | None = None


@contextmanager
def monitor_peers(folder: Path, timeout: float) -> Iterator[None]:
    """Watch the other processes while the block lasts, and be watched by them; does nothing in a single process.

    Args:
        folder: `ranks/` of the run.

    Raises:
        PeerLost: the block failed because another process is gone.
    """
    global _own
    ranks = this_process()
    if ranks.n_ranks == 1:
        yield
        return
    _own = Record(ranks.rank, os.getpid(), socket.gethostname())
    watch = _Watch(_own, [folder / f"rank-{rank}.json" for rank in range(ranks.n_ranks)], timeout)
    watch.write()
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield
        _own.ended = "done"
    except (Stopped, RestartRequested) as asked:
        _own.ended, _own.why = "stopped", str(asked.exit_code)
        raise
    except BaseException as error:
        raise watch.explained(error) from error
    finally:
        watch.over.set()
        thread.join()
        watch.write()
        _own = None


def beat(step: int | None = None, phase: str | None = None) -> None:
    """Note progress of this process: all that a step costs where there are several."""
    if _own is None:
        return
    _own.marks += 1
    if step is not None:
        _own.step = step
    if phase:
        _own.phase = phase


@contextmanager
def phase(name: str) -> Iterator[None]:
    """The phase of this process while the block lasts."""
    before = _own.phase if _own is not None else ""
    beat(phase=name)
    yield
    beat(phase=before)


def last_seen(folder: Path, rank: int, n_ranks: int) -> str:
    """Where a process of `n_ranks` was, such as " at step 3 (training)"; empty where it has written nothing."""
    records = [_read_record(folder / RANKS / f"rank-{one}.json") for one in range(n_ranks)]
    record = records[rank]
    if record is None:
        return ""
    return f" {_place(record, [one for one in records if one])}"


def _place(record: Record, all_records: Iterable[Record]) -> str:
    """Where a process ended. It writes once a second, and steps may be shorter: it must have come as far as the others,
    which would have waited for it."""
    if record.ended:
        return record.place
    furthest = max(all_records, key=lambda one: one.marks)
    return furthest.place


class _Watch:
    """What one process knows of all: what their files hold, and when they were last seen to change."""

    def __init__(self, own: Record, files: Sequence[Path], timeout: float) -> None:
        self.own, self.files, self.timeout = own, files, timeout
        self.over = threading.Event()
        others = [rank for rank in range(len(files)) if rank != own.rank]
        # Of each other process: the last record read, perhaps of an earlier start; that of this start; when it changed.
        self._last = {rank: _read_record(files[rank]) for rank in others}
        self._seen: dict[int, Record] = {}
        self._changed = dict.fromkeys(others, time.monotonic())
        # When this process last made progress, and its beats then.
        self._moved, self._marks = time.monotonic(), own.marks

    def run(self) -> None:
        """Write and look, about once a second, until the block is over; exit where another process is lost."""
        while not self.over.wait(BEAT_SECONDS):
            self.write()
            self.look()
            if why := self.lost():
                self._log_loss(why)
                os._exit(LOST)

    def write(self) -> None:
        """Readers see the file whole. A disk that is full or away for a while is ignored."""
        self.own.time = time.time()
        file = self.files[self.own.rank]
        part = file.with_suffix(".part")
        with suppress(OSError):
            part.write_text(json.dumps(asdict(self.own)), encoding="utf-8")
            os.replace(part, file)

    def look(self) -> None:
        """Read the others' files. One that does not change was left by an earlier start."""
        now = time.monotonic()
        for rank, last in self._last.items():
            record = _read_record(self.files[rank])
            if record and record != last:
                self._last[rank] = self._seen[rank] = record
                self._changed[rank] = now
        if self.own.marks != self._marks:
            self._moved, self._marks = now, self.own.marks

    def lost(self) -> str:
        """Which process is dead, silent, gone too early, or stuck; empty while all is well."""
        if why := self._gone(self.timeout):
            return why
        if time.monotonic() - self._moved < self.timeout:
            return ""
        return self._slowest() or f"all processes are stuck {self.own.place} for {self.timeout:g} seconds"

    def explained(self, error: BaseException) -> BaseException:
        """`error`, or `PeerLost` where it only says that a connection broke: soon the others' files say why."""
        if not _is_of_connection(error):
            why = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            if isinstance(error, SystemExit):
                why = f"it left with exit code {error.code or 0}"
            self.own.why, self.own.ended = why, "failed"  # in this order: the thread may write in between
            return error
        self.over.set()  # the thread stops, and this one looks
        until = time.monotonic() + 2 * QUIET
        why = self._gone(QUIET)
        while not why and time.monotonic() < until:
            for record in self._seen.values():
                if record.ended == "stopped":  # it ended as all agreed: so does this one
                    self.own.ended, self.own.why = "stopped", record.why
                    return RunEnded(f"another process ended with exit code {record.why}", int(record.why))
            time.sleep(BEAT_SECONDS / 10)
            self.write()
            self.look()
            why = self._gone(QUIET)
        why = why or self._slowest() or f"another process broke the connection {self.own.place}"
        self._log_loss(why)
        return PeerLost(why)

    def _log_loss(self, why: str) -> None:
        self.own.ended, self.own.why = "lost", why
        self.write()
        log.error("%s: the run ends, and resume=auto resumes it from its newest checkpoint", why)
        if self.own.rank:  # not the first, whose log reaches the screen
            print(why, file=sys.stderr, flush=True)

    def _gone(self, quiet: float) -> str:
        """A process that died or failed; else one that was silent for `quiet` seconds; else one that left because of
        another."""
        left, silent = "", ""
        for rank, since in self._changed.items():
            record, silence = self._seen.get(rank), time.monotonic() - since
            is_dead = record and record.machine == self.own.machine and not is_alive(record.process)
            if is_dead:
                record = _read_record(self.files[rank]) or record  # since it was read, the process may have ended well
            if record is None:
                if silence > quiet and not silent:
                    silent = f"rank {rank} has not begun within {silence:.0f} seconds"
            elif record.ended in ("done", "stopped"):
                continue
            elif record.ended == "lost":
                left = record.why
            elif record.ended:
                return f"rank {rank} failed {record.place}: {record.why}"
            elif is_dead:
                return f"rank {rank} died {_place(record, (record, self.own))}"
            elif silence > quiet:
                place = _place(record, (record, self.own))
                silent = f"rank {rank} stopped answering {place}, {silence:.0f} seconds ago"
        return silent or left

    def _slowest(self) -> str:
        """The process with the fewest beats, which the others wait for; empty where all have as many."""
        running = [self.own, *(record for record in self._seen.values() if not record.ended)]
        least = min(running, key=lambda record: record.marks)
        if all(record.marks == least.marks for record in running):
            return ""
        return f"rank {least.rank} got no further {least.place} for {self.timeout:g} seconds"


def _is_of_connection(error: BaseException) -> bool:
    """Whether the error only says that a connection to another process broke."""
    if not isinstance(error, RuntimeError):
        return False
    names = [kind.__name__ for kind in type(error).__mro__]
    return "DistError" in names or _TRANSPORT.search(str(error)) is not None


def _read_record(file: Path) -> Record | None:
    try:
        return Record(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
