"""Processes forked where all is imported, without a launcher: seconds less for each than to start it anew."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest


class Server:
    """See fork_server.py."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("fork_server.py"))]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )

    def ask(self, *question: Any) -> list[Any]:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="session")
def forks() -> Iterator[Server]:
    found = Server()
    with found.process:
        yield found
        assert found.process.stdin
        found.process.stdin.close()


class Forked:
    """What `subprocess.Popen` gives for `python -P -m MODULE WORDS`: a session of its own that reads settings from a
    pipe and writes to a file, `folder` being its own."""

    def __init__(
        self, server: Server, folder: Path, command: tuple[str, ...], stdout: Any, env: dict[str, str]
    ) -> None:
        folder.mkdir()
        (folder / "out-0").symlink_to(stdout.name)
        os.mkfifo(folder / "in-0")
        self.stdin = open(os.open(folder / "in-0", os.O_RDWR), "wb")  # noqa: SIM115 - as Popen; it waits for no reader
        self._server, self.returncode = server, None
        (self.pid,) = server.ask("start", str(folder), [env], [one for one in command[1:] if one != "-P"])

    def poll(self) -> int | None:
        if self.returncode is None:
            (self.returncode,) = self._server.ask("poll", [self.pid])
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("fork", timeout)
            time.sleep(0.01)
        return code

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, 15)
