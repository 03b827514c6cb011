"""One process for each device, where several are asked for and nobody has started them. Standard library only.

torchrun and srun start a process for each device themselves; otherwise the process of the verb starts them and
supervises them (`supervise.py`), whether it was typed or called from Python.
"""

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.config import Accelerator, HardwareConfig, Resume, RunConfig
from manyheads.fit.again import EXIT_CODE as AGAIN
from manyheads.ranks import this_process
from manyheads.runfolder import HANDED_ON
from manyheads.supervise import Crew

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


def settled(hardware: HardwareConfig) -> HardwareConfig:
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
                f"number to both, or leave hardware.{name} away"
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
        with Crew(verb, config, environments, folder) as crew:
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
