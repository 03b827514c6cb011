"""One process for each device: how many, started, signalled and ended together. Standard library only.

torchrun and srun start a process for each device themselves; otherwise the process of the verb starts them and
supervises them (`Processes`), whether it was typed or called from Python.

Each is in a session of its own. The one resolved config goes to it through a pipe that stays open: when it closes the
supervisor is gone, and the process leaves at once (`die_with_parent`), so nothing outlives it. A user's mistake comes
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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO, Any, TypeVar

from manyheads.config import Accelerator, HardwareConfig, InferenceHardware, Resume, RunConfig
from manyheads.config.conversion import to_plain
from manyheads.distributed.heartbeat import LOST, last_seen
from manyheads.distributed.machine import n_cores
from manyheads.distributed.ranks import this_process
from manyheads.distributed.signals import OUT_OF_TIME, SIGNALS, handled_by
from manyheads.errors import RunEnded, UserError
from manyheads.runs.folder import OUTPUT_VARIABLE
from manyheads.runs.restart import EXIT_CODE as AGAIN

MOST_STARTS = 20
PROGRAM = ("-m", "manyheads.cli.main")
GRACE = 10.0  # seconds in which the others leave by themselves once one has failed
MISTAKE = 2  # exit code of a user's mistake
TAIL = 30  # last lines shown of a process that failed
LOOK = 0.05  # seconds
ENDS_TOGETHER = (AGAIN, OUT_OF_TIME, *(128 + one for one in SIGNALS))  # exit codes that all processes agree on
QUIET = (*ENDS_TOGETHER, 141)  # of which nothing is said; 141: who read the output has gone
Hardware = TypeVar("Hardware", bound=HardwareConfig | InferenceHardware)


def n_to_start(hardware: HardwareConfig | InferenceHardware) -> int:
    """Processes to start on this machine; 0: this one does the work itself.

    Raises:
        UserError: there would be more processes than the CPU has cores, which import torch for minutes before the first
            log line (with hardware.threads they are taken to be intended); one of several machines does not know its
            number or the address of the first; or torchrun or srun has started another number.
    """
    if this_process().started_by:
        validate_world_size(hardware)
        return 0
    n_local, n_usable = hardware.devices, n_cores()
    is_cpu = hardware.accelerator is Accelerator.cpu
    if n_local > n_usable and (is_cpu or (hardware.accelerator is Accelerator.auto and not _n_gpus())):
        n_all = os.cpu_count() or 1
        crowd = f"hardware.devices={n_local} is {n_local} processes on a CPU"
        if n_local > n_all and not hardware.threads:
            raise UserError(
                f"{crowd} of {n_all} cores, where more than {n_all} only take turns: use "
                f"hardware.devices={n_all} at the most, or add hardware.threads=1 if that is intended"
            )
        print(
            f"{crowd}, which take turns on {n_usable} cores: {n_usable} would be as fast", file=sys.stderr, flush=True
        )
    if n_local == 0:
        n_local = 1 if is_cpu else max(1, _n_gpus())
    nodes = getattr(hardware, "nodes", 1)
    if nodes == 1 and n_local == 1:
        return 0
    if nodes == 1:
        return n_local
    missing = [name for name in ("NODE_RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise UserError(
            f"hardware.nodes={nodes} needs {', '.join(missing)} in the environment of each machine: set NODE_RANK=0, "
            "1, ... and the address and a free port of the first, or start it by torchrun or srun"
        )
    return n_local


def _n_gpus() -> int:
    from torch import cuda  # seconds, but nothing else knows

    return cuda.device_count()


def validate_world_size(hardware: Hardware) -> Hardware:
    """`hardware` with the devices and nodes that torchrun, srun or this module have started processes for.

    Raises:
        UserError: other numbers were set.
    """
    ranks = this_process()
    if not ranks.started_by:
        return hardware
    found = {"devices": ranks.n_local, "nodes": max(1, ranks.n_ranks // ranks.n_local)}
    for name, number in found.items():
        asked = getattr(hardware, name, 1)  # verbs that answer texts have no setting hardware.nodes
        if asked not in (0, 1, number):
            raise UserError(
                f"hardware.{name}={asked}, but {ranks.started_by} started processes for {number}: give the same "
                f"number to both, or remove hardware.{name}"
            )
        if hasattr(hardware, name):
            hardware = replace(hardware, **{name: number})
    return hardware


def run_on_all_ranks(verb: str, config: Any, *, n_local: int, timeout: float, folder: Path | None = None) -> None:
    """Run a verb in `n_local` processes of this machine, and again where they request it, until all have succeeded.

    Args:
        timeout: seconds that the others have to end after one has ended on request.
        folder: of the run, passed on to all.

    Raises:
        UserError: one of them found a user's mistake.
        RunEnded: one of them failed or was asked to stop; with its exit code, 128 + the number of a signal.
    """
    for start in range(MOST_STARTS):
        environments = list(_environments(n_local, getattr(config.hardware, "nodes", 1), folder))
        with Processes(verb, config, environments, folder) as processes:
            code = processes.wait(timeout)
        if code == 0:
            return
        if code != AGAIN or start == MOST_STARTS - 1:
            raise RunEnded(f"a process ended with exit code {code}", code)
        if isinstance(config, RunConfig):
            config = replace(config, resume=Resume.auto)


def _environments(n_local: int, nodes: int, folder: Path | None) -> Iterator[dict[str, str]]:
    """The environment of each process of this machine."""
    shared = dict(os.environ)
    shared.pop("GROUP_RANK", None)  # of torchrun, which would be taken for the number of this machine
    node = 0
    if nodes == 1:
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    else:
        node = int(os.environ["NODE_RANK"])
    shared |= {"WORLD_SIZE": str(n_local * nodes), "LOCAL_WORLD_SIZE": str(n_local), "NODE_RANK": str(node)}
    if folder:
        shared[OUTPUT_VARIABLE] = str(folder)
    for local in range(n_local):
        yield {**shared, "LOCAL_RANK": str(local), "RANK": str(node * n_local + local)}


def _free_port() -> int:
    """A port below the range of outgoing connections, since it has to stay free for seconds before it is used."""
    while True:
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass(slots=True)
class _Child:
    """A started process; `config` and `report` are our ends of its pipes, `lines` its output, None of the first."""

    rank: int
    process: subprocess.Popen[bytes]
    config: IO[bytes]
    report: IO[bytes]
    lines: IO[bytes] | None

    @property
    def code(self) -> int | None:
        """None while it runs; below 0 where a signal ended it."""
        return self.process.poll()

    def kill(self) -> None:
        """Kill it and whatever it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Processes:
    """The processes of one start; leaving the block kills those that still run. The first signal is passed on to all,
    the second one kills them.

    torch's elastic launcher and `torch.multiprocessing.start_processes` kill the others within 30 seconds after one has
    ended, without waiting for the save that all agreed on, and leave them running where they are killed themselves.
    """

    def __init__(self, verb: str, config: Any, environments: Sequence[Mapping[str, str]], folder: Path | None) -> None:
        self.folder = folder
        self.signals: list[int] = []  # that this process got, and passed on
        self.children: list[_Child] = []
        self._verb, self._config = verb, json.dumps(to_plain(config)).encode() + b"\n"
        self._environments = environments
        self._undo = ExitStack()

    def __enter__(self) -> "Processes":
        self._undo.enter_context(handled_by(self._pass_on))
        try:
            for environment in self._environments:
                self.children.append(_start(self._verb, self._config, environment))
            for number in self.signals[:1]:  # it came while they were started
                for child in self.children:
                    child.process.send_signal(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()
            child.process.wait()
            for end in (child.config, child.report, child.lines):
                if end:
                    end.close()
        self._undo.close()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)
        for child in self.children:
            if len(self.signals) == 1:
                child.process.send_signal(number)
            else:
                child.kill()

    def wait(self, timeout: float) -> int:
        """Wait for all; once one has failed the others have a while to end by themselves.

        Returns:
            The exit code of the one that failed; 0: none has.

        Raises:
            UserError: it ended with a user's mistake.
        """
        failed, until = None, float("inf")
        while True:
            is_running = any(child.code is None for child in self.children)
            if failed is None:
                failed = self._failed()
                if failed is not None:
                    until = time.monotonic() + _grace(failed.code or 0, timeout)
            if failed is None and not is_running:
                return 0
            if len(self.signals) > 1:  # all have been killed
                return 128 + self.signals[-1]
            if failed is not None and (not is_running or time.monotonic() > until):
                break
            time.sleep(LOOK)
        for child in self.children:
            child.kill()
            child.process.wait()
        for child in (failed, *self.children):
            if sentence := child.report.read().decode().removesuffix("\n"):
                raise UserError(sentence)
        code = failed.code or 0
        self._say(failed, code)
        if code < 0:
            return 128 - code
        return code

    def _failed(self) -> _Child | None:
        """The process whose failure is reported, of those that have failed: one that a signal ended comes first, and
        one that only lost another comes last. None while none has failed."""
        failed = [child for child in self.children if child.code]
        if not failed:
            return None
        return min(failed, key=lambda child: ((child.code or 0) > 0, child.code == LOST, child.rank))

    def _say(self, first: _Child, code: int) -> None:
        """Print where a failed process was, and its last output, unless it has said it itself."""
        has_said = code in QUIET or (code == LOST and first.lines is None)
        if has_said or (code < 0 and self.signals):
            return
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
        where, lines = "", []
        if self.folder:
            where = last_seen(self.folder, first.rank, int(self._environments[0]["WORLD_SIZE"]))
        if first.lines:
            first.lines.seek(0)
            lines = first.lines.read().decode(errors="replace").splitlines()[-TAIL:]
        head = f"rank {first.rank} {how}{where}"
        if lines:
            head += ": its last lines"
        print("\n".join([head, *lines]), file=sys.stderr)


def _grace(code: int, timeout: float) -> float:
    """Seconds that the others have to end by themselves after one has ended with `code`: rank 0 may be saving what all
    have agreed on. A restart is decided by one process, and the others may never hear of it."""
    if code in ENDS_TOGETHER and code != AGAIN:
        return max(timeout, GRACE)
    if code == MISTAKE:  # all come to the same one at the same time
        return 2.0
    return GRACE


def _start(verb: str, config: bytes, environment: Mapping[str, str]) -> _Child:
    """Start a process and write its settings to it. The first one of a machine writes to the screen, the others to
    files."""
    read_config, write_config = os.pipe()
    read_report, write_report = os.pipe()
    lines = None if environment["LOCAL_RANK"] == "0" else tempfile.TemporaryFile()  # noqa: SIM115 - `Processes` closes it
    process = subprocess.Popen(  # noqa: S603 - our own words
        [sys.executable, "-P", *PROGRAM, verb, str(read_config), str(write_report)],
        env=environment,
        stdin=None if lines is None else subprocess.DEVNULL,
        stdout=lines,
        stderr=lines,
        pass_fds=(read_config, write_report),
        start_new_session=True,
    )
    os.close(read_config)
    os.close(write_report)
    child = _Child(
        rank=int(environment["RANK"]),
        process=process,
        config=os.fdopen(write_config, "wb", 0),
        report=os.fdopen(read_report, "rb"),
        lines=lines,
    )
    with suppress(BrokenPipeError):  # it has ended already, which is noticed elsewhere
        while config:  # a pipe may take a part at a time
            config = config[child.config.write(config) :]
    return child
