"""One process for each device: how many, started, signalled and ended together. Standard library only.

torchrun and srun start a process for each device themselves; otherwise the process of the verb starts them and
supervises them (`Processes`), whether it was typed or called from Python.

Each is in a session of its own. The one resolved config goes to it through a pipe that stays open: when it closes the
supervisor is gone, and the process leaves at once (`cli/launched.py`), so nothing outlives it. A user's mistake comes
back through a second pipe and is said once.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO, Any

from manyheads.config import Accelerator, HardwareConfig, Resume, RunConfig
from manyheads.config.fields import to_plain
from manyheads.distributed.heartbeat import LOST, last_seen
from manyheads.distributed.ranks import this_process
from manyheads.distributed.signals import OUT_OF_TIME, SIGNALS
from manyheads.runs.checkpoints import EXIT_CODE as AGAIN
from manyheads.runs.folder import HANDED_ON

MOST_STARTS = 20
STARTS = "MANYHEADS_AGAIN"  # how often the processes were started before


def n_to_start(hardware: Any) -> int:
    """Processes to start on this machine; 0: this one does the work itself.

    Raises:
        ValueError: more than a CPU has cores for; of several machines each needs to know its number, and where the
            first is.
    """
    if this_process().started_by:
        return 0
    _refuse_crowd(hardware)
    nodes = getattr(hardware, "nodes", 1)
    n_local = hardware.devices or (1 if hardware.accelerator is Accelerator.cpu else _count_gpus())
    if nodes == 1:
        return n_local if n_local > 1 else 0
    missing = [name for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise ValueError(
            f"hardware.nodes={nodes} needs {', '.join(missing)} in the environment of each machine: set NODE_RANK=0, "
            "1, ... and the address and a free port of the first, or start it by torchrun or srun"
        )
    return n_local


def _refuse_crowd(hardware: Any) -> None:
    """Refuse more processes than a CPU has cores, which would import torch for minutes before the first says a word;
    where threads are given as well, somebody has thought of it."""
    n_processes, n_cores = hardware.devices, os.cpu_count() or 1
    n_usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else n_cores
    if n_processes <= max(1, n_usable) or hardware.accelerator is Accelerator.gpu:
        return
    if hardware.accelerator is Accelerator.auto and _has_gpu():
        return
    crowd = f"hardware.devices={n_processes} is {n_processes} processes on a CPU"
    if n_processes > n_cores and not hardware.threads:
        raise ValueError(
            f"{crowd} of {n_cores} cores, where more than {n_cores} only take turns: use hardware.devices={n_cores} at "
            "the most, or add hardware.threads=1 if it is meant"
        )
    print(f"{crowd}, which take turns on {n_usable} cores: {n_usable} would be as fast", file=sys.stderr, flush=True)


def _has_gpu() -> bool:
    from torch import cuda

    return cuda.is_available()


def settled_hardware(hardware: HardwareConfig) -> HardwareConfig:
    """`hardware` with as many devices and nodes as torchrun, srun or this module have started processes for.

    Raises:
        ValueError: another number of them is asked for.
    """
    return replace(hardware, **started(hardware))


def started(hardware: Any) -> dict[str, int]:
    """Devices and nodes that torchrun, srun or this module have started processes for, if anybody has.

    Raises:
        ValueError: another number of them is asked for.
    """
    ranks = this_process()
    if not ranks.started_by:
        return {}
    found = {"devices": ranks.n_local, "nodes": max(1, ranks.n_ranks // ranks.n_local)}
    for name, number in found.items():
        asked = getattr(hardware, name, 1)
        if asked not in (0, 1, number):
            raise ValueError(
                f"hardware.{name}={asked}, but {ranks.started_by} started processes for {number}: give the same "
                f"number to both, or remove hardware.{name}"
            )
    return found


def on_all(verb: str, config: Any, *, n_local: int, timeout: float, folder: Path | None = None) -> None:
    """Run a verb in `n_local` processes of this machine, and again where they ask for it, until all have ended well.

    Args:
        timeout: seconds given to the others where one has left in good order.
        folder: of the run, handed on to all.

    Raises:
        ValueError: one of them found a user's mistake.
        SystemExit: one of them failed or was told to stop; its exit code, 128 + the number of a signal.
    """
    for start in range(MOST_STARTS):
        environments = list(_environments(n_local, getattr(config.hardware, "nodes", 1), folder, start))
        with Processes(verb, config, environments, folder) as crew:
            code = crew.wait(timeout)
        if code == 0:
            return
        if code != AGAIN or start == MOST_STARTS - 1:
            raise SystemExit(code)
        if isinstance(config, RunConfig):
            config = replace(config, resume=Resume.auto)


def _environments(n_local: int, nodes: int, folder: Path | None, start: int) -> Iterator[dict[str, str]]:
    """The environment of each process of this machine."""
    shared = {name: value for name, value in os.environ.items() if name != "GROUP_RANK"}
    node = int(os.environ["NODE_RANK"]) if nodes > 1 else 0
    if nodes == 1:
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    shared |= {"WORLD_SIZE": str(n_local * nodes), "LOCAL_WORLD_SIZE": str(n_local), "NODE_RANK": str(node)}
    shared |= {STARTS: str(start), **({HANDED_ON: str(folder)} if folder else {})}
    for local in range(n_local):
        yield {**shared, "LOCAL_RANK": str(local), "RANK": str(node * n_local + local)}


def _count_gpus() -> int:
    from torch import cuda  # seconds, but nothing else knows

    return max(1, cuda.device_count())


def _free_port() -> int:
    """A port below those that outgoing connections take, since it stays free for seconds before it is used."""
    while True:
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


PROGRAM = ("-m", "manyheads.cli.launched")
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


class Processes:
    """The processes of one start; leaving the block ends those that are left."""

    def __init__(self, verb: str, config: Any, environments: Sequence[Mapping[str, str]], folder: Path | None) -> None:
        self.folder = folder
        self.asked: list[int] = []  # signals that came
        self.children: list[_Child] = []
        self._words = verb, json.dumps(to_plain(config)).encode() + b"\n"
        self._environments = environments
        self._undo = ExitStack()

    def __enter__(self) -> "Processes":
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
def _forwarded(crew: Processes) -> Iterator[None]:
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
