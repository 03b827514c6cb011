"""A server of its own process, on a free port of this machine."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path

import pytest


class Server:
    """`manyheads serve` as a user starts it; `log` is what it said."""

    def __init__(
        self, folder: Path, log: Path, *words: str, program: Sequence[str] = ("-m", "manyheads"), **environment: str
    ) -> None:
        self.log = log
        command = [sys.executable, *program, "serve", f"run={folder}", "port=0", *words]
        # the server's own environment: workers of several tests share two cores
        self.process = subprocess.Popen(
            command, stdout=log.open("wb"), stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
        end = time.monotonic() + 90
        while not (found := re.search(r":(\d+)/ \(", log.read_text())):
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        self.port = int(found[1])

    def ask(self, question=None, path="/predict", method="POST", **headers):
        """Status, headers and body; a question is sent as JSON."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = None if question is None else json.dumps(question)
        given = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, body, {**given, **headers})
        found = connection.getresponse()
        said = found.read().decode()
        connection.close()
        kind = found.headers["content-type"]
        return found.status, found.headers, json.loads(said) if kind == "application/json" else said

    def workers(self) -> list[int]:
        """The processes that hold the model."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout
        return [int(one) for one in found.split()]

    def end(self, number=signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """`serving(folder, *words, program=, **environment)` starts a server, which ends after the tests of the module."""
    started: list[Server] = []

    def start(folder, *words, **more) -> Server:
        started.append(Server(folder, tmp_path_factory.mktemp("server") / "log", *words, **more))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end()
