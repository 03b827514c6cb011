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
    if _own is not None:
        _own.marks += 1
        _own.step = _own.step if step is None else step
        _own.phase = phase or _own.phase


@contextmanager
def phase(name: str) -> Iterator[None]:
    """The phase of this process while the block lasts."""
    before = _own.phase if _own is not None else ""
    beat(phase=name)
    yield
    beat(phase=before)


def last_seen(folder: Path, rank: int, n_ranks: int) -> str:
    """Where a process of `n_ranks` was, such as " at step 3 (training)"; empty where it has written nothing."""
    found = [_read_record(folder / RANKS / f"rank-{one}.json") for one in range(n_ranks)]
    record = found[rank]
    return f" {_place(record, found)}" if record else ""


def _place(record: Record, all_records: Iterable[Record | None]) -> str:
    """Where a process ended. It writes once a second, and steps may be shorter: it must have come as far as the others,
    which would have waited for it."""
    if record.ended:
        return record.place
    return max((one for one in all_records if one), key=lambda one: one.marks).place


class _Watch:
    """What one process knows of all: what their files hold, and when they were last seen to change."""

    def __init__(self, own: Record, files: Sequence[Path], timeout: float) -> None:
        self.own, self.files, self.timeout = own, files, timeout
        self.over = threading.Event()
        others = [rank for rank in range(len(files)) if rank != own.rank]
        self._last = {rank: _read_record(files[rank]) for rank in others}  # of an earlier start, maybe
        self._seen: dict[int, Record] = {}
        self._changed = dict.fromkeys(others, time.monotonic())
        self._moved = time.monotonic(), own.marks

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
        if self.own.marks != self._moved[1]:
            self._moved = now, self.own.marks

    def lost(self) -> str:
        """Which process is dead, silent, gone too early, or stuck; empty while all is well."""
        if why := self._gone(self.timeout):
            return why
        if time.monotonic() - self._moved[0] < self.timeout:
            return ""
        return self._behind() or f"all processes are stuck {self.own.place} for {self.timeout:g} seconds"

    def explained(self, error: BaseException) -> BaseException:
        """`error`, or `PeerLost` where it only says that a connection broke: soon the others' files say why."""
        names = {one.__name__ for one in type(error).__mro__}
        if not isinstance(error, RuntimeError) or not ("DistError" in names or _TRANSPORT.search(str(error))):
            said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            if isinstance(error, SystemExit):
                said = f"it left with exit code {0 if error.code is None else error.code}"
            self.own.ended, self.own.why = "failed", said
            return error
        self.over.set()  # the thread stops, and this one looks
        until = time.monotonic() + 2 * QUIET
        while not (why := self._gone(QUIET)) and time.monotonic() < until:
            if code := next((int(one.why) for one in self._seen.values() if one.ended == "stopped"), 0):
                self.own.ended, self.own.why = "stopped", str(code)
                return RunEnded(f"another process ended with exit code {code}", code)
            time.sleep(BEAT_SECONDS / 10)
            self.write()
            self.look()
        why = why or self._behind() or f"another process broke the connection {self.own.place}"
        self._log_loss(why)
        return PeerLost(why)

    def _log_loss(self, why: str) -> None:
        self.own.ended, self.own.why = "lost", why
        self.write()
        log.error("%s: the run ends, and resume=auto resumes it from its newest checkpoint", why)
        if self.own.rank:  # its log does not reach the screen
            print(why, file=sys.stderr, flush=True)

    def _gone(self, quiet: float) -> str:
        """A process that died or failed; else one that was silent for `quiet` seconds; else one that left because of
        another."""
        left, silent = "", ""
        for rank, since in self._changed.items():
            record, silence = self._seen.get(rank), time.monotonic() - since
            if record is None:
                silent = silent or (f"rank {rank} has not begun within {silence:.0f} seconds" * (silence > quiet))
            elif record.ended in ("done", "stopped"):
                continue
            elif record.ended == "lost":
                left = record.why
            elif record.ended:
                return f"rank {rank} failed {record.place}: {record.why}"
            elif record.machine == self.own.machine and not _is_alive(record.process):
                return f"rank {rank} died {_place(record, (record, self.own))}"
            elif silence > quiet:
                place = _place(record, (record, self.own))
                silent = f"rank {rank} stopped answering {place}, {silence:.0f} seconds ago"
        return silent or left

    def _behind(self) -> str:
        """The process with the fewest beats, which the others wait for."""
        going = [self.own, *(one for one in self._seen.values() if not one.ended)]
        least = min(going, key=lambda one: one.marks)
        if all(one.marks == least.marks for one in going):
            return ""
        return f"rank {least.rank} got no further {least.place} for {self.timeout:g} seconds"


def _is_alive(process: int) -> bool:
    """Whether a process of this machine lives; one that is dead and not yet waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return not Path("/proc/self/stat").exists()
    except (OSError, IndexError):
        return True
    return state not in "ZX"


def _read_record(file: Path) -> Record | None:
    try:
        return Record(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
