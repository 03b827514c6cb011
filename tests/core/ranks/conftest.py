"""Runs of several processes, forked where all is imported, without a launcher: as torchrun and srun start them."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from manyheads.runs.warm import Warm, WarmProcess
from tests.conftest import ONE_THREAD, free_port

PATIENCE = 300.0  # seconds
ENVIRONMENT = os.environ | ONE_THREAD  # before a test has changed it


@dataclass
class Crew:
    """The processes of one start, in the order of their ranks."""

    folder: Path
    processes: list[WarmProcess]

    def send(self, number: int, *ranks: int) -> None:
        """A signal to these ranks, or to all."""
        for rank in ranks or range(len(self.processes)):
            os.kill(self.processes[rank].pid, number)

    def codes(self) -> list[int]:
        """Wait for all, and kill those that do not end: -9 among these is a failure that says nothing."""
        late = threading.Timer(PATIENCE, self.end)
        late.start()
        codes = [process.wait() for process in self.processes]
        late.cancel()
        self.processes = []
        return codes

    def rows(self) -> list[tuple[int, int, list[int]]]:
        """The step, the epoch and the rows of each batch that its processes trained on."""
        files = sorted(self.folder.glob("rows-*"))
        return [tuple(json.loads(line)) for file in files for line in file.read_text().splitlines()]

    def said(self, rank: int) -> str:
        """Its output so far."""
        return (self.folder / f"out-{rank}").read_text(errors="replace")

    def end(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def start(forks, tmp_path) -> Iterator[Callable[..., Crew]]:
    """`start(words, n=2, **environment)`: in `n` processes, all of which end with the test."""
    with starting(forks, tmp_path) as begin:
        yield begin


@pytest.fixture
def two(request: pytest.FixtureRequest, start: Callable[..., Crew], tmp_path: Path) -> Callable[[str], Path]:
    """`two(job)` lets two processes do the job of that name, by the `main` of the test's file, and gives the folder
    with what came of it."""

    def run(job: str) -> Path:
        crew = start([request.path, job, tmp_path])
        assert crew.codes() == [0, 0], f"{crew.said(0)}\n{crew.said(1)}"
        return tmp_path

    return run


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By the number of processes the folder for what comes of them."""
    return {n: tmp_path_factory.mktemp(f"ranks-{n}") for n in (1, 2, 3)}


@contextmanager
def starting(server: Warm, home: Path) -> Iterator[Callable[..., Crew]]:
    crews: list[Crew] = []

    def begin(words: Sequence[str], n: int = 2, **environment: str) -> Crew:
        folder = home / f"said-{len(crews)}"
        folder.mkdir()
        shared = {"MANYHEADS_CACHE": str(home / "cache"), **environment}
        if n > 1:
            shared |= {"WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n), "NODE_RANK": "0"}
            shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        crews.append(Crew(folder, []))
        for rank in range(n):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if n > 1 else {}
            with open(os.devnull, "rb") as nothing, (folder / f"out-{rank}").open("ab") as said:
                process = server.start(
                    ["rank", str(folder), *map(str, words)],
                    nothing.fileno(),
                    said.fileno(),
                    ENVIRONMENT | shared | place,
                )
            crews[-1].processes.append(process)
        return crews[-1]

    yield begin
    for crew in crews:
        if crew.processes:
            crew.end()
            crew.codes()
